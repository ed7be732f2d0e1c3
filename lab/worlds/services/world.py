"""A service graph under a load, one second at a time: requests, queues, answers, and the pods that give them.

The flow of one second, callers before those they call. A request to an entry fans out along ``calls``; all calls of one
request go out side by side, each when its caller has answered its part::

    arrive --no room, no ready pod, a pod that hangs--> failed
       |
       v
     queue --waits longer than timeout_s--> failed
       |
       v
     served --error_probability--> failed;  else its calls arrive at the next services

It is a fluid: rates are real numbers, a queue is an amount whose requests are alike, and a request is well answered
with the product of the shares answered well along its way in that second. That is exact while nothing waits and close
where queues are short beside their time-out; it is what makes an episode of half an hour take a fraction of a second.
The wait within a second is that of M/M/c by Sakasegawa (1977), ``rho ** (sqrt(2 (c + 1)) - 1) / (c (1 - rho))``
service times; latencies of one path are its queueing and an exponential time, for 95th percentiles and compliance.

Pure: the same topology, load, events, seed and decisions give the same seconds. ``validate`` names what is broken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, inf, sqrt

import numpy as np
from numpy.typing import NDArray

from lab.worlds.services.disturbances import Disturbance, DisturbanceKind, check_events
from lab.worlds.services.pods import Fleet
from lab.worlds.services.readings import ServiceSensing, ServiceSensors
from lab.worlds.services.topology import ServiceGraph, pod_class_of
from shared.autoscaling.observation import ScalingObservation
from shared.errors import ConfigError
from shared.model.resources import CPU, MEMORY
from shared.policy.heuristics import KubeDefault
from shared.policy.observation import Policy

FULL = 0.99
"""Utilisation above which the wait is the queue's, which is counted by itself."""
EXPONENTIAL_95 = 3.0
"""-ln(1 - 0.95): the 95th percentile of an exponential time over its mean."""
IDLE = 0.03
"""Share of its cpu request that an idle replica uses. Memory: 40 % of the request, 80 % when its queue is full."""
POD_STREAM, SENSE_STREAM, LOAD_STREAM = 1, 2, 3


@dataclass(slots=True)
class WorldSeconds:
    """What happened, a value per second. Requests are genuine ones to the graph; ``pods``: paid for."""

    offered: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    in_time: list[float] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)
    served: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    entries_up: list[float] = field(default_factory=list)
    pods: list[int] = field(default_factory=list)
    failed_pods: list[float] = field(default_factory=list)


