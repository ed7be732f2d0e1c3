"""One episode: a policy, asked every ten seconds, for the replicas of a service graph under a load and a scenario."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lab.autoscaling.metrics import Scaling, figures
from lab.worlds.learned.model import LearnedTwin
from lab.worlds.learned.world import LearnedWorld
from lab.worlds.services.attacker import Attacker, Opportunist
from lab.worlds.services.disturbances import Disturbance
from lab.worlds.services.hidden import Hidden
from lab.worlds.services.loads import DRAWN, LoadTrace, of_trace, patterned
from lab.worlds.services.readings import ServiceSensing
from lab.worlds.services.scenarios import SCENARIOS, events_of
from lab.worlds.services.topology import ServiceGraph
from lab.worlds.services.world import ServiceWorld, WorldSeconds
from shared.autoscaling.observation import Decision, Policy, ScalingObservation
from shared.errors import ConfigError
from shared.policy.observation import Policy as Placement

CALM = "calm"
"""A scenario in which nothing happens but the load."""
ATTACKER = "attacker"
"""A scenario in which the attacker by rule plays."""
STEPS_HEADER = (
    "experiment", "policy", "seed", "time_s", "service", "wanted", "replicas", "ready", "starting", "pending",
    "arrivals", "served", "failed", "queue", "latency_s", "cpu_cores", "age_s", "answered_share",
)  # fmt: skip


class World(Protocol):
    """What an episode is played in: the service twin, or a learned one."""

    topology: ServiceGraph
    events: tuple[Disturbance, ...]
    now_s: int
    seconds: WorldSeconds

    @property
    def over(self) -> bool:
        """Whether the episode has reached its end."""
        ...

    @property
    def asked(self) -> dict[str, int]:
        """Replicas that are asked for, by service."""
        ...

    def observe(self) -> ScalingObservation:
        """What a policy sees now."""
        ...

    def apply(self, replicas: Mapping[str, int]) -> None:
        """Ask for replicas, by service; bounds and the budget hold."""
        ...

    def run(self, seconds: int) -> None:
        """Play so many seconds, or to the end."""
        ...


@dataclass(frozen=True, slots=True)
class Setup:
    """What an episode is played on. ``trace`` None: the twin's own load. ``placement`` None: ``kube-default``."""

    topology: ServiceGraph
    scenario: str = "mixed"
    intensity: float = 1.0
    trace: LoadTrace | None = None
    seconds: int = 1800
    decide_s: int = 10
    sensing: ServiceSensing = field(default_factory=ServiceSensing)
    placement: Placement | None = None
    hidden: Hidden | None = None
    """The cluster is not what ``topology`` says, but this; the traffic is the same."""
    twin: LearnedTwin | None = None
    """Play in this learned twin of the graph."""
    load: str = DRAWN
    """Of ``loads.PATTERNS``; a ``trace`` stands in its place."""

    def in_twin(self, twin: LearnedTwin) -> Setup:
        """The same in a learned twin; decisions are a whole number of its steps apart."""
        step_s = max(round(twin.header.step_s), 1)
        return replace(self, twin=twin, decide_s=-(-self.decide_s // step_s) * step_s)

    def rates(self, seed: int) -> NDArray[np.float64]:
        """Genuine requests per second to the graph, as expected: float64 [seconds]."""
        capacity = self.topology.capacity()
        if self.trace is None:
            return patterned(self.load, capacity, self.seconds, seed)
        # a learned twin knows the load as it was recorded; a share of a capacity would be another one
        return of_trace(self.trace, capacity, self.seconds, seed, as_it_is=self.twin is not None)

    def world(self, seed: int) -> World:
        """The episode of a seed, at its beginning. ``ConfigError``: the twin is of another graph or other steps."""
        rates = self.rates(seed)
        quiet = self.scenario not in SCENARIOS  # nothing is drawn: calm, an attacker who plays himself, a recorded day
        events = () if quiet else events_of(self.scenario, self.topology, self.seconds, seed, self.intensity)
        if self.twin is not None:
            return LearnedWorld(self.twin, self.topology, rates, events, scenario=self.scenario, seed=seed)
        topology, sensing = self.topology, self.sensing
        if self.hidden is not None:
            topology, sensing = self.hidden.topology(topology), self.hidden.sensing
        return ServiceWorld(topology, rates, events, seed=seed, sensing=sensing, policy=self.placement)


@runtime_checkable
class Clairvoyance(Protocol):
    """What a policy has that is shown the world itself; of bounds alone, no policy of a cluster has it."""

    def see(self, world: World) -> None:
        """The world of the episode that begins."""
        ...


@dataclass(frozen=True, slots=True)
class PlayedServices:
    """An episode's figures (``metrics.METRICS``, and ``decision_ms`` where there was a clock)."""

    seed: int
    figures: dict[str, float]


def play(
    setup: Setup,
    policy: Policy,
    seed: int,
    *,
    clock: Callable[[], float] | None = None,
    note: Callable[[tuple[object, ...]], None] | None = None,
    tick: Callable[[], None] = lambda: None,
    look: Callable[[ScalingObservation], None] = lambda _: None,
) -> PlayedServices:
    """Play the episode of ``seed``. ``note``: takes a row of ``STEPS_HEADER``'s columns from ``time_s`` on, for each
    decision and service. ``tick``: called now and then, for progress or to stop by raising. ``look``: gets what the
    policy sees at each decision, and at the end."""
    episode = ServiceEpisode(setup, policy, seed, clock=clock)
    while not episode.over:
        tick()
        step = episode.step()
        look(step.seen)
        if note is not None:
            _note(note, episode.world, step.seen, step.wanted, step.first)
    look(episode.world.observe())
    return episode.played()


@dataclass(frozen=True, slots=True)
class EpisodeStep:
    """One decision. ``first``: the second of the episode from which on it holds."""

    seen: ScalingObservation
    wanted: Mapping[str, int]
    first: int


class ServiceEpisode:
    """An episode that is played decision by decision."""

    def __init__(self, setup: Setup, policy: Policy, seed: int, *, clock: Callable[[], float] | None = None) -> None:
        self.world = setup.world(seed)
        self.policy = policy
        self._setup, self._seed, self._clock = setup, seed, clock
        policy.reset(seed)
        if isinstance(policy, Clairvoyance):
            policy.see(self.world)
        self._attacker = Opportunist(Attacker(attackable(self.world))) if setup.scenario == ATTACKER else None
        self._scalings: list[Scaling] = []
        self._decisions, self._spent_s = 0, 0.0

    @property
    def over(self) -> bool:
        """Whether it has reached its end."""
        return self.world.over

    def step(self) -> EpisodeStep:
        """Ask the policy, obey it, and play until it is to be asked again."""
        world, clock = self.world, self._clock
        seen = world.observe()
        began = clock() if clock is not None else 0.0
        decision = self.policy.decide(seen)
        self._spent_s += clock() - began if clock is not None else 0.0
        self._decisions += 1
        wanted = checked(decision, seen, self.policy.name)
        before = {name: one.replicas for name, one in seen.services.items()}
        world.apply(wanted)
        for name, asked in world.asked.items():
            if asked != before[name]:
                self._scalings.append(Scaling(seen.now, name, asked - before[name]))
        if self._attacker is not None:
            self._attacker.step(seen)
        first = world.now_s
        world.run(self._setup.decide_s)
        return EpisodeStep(seen, wanted, first)

    def played(self) -> PlayedServices:
        """What it has been worth so far."""
        found = figures(self.world.seconds, self.world.events, self._scalings, self._setup.topology)
        if self._clock is not None and self._decisions:
            found["decision_ms"] = self._spent_s / self._decisions * 1000.0
        return PlayedServices(self._seed, found)


def attackable(world: World) -> ServiceWorld:
    """The world as an attacker needs it. ``ConfigError``: it is a learned one, which has none."""
    if not isinstance(world, ServiceWorld):
        raise ConfigError("twin: a learned twin has no attacker; choose a scenario whose series were recorded")
    return world


def checked(decision: Decision, seen: ScalingObservation, name: str) -> dict[str, int]:
    """The decision as whole numbers. ``ConfigError``: it names a service that is not there, or is no whole number."""
    wanted: dict[str, int] = {}
    for service, replicas in decision.items():
        if service not in seen.services:
            raise ConfigError(f"policy {name}: it decides for {service!r}, which is not in the graph; fix the policy")
        if isinstance(replicas, bool) or not isinstance(replicas, int | np.integer):
            raise ConfigError(f"policy {name}: {service}: {replicas!r} replicas is no whole number; fix the policy")
        wanted[service] = int(replicas)
    return wanted


class StepsFile:
    """Rows of every decision as CSV, in memory: a file is written whole at the end."""

    def __init__(self) -> None:
        self._text = io.StringIO()
        self._rows = csv.writer(self._text, lineterminator="\n")
        self._rows.writerow(STEPS_HEADER)

    def of(self, experiment: str, policy: str, seed: int) -> Callable[[tuple[object, ...]], None]:
        """Takes the rows of one episode."""
        return lambda row: self._rows.writerow((experiment, policy, seed, *row))

    def content(self) -> bytes:
        """The file so far."""
        return self._text.getvalue().encode()


def _note(
    note: Callable[[tuple[object, ...]], None], world: World, seen: ScalingObservation, wanted: Decision, first: int
) -> None:
    offered, answered = sum(world.seconds.offered[first:]), sum(world.seconds.answered[first:])
    share = answered / offered if offered > 0 else 1.0
    for name, one in seen.services.items():
        readings = (
            one.arrivals,
            one.served,
            one.failed,
            one.queue,
            one.latency_s,
            one.usage.get("cpu"),
            one.age_s,
            share,
        )
        counts = (wanted.get(name, one.replicas), one.replicas, one.ready, one.starting, one.pending)
        note((int(seen.now), name, *counts, *map(_short, readings)))


def _short(value: float | None) -> str:
    """Nothing for what is missing: it is not zero."""
    return "" if value is None else f"{value:.4g}"
