"""Validation rules of custom resources: what is refused at creation, what fails at a write, and in which words."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from services.twin.custom.expressions import MISSING
from services.twin.custom.rules import compile_rules, definition_errors, rule_errors
from services.twin.custom.schema import well_formed

Json = dict[str, Any]

FIELDS: Json = {
    "a": {"type": "integer"},
    "b": {"type": "integer"},
    "s": {"type": "string"},
    "name": {"type": "string", "maxLength": 63},
    "mode": {"type": "string"},
    "share": {"type": "number"},
    "namespace": {"type": "string"},
    "with-dash": {"type": "string"},
    "items": {"type": "array", "items": {"type": "integer"}},
    "few": {"type": "array", "maxItems": 8, "items": {"type": "string", "maxLength": 63}},
    "parts": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}},
    },
}


def schema(*rules: str | Json, **fields: Any) -> Json:
    """An object of ``FIELDS`` with these rules."""
    entries = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    return well_formed({"type": "object", "properties": {**FIELDS, **fields}, "x-kubernetes-validations": entries})


def said(made: Json, value: Any, old: Any = None) -> list[str]:
    """What the rules of a schema say to a value."""
    assert definition_errors(made, "schema") == []
    checks = compile_rules(made)
    assert checks is not None
    return [f"{error.field}: {error.message}" for error in rule_errors(checks, value, old)]


def refused(*rules: str | Json, **fields: Any) -> list[str]:
    """Why a definition with these rules is refused."""
    return [f"{one.field}: {one.message}" for one in definition_errors(schema(*rules, **fields), "schema")]


@pytest.mark.parametrize(
    ("rule", "value", "holds"),
    [
        ("!has(self.a) || self.a >= self.b", {"b": 2}, True),
        ("!has(self.a) || self.a >= self.b", {"a": 1, "b": 2}, False),
        ("self.a + 1 == 3 && self.s.startsWith('x')", {"a": 2, "s": "xy"}, True),
        ("self.items.all(i, i > 0)", {"items": [1, 2]}, True),
        ("self.items.exists(i, i == 3)", {"items": [1, 2]}, False),
        ("size(self.items) <= 2 ? true : false", {"items": [1, 2]}, True),
        ("self.mode in ['A', 'B']", {"mode": "C"}, False),
        ("self.s.matches('^[a-z]+$')", {"s": "abc"}, True),
        ("self.items.filter(i, i % 2 == 0).size() == 1", {"items": [1, 2]}, True),
        ("-self.a == -2", {"a": 2}, True),
        ("self.a / 2 == -1 && self.a % 2 == -1", {"a": -3}, True),
        ("self.b > 1 || self.a == 1", {"a": 1}, True),
        ("self.share + 0.5 == 1.5", {"share": 1}, True),
        ("self.__namespace__ == 'x' && self.with__dash__dash == 'y'", {"namespace": "x", "with-dash": "y"}, True),
        ("self.s.split(',').size() == 2 && self.s.lowerAscii() == 'a,b'", {"s": "A,B"}, True),
        ("self.parts.map(p, p.n).exists(n, n == 2)", {"parts": [{"name": "x", "n": 2}]}, True),
    ],
)
def test_rules_hold_or_not(rule: str, value: Json, holds: bool) -> None:
    assert said(schema(rule), value) == ([] if holds else [f"<nil>: Invalid value: failed rule: {rule}"])


@pytest.mark.parametrize(
    ("rule", "detail"),
    [
        ("self.", "compilation failed: ERROR: <input>:1:6: Syntax error: no viable alternative at input '.'"),
        ("self.a ==", "compilation failed: ERROR: <input>:1:10: Syntax error: mismatched input '<EOF>'"),
        ("frob(self)", "compilation failed: ERROR: <input>:1:5: undeclared reference to 'frob' (in container '')\n"),
        ("(self.a", "compilation failed: ERROR: <input>:1:8: Syntax error: missing ')' at '<EOF>'"),
        ("'a' > 1", "compilation failed: ERROR: <input>:1:5: found no matching overload for '_>_' applied to"),
        ("size(self.items)", "cel expression must evaluate to a bool"),
    ],
)
def test_a_rule_that_does_not_compile_is_refused_with_its_definition(rule: str, detail: str) -> None:
    shown = (
        f'{{"Rule":"{rule}","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}}'
    )
    (message,) = refused(rule)
    assert message.startswith(f"schema.x-kubernetes-validations[0].rule: Invalid value: {shown}: {detail}")


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("self.items.isSorted()", "isSorted"),
        ("quantity(self.s).compareTo(self.s) > 0", "quantity"),
        ("url(self.s).getHost() == 'x'", "url"),
        ("isIP(self.s)", "isIP"),
    ],
)
def test_a_function_of_kubernetes_that_is_not_evaluated_is_refused_by_name(rule: str, name: str) -> None:
    (message,) = refused(rule)
    assert message.endswith(f"(not evaluated by this server: {name})")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"rule": " "}, "rule: Required value: rule is not specified"),
        ({"rule": "true\n"}, None),
        ({"rule": "true ||\n true"}, "message: Required value: message must be specified if rule contains line breaks"),
        (
            {"rule": "true", "message": "a\nb"},
            'message: Invalid value: "a\\nb": message must not contain line breaks',
        ),
        (
            {"rule": "true", "optionalOldSelf": True},
            "optionalOldSelf: Forbidden: a rule with an optional oldSelf is not evaluated by this server",
        ),
    ],
)
def test_entries_are_checked_field_by_field(entry: Json, message: str | None) -> None:
    expected = [] if message is None else [f"schema.x-kubernetes-validations[0].{message}"]
    assert refused(entry) == expected


@pytest.mark.parametrize(
    "rule",
    [
        "self.items.all(i, self.items.exists(j, i == j))",
        "self.few.all(f, self.s.contains(f)) && self.items.all(i, self.s.contains('x'))",
        "self.s.replace('a', 'bb').replace('b', 'cc') != ''",
        r"r'\\' == '' || self.items.all(i, self.items.all(j, true))",
        "self.items.map(i, i + i).map(i, i + i).all(i, self.items.all(j, true)) // '",
    ],
)
def test_a_rule_whose_cost_has_no_bound_is_refused(rule: str) -> None:
    (message,) = refused(rule)
    assert message.startswith(
        "schema.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of "
    )


def test_bounds_in_the_schema_make_a_rule_affordable() -> None:
    assert refused("self.few.all(f, self.few.exists(g, f.contains(g)))") == []
    below: Json = {
        "type": "array",
        "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self.contains('x')"}]},
    }
    assert len(refused("true", many=below)) == 1
    below["maxItems"] = 4
    assert refused("true", many=below) == []


def test_an_evaluation_that_runs_too_long_is_ended_and_nothing_more_is_checked() -> None:
    rule = "self.items.all(i, i >= 0)"
    (message,) = said(schema(rule, "false"), {"items": list(range(20_000))})
    assert message == (
        "<nil>: Invalid value: 'operation cancelled: actual cost limit exceeded': no further validation rules will be "
        f"run due to call cost exceeds limit for rule: {rule}"
    )


@pytest.mark.parametrize(
    ("rule", "value", "message"),
    [
        ("self.nope > 1", {"a": 1}, "no such key: nope evaluating rule: self.nope > 1"),
        ("self.items[3] == 1", {"items": [1]}, "index out of bounds: 3 evaluating rule: self.items[3] == 1"),
        ("self.a / self.b == 1", {"a": 1, "b": 0}, "division by zero evaluating rule: self.a / self.b == 1"),
        ("self.a + 1 > 0", {"a": 2**63 - 1}, "integer overflow evaluating rule: self.a + 1 > 0"),
        (
            "self.s > 1",
            {"s": "x"},
            (
                "'no such overload: _>_(string, int64)': call arguments did not match a supported operator, function "
                "or macro signature for rule: self.s > 1"
            ),
        ),
    ],
)
def test_an_evaluation_without_a_value_says_why(rule: str, value: Json, message: str) -> None:
    assert said(schema(rule), value) == [f"<nil>: Invalid value: {message}"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"message": "a is too small "}, "<nil>: Invalid value: a is too small"),
        ({"reason": "FieldValueForbidden", "message": "m"}, "<nil>: Forbidden: m"),
        ({"reason": "FieldValueRequired", "message": "m", "fieldPath": ".a"}, "a: Required value: m"),
        ({"messageExpression": "'a is ' + string(self.a)"}, "<nil>: Invalid value: a is 1"),
        ({"messageExpression": "'a is ' + self.nope", "message": "m"}, "<nil>: Invalid value: m"),
    ],
)
def test_a_failed_rule_says_what_its_entry_says(entry: Json, message: str) -> None:
    assert said(schema({"rule": "self.a > 1", **entry}), {"a": 1}) == [message]


def test_transition_rules_look_at_updates_only() -> None:
    made = schema(
        n={"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "only up"}]}
    )
    assert said(made, {"n": 1}) == []
    assert said(made, {"n": 2}, {"n": 1}) == []
    assert said(made, {"n": 0}, {"n": 1}) == ["n: Invalid value: only up"]


def test_an_item_has_an_old_self_only_where_a_key_names_it() -> None:
    rule = [{"rule": "self.n >= oldSelf.n", "message": "only up"}]
    parts = {**FIELDS["parts"], "items": {**FIELDS["parts"]["items"], "x-kubernetes-validations": rule}}
    old = {"parts": [{"name": "x", "n": 5}, {"name": "y", "n": 1}]}
    new = {"parts": [{"name": "y", "n": 2}, {"name": "x", "n": 4}, {"name": "z", "n": 0}]}
    assert said(schema(parts=parts), new, old) == ["parts[1]: Invalid value: only up"]
    assert said(schema(parts={**parts, "x-kubernetes-list-type": "atomic"}), new, old) == []


def test_places_are_named_as_the_server_names_them() -> None:
    rule = [{"rule": "self > 1", "message": "m"}]
    counts = {"type": "object", "additionalProperties": {"type": "integer", "x-kubernetes-validations": rule}}
    assert said(schema(counts=counts), {"counts": {"x.y": 1, "z": 2}}) == ["counts[x.y]: Invalid value: m"]


def test_without_the_evaluator_a_definition_with_rules_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    assert refused("true") == [f"schema.x-kubernetes-validations[0].rule: Forbidden: {MISSING}"]
    assert definition_errors(schema(), "schema") == []
    assert compile_rules(schema()) is None
