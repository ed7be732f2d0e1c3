"""The attacker of the zero-sum game: who sends requests that nobody wants, when it hurts most, within a budget.

Its action (learning.md a) is a pair: one of five rates, so many times the genuine requests on top, and one of three
kinds of requests, dearer ones cost more work. What it may send in all is a share of the genuine requests of an episode,
and it accrues with time, so that it must choose its moments. Its reward is the defenders' with the sign turned.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from lab.worlds.services.world import ServiceWorld
from shared.autoscaling.observation import ScalingObservation
from shared.errors import ConfigError

RATES = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Times the genuine requests."""
WORK = (0.0, 0.25, 0.5)
"""How much more work each of them costs."""
ACTIONS = len(RATES) * len(WORK)
REST = 0
BUDGET = 0.3
"""Of the genuine requests of an episode."""


@dataclass(frozen=True, slots=True)
class AttackerTerms:
    """What an attacker that trains along may do. ``ConfigError``: a value out of range."""

    share: float = 0.25
    """Of the episodes of training that it plays in, 0 to 1."""
    budget: float = BUDGET
    """Unwanted requests for each genuine one, over an episode."""
    rate: float = RATES[-1]
    """Most times the genuine requests at once."""
    dearer: bool = True
    """Whether its requests may cost more work than genuine ones."""

    def __post_init__(self) -> None:
        for flag, value, most in (
            ("--attacker", self.share, 1.0),
            ("--attacker-budget", self.budget, 100.0),
            ("--attacker-rate", self.rate, RATES[-1]),
        ):
            if not 0 < value <= most:
                raise ConfigError(f"{flag}: {value} is out of range; give more than 0, at most {most:g}")

    def allowed(self) -> tuple[bool, ...]:
        """Of each action, whether these terms leave it; to rest they always leave."""
        found = []
        for action in range(ACTIONS):
            rate, work = divmod(action, len(WORK))
            found.append(RATES[rate] <= self.rate and (self.dearer or not WORK[work]) and bool(rate or not work))
        return tuple(found)

    def flags(self) -> str:
        """As on the command line."""
        plain = "" if self.dearer else " --attacker-plain"
        return f" --attacker {self.share:g} --attacker-budget {self.budget:g} --attacker-rate {self.rate:g}{plain}"


class Attacker:
    """Plays actions against one world at one entry, and counts what they cost.

    ``budget``: unwanted requests for each genuine one, over time. What would go beyond it is not sent.
    """

    def __init__(self, world: ServiceWorld, *, budget: float = BUDGET) -> None:
        if not isfinite(budget) or budget < 0:
            raise ConfigError(f"budget: {budget} is out of range; give 0 or more")
        self._world, self.budget = world, budget
        self.entry = max(world.topology.entries, key=lambda name: world.topology.entries[name])

    @property
    def left(self) -> float:
        """Requests that it may send now."""
        return self.budget * sum(self._world.seconds.offered) - self._world.attack_requests

    def act(self, action: int) -> bool:
        """From now on; False: the budget does not allow it, and it rests. ``ConfigError``: no such action."""
        if not 0 <= action < ACTIONS:
            raise ConfigError(f"action: {action} is out of range; give 0 to {ACTIONS - 1}")
        rate, work = divmod(action, len(WORK))
        allowed = not rate or self.left > 0
        self._world.attack(self.entry, RATES[rate] if allowed else 0.0, WORK[work] if allowed and rate else 0.0)
        return allowed


class Opportunist:
    """An attacker by rule: it saves its budget, and strikes when the entry has few replicas for what comes to it."""

    STRIKE = ACTIONS - 1
    FEW = 0.75
    """It strikes below this share of the most ready replicas that it has seen, or when it could for two minutes."""
    ENOUGH_S = 60.0
    PATIENCE_S = 120.0

    def __init__(self, attacker: Attacker) -> None:
        self._attacker = attacker
        self._most = 1
        self._until_s = -1.0
        self._able_since_s: float | None = None

    def step(self, seen: ScalingObservation) -> None:
        """Choose and act."""
        entry = seen.services[self._attacker.entry]
        self._most = max(self._most, entry.ready)
        if seen.now < self._until_s:
            self._attacker.act(self.STRIKE)
            return
        per_s = (entry.arrivals or 0.0) * RATES[-1]
        if self._attacker.left < per_s * self.ENOUGH_S:
            self._able_since_s = None
            self._attacker.act(REST)
            return
        if self._able_since_s is None:
            self._able_since_s = seen.now
        waited_s = seen.now - self._able_since_s
        if entry.ready < self.FEW * self._most or waited_s >= self.PATIENCE_S:
            self._until_s, self._able_since_s = seen.now + self.ENOUGH_S, None
            self._attacker.act(self.STRIKE)
        else:
            self._attacker.act(REST)
