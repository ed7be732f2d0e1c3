"""The CEL rules of a schema, compiled once and checked per write. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from services.twin.custom.cel import CelError, Node, compile_rule
from services.twin.registry.status import FieldError

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """One ``x-kubernetes-validations`` entry at ``path`` (``*`` = every item or value)."""

    path: tuple[str, ...]
    check: Node
    message: str
    reason: str
    transition: bool
    """It mentions ``oldSelf``: checked on updates only."""


def compile_rules(schema: Json) -> tuple[Rule, ...]:
    """All rules of a schema that this evaluator can read; the others are left out."""
    return tuple(_collect(schema, ()))


def _collect(schema: Json, path: tuple[str, ...]) -> Iterator[Rule]:
    for entry in schema.get("x-kubernetes-validations") or ():
        text = entry.get("rule", "")
        try:
            check = compile_rule(text)
        except CelError:
            continue
        message = entry.get("message") or f"failed rule: {text}"
        yield Rule(path, check, message, entry.get("reason", "FieldValueInvalid"), "oldSelf" in text)
    for name, child in (schema.get("properties") or {}).items():
        yield from _collect(child, (*path, name))
    for child in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(child, dict):
            yield from _collect(child, (*path, "*"))


def _places(value: Any, path: tuple[str, ...], where: str) -> Iterator[tuple[str, Any]]:
    if not path:
        yield where, value
    elif path[0] == "*":
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _places(item, path[1:], f"{where}[{index}]")
        elif isinstance(value, dict):
            for key, item in value.items():
                yield from _places(item, path[1:], f"{where}.{key}")
    elif isinstance(value, dict) and path[0] in value:
        yield from _places(value[path[0]], path[1:], f"{where}.{path[0]}" if where else path[0])


def rule_errors(rules: tuple[Rule, ...], obj: Json, old: Json | None) -> list[FieldError]:
    """Causes of the rules that do not hold."""
    errors: list[FieldError] = []
    for rule in rules:
        before = dict(_places(old, rule.path, "")) if rule.transition and old is not None else {}
        for where, value in _places(obj, rule.path, ""):
            if rule.transition and where not in before:
                continue
            try:
                holds = bool(rule.check({"self": value, "oldSelf": before.get(where)}))
                text = rule.message
            except CelError as error:
                holds, text = False, f"rule evaluation error: {error}"
            if not holds:
                errors.append(FieldError(rule.reason, where or "<nil>", f"Invalid value: {text}"))
    return errors
