"""Taints of devices, what tolerates them, and the DeviceTaintRule that adds one.

1.36 serves rules as v1beta2, behind a gate and a version that a real server has off by default; 1.37 as v1.
Source: ``pkg/apis/resource/validation``, ``pkg/registry/resource/devicetaintrule``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twin.kinds.devices.names import check_driver, check_label, check_pool
from twin.kinds.rules.conditions import check_conditions
from twin.kinds.rules.names import check, label_value, qualified_name
from twin.kinds.rules.printing import printed
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, invalid, not_supported, required, too_many
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]

GROUP, RULES = "resource.k8s.io", "devicetaintrules.resource.k8s.io"
EFFECTS = ("NoExecute", "NoSchedule", "None")
_OPERATORS = ("Equal", "Exists")
_MOST_CONDITIONS = 8


def default_tolerations(tolerations: Iterable[Json] | None) -> None:
    """They compare, unless they say otherwise."""
    for one in tolerations or ():
        one.setdefault("operator", "Equal")


def check_toleration(toleration: Json, field: str) -> list[FieldError]:
    """validateDeviceToleration."""
    key, value = toleration.get("key", ""), toleration.get("value", "")
    operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
    found = check(f"{field}.key", key, qualified_name) if key else []
    if operator == "Equal":
        found += check(f"{field}.value", value, label_value)
    elif operator not in _OPERATORS:
        found.append(not_supported(f"{field}.operator", operator, _OPERATORS))
    elif value:
        found.append(invalid(f"{field}.value", value, "must be empty for operator `Exists`"))
    if effect and effect not in EFFECTS:
        found.append(not_supported(f"{field}.effect", effect, EFFECTS))
    return found


def check_taint(taint: Json, field: str, old: Json | None = None) -> list[FieldError]:
    """validateDeviceTaint; an effect that was there before is not judged again."""
    found = check(f"{field}.key", taint["key"], qualified_name)
    if taint.get("value"):
        found += check(f"{field}.value", taint["value"], label_value)
    effect = taint["effect"]
    if old is None or old["effect"] != effect:
        if not effect:
            found.append(required(f"{field}.effect"))
        elif effect not in EFFECTS:
            found.append(not_supported(f"{field}.effect", effect, EFFECTS))
    return found


class DeviceTaintRuleStrategy(TypedStrategy):
    """A taint for all devices that a selector names; without a selector, for none."""

    go_type = "resource/v1.DeviceTaintRule"
    table = printed("Name", "Age")

    def __init__(self, version: str, *, gated: bool) -> None:
        self.info = KindInfo(
            GROUP, version, "DeviceTaintRule", "devicetaintrules", "devicetaintrule", False, gated=gated
        )
        super().__init__()

    def prepare_for_create(self, obj: Json, ctx: RequestContext) -> None:
        obj["spec"]["taint"].setdefault("timeAdded", ctx.now)

    def prepare_for_update(self, obj: Json, old: Json, ctx: RequestContext) -> None:
        taint, before = obj["spec"]["taint"], old["spec"]["taint"]
        if taint["effect"] != before["effect"] and taint.get("timeAdded") == before.get("timeAdded"):
            taint["timeAdded"] = ctx.now  # since when it has *this* effect
        taint.setdefault("timeAdded", ctx.now)

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        return _check_rule(obj["spec"], None)

    def validate_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        return _check_rule(obj["spec"], old["spec"]["taint"])

    def validate_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        found = check_conditions(conditions, "status.conditions")
        if len(conditions) > _MOST_CONDITIONS:
            found.append(too_many("status.conditions", len(conditions), _MOST_CONDITIONS))
        return found


def _check_rule(spec: Json, old: Json | None) -> list[FieldError]:
    found: list[FieldError] = []
    for key, check_one in (("driver", check_driver), ("pool", check_pool), ("device", check_label)):
        value = (spec.get("deviceSelector") or {}).get(key)
        if value is not None:
            found += check_one(value, f"spec.deviceSelector.{key}")
    return found + check_taint(spec["taint"], "spec.taint", old)


def device_taint_rule_strategy(kubernetes: str) -> DeviceTaintRuleStrategy:
    """The kind as ``kubernetes`` ("1.36", "1.37") has it."""
    if kubernetes == "1.36":
        return DeviceTaintRuleStrategy("v1beta2", gated=True)
    return DeviceTaintRuleStrategy("v1", gated=False)
