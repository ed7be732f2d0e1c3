"""A learned twin as a world that episodes are played in, like ``lab.worlds.services.world.ServiceWorld``.

What it is given is the day's traffic: the genuine rates, and surges among the events. All else that happens (replicas
that fail, neighbours that take room, calls that get dearer) it draws from what was recorded in scenarios of that name;
other events are not played. Outcomes are reckoned from what was seen alone, as one would live: success is the product
of the shares answered well along the calls, latency that of the slowest entry, a request's time is taken to be
exponential with the 95th percentile seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp

import numpy as np
from numpy.typing import NDArray

from lab.worlds.learned import encoding as code
from lab.worlds.learned.model import LearnedTwin
from lab.worlds.services.disturbances import Disturbance, DisturbanceKind
from lab.worlds.services.topology import ServiceGraph, pod_class_of
from lab.worlds.services.world import EXPONENTIAL_95, LOAD_STREAM, WorldSeconds
from shared.autoscaling.observation import ScalingObservation, ServiceObservation
from shared.errors import ConfigError
from shared.model.resources import CPU, MEMORY

TWIN_STREAM = 51
UNANSWERED_S = 60.0
"""Latency at an entry that answers nobody."""


def check_graph(twin: LearnedTwin, topology: ServiceGraph, name: str = "twin") -> None:
    """Raises ``ConfigError`` where the twin was learned of another graph."""
    if set(twin.header.services) != set(topology.services):
        raise ConfigError(
            f"{name}: it was learned of {twin.header.graph} ({', '.join(twin.header.services)}), the graph is"
            f" {topology.name} ({', '.join(topology.order)}); give the twin of this graph"
        )


class LearnedWorld:
    """One episode. ``rates``: genuine requests per second, one for each second; ``scenario``: a recorded one."""

    def __init__(
        self,
        twin: LearnedTwin,
        topology: ServiceGraph,
        rates: Sequence[float] | NDArray[np.float64],
        events: Sequence[Disturbance],
        *,
        scenario: str,
        seed: int,
    ) -> None:
        check_graph(twin, topology)
        self.twin, self.topology, self.events = twin, topology, tuple(events)
        self.step_s = max(round(twin.header.step_s), 1)
        drawn = np.random.default_rng([seed, LOAD_STREAM]).poisson(np.asarray(rates, np.float64)).astype(float)
        self.length_s = len(drawn) // self.step_s * self.step_s
        self._rates = drawn[: self.length_s]
        self.now_s = 0
        self.seconds = WorldSeconds()
        self._rng = np.random.default_rng([seed, TWIN_STREAM])
        self._scenario = np.array([twin.scenario(scenario)])
        self._state = twin.start(scenario, self._rng)
        self._services = twin.header.services
        self._asked = {
            name: int(count) for name, count in zip(self._services, self._state.counts[0, :, 0], strict=True)
        }
        self._bounds = {name: topology.bounds(name) for name in self._services}
        self._requests = {name: _requests(topology, name) for name in self._services}
        self.spreads: list[float] = []
        """Of each step: how far the networks differ."""
        self.looked_up = 0
        """Steps that were answered by what was recorded."""

    @property
    def over(self) -> bool:
        """Whether the episode has reached its end."""
        return self.now_s >= self.length_s

    @property
    def asked(self) -> dict[str, int]:
        """Replicas that are asked for, by service."""
        return dict(self._asked)

    def observe(self) -> ScalingObservation:
        """What a policy sees now."""
        state, topology = self._state, self.topology
        measures = self.twin.units.measures(state.signals)[0]
        services: dict[str, ServiceObservation] = {}
        for at, name in enumerate(self._services):
            ready, starting, pending = (int(count) for count in state.counts[0, at, 1:])
            read = not state.missing[0, at]
            arrivals, served, failed, queue, latency, cpu = (float(value) if read else None for value in measures[at])
            services[name] = ServiceObservation(
                replicas=self._asked[name], ready=ready, starting=starting, pending=pending, bounds=self._bounds[name],
                requests=self._requests[name], usage={CPU: cpu if ready else None, MEMORY: None},
                arrivals=arrivals, served=served, failed=failed, queue=queue, latency_s=latency if ready else None,
                age_s=self.twin.header.age_s if read else 0.0,
            )  # fmt: skip
        objectives = topology.objectives
        return ScalingObservation(
            now=float(self.now_s),
            services={name: services[name] for name in topology.order},
            calls=topology.calls,
            latency_objective_s=objectives.latency_s,
            success_objective=objectives.success,
            cost_limit=None if topology.replica_budget is None else float(topology.replica_budget),
        )

    def apply(self, replicas: Mapping[str, int]) -> None:
        """Ask for replicas, by service; bounds and the budget hold. ``ConfigError``: no such service."""
        for name in replicas:
            if name not in self._asked:
                raise ConfigError(f"decision.{name}: no such service; name those of the topology")
        for name, count in sorted(replicas.items(), key=lambda item: item[1] - self._asked[item[0]]):
            wanted = self._bounds[name].clamp(int(count))
            if self.topology.replica_budget is not None:
                room = self.topology.replica_budget - sum(self._asked.values()) + self._asked[name]
                wanted = min(wanted, max(self._asked[name], room))
            self._asked[name] = wanted

    def begin(self, counts: code.Ints, measures: NDArray[np.float64]) -> None:
        """Begin at a moment that was recorded: ``counts`` [services, 4], ``measures`` [services, 6]."""
        self._state = code.first(counts[None].astype(np.int64), self.twin.units.signals(measures[None]))
        self._asked = dict(zip(self._services, (int(count) for count in counts[:, code.REPLICAS]), strict=True))

    def follow(self, counts: code.Ints, measures: NDArray[np.float64]) -> None:
        """Go on to the moment that was recorded a step later, in place of one that the twin would draw."""
        first = self.now_s
        self._state = code.follow(self._state, counts[None].astype(np.int64), self.twin.units.signals(measures[None]))
        self._note(self._rates[first : first + self.step_s])
        self.now_s = first + self.step_s

    def run(self, seconds: int) -> None:
        """Play so many seconds, or to the end. ``ConfigError``: they are no whole number of the series' steps."""
        if seconds % self.step_s:
            raise ConfigError(f"decide_s: {seconds} s is no multiple of the twin's steps; decide every {self.step_s} s")
        for _ in range(min(seconds, self.length_s - self.now_s) // self.step_s):
            self._step()

    def _step(self) -> None:
        first, until = self.now_s, self.now_s + self.step_s
        genuine = self._rates[first:until]
        usual = self.twin.units.arrivals
        loads = np.zeros((1, len(self.twin.entries)))
        for at, entry in enumerate(self.twin.entries):
            name = self._services[entry]
            arriving = genuine * self.topology.entries.get(name, 0.0) * (1.0 + self._surges(name, first))
            loads[0, at] = arriving.mean() / usual[entry]
        replicas = np.array([[self._asked[name] for name in self._services]])
        self._state, spread, looked_up = self.twin.step(self._state, replicas, loads, self._scenario, self._rng)
        self.spreads.append(float(spread[0]))
        self.looked_up += bool(looked_up[0])
        self._note(genuine)
        self.now_s = until

    def _surges(self, name: str, first: int) -> NDArray[np.float64]:
        found = np.zeros(self.step_s)
        for event in self.events:
            if event.kind is DisturbanceKind.SURGE and event.target == name:
                since, until = int(event.since_s) - first, int(min(event.until_s, self.length_s)) - first
                found[max(since, 0) : max(until, 0)] += event.amount
        return found

    def _note(self, genuine: NDArray[np.float64]) -> None:
        state, topology, seconds = self._state, self.topology, self.seconds
        signals = dict(zip(self._services, state.signals[0], strict=True))
        counts = dict(zip(self._services, state.counts[0].tolist(), strict=True))
        measures = self.twin.units.measures(state.signals)[0]
        well: dict[str, float] = {}
        for name in reversed(topology.order):
            well[name] = float(signals[name][code.WELL]) if counts[name][code.READY] else 0.0
            for callee, calls in topology.services[name].calls.items():
                well[name] *= well[callee] ** calls
        success = sum(share * well[name] for name, share in topology.entries.items())
        latency_s = max(
            float(signals[name][code.LATENCY]) * self.twin.units.latency_s if well[name] > 0 else UNANSWERED_S
            for name in topology.entries
        )
        in_time = 1.0 - exp(-EXPONENTIAL_95 * topology.objectives.latency_s / max(latency_s, 1e-6))
        up = sum(counts[name][code.READY] > 0 for name in topology.entries) / len(topology.entries)
        unready = sum(one[code.STARTING] + one[code.PENDING] for one in counts.values())
        placed = sum(one[code.READY] + one[code.STARTING] for one in counts.values())
        served, queued = float(measures[:, 1].sum()), float(measures[:, 3].sum())
        for offered in genuine.tolist():
            seconds.offered.append(offered)
            seconds.answered.append(offered * success)
            seconds.in_time.append(offered * success * in_time)
            seconds.waiting.append(queued)
            seconds.served.append(served)
            seconds.latency_s.append(latency_s)
            seconds.entries_up.append(up)
            seconds.pods.append(placed)
            seconds.failed_pods.append(float(unready))


def _requests(topology: ServiceGraph, name: str) -> dict[str, float]:
    asked = dict(pod_class_of(topology.services[name]).requests)
    return {CPU: asked.get(CPU, 0) / 1000, MEMORY: float(asked.get(MEMORY, 0))}
