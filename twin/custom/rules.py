"""Validation rules of custom resources that were taken with their definition: compiled once, checked per write.

What an expression is and does: ``expressions.py``; what is refused with a definition: ``definition/rule_costs.py``.

Source: apiextensions ``pkg/apiserver/schema/cel``.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from twin.custom.expressions import Convert, compiled, converter, evaluate
from twin.registry.status import FieldError, duplicate, forbidden_field, invalid, required

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """One ``x-kubernetes-validations`` entry, compiled."""

    spec: Json
    program: Any
    message_program: Any
    transition: bool
    """It needs ``oldSelf``: checked where there is an old value only."""

    def failed(self) -> str:
        """What to say when it does not hold and no expression says it."""
        return str(self.spec.get("message") or "").strip() or f"failed rule: {self.named()}"

    def named(self) -> str:
        """The rule in messages about its evaluation."""
        return str(self.spec.get("message") or self.spec["rule"]).strip()


@dataclass(frozen=True, slots=True)
class Checks:
    """The rules of one place of a schema and of what is below it."""

    rules: tuple[ValidationRule, ...] = ()
    kind: str = ""
    """The schema's type, as messages show it."""
    convert: Convert | None = None
    properties: dict[str, Checks] = field(default_factory=dict)
    items: Checks | None = None
    item_keys: tuple[str, ...] = ()
    """By which an item is told to be the same as an old one; none = no old items."""
    values: Checks | None = None


# --- compiled ---------------------------------------------------------------------------------------------------------


def compile_rules(schema: Json) -> Checks | None:
    """The rules of a schema that was found good; None when it has none."""
    rules = tuple(
        ValidationRule(
            spec,
            compiled(spec["rule"], schema, optional_old=spec.get("optionalOldSelf") is True),
            compiled(spec["messageExpression"], schema) if spec.get("messageExpression") else None,
            "oldSelf" in spec["rule"] and not spec.get("optionalOldSelf"),
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
    kind = schema.get("type") or ""
    return Checks(rules, kind, converter(schema) if rules else None, some, item_checks, keys, value_checks)


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
        data["hasOldSelf"] = old is not None
        if old is not None:
            data["oldSelf"] = old if checks.convert is None else checks.convert(old)
        for rule in checks.rules:
            if not (rule.transition and old is None):
                _check_rule(rule, data, where, errors, checks.kind, value)
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


def _check_rule(rule: ValidationRule, data: Json, where: str, errors: list[FieldError], kind: str, value: Any) -> None:
    result, problem = evaluate(rule.program, data)
    if result is True:
        return
    place = where + rule.spec.get("fieldPath", "") if where else rule.spec.get("fieldPath", "").lstrip(".")
    place = place or "<nil>"
    if problem.startswith("operation cancelled"):
        text = f"'{problem}': no further validation rules will be run due to call cost exceeds limit for rule: "
        errors.append(invalid(where or "<nil>", kind, f"{text}{rule.named()}"))
        raise _OutOfBudget
    if problem:
        text = (
            f"'{problem}': call arguments did not match a supported operator, function or macro signature for rule: "
            if problem.startswith("no such overload")
            else f"{problem} evaluating rule: "
        )
        errors.append(invalid(where or "<nil>", kind, f"{text}{rule.named()}"))
        return
    said = evaluate(rule.message_program, data)[0] if rule.message_program is not None else None
    detail = said.strip() if isinstance(said, str) and said.strip() and "\n" not in said.strip() else rule.failed()
    match rule.spec.get("reason"):
        case "FieldValueForbidden":
            errors.append(forbidden_field(place, detail))
        case "FieldValueRequired":
            errors.append(required(place, detail))
        case "FieldValueDuplicate":
            # objects and lists are not shown
            whole = kind in ("object", "array")
            errors.append(
                FieldError("FieldValueDuplicate", place, "Duplicate value") if whole else duplicate(place, value)
            )
        case _ if kind in ("object", "array"):
            errors.append(FieldError("FieldValueInvalid", place, f"Invalid value: {detail}"))
        case _:
            errors.append(invalid(place, value, detail))
