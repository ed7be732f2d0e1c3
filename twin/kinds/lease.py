"""Leases: leader election and node heartbeats.

Source: ``pkg/registry/coordination/lease/strategy.go``, ``pkg/apis/coordination/validation``. Created by PUT, never
updated without a resourceVersion.
"""

from __future__ import annotations

from typing import Any

from twin.kinds.rules.printing import printed
from twin.kinds.rules.typed import TypedStrategy
from twin.registry.status import FieldError, forbidden_field, invalid, not_supported
from twin.registry.strategy import KindInfo, RequestContext

Json = dict[str, Any]

_STRATEGIES = ("OldestEmulationVersion",)


class LeaseStrategy(TypedStrategy):
    """coordination.k8s.io/v1 Lease."""

    info = KindInfo("coordination.k8s.io", "v1", "Lease", "leases", "lease", True)
    go_type = "coordination/v1.Lease"
    has_generation = False
    resets_status = False
    allow_create_on_update = True
    allow_unconditional_update = False
    table = printed("Name", "Holder=spec.holderIdentity", "Age")

    def validate(self, obj: Json, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        found: list[FieldError] = []
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if duration is not None and duration <= 0:
            found.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            found.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
        strategy = spec.get("strategy")
        if strategy is not None and strategy not in _STRATEGIES and "/" not in strategy:
            found.append(not_supported("spec.strategy", strategy, _STRATEGIES))
        if spec.get("preferredHolder") and not strategy:
            text = "may only be specified if `strategy` is defined"
            found.append(forbidden_field("spec.preferredHolder", text))
        return found
