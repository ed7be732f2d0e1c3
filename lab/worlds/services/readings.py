"""What a policy gets to see of the world: readings that are scraped now and then, late, and not exact.

Counts over the last scrape period and use of cpu over the last three come from metrics, so they carry noise and an age;
replicas, ready and pending come from the API server, so they are exact and of now. A service without a ready pod has no
reading of its own use and latency: None, never zero. What hangs is not told apart: its pods are Ready.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from lab.worlds.services.pods import Fleet
from lab.worlds.services.topology import ServiceGraph, pod_class_of
from shared.autoscaling.observation import ScalingObservation, ServiceObservation
from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY

USE_SCRAPES = 3


@dataclass(frozen=True, slots=True)
class ServiceSensing:
    """How it is measured. ``scrape_s``: a period; ``delay_s``: from a scrape until a policy sees it; ``noise``: the
    standard deviation of every reading relative to its value; ``missing``: the probability that a service's scrape
    brings nothing, so that none of its readings is there until the next one."""

    scrape_s: int = 5
    delay_s: float = 1.0
    noise: float = 0.03
    missing: float = 0.0


@dataclass(slots=True)
class Sums:
    """One service since the last scrape: requests, and sums over its seconds of the rest."""

    seconds: int = 0
    arrived: float = 0.0
    served: float = 0.0
    failed: float = 0.0
    latency: float = 0.0
    latency_seconds: int = 0
    queue: float = 0.0
    cpu: float = 0.0
    memory: float = 0.0
    ready_seconds: int = 0


@dataclass(frozen=True, slots=True)
class ServiceReading:
    """One service's scrape. Rates per second; ``latency_s`` the 95th percentile; cores and bytes a ready pod."""

    arrivals: float
    served: float
    failed: float
    queue: float
    latency_s: float | None
    cpu: float | None
    memory: float | None


class ServiceSensors:
    """Scrapes all services of one world, and makes observations of it."""

    def __init__(self, topology: ServiceGraph, sensing: ServiceSensing, rng: np.random.Generator) -> None:
        self._topology, self.sensing, self._rng = topology, sensing, rng
        self.sums = [Sums() for _ in topology.order]
        self._phase = int(rng.integers(sensing.scrape_s))
        self._scrapes: deque[tuple[float, list[ServiceReading | None]]] = deque(maxlen=8)
        self._cpu: list[deque[float]] = [deque(maxlen=USE_SCRAPES) for _ in topology.order]
        self._requests = [
            {CPU: asked.get(CPU, 0) / 1000, MEMORY: float(asked.get(MEMORY, 0))}
            for asked in (dict(pod_class.requests) for pod_class in _classes(topology))
        ]
        self._bounds = [topology.bounds(name) for name in topology.order]
        self.blind = False
        """The metrics are gone: nothing new is read."""

    def second(self, now_s: int) -> None:
        """A second is over; scrape where it is time."""
        if (now_s + self._phase) % self.sensing.scrape_s:
            return
        if not self.blind:
            self._scrapes.append((float(now_s), [self._scraped(at, sums) for at, sums in enumerate(self.sums)]))
        self.sums = [Sums() for _ in self.sums]

    def observe(self, fleet: Fleet, now_s: float) -> ScalingObservation:
        """What is seen now: the newest scrape that has arrived, and pods as the API server has them."""
        taken_s, readings = next(
            ((at_s, found) for at_s, found in reversed(self._scrapes) if at_s <= now_s - self.sensing.delay_s),
            (None, None),
        )
        services: dict[str, ServiceObservation] = {}
        for at, name in enumerate(fleet.names):
            ready, starting, pending = fleet.counts(at)
            read = readings[at] if readings is not None else None
            services[name] = ServiceObservation(
                replicas=fleet.asked[at],
                ready=ready,
                starting=starting,
                pending=pending,
                bounds=self._bounds[at],
                requests=self._requests[at],
                usage={CPU: read.cpu, MEMORY: read.memory} if read is not None else {CPU: None, MEMORY: None},
                arrivals=read.arrivals if read is not None else None,
                served=read.served if read is not None else None,
                failed=read.failed if read is not None else None,
                latency_s=read.latency_s if read is not None else None,
                queue=read.queue if read is not None else None,
                age_s=now_s - taken_s if taken_s is not None else 0.0,
            )
        objectives = self._topology.objectives
        return ScalingObservation(
            now=now_s,
            services=services,
            calls=self._topology.calls,
            latency_objective_s=objectives.latency_s,
            success_objective=objectives.success,
            cost_limit=None if fleet.budget is None else float(fleet.budget),
        )

    def _scraped(self, at: int, sums: Sums) -> ServiceReading | None:
        reading = self._reading(at, sums)
        lost = self.sensing.missing > 0 and self._rng.random() < self.sensing.missing
        return None if lost else reading

    def _reading(self, at: int, sums: Sums) -> ServiceReading:
        seconds = max(sums.seconds, 1)
        noise = np.maximum(1.0 + self.sensing.noise * self._rng.standard_normal(7), 0.0).tolist()
        cpu: float | None = None
        if sums.ready_seconds:
            self._cpu[at].append(sums.cpu / sums.ready_seconds)
            cpu = sum(self._cpu[at]) / len(self._cpu[at]) * noise[0]
        else:
            self._cpu[at].clear()
        return ServiceReading(
            arrivals=sums.arrived / seconds * noise[1],
            served=sums.served / seconds * noise[2],
            failed=sums.failed / seconds * noise[3],
            queue=sums.queue / seconds * noise[4],
            latency_s=sums.latency / sums.latency_seconds * noise[5] if sums.latency_seconds else None,
            cpu=cpu,
            memory=sums.memory / sums.ready_seconds * noise[6] if sums.ready_seconds else None,
        )


def _classes(topology: ServiceGraph) -> list[PodClass]:
    return [pod_class_of(topology.services[name]) for name in topology.order]
