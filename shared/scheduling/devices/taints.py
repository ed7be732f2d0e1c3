"""Taints of devices, those of DeviceTaintRules included, and what of a request tolerates them.

NoSchedule and NoExecute bar a request that does not tolerate them, admin access or not; None and effects of later
releases bar nobody. Source: kube-scheduler 1.36 ``dynamic-resource-allocation/resourceclaim/devicetoleration.go``.
"""

from __future__ import annotations

from collections.abc import Iterable

from shared.model.devices import Device, DeviceTaint, DeviceToleration, TaintRule

BARRING = frozenset(("NoSchedule", "NoExecute"))


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """An empty key or effect tolerates any; Exists tolerates any value."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
    return False


def barred(device: Device, tolerations: tuple[DeviceToleration, ...]) -> bool:
    """Whether some taint of the device keeps a request with these tolerations away."""
    return any(
        taint.effect in BARRING and not any(tolerates(one, taint) for one in tolerations) for taint in device.taints
    )


def rule_taints(rules: Iterable[TaintRule], driver: str, pool: str, device: str) -> tuple[DeviceTaint, ...]:
    """What the rules add to a device. A rule without a selector matches nothing: it would stop a whole cluster."""
    here = (driver, pool, device)
    return tuple(
        rule.taint
        for rule in rules
        if rule.selects is not None and all(want in ("", have) for want, have in zip(rule.selects, here, strict=True))
    )
