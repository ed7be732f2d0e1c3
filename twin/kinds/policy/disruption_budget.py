"""PodDisruptionBudgets: how many pods of a selection may be down by will.

Source: ``pkg/registry/policy/poddisruptionbudget/strategy.go``, ``pkg/apis/policy/validation``. Their arithmetic at an
eviction is in ``pod/eviction.py``; counting healthy pods is a controller's work (``twin/controllers/disruptions.py``).
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.names import check_label_selector, check_not_negative, percent
from twin.kinds.rules.printing import printed
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, invalid, not_supported
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]

_POLICIES = ("AlwaysAllow", "IfHealthyBudget")
_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_BOTH = "minAvailable and maxUnavailable cannot be both set"


class PodDisruptionBudgetStrategy(TypedStrategy):
    """policy/v1 PodDisruptionBudget."""

    info = KindInfo(
        "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudget", True, short_names=("pdb",)
    )
    go_type = "policy/v1.PodDisruptionBudget"
    allow_unconditional_update = False
    table = printed(
        "Name",
        ("Min Available", lambda obj: str(obj["spec"].get("minAvailable", "N/A"))),
        ("Max Unavailable", lambda obj: str(obj["spec"].get("maxUnavailable", "N/A"))),
        "Allowed Disruptions:integer=status.disruptionsAllowed",
        "Age",
    )

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        minimum, maximum = spec.get("minAvailable"), spec.get("maxUnavailable")
        found: list[FieldError] = []
        policy = spec.get("unhealthyPodEvictionPolicy")
        if minimum is not None and maximum is not None:
            value = {
                "MinAvailable": minimum,
                "Selector": spec.get("selector"),
                "MaxUnavailable": maximum,
                "UnhealthyPodEvictionPolicy": policy,
            }
            found.append(invalid("spec", value, _BOTH))
        if minimum is not None:
            found += check_count_or_percent(minimum, "spec.minAvailable")
        if maximum is not None:
            found += check_count_or_percent(maximum, "spec.maxUnavailable")
        found += check_label_selector(spec.get("selector"), "spec.selector")
        if policy is not None and policy not in _POLICIES:
            found.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))
        return found

    def validate_status_update(self, obj: Json, old: Json, ctx: RequestContext) -> list[FieldError]:
        status = obj["status"]
        found: list[FieldError] = []
        for name in _COUNTS:
            found += check_not_negative(f"status.{name}", status.get(name))
        return found


def check_count_or_percent(value: int | str, field: str) -> list[FieldError]:
    """ValidatePositiveIntOrPercent and IsNotMoreThan100Percent."""
    if isinstance(value, int):
        return check_not_negative(field, value)
    found = [invalid(field, value, message) for message in percent(value)]
    if not found and int(value[:-1]) > 100:
        found.append(invalid(field, value, "must not be greater than 100%"))
    return found
