"""The rules of one place of a schema: do they compile for its type, and what do all of a definition cost?

Source: apiextensions ``pkg/apis/apiextensions/validation`` (cel_validation.go), ``pkg/apiserver/schema/cel``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twin.custom.checked import CheckedExpression
from twin.custom.cost import estimate
from twin.custom.declared import REQUEST_BYTES, Declared, declared, escaped, is_resource
from twin.custom.expressions import MISSING, Compiler, RuleError
from twin.registry.status import FieldError, forbidden_field, internal_error, invalid

Json = dict[str, Any]

RULE_LIMIT = 10_000_000
"""Of one expression."""
DEFINITION_LIMIT = 100_000_000
"""Of all expressions of one schema."""
_CEILING = 2**64 - 1
_SHOWN = ("rule", "message", "messageExpression", "reason", "fieldPath", "optionalOldSelf")


@dataclass(frozen=True, slots=True)
class SchemaPlace:
    """A schema node as rules see it."""

    schema: Json
    type: Declared | None
    """None: rules may not look at it."""
    times: int | None
    """How often values of it may occur in one object; None: no bound is said."""

    @classmethod
    def root(cls, schema: Json) -> SchemaPlace:
        return cls(schema, declared(schema, resource=True), 1)

    def property(self, name: str, schema: Json) -> SchemaPlace:
        fields = self.type.fields if self.type is not None else {}
        return self._child(schema, fields.get(escaped(name) or ""))

    def item(self, schema: Json) -> SchemaPlace:
        return self._child(schema, self.type and self.type.element)

    def value(self, schema: Json) -> SchemaPlace:
        return self._child(schema, self.type and self.type.element)

    def _child(self, schema: Json, known: Declared | None) -> SchemaPlace:
        own = known or declared(schema, resource=is_resource(schema))
        most = _most_children(self.schema)
        times = None if self.times is None or most is None else min(self.times * most, _CEILING)
        return SchemaPlace(schema, own, times)

    def reckoned(self, cost: int) -> int:
        """What an expression costs over all values that one request can hold."""
        assert self.type is not None
        times = self.times if self.times is not None else REQUEST_BYTES // (self.type.least_bytes + 1)
        return min(cost * times, _CEILING)


def _most_children(schema: Json) -> int | None:
    if schema.get("type") == "object" and schema.get("additionalProperties") is not None:
        return _not_negative(schema.get("maxProperties"))
    return _not_negative(schema.get("maxItems")) if schema.get("type") == "array" else 1


def _not_negative(value: int | None) -> int | None:
    return None if value is None else max(value, 0)


class RuleCosts:
    """Judges the rules of one schema, place by place, and adds up what they cost."""

    def __init__(self, *, unchanged: bool = False) -> None:
        """``unchanged``: the schema was taken before, so a single expression may cost what it does."""
        self._unchanged = unchanged
        self._total = 0
        self._dearest: list[tuple[int, str]] = []

    def judge(self, schema: Json, place: SchemaPlace, where: str, no_old_self: str) -> list[FieldError]:
        """Errors of a place's rules; ``no_old_self``: the place above that leaves them without an old value."""
        at = f"{where}.x-kubernetes-validations"
        if place.type is None:
            text = (
                "internal error: failed to construct type information for x-kubernetes-validations rules: "
                "unable to convert structural schema to CEL declarations"
            )
            return [internal_error(at, text)]
        try:
            compiler = Compiler(place.type)
        except ImportError:
            return [forbidden_field(f"{at}[0].rule", MISSING)]
        found: list[FieldError] = []
        for index, rule in enumerate(schema["x-kubernetes-validations"]):
            found += self._rule(rule, compiler, place, f"{at}[{index}]", no_old_self)
        return found

    def _rule(
        self, rule: Json, compiler: Compiler, place: SchemaPlace, where: str, no_old_self: str
    ) -> list[FieldError]:
        found: list[FieldError] = []
        optional = rule.get("optionalOldSelf")
        checked: CheckedExpression | None = None
        try:
            checked = compiler.check(rule["rule"], "bool", "cel expression", optional_old=optional is True)
        except RuleError as error:
            found.append(invalid(f"{where}.rule", _shown(rule), str(error)))
        if checked is not None:
            cost = place.reckoned(estimate(checked, compiler.of))
            found += self._observe(f"{where}.rule", cost, "rule")
            if rule.get("messageExpression"):
                found += self._message(rule, compiler, where)
        if checked is not None and "oldSelf" in checked.names.values():
            if no_old_self:
                text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {no_old_self}"
                found.append(invalid(f"{where}.rule", rule["rule"], text))
        elif optional is not None:
            text = "may not be set if oldSelf is not used in rule"
            found.append(invalid(f"{where}.optionalOldSelf", optional, text))
        return found

    def _message(self, rule: Json, compiler: Compiler, where: str) -> list[FieldError]:
        at = f"{where}.messageExpression"
        try:
            checked = compiler.check(rule["messageExpression"], "string", "messageExpression")
        except RuleError as error:
            return [invalid(at, _shown(rule), str(error))]
        return self._observe(at, estimate(checked, compiler.of), "messageExpression")

    def _observe(self, where: str, cost: int, noun: str) -> list[FieldError]:
        self._total = min(self._total + cost, _CEILING)
        if cost >= DEFINITION_LIMIT // 100:
            self._dearest = sorted([*self._dearest, (cost, where)], key=lambda one: -one[0])[:4]
        if self._unchanged or cost <= RULE_LIMIT:
            return []
        return [forbidden_field(where, _exceeds(f"estimated {noun} cost", cost, RULE_LIMIT))]

    def total_errors(self, where: str) -> list[FieldError]:
        """What is wrong with all rules together, at the schema's own place."""
        if self._total <= DEFINITION_LIMIT:
            return []
        text = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        whole = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        return [
            *(forbidden_field(at, text) for _, at in self._dearest),
            forbidden_field(where, _exceeds(whole, self._total, DEFINITION_LIMIT)),
        ]


def _shown(rule: Json) -> Json:
    """An entry as the server prints it."""
    pointers = ("reason", "optionalOldSelf")
    return {key[0].upper() + key[1:]: rule.get(key, None if key in pointers else "") for key in _SHOWN}


def _exceeds(name: str, cost: int, limit: int) -> str:
    over = cost / limit
    factor = "more than 100x" if over > 100 else f"{over:f}x" if over < 1.5 else f"{over:.1f}x"
    return (
        f"{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, "
        "and maxLength where arrays, maps, and strings are declared)"
    )
