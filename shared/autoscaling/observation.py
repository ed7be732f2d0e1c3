"""What an autoscaling policy sees of a service graph, and what it answers. Service and twin build it alike.

A reading that is missing is None, never zero: "no pod ready" and "no reading" are not "no load".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from shared.autoscaling.hpa.model import TargetSeen
from shared.decide.policy import MemoryPolicy


class Bounds(msgspec.Struct, frozen=True):
    """How many replicas a service may have: ``0 <= minimum <= maximum``."""

    minimum: int
    maximum: int

    def clamp(self, replicas: int) -> int:
        """The nearest number of replicas within the bounds."""
        return min(max(replicas, self.minimum), self.maximum)


class ServiceObservation(msgspec.Struct, frozen=True, kw_only=True):
    """One service (a Deployment or another scale target) at one moment."""

    replicas: int
    """``spec.replicas``: what was last asked for."""
    ready: int
    """Pods that are Ready."""
    starting: int = 0
    """Pods on a node that are not Ready yet."""
    pending: int = 0
    """Pods that no node has taken."""
    bounds: Bounds
    requests: Mapping[str, float] = {}
    """Mean over the pods, by resource: cores, bytes. One that any of them does not request is left out."""
    usage: Mapping[str, float | None] = {}
    """Mean over ready pods, by resource: cores, bytes; of cpu without those whose use may be that of their start."""
    arrivals: float | None = None
    """Requests per second that came to it."""
    served: float | None = None
    """Requests per second that it answered well."""
    failed: float | None = None
    """Requests per second that it refused, dropped or answered with an error."""
    latency_s: float | None = None
    """95th percentile of what it answered, seconds."""
    queue: float | None = None
    """Requests that wait in it."""
    age_s: float = 0.0
    """How old the oldest of these readings is, seconds."""
    held: tuple[str, ...] = ()
    """Why it may not be made smaller now: a rollout, a drain, a fail-over, a failing probe."""
    scaled_to: int | None = None
    """What was written for it since the observation before; None: nothing was, or nobody knows."""
    asleep: bool = False
    """It has no replicas because whoever asks this policy took the last one away, in an earlier life."""
    seen: TargetSeen | None = None
    """Pod by pod, as the HPA's rule reads it, times in ``ScalingObservation.now``'s clock; None: nothing but the counts
    and means above is known (a twin)."""


class ScalingObservation(msgspec.Struct, frozen=True, kw_only=True):
    """A service graph at one moment."""

    now: float
    """Seconds; of one clock over a policy's life."""
    services: Mapping[str, ServiceObservation]
    calls: tuple[tuple[str, str], ...] = ()
    """Which service calls which: edges of a graph without a loop."""
    latency_objective_s: float | None = None
    success_objective: float | None = None
    """Share of requests answered well, 0 to 1."""
    cost_limit: float | None = None
    """Replica-hours per hour over all services; None: unlimited."""


Decision = Mapping[str, int]
"""Replicas wanted, by service. A service that is not named keeps what it has."""


class Acted(msgspec.Struct, frozen=True):
    """The role that a service acted in at a policy's last decision, and why it had it."""

    role: str
    why: str


def acted_of(policy: object) -> dict[str, Acted]:
    """By service, of a policy with roles (its ``reasons`` name the services that are in one); empty for others."""
    roles, reasons = getattr(policy, "roles", {}), getattr(policy, "reasons", {})
    return {name: Acted(str(roles.get(name, "")), str(why)) for name, why in reasons.items()}


RATES = frozenset({"arrivals", "served"})
"""How much comes, and how much of it is answered."""
LOAD = RATES | {"cpu"}
"""What whoever goes by demand needs: without the share of its cpu request that a replica uses nobody knows what it
could answer."""


def needs_of(policy: object, service: str) -> frozenset[str]:
    """The readings of a service (``cpu``, ``memory``, fields of ``ServiceObservation``) without which a policy cannot
    decide for it, as its method ``needs`` declares; every policy of the registry has one. What the HPA's rule reads for
    itself, pod by pod, is not among them."""
    declared = getattr(policy, "needs", None)
    return declared(service) if declared is not None else frozenset()


Policy: TypeAlias = MemoryPolicy[ScalingObservation, Decision]
"""Says how many replicas each service of one graph is to have."""
