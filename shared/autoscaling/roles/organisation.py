"""An organisation: the roles and missions of a file, and which steps they leave to each service now.

A role's guide says when it applies and which steps are then allowed; what is rewarded while it applies is its mission,
and the goals of the missions that it names (MOISE+MARL: role action guide, goal reward guide; learning.md a). Hard
binding masks every other step, soft binding leaves them and says what they cost; a role may bind otherwise than the
rest. Bounds always mask. Where nothing is left the service holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from shared.autoscaling.networks.features import HOLD, STEPS, need_of_ready
from shared.autoscaling.networks.signals import ServiceSignals

SIGNALS = (
    "stuck", "pending", "not_ready", "need_of_ready", "waiting_s", "failing", "trend", "utilisation", "latency",
    "inflation", "graph_pending", "graph_stuck", "age_s",
)  # fmt: skip
"""What a condition or a mission may name. Shares but waiting_s and age_s (seconds), stuck and pending (replicas),
need_of_ready and latency (ratios)."""
NO_ROLE = "-"
NONE = "none"
BINDINGS = ("hard", "soft", NONE)
Mask = NDArray[np.bool_]


class RoleCondition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``above`` and ``below`` exclude the value itself; both: between."""

    signal: str
    above: float | None = None
    below: float | None = None

    def holds(self, values: Mapping[str, float]) -> bool:
        """Whether the signal's value meets it."""
        value = values[self.signal]
        return (self.above is None or value > self.above) and (self.below is None or value < self.below)

    @property
    def text(self) -> str:
        """In words, such as ``stuck above 0``; without the value, so that the same reason is the same text."""
        bounds = (("above", self.above), ("below", self.below))
        return f"{self.signal} {' and '.join(f'{word} {bound:g}' for word, bound in bounds if bound is not None)}"


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of ``all`` and, where there are some, at least one of ``any``."""

    all: tuple[RoleCondition, ...] = ()
    any: tuple[RoleCondition, ...] = ()

    def holds(self, values: Mapping[str, float]) -> bool:
        """Whether the role applies."""
        if not all(condition.holds(values) for condition in self.all):
            return False
        return not self.any or any(condition.holds(values) for condition in self.any)

    def told(self, values: Mapping[str, float]) -> str:
        """Why it applies: the conditions that hold."""
        return ", ".join(one.text for one in (*self.all, *self.any) if one.holds(values))


class ScalingRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``mission``: what each unit of a signal takes from the reward while the role applies; ``missions``: whose goals
    are rewarded then; ``binding``: of this role, where it is not that of all."""

    name: str
    when: When
    allow: tuple[int, ...]
    mission: dict[str, float] = {}
    missions: tuple[str, ...] = ()
    binding: Literal["hard", "soft"] | None = None


class ScalingMission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A goal, and what each decision at which it holds earns a service whose role has it."""

    name: str
    goal: tuple[RoleCondition, ...]
    reward: float

    def reached(self, values: Mapping[str, float]) -> bool:
        """Whether all of the goal holds."""
        return all(one.holds(values) for one in self.goal)


class Organisation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A checked file of roles."""

    name: str
    roles: tuple[ScalingRole, ...] = ()
    binding: Literal["hard", "soft"] = "hard"
    bonus: float = 0.0
    penalty: float = 0.0
    otherwise: tuple[int, ...] = STEPS
    missions: tuple[ScalingMission, ...] = ()

    def soft(self, role: ScalingRole | None) -> bool:
        """Whether other steps than a role's are left, at a price."""
        own = None if role is None else role.binding
        return (own or self.binding) == "soft"

    def role(self, one: ServiceSignals, graph: Mapping[str, float]) -> ScalingRole | None:
        """The first role that applies to a service."""
        if not self.roles:
            return None
        values = {**values_of(one), **graph}
        return next((role for role in self.roles if role.when.holds(values)), None)

    def mask(self, one: ServiceSignals, role: ScalingRole | None) -> Mask:
        """bool [steps]: what the service may do; holding where nothing else is left."""
        allowed, soft = self.otherwise if role is None else role.allow, self.soft(role)
        steps = [(soft or step in allowed) and one.minimum <= one.replicas + step <= one.maximum for step in STEPS]
        if not any(steps):
            steps[HOLD] = True
        return np.array(steps, np.bool_)

    def reward(self, one: ServiceSignals, role: ScalingRole | None, graph: Mapping[str, float], step: int) -> float:
        """What missions and soft binding add to a service's reward for its step."""
        earned = 0.0
        if role is not None and (role.mission or role.missions):
            values = {**values_of(one), **graph}
            earned -= sum(weight * values[name] for name, weight in role.mission.items())
            earned += sum(
                mission.reward for mission in self.missions if mission.name in role.missions and mission.reached(values)
            )
        if self.soft(role):
            allowed = self.otherwise if role is None else role.allow
            earned += self.bonus if step in allowed else -self.penalty
        return earned


NOBODY = Organisation(name="none")
"""Without roles: every step within the bounds is allowed."""


def values_of(one: ServiceSignals) -> dict[str, float]:
    """A service's own signals by name."""
    return {
        "stuck": float(one.stuck),
        "pending": float(one.pending),
        "not_ready": 1.0 - one.ready / max(one.replicas, 1),
        "need_of_ready": need_of_ready(one),
        "waiting_s": one.waiting_s,
        "failing": one.failing,
        "trend": one.trend,
        "utilisation": one.utilisation,
        "latency": one.latency,
        "inflation": one.inflation,
        "age_s": one.age_s,
    }


def graph_values(signals: Mapping[str, ServiceSignals]) -> dict[str, float]:
    """The whole graph's."""
    asked = max(sum(one.replicas for one in signals.values()), 1)
    return {
        "graph_pending": sum(one.pending for one in signals.values()) / asked,
        "graph_stuck": sum(one.stuck for one in signals.values()) / asked,
    }
