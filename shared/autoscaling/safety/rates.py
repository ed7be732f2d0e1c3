"""How fast a service may grow and shrink. Pure; the arithmetic of HPA's scaling policies.

In a period a service may grow by the larger of ``pods`` and ``percent`` of what it had when the period began, and
shrink likewise. Source: k8s ``pkg/controller/podautoscaler`` (``calculateScaleUpLimitWithScalingRules``): what it had
is what it has, less what was added and more what was removed since.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from shared.autoscaling.safety.scene import Draft, ReplicaChange, SafetyScene, ServiceCase
from shared.model.controllers.autoscaler import ScalerLimits


def began_with(replicas: int, changes: Iterable[ReplicaChange], *, since_s: float) -> int:
    """What it had at ``since_s``."""
    return max(replicas - sum(change.delta for change in changes if change.at_s > since_s), 0)


def most(case: ServiceCase, limits: ScalerLimits, now: float) -> int:
    """The most replicas it may have now."""
    start = began_with(case.seen.replicas, case.changes, since_s=now - limits.up_period_s)
    room = max(limits.up_pods, math.ceil(start * limits.up_percent / 100))
    return max(start + room, case.seen.replicas)


def fewest(case: ServiceCase, limits: ScalerLimits, now: float) -> int:
    """The fewest replicas it may have now."""
    start = began_with(case.seen.replicas, case.changes, since_s=now - limits.down_period_s)
    room = max(limits.down_pods, math.floor(start * limits.down_percent / 100))
    return min(max(start - room, 0), case.seen.replicas)


def rates(scene: SafetyScene, draft: Draft) -> None:
    """Within both."""
    limits = scene.limits
    for name, case in scene.services.items():
        draft.at_most(
            name, most(case, limits, scene.now), "rate-up",
            f"at most {limits.up_pods} pods or {limits.up_percent} % in {limits.up_period_s:g} s",
        )  # fmt: skip
        draft.at_least(
            name, fewest(case, limits, scene.now), "rate-down",
            f"at most {limits.down_pods} pods or {limits.down_percent} % fewer in {limits.down_period_s:g} s",
        )  # fmt: skip
