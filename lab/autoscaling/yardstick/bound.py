"""What to measure the rules by: a clairvoyant, and a world in which nothing can go wrong.

``Clairvoyant`` is the rule by demand with the truth in place of its estimates: it knows the requests, surges and dearer
calls of the seconds to come, what a replica answers, and which replicas hang before their probe has failed. It has the
cluster that all have: starts take their time, a node is as large as it is, and who goes first is the ReplicaSet
controller's choice. So its figures can be had by somebody who knew; how far a policy is below them is what knowledge
would be worth. It is calibrated like every rule (``search``), so its front over replica hours is a bound at equal cost.

``untroubled`` is no policy. Nothing fails, nobody presses, every pod has room and is Ready at once, and each service
has its maximum from the first second. Nothing that was played exceeds its ``success`` and ``latency_compliance``; that
is no proof, and ``availability`` can be exceeded: who answers more upstream sends more downstream. Its
``replica_hours`` are the fewest, with parts of replicas, that answer
all that comes within the maximums; who answers less may need less.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from lab.autoscaling.episode import Setup, World, attackable
from lab.autoscaling.metrics import figures
from lab.worlds.services.disturbances import Disturbance, DisturbanceKind
from lab.worlds.services.pods import ReplicaState
from lab.worlds.services.topology import AlikeNodes, GraphService, ServiceGraph
from lab.worlds.services.world import ServiceWorld
from shared.autoscaling.networks.demand import DemandPolicy, DemandSettings
from shared.autoscaling.networks.signals import ServiceSignals
from shared.autoscaling.observation import Decision, ScalingObservation

CLAIRVOYANT = "clairvoyant"
PASSING = frozenset({DisturbanceKind.FAILURES, DisturbanceKind.PRESSURE})
"""What the world without trouble leaves out; surges and dearer calls are load, and stay."""
ROOM = AlikeNodes("boundless", cpu=1_000_000, memory="1Pi", pods=1_000_000)
SOON_S = 20.0
"""A crashed replica that is back within so long is left to come back."""
Floats = NDArray[np.float64]


class ClairvoyantSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How careful it is, though it knows."""

    headroom: Annotated[float, Meta(ge=1, le=10)] = 1.2
    spare: Annotated[float, Meta(ge=0, le=10)] = 0.5
    hold_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    ahead_s: Annotated[int, Meta(ge=1, le=600)] = 30
    """How far it looks: a replica needs about so long to become Ready."""


class Clairvoyant:
    """See the module."""

    name = CLAIRVOYANT
    Settings = ClairvoyantSettings

    def __init__(self, settings: ClairvoyantSettings = ClairvoyantSettings()) -> None:  # noqa: B008 - frozen
        self._ahead_s = settings.ahead_s
        self._rule = DemandPolicy(
            DemandSettings(headroom=settings.headroom, spare=settings.spare, hold_s=settings.hold_s)
        )
        self._world: ServiceWorld | None = None
        self._needed: Floats = np.zeros((0, 0))

    def reset(self, seed: int) -> None:
        """Forget everything."""
        self._rule.reset(seed)
        self._world = None

    def see(self, world: World) -> None:
        """``ConfigError``: a learned twin, whose future nobody knows."""
        self._world = attackable(world)
        self._needed = needed(self._world)

    def decide(self, seen: ScalingObservation) -> Decision:
        """What it wants now, of the world that it was shown."""
        world = self._world
        if world is None:
            return {}
        now = world.now_s
        coming = self._needed[now : now + self._ahead_s].max(axis=0)
        signals: dict[str, ServiceSignals] = {}
        for at, name in enumerate(world.fleet.names):
            spec, pods = world.fleet.specs[at], world.fleet.pods[at]
            hung, ready, pending = world.fleet.hung[at], *world.fleet.counts(at)[::2]
            stuck = sum(
                one.state is ReplicaState.STUCK or (one.state is ReplicaState.BACKOFF and one.until_s > now + SOON_S)
                for one in pods
            )
            bounds, one = world.topology.bounds(name), seen.services[name]
            capacity = max(ready - hung, 1) * spec.throughput
            signals[name] = ServiceSignals(
                replicas=world.fleet.asked[at], ready=ready, unready=len(pods) - ready - pending, stuck=stuck,
                pending=pending, minimum=bounds.minimum, maximum=bounds.maximum, cores=one.requests.get("cpu") or 0.0,
                per_replica=1.0, demand=float(coming[at]) + hung, arrivals=0.0, trend=0.0,
                waiting_s=world.queues[at] / capacity, failing=0.0, utilisation=0.0, latency=0.0, inflation=1.0,
                missing=False, age_s=0.0,
            )  # fmt: skip
        return self._rule.wanted(signals, seen.now)


def needed(world: ServiceWorld) -> Floats:
    """Replicas, exactly, that all that comes takes: float64 [seconds, services], though callers answer everything."""
    topology, names = world.topology, world.fleet.names
    number = {name: at for at, name in enumerate(names)}
    surge, work = np.zeros((world.length_s, len(names))), np.ones((world.length_s, len(names)))
    for event in world.events:
        since, until = int(event.since_s), int(min(event.until_s, world.length_s))
        if event.kind is DisturbanceKind.SURGE:
            surge[since:until, number[event.target]] += event.amount
        elif event.kind is DisturbanceKind.DEARER:
            work[since:until, number[event.target]] += event.amount
    arriving = np.zeros_like(surge)
    for name, share in topology.entries.items():
        arriving[:, number[name]] += np.asarray(world.rates) * share * (1.0 + surge[:, number[name]])
    for name in topology.order:
        for callee, calls in topology.services[name].calls.items():
            arriving[:, number[callee]] += arriving[:, number[name]] * calls
    found: Floats = arriving * work / np.array([topology.services[name].throughput for name in names])
    return found


def untroubled(setup: Setup, seed: int) -> dict[str, float]:
    """The figures of the world without trouble in the episode of a seed. ``ConfigError``: it is of a learned twin."""
    world = attackable(setup.world(seed))
    free = ServiceWorld(
        _untroubled(setup.topology), setup.rates(seed), _untroubling(world.events), seed=seed, sensing=setup.sensing
    )  # fmt: skip
    free.apply({name: setup.topology.bounds(name).maximum for name in setup.topology.order})
    free.run(free.length_s)
    bounds = [setup.topology.bounds(name) for name in world.fleet.names]
    fewest = np.clip(needed(world), [one.minimum for one in bounds], [one.maximum for one in bounds])
    found = figures(free.seconds, free.events, (), free.topology)
    told = {name: found[name] for name in ("success", "latency_compliance", "availability")}
    return {**told, "replica_hours": float(fewest.sum()) / 3600.0}


def _untroubling(events: tuple[Disturbance, ...]) -> tuple[Disturbance, ...]:
    return tuple(event for event in events if event.kind not in PASSING)


def _untroubled(topology: ServiceGraph) -> ServiceGraph:
    def most(one: GraphService) -> GraphService:
        full = replace(one.replicas, start=one.replicas.maximum)
        return replace(one, replicas=full, start_delay_s=0.0, image_pull_s=0.0, crash_probability=0.0)

    services = {name: most(one) for name, one in topology.services.items()}
    return replace(topology, nodes=(ROOM,), services=services, replica_budget=None)
