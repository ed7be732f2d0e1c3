"""Validation rules of custom resources: what is refused at creation, what fails at a write, and in which words."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from twin.custom.definition.decoding import decode_schema
from twin.custom.definition.keywords import keyword_errors
from twin.custom.definition.rule_costs import RuleCosts
from twin.custom.expressions import MISSING
from twin.custom.rules import compile_rules, rule_errors

Json = dict[str, Any]

FIELDS: Json = {
    "a": {"type": "integer"},
    "b": {"type": "integer"},
    "s": {"type": "string"},
    "name": {"type": "string", "maxLength": 63},
    "mode": {"type": "string"},
    "share": {"type": "number"},
    "port": {"x-kubernetes-int-or-string": True},
    "namespace": {"type": "string"},
    "with-dash": {"type": "string"},
    "items": {"type": "array", "items": {"type": "integer"}},
    "few": {"type": "array", "maxItems": 8, "items": {"type": "string", "maxLength": 63}},
    "parts": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
        },
    },
}


def schema(*rules: str | Json, **fields: Any) -> Json:
    """An object of ``FIELDS`` with these rules."""
    entries = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    whole = {"type": "object", "properties": {**FIELDS, **fields}, "x-kubernetes-validations": entries}
    return decode_schema(whole)[0]


def errors_of(made: Json) -> list[str]:
    """What is wrong with a schema and its rules."""
    return [f"{one.field}: {one.message}" for one in keyword_errors(made, "schema", RuleCosts())]


def said(made: Json, value: Any, old: Any = None) -> list[str]:
    """What the rules of a schema say to a value."""
    assert errors_of(made) == []
    checks = compile_rules(made)
    assert checks is not None
    return [f"{error.field}: {error.message}" for error in rule_errors(checks, value, old)]


def refused(*rules: str | Json, **fields: Any) -> list[str]:
    """Why a definition with these rules is refused."""
    return errors_of(schema(*rules, **fields))


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
        ("self.few.filter(i, i == 'a').size() == 1", {"few": ["a", "b"]}, True),
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
            'message: Invalid value: "a\\nb": must not contain line breaks',
        ),
        (
            {"rule": "true", "optionalOldSelf": True},
            "optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
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
        "self.s.replace('', 'bb').replace('', 'cc').contains(self.s)",
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
        "<nil>: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation "
        f"rules will be run due to call cost exceeds limit for rule: {rule}"
    )


@pytest.mark.parametrize(
    ("rule", "value", "message"),
    [
        ("self.b > 1", {"a": 1}, "no such key: b evaluating rule: self.b > 1"),
        ("self.items[3] == 1", {"items": [1]}, "index out of bounds: 3 evaluating rule: self.items[3] == 1"),
        ("self.a / self.b == 1", {"a": 1, "b": 0}, "division by zero evaluating rule: self.a / self.b == 1"),
        ("self.a + 1 > 0", {"a": 2**63 - 1}, "integer overflow evaluating rule: self.a + 1 > 0"),
        (
            "self.port > 1",
            {"port": "x"},
            (
                "'no such overload: _>_(string, int64)': call arguments did not match a supported operator, function "
                "or macro signature for rule: self.port > 1"
            ),
        ),
    ],
)
def test_an_evaluation_without_a_value_says_why(rule: str, value: Json, message: str) -> None:
    assert said(schema(rule), value) == [f'<nil>: Invalid value: "object": {message}']


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"message": "a is too small "}, "<nil>: Invalid value: a is too small"),
        ({"reason": "FieldValueForbidden", "message": "m"}, "<nil>: Forbidden: m"),
        ({"reason": "FieldValueRequired", "message": "m", "fieldPath": ".a"}, "a: Required value: m"),
        ({"messageExpression": "self.name + ' is too small'"}, "<nil>: Invalid value: n is too small"),
        ({"messageExpression": "'a is ' + self.mode", "message": "m"}, "<nil>: Invalid value: m"),
    ],
)
def test_a_failed_rule_says_what_its_entry_says(entry: Json, message: str) -> None:
    assert said(schema({"rule": "self.a > 1", **entry}), {"a": 1, "name": "n"}) == [message]


def test_a_rule_with_an_optional_old_self_is_checked_at_creation_too() -> None:
    rule = {"rule": "self >= oldSelf.orValue(1)", "optionalOldSelf": True, "message": "only up"}
    made = schema(n={"type": "integer", "x-kubernetes-validations": [rule]})
    assert said(made, {"n": 0}) == ["n: Invalid value: 0: only up"]
    assert said(made, {"n": 1}) == []
    assert said(made, {"n": 4}, {"n": 5}) == ["n: Invalid value: 4: only up"]
    assert said(made, {"n": 5}, {"n": 4}) == []


@pytest.mark.parametrize(
    ("form", "rule", "good", "bad"),
    [
        ("date-time", "self < timestamp('2026-01-01T00:00:00Z')", "2025-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("date", "self < timestamp('2026-01-01T00:00:00Z')", "2025-01-01", "2027-01-01"),
        ("duration", "self < duration('1h')", "59m30.5s", "1h1s"),
    ],
)
def test_times_are_times_to_a_rule(form: str, rule: str, good: str, bad: str) -> None:
    entry = [{"rule": rule, "message": "too late"}]
    made = schema(t={"type": "string", "format": form, "x-kubernetes-validations": entry})
    assert said(made, {"t": good}) == []
    assert said(made, {"t": bad}) == [f't: Invalid value: "{bad}": too late']


def test_transition_rules_look_at_updates_only() -> None:
    made = schema(
        n={"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "only up"}]}
    )
    assert said(made, {"n": 1}) == []
    assert said(made, {"n": 2}, {"n": 1}) == []
    assert said(made, {"n": 0}, {"n": 1}) == ["n: Invalid value: 0: only up"]


def test_an_item_has_an_old_self_only_where_a_key_names_it() -> None:
    rule = [{"rule": "self.n >= oldSelf.n", "message": "only up"}]
    parts = {**FIELDS["parts"], "items": {**FIELDS["parts"]["items"], "x-kubernetes-validations": rule}}
    old = {"parts": [{"name": "x", "n": 5}, {"name": "y", "n": 1}]}
    new = {"parts": [{"name": "y", "n": 2}, {"name": "x", "n": 4}, {"name": "z", "n": 0}]}
    assert said(schema(parts=parts), new, old) == ["parts[1]: Invalid value: only up"]
    # without a key no item has an old one: a rule that needs it is refused with its definition
    atomic = {key: value for key, value in parts.items() if key != "x-kubernetes-list-map-keys"}
    (refusal,) = errors_of(schema(parts={**atomic, "x-kubernetes-list-type": "atomic"}))
    assert refusal.endswith(
        "cannot be used on the uncorrelatable portion of the schema within schema.properties[parts]"
    )


def test_places_are_named_as_the_server_names_them() -> None:
    rule = [{"rule": "self > 1", "message": "m"}]
    counts = {"type": "object", "additionalProperties": {"type": "integer", "x-kubernetes-validations": rule}}
    assert said(schema(counts=counts), {"counts": {"x.y": 1, "z": 2}}) == ["counts[x.y]: Invalid value: 1: m"]


def test_without_the_evaluator_a_definition_with_rules_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    assert refused("true") == [f"schema.x-kubernetes-validations[0].rule: Forbidden: {MISSING}"]
    assert errors_of(schema()) == []
    assert compile_rules(schema()) is None
