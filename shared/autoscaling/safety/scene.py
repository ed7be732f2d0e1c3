"""What the safeguards see of one object at one moment, and what they leave behind. Pure data.

``SafetyScene.services`` are in the order of the graph. ``Draft`` is what goes from safeguard to safeguard: replicas by
service, and why each was changed, in words for people, first change first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from shared.autoscaling.observation import Decision, ServiceObservation
from shared.model.controllers.autoscaler import ScalerLimits


class ReplicaChange(Struct, frozen=True):
    """One change of ours: ``delta`` replicas at ``at_s`` (seconds, of the clock of ``SafetyScene.now``)."""

    at_s: float
    delta: int


class FreeNode(Struct, frozen=True):
    """What a node that takes pods has left: cores, bytes, pods."""

    cpu: float
    memory: float
    pods: int


class ServiceCase(Struct, frozen=True, kw_only=True):
    """One service. ``wanted``: the policy's answer as it came; None: it named none, and keeps what there is."""

    seen: ServiceObservation
    wanted: object = None
    rule: int | None = None
    """What HPA's rule says; None: it has nothing to go by."""
    bad: tuple[str, ...] = ()
    """What is wrong with its readings, a line each; empty: all of them can be relied on."""
    lacking: str = ""
    """Which signals the policy needs and nobody tells of it."""
    changes: tuple[ReplicaChange, ...] = ()
    floor: int | None = None
    """A rise that the last decision ordered and nobody carried out."""
    foreign: int | None = None
    """What somebody else wrote, which nothing is to fall below; None: nobody did, or it is to be corrected."""
    takes: Mapping[str, float] = {}
    """What one more pod would hold on a node: cores, bytes."""
    disruptions: int | None = None
    """How many serving pods its disruption budget lets go now; None: it has no budget."""


class SafetyScene(Struct, frozen=True, kw_only=True):
    """One object. ``policy_failed``: why the policy gave no answer; ``drifting``: what is unlike its training."""

    now: float
    services: Mapping[str, ServiceCase]
    limits: ScalerLimits = ScalerLimits()
    cost_limit: float | None = None
    nodes: tuple[FreeNode, ...] | None = None
    """None: unknown, so the cluster's room limits nothing but services with pending pods."""
    policy_failed: str = ""
    drifting: str = ""


@dataclass(slots=True)
class Draft:
    """Replicas by service on their way through the safeguards."""

    replicas: dict[str, int]
    notes: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """By service: (safeguard, why)."""

    def set(self, name: str, replicas: int, safeguard: str, why: str) -> None:
        """Change a service's replicas, saying why; the same number again says nothing."""
        if self.replicas[name] != replicas:
            self.replicas[name] = replicas
            self.notes.setdefault(name, []).append((safeguard, why))

    def at_least(self, name: str, replicas: int, safeguard: str, why: str) -> None:
        """Raise a service to ``replicas`` where it has fewer."""
        self.set(name, max(self.replicas[name], replicas), safeguard, why)

    def at_most(self, name: str, replicas: int, safeguard: str, why: str) -> None:
        """Lower a service to ``replicas`` where it has more."""
        self.set(name, min(self.replicas[name], replicas), safeguard, why)


class SafetyVerdict(Struct, frozen=True):
    """What may be written, and which safeguards had a part in it: by service, (safeguard, why)."""

    allowed: Decision
    notes: Mapping[str, tuple[tuple[str, str], ...]]


def rising(case: ServiceCase) -> bool:
    """Whether this service may be made larger at all: what somebody set to zero, with a minimum above it, is off."""
    return case.seen.replicas > 0 or case.seen.bounds.minimum == 0
