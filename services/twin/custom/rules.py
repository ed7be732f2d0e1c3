"""Validation rules of custom resources: judged with their definition, compiled once, checked per write.

A rule that cannot be checked is refused with its definition: what does not compile, Kubernetes' own functions
(quantities, URLs, ``isSorted`` ...), an optional ``oldSelf``, or a cost without bound. What an expression is and does:
``expressions.py``; what it may cost: ``cost.py``.

Source: apiextensions ``pkg/apiserver/schema/cel`` and ``pkg/apis/apiextensions/validation``.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from services.twin.custom.cost import estimate, most_values
from services.twin.custom.expressions import MISSING, Convert, RuleError, compiled, converter, evaluate
from services.twin.registry.status import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
)

Json = dict[str, Any]

COST_LIMIT = 10_000_000
"""Of one rule's estimate, in steps; the evaluator itself ends after 10,000 turns of loops per evaluation."""
_REASONS = ("FieldValueRequired", "FieldValueForbidden", "FieldValueInvalid", "FieldValueDuplicate")


@dataclass(frozen=True, slots=True)
class Rule:
    """One ``x-kubernetes-validations`` entry, compiled."""

    spec: Json
    program: Any
    message_program: Any
    transition: bool
    """It mentions ``oldSelf``: checked where there is an old value only."""

    def failed(self) -> str:
        """What to say when it does not hold and no expression says it."""
        return str(self.spec.get("message") or "").strip() or f"failed rule: {self.named()}"

    def named(self) -> str:
        """The rule in messages about its evaluation."""
        return str(self.spec.get("message") or self.spec["rule"]).strip()


@dataclass(frozen=True, slots=True)
class Checks:
    """The rules of one place of a schema and of what is below it."""

    rules: tuple[Rule, ...] = ()
    convert: Convert | None = None
    properties: dict[str, Checks] = field(default_factory=dict)
    items: Checks | None = None
    item_keys: tuple[str, ...] = ()
    """By which an item is told to be the same as an old one; none = no old items."""
    values: Checks | None = None


# --- definitions ------------------------------------------------------------------------------------------------------


def definition_errors(schema: Json, where: str, places: int = 1) -> list[FieldError]:
    """What is wrong with the rules of a (well-formed) schema at ``where``; ``places``: how often it may occur."""
    found: list[FieldError] = []
    for index, spec in enumerate(schema.get("x-kubernetes-validations") or ()):
        found += _rule_errors(spec, schema, f"{where}.x-kubernetes-validations[{index}]", places)
    for name, child in sorted((schema.get("properties") or {}).items()):
        found += definition_errors(child, f"{where}.properties[{name}]", places)
    most = most_values(schema)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found += definition_errors(schema[key], f"{where}.{key}", places * most)
    return found


def _rule_errors(spec: Json, schema: Json, where: str, places: int) -> list[FieldError]:
    text, message, reason = spec["rule"].strip(), (spec.get("message") or "").strip(), spec.get("reason")
    if not text:
        return [required(f"{where}.rule", "rule is not specified")]
    found: list[FieldError] = []
    if "\n" in message:
        found.append(invalid(f"{where}.message", spec["message"], "message must not contain line breaks"))
    if "\n" in text and not message:
        found.append(required(f"{where}.message", "message must be specified if rule contains line breaks"))
    if reason is not None and reason not in _REASONS:
        found.append(not_supported(f"{where}.reason", reason, _REASONS))
    if spec.get("optionalOldSelf"):
        text = "a rule with an optional oldSelf is not evaluated by this server"
        return [*found, forbidden_field(f"{where}.optionalOldSelf", text)]
    shown = {key[0].upper() + key[1:]: spec.get(key) or empty for key, empty in _SHOWN}
    for key, result, noun in (("rule", "bool", "cel expression"), ("messageExpression", "string", "messageExpression")):
        if not spec.get(key):
            continue
        try:
            compiled(spec[key], schema, result, noun)
        except ImportError:
            return [*found, forbidden_field(f"{where}.{key}", MISSING)]
        except RuleError as error:
            found.append(invalid(f"{where}.{key}", shown, str(error)))
            continue
        over = estimate(spec[key], schema) * places / COST_LIMIT
        if over > 1:
            factor = "more than 100x" if over > 100 else f"{over:f}x" if over < 1.5 else f"{over:.1f}x"
            text = (
                f"estimated {'rule' if key == 'rule' else key} cost exceeds budget by factor of {factor} (try "
                "simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and "
                "strings are declared)"
            )
            found.append(forbidden_field(f"{where}.{key}", text))
    return found


