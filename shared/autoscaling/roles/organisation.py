"""An organisation: the roles and missions of a file, and which steps they leave to each service now.

A role's guide says when it applies and which steps are then allowed; what is rewarded while it applies is its mission,
and the goals of the missions that it names (MOISE+MARL: role action guide, goal reward guide; learning.md a). Hard
binding masks every other step, soft binding leaves them and says what they cost; a role may bind otherwise than the
rest. Bounds always mask. Where nothing is left the service holds. What contradicts itself is refused (``checking``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import yaml
from numpy.typing import NDArray

from shared.autoscaling.networks.features import HOLD, STEPS, need_of_ready
from shared.autoscaling.networks.signals import ServiceSignals
from shared.errors import ConfigError

SHIPPED = Path(__file__).with_name("karma.yaml")
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


def parse_organisation(text: str, source: str = "roles") -> Organisation:
    """The organisation of a YAML text. Raises ``ConfigError`` naming the field and the remedy."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{source}{where}: no YAML ({getattr(error, 'problem', '')}); fix the file") from None
    return organisation_from(document, source)


def organisation_from(document: object, source: str = "roles") -> Organisation:
    """The organisation of a document, of a file or a weights' card. ``ConfigError`` as ``parse_organisation``."""
    from shared.autoscaling.roles.checking import faults

    try:
        found = msgspec.convert(document, Organisation)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {error}; see docs/autoscaling-twin.md") from None
    _check_steps(found.otherwise, f"{source}: otherwise")
    names: set[str] = set()
    for number, role in enumerate(found.roles):
        field = f"{source}: roles[{number}]"
        if role.name in names or not role.name:
            raise ConfigError(f"{field}.name: {role.name!r} is empty or there twice; give each role its own")
        names.add(role.name)
        _check_steps(role.allow, f"{field}.allow")
        if not role.when.all and not role.when.any:
            raise ConfigError(f"{field}.when: no condition, so no later role would ever apply; use `otherwise`")
        for part in ("all", "any"):
            for at, condition in enumerate(getattr(role.when, part)):
                _check_condition(condition, f"{field}.when.{part}[{at}]")
        for name, weight in role.mission.items():
            _check_signal(name, f"{field}.mission.{name}")
            if not isfinite(weight) or abs(weight) > 10:
                raise ConfigError(f"{field}.mission.{name}: {weight} is out of range; give -10 to 10")
    for number, mission in enumerate(found.missions):
        field = f"{source}: missions[{number}]"
        if not mission.name or mission.name in {one.name for one in found.missions[:number]}:
            raise ConfigError(f"{field}.name: {mission.name!r} is empty or there twice; give each mission its own")
        if not mission.goal:
            raise ConfigError(f"{field}.goal: no condition; say what is to be reached")
        for at, condition in enumerate(mission.goal):
            _check_condition(condition, f"{field}.goal[{at}]")
        if not isfinite(mission.reward) or not 0 < mission.reward <= 10:
            raise ConfigError(f"{field}.reward: {mission.reward} is out of range; give more than 0, at most 10")
    for fault in faults(found):
        raise ConfigError(f"{source}: {fault}")
    return found


@lru_cache(maxsize=1)
def karma_roles() -> Organisation:
    """The four roles of the paper, as they are shipped."""
    return parse_organisation(SHIPPED.read_text(encoding="utf-8"), SHIPPED.name)


def organisation_of(binding: str, *, missions: bool | None = None, roles: Organisation | None = None) -> Organisation:
    """The shipped roles, or those of a user, bound ``hard`` or ``soft``; ``none``: they leave every step, at no price.

    ``missions``: whether theirs are rewarded; None: where the roles bind. Neither: nobody's roles.
    """
    if binding not in BINDINGS:
        raise ConfigError(f"binding: {binding!r} is not known; choose {', '.join(BINDINGS)}")
    rewarded = binding != NONE if missions is None else missions
    own = roles or karma_roles()
    if binding == NONE:
        each = tuple(msgspec.structs.replace(role, binding=None) for role in own.roles)
        free = msgspec.structs.replace(own, roles=each, binding="soft", bonus=0.0, penalty=0.0)
        return free if rewarded else NOBODY
    found = msgspec.structs.replace(own, binding=binding)
    if rewarded:
        return found
    return msgspec.structs.replace(
        found, roles=tuple(msgspec.structs.replace(role, mission={}, missions=()) for role in found.roles), missions=()
    )


def _check_steps(steps: tuple[int, ...], field: str) -> None:
    if not steps:
        raise ConfigError(f"{field}: it allows nothing; give at least one of {', '.join(map(str, STEPS))}")
    for step in steps:
        if step not in STEPS:
            raise ConfigError(f"{field}: {step} is no step; give some of {', '.join(map(str, STEPS))}")


def _check_condition(condition: RoleCondition, field: str) -> None:
    _check_signal(condition.signal, f"{field}.signal")
    low, high = condition.above, condition.below
    if low is None and high is None:
        raise ConfigError(f"{field}: neither above nor below; give one of them")
    if any(bound is not None and not isfinite(bound) for bound in (low, high)):
        raise ConfigError(f"{field}: a bound is not finite; give a number")
    if low is not None and high is not None and low >= high:
        raise ConfigError(f"{field}: above {low} and below {high} exclude each other; exchange them")


def _check_signal(name: str, field: str) -> None:
    if name not in SIGNALS:
        raise ConfigError(f"{field}: {name!r} is no signal; choose one of {', '.join(SIGNALS)}")