class ServiceWorld:
    """One episode. ``rates``: genuine requests per second to the graph, one for each second of it."""

    def __init__(
        self,
        topology: ServiceGraph,
        rates: Sequence[float] | NDArray[np.float64],
        events: Sequence[Disturbance] = (),
        *,
        seed: int,
        sensing: ServiceSensing | None = None,
        policy: Policy | None = None,
    ) -> None:
        wanted = np.asarray(rates, np.float64)
        if wanted.ndim != 1 or not np.isfinite(wanted).all() or (wanted < 0).any():
            raise ConfigError("rates: a rate is negative or no number; give requests per second, 0 or more")
        check_events(tuple(events))
        self.topology = topology
        self.length_s = len(wanted)
        self.now_s = 0
        self.seconds = WorldSeconds()
        self._rng = np.random.default_rng([seed, POD_STREAM])
        self.fleet = Fleet(topology, policy or KubeDefault(), self._rng)
        self.sensors = ServiceSensors(
            topology, sensing or ServiceSensing(), np.random.default_rng([seed, SENSE_STREAM])
        )
        self._rates: list[float] = np.random.default_rng([seed, LOAD_STREAM]).poisson(wanted).astype(float).tolist()
        names = self.fleet.names
        count = len(names)
        number = {name: at for at, name in enumerate(names)}
        self._specs = self.fleet.specs
        self._calls = [[(number[to], calls) for to, calls in spec.calls.items()] for spec in self._specs]
        self._entries = [(number[name], share) for name, share in topology.entries.items()]
        asked = [dict(pod_class_of(spec).requests) for spec in self._specs]
        self._cores = [one.get(CPU, 0) / 1000 for one in asked]
        self._bytes = [float(one.get(MEMORY, 0)) for one in asked]
        self._queue, self._genuine = [0.0] * count, [0.0] * count
        self._work = [1.0] * count
        self._surge = [0.0] * count
        self._crash = self._rng.random((self.length_s, count)).tolist()
        self.events = tuple(events)
        self._begins: dict[int, list[Disturbance]] = {}
        self._ends: dict[int, list[Disturbance]] = {}
        for event in events:
            self._known(event, number)
            self._begins.setdefault(int(event.since_s), []).append(event)
            if event.until_s < self.length_s:
                self._ends.setdefault(int(event.until_s), []).append(event)
        self._number = number
        self._live: list[Disturbance] = []
        self.attack_requests = 0.0

    @property
    def over(self) -> bool:
        """Whether the episode has reached its end."""
        return self.now_s >= self.length_s

    @property
    def rates(self) -> Sequence[float]:
        """Genuine requests of each second, those to come too: a bound may look at them, a policy never."""
        return self._rates

    @property
    def queues(self) -> Sequence[float]:
        """Requests that wait now, by service in the topology's order."""
        return self._queue

    @property
    def asked(self) -> dict[str, int]:
        """Replicas that are asked for, by service."""
        return dict(zip(self.fleet.names, self.fleet.asked, strict=True))

    def observe(self) -> ScalingObservation:
        """What a policy sees now."""
        return self.sensors.observe(self.fleet, float(self.now_s))

    def apply(self, replicas: Mapping[str, int]) -> None:
        """Ask for replicas, by service; bounds and the budget hold. ``ConfigError``: no such service."""
        wanted = {}
        for name, count in replicas.items():
            if name not in self._number:
                raise ConfigError(f"decision.{name}: no such service; name those of the topology")
            wanted[self._number[name]] = count
        for service, count in sorted(wanted.items(), key=lambda item: item[1] - self.fleet.asked[item[0]]):
            self.fleet.scale(service, count)  # those that shrink first: they make room, on nodes and in the budget

    def attack(self, entry: str, times: float, dearer: float = 0.0) -> None:
        """Until it is said again: so many times the genuine requests come on top, each of so much more work."""
        self._live = [one for one in self._live if one.until_s != inf or one.target != entry]
        for kind, amount in ((DisturbanceKind.SURGE, times), (DisturbanceKind.DEARER, dearer)):
            if amount:
                self._live.append(Disturbance(kind, self.now_s, inf, amount, entry))
        self._weigh()

    def run(self, seconds: int) -> None:
        """Play so many seconds, or to the end."""
        for _ in range(min(seconds, self.length_s - self.now_s)):
            self._second()

    def validate(self) -> list[str]:
        """What is broken; nothing while all is well. W1 no queue is negative or holds more genuine requests than
        requests, W2 no more is answered than was ever offered; and what the fleet says."""
        found = list(self.fleet.validate())
        for name, queue, genuine in zip(self.fleet.names, self._queue, self._genuine, strict=True):
            if not -1e-6 <= genuine <= queue + 1e-6:
                found.append(f"W1: the queue of {name} holds {queue}, {genuine} of it genuine")
        if sum(self.seconds.answered) > sum(self.seconds.offered) + 1e-6:
            found.append("W2: more requests are answered than came")
        return found

    def _known(self, event: Disturbance, number: Mapping[str, int]) -> None:
        targets = self.fleet.nodes if event.kind is DisturbanceKind.PRESSURE else tuple(number)
        if event.target not in targets and not (event.kind is DisturbanceKind.FAILURES and not event.target):
            raise ConfigError(f"events: {event.kind} of {event.target!r}: there is none; give one of {targets}")

    def _second(self) -> None:
        now_s, fleet = self.now_s, self.fleet
        self._disturb(now_s)
        fleet.advance(float(now_s))
        count = len(self._specs)
        arriving, genuine = [0.0] * count, [0.0] * count
        offered = self._rates[now_s]
        for service, share in self._entries:
            own = offered * share
            genuine[service] += own
            arriving[service] += own * (1.0 + self._surge[service])
            self.attack_requests += own * self._surge[service]
        well, own_well, wait, stay = [1.0] * count, [0.0] * count, [0.0] * count, [0.0] * count
        served_all = 0.0
        for service in range(count):
            served, good = self._serve(service, arriving[service], genuine[service], wait, stay, well)
            own_well[service] = good
            served_all += served
            for callee, calls in self._calls[service]:
                arriving[callee] += served * calls
                genuine[callee] += served * calls
        answered = in_time = waited = 0.0
        objective = self.topology.objectives.latency_s
        for service in range(count - 1, -1, -1):
            deepest, longest = 0.0, 0.0
            for callee, calls in self._calls[service]:
                well[service] *= well[callee] if calls == 1.0 else well[callee] ** calls
                if wait[callee] + EXPONENTIAL_95 * stay[callee] > deepest + EXPONENTIAL_95 * longest:
                    deepest, longest = wait[callee], stay[callee]
            wait[service] += deepest
            stay[service] += longest
        total = 0.0
        for service, share in self._entries:
            total += offered * share
            behind = 1.0
            for callee, calls in self._calls[service]:
                behind *= well[callee] ** calls
            done = own_well[service] * behind
            answered += done
            left = objective - wait[service]
            in_time += done * (1.0 - exp(-left / stay[service])) if left > 0 else 0.0
            waited = max(waited, wait[service] + EXPONENTIAL_95 * stay[service])
        self._note(arriving, wait, stay)
        seconds = self.seconds
        seconds.offered.append(total)
        seconds.answered.append(answered)
        seconds.in_time.append(in_time)
        seconds.waiting.append(sum(self._queue))
        seconds.served.append(served_all)
        seconds.latency_s.append(waited)
        up = sum(fleet.ready[service] > fleet.hung[service] for service, _ in self._entries)
        seconds.entries_up.append(up / len(self._entries))
        placed = fleet.placed()
        seconds.pods.append(placed)
        seconds.failed_pods.append(sum(fleet.hung) + sum(map(len, fleet.pods)) - sum(fleet.ready))
        self.now_s += 1
        self.sensors.second(self.now_s)

    def _serve(
        self, service: int, arriving: float, genuine: float, wait: list[float], stay: list[float], well: list[float]
    ) -> tuple[float, float]:
        """(answered well by it alone, of these genuine); fills in the service's wait, stay and share answered well."""
        spec, fleet = self._specs[service], self.fleet
        sums = self.sensors.sums[service]
        ready, hung = fleet.ready[service], fleet.hung[service]
        queue, before = self._queue[service], self._genuine[service]
        strength = float(ready - hung)
        capacity = strength * spec.throughput / self._work[service]
        lost = 0.0
        if ready and hung:
            lost = arriving * hung / ready
            genuine = max(genuine - genuine * hung / ready, 0.0)
        sound = max(arriving - lost, 0.0)  # where all hang, rounding would leave a little less than nothing
        total, of_them = queue + sound, before + genuine
        served = min(total, capacity)
        left = total - served
        most = min(spec.queue.per_replica * (ready - hung), capacity * spec.queue.timeout_s)
        kept = min(left, most)
        share = of_them / total if total > 0 else 0.0
        lost += left - kept
        self._queue[service], self._genuine[service] = kept, kept * share
        errors = served * spec.error_probability
        good = served - errors
        lost += errors
        if good + lost > 0:
            well[service] = good / (good + lost)
        busy = served / capacity if capacity > 0 else 0.0
        unit = spec.service_time_s * self._work[service]
        if capacity > 0:
            wait[service] = 0.5 * (queue + kept) / capacity
            rho = min(busy, FULL)
            stay[service] = unit + rho ** (sqrt(2.0 * (strength + 1.0)) - 1.0) / (strength * (1.0 - rho)) * unit
        else:
            wait[service], stay[service] = spec.queue.timeout_s, unit
        sums.seconds += 1
        sums.arrived += arriving
        sums.served += good
        sums.failed += lost
        sums.queue += kept
        if ready:
            sound_share = (ready - hung) / ready
            used = IDLE + (spec.cpu_when_full - IDLE) * busy * sound_share
            sums.cpu += self._cores[service] * used
            fill = kept / most if most > 0 else 0.0
            sums.memory += self._bytes[service] * (0.4 + 0.4 * fill)
            sums.ready_seconds += 1
            chance = spec.crash_probability * ready * (1.0 + spec.overload_crashes * fill)
            if self._crash[self.now_s][service] < chance:
                fleet.crash_one(service, float(self.now_s))
        return good, good * share

    def _note(self, arriving: list[float], wait: list[float], stay: list[float]) -> None:
        """Latencies as a caller of each service sees them, once those below it are known."""
        for service, sums in enumerate(self.sensors.sums):
            if self.fleet.ready[service] and arriving[service] > 0:
                sums.latency += wait[service] + EXPONENTIAL_95 * stay[service]
                sums.latency_seconds += 1

    def _disturb(self, now_s: int) -> None:
        begins, ends = self._begins.get(now_s, ()), self._ends.get(now_s, ())
        if not begins and not ends:
            return
        for event in ends:
            if event in self._live:
                self._live.remove(event)
        for event in begins:
            if event.kind is DisturbanceKind.FAILURES:
                for service in [self._number[event.target]] if event.target else range(len(self._specs)):
                    self.fleet.fail(service, event.amount, event.until_s, float(now_s))
            else:
                self._live.append(event)
        self._weigh()
        touched = {one.target for one in (*begins, *ends) if one.kind is DisturbanceKind.PRESSURE}
        for node, name in enumerate(self.fleet.nodes):
            if name in touched:
                live = [one.amount for one in self._live if one.kind is DisturbanceKind.PRESSURE and one.target == name]
                self.fleet.press(node, min(sum(live), 1.0), float(now_s))

    def _weigh(self) -> None:
        """What the events that last do to each service's load and work."""
        for service, name in enumerate(self.fleet.names):
            surge = work = 0.0
            for event in self._live:
                if event.target == name and event.kind is DisturbanceKind.SURGE:
                    surge += event.amount
                elif event.target == name and event.kind is DisturbanceKind.DEARER:
                    work += event.amount
            self._surge[service], self._work[service] = surge, 1.0 + work