_SHOWN = (
    ("rule", ""),
    ("message", ""),
    ("messageExpression", ""),
    ("reason", None),
    ("fieldPath", ""),
    ("optionalOldSelf", None),
)


# --- compiled ---------------------------------------------------------------------------------------------------------


def compile_rules(schema: Json) -> Checks | None:
    """The rules of a (well-formed) schema that was found good; None when it has none. Raises ``RuleError``."""
    rules = tuple(
        Rule(
            spec,
            compiled(spec["rule"], schema, "bool", "cel expression"),
            compiled(spec["messageExpression"], schema, "string", "messageExpression")
            if spec.get("messageExpression")
            else None,
            "oldSelf" in spec["rule"],
        )
        for spec in schema.get("x-kubernetes-validations") or ()
    )
    properties = {name: compile_rules(child) for name, child in (schema.get("properties") or {}).items()}
    some = {name: checks for name, checks in properties.items() if checks is not None}
    items, values = schema.get("items"), schema.get("additionalProperties")
    item_checks = compile_rules(items) if isinstance(items, dict) else None
    value_checks = compile_rules(values) if isinstance(values, dict) else None
    if not (rules or some or item_checks or value_checks):
        return None
    is_map = schema.get("x-kubernetes-list-type") == "map"
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if is_map else ()
    return Checks(rules, converter(schema) if rules else None, some, item_checks, keys, value_checks)


# --- writes -----------------------------------------------------------------------------------------------------------


class _OutOfBudget(Exception):
    """The evaluator gave up: nothing more is checked."""


def rule_errors(checks: Checks, obj: Json, old: Json | None) -> list[FieldError]:
    """Causes of the rules that do not hold."""
    errors: list[FieldError] = []
    with suppress(_OutOfBudget):
        _check(checks, obj, old, "", errors)
    return errors


def _check(checks: Checks, value: Any, old: Any, where: str, errors: list[FieldError]) -> None:
    if value is None:
        return
    if checks.rules:
        data = {"self": value} if checks.convert is None else {"self": checks.convert(value)}
        if old is not None:
            data["oldSelf"] = old if checks.convert is None else checks.convert(old)
        for rule in checks.rules:
            if not (rule.transition and old is None):
                _check_rule(rule, data, where, errors)
    if isinstance(value, dict):
        old = old if isinstance(old, dict) else {}
        for name, below in checks.properties.items():
            if name in value:
                _check(below, value[name], old.get(name), f"{where}.{name}" if where else name, errors)
        if checks.values is not None:
            for name, item in value.items():
                if name not in checks.properties:
                    _check(checks.values, item, old.get(name), f"{where}[{name}]", errors)
    elif isinstance(value, list) and checks.items is not None:
        before = {_identity(one, checks.item_keys): one for one in old or () if checks.item_keys}
        for index, item in enumerate(value):
            _check(checks.items, item, before.get(_identity(item, checks.item_keys)), f"{where}[{index}]", errors)


def _identity(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(str(item.get(key)) for key in keys) if isinstance(item, dict) else ()


def _check_rule(rule: Rule, data: Json, where: str, errors: list[FieldError]) -> None:
    result, problem = evaluate(rule.program, data)
    if result is True:
        return
    place = where + rule.spec.get("fieldPath", "") if where else rule.spec.get("fieldPath", "").lstrip(".")
    place = place or "<nil>"
    if problem.startswith("operation cancelled"):
        text = f"'{problem}': no further validation rules will be run due to call cost exceeds limit for rule: "
        errors.append(FieldError("FieldValueInvalid", where or "<nil>", f"Invalid value: {text}{rule.named()}"))
        raise _OutOfBudget
    if problem:
        text = (
            f"'{problem}': call arguments did not match a supported operator, function or macro signature for rule: "
            if problem.startswith("no such overload")
            else f"{problem} evaluating rule: "
        )
        errors.append(FieldError("FieldValueInvalid", where or "<nil>", f"Invalid value: {text}{rule.named()}"))
        return
    said = evaluate(rule.message_program, data)[0] if rule.message_program is not None else None
    detail = said.strip() if isinstance(said, str) and said.strip() and "\n" not in said.strip() else rule.failed()
    match rule.spec.get("reason"):
        case "FieldValueForbidden":
            errors.append(forbidden_field(place, detail))
        case "FieldValueRequired":
            errors.append(required(place, detail))
        case "FieldValueDuplicate":
            errors.append(duplicate(place, data["self"]))
        case _:
            errors.append(FieldError("FieldValueInvalid", place, f"Invalid value: {detail}"))
