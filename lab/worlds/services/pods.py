"""The replicas of all services: made, given a node, started, crashed, hung, taken away.

    asked for --> pending --a node takes it--> starting --image, start delay--> ready --hangs--> ready, answers nothing
                     ^                            ^                               |                 | readiness probe
                     |                            |                             crash               v
                     +-- evicted (any state)      +------ back-off <--------------+-----liveness--- stuck

Which node takes a pod is decided by this project's own filters and by a scheduling policy of it (``kube-default``
unless told otherwise), first come first served. Back-off after a crash is kubelet's: 10 s, doubled each time up to
300 s, forgotten after 600 s without one. Who goes first when there are too many: pending, then who is not Ready, then
who is Ready for the shortest time (the ReplicaSet controller's order): so a stuck replica is replaced by asking for one
less, and then for one more. Neighbours on a node have a higher priority: they evict whoever came last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import inf

import numpy as np

from lab.worlds.services.topology import GraphService, ServiceGraph, allocatable_of, pod_class_of
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.resources import CPU
from shared.policy.observation import Observation, Policy
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.node_table import NodeTable

FIRST_BACKOFF_S, LONGEST_BACKOFF_S, FORGET_CRASHES_S = 10.0, 300.0, 600.0
READINESS_S = (2.0, 7.0)
"""From hanging until the readiness probe (every 5 s) has failed."""


class ReplicaState(IntEnum):
    """Where a pod is; lower goes first when there are too many."""

    PENDING = 0
    STUCK = 1
    BACKOFF = 2
    STARTING = 3
    READY = 4


@dataclass(slots=True)
class ServicePod:
    """One replica. ``until_s``: when its state ends by itself. ``hung_until_s``: it hangs until then; 0: not."""

    number: int
    node: int = -1
    state: ReplicaState = ReplicaState.PENDING
    until_s: float = inf
    ready_since_s: float = 0.0
    hung_until_s: float = 0.0
    crashes: int = 0
    crashed_s: float = -inf


class Fleet:
    """The pods of every service, and the nodes. Services are numbered in the topology's order.

    Derived and kept up to date for the flow, per service: ``ready``, and ``hung``, those of them that answer nothing.
    """

    def __init__(self, topology: ServiceGraph, policy: Policy, rng: np.random.Generator) -> None:
        self.names = topology.order
        self.specs = [topology.services[name] for name in self.names]
        self.budget = topology.replica_budget
        self._policy, self._rng = policy, rng
        self.table = NodeTable(sum(node.count for node in topology.nodes))
        for node in topology.nodes:
            for copy in range(node.count):
                name = node.name if node.count == 1 else f"{node.name}-{copy + 1}"
                self.table.upsert(Node(name=name, allocatable=allocatable_of(node)))
        self._feasibility = FeasibilityCache(self.table)
        self._classes = [pod_class_of(spec) for spec in self.specs]
        self.nodes = tuple(self.table.names[: self.table.rows])
        count = len(self.names)
        self.pods: list[list[ServicePod]] = [[] for _ in range(count)]
        self.asked = [0] * count
        self.ready, self.hung = [0] * count, [0] * count
        self._due = [inf] * count
        self._images: set[tuple[int, int]] = set()
        self._pending: list[tuple[int, ServicePod]] = []
        self._room_changed = False
        self._number = 0
        self._neighbours: dict[int, PodClass] = {}
        self.refused = 0
        """Replicas that the budget did not allow."""
        for service, spec in enumerate(self.specs):
            start = spec.replicas.start
            self.scale(service, max(spec.replicas.minimum, 1) if start is None else start)
        self.schedule(0.0)
        for service, pods in enumerate(self.pods):
            for pod in pods:
                if pod.state is ReplicaState.STARTING:
                    self._images.add((service, pod.node))
                    pod.state, pod.until_s = ReplicaState.READY, inf
            self._count(service)

    def index(self, name: str) -> int:
        """The number of a service."""
        return self.names.index(name)

    def counts(self, service: int) -> tuple[int, int, int]:
        """(ready, on a node and not ready, pending)."""
        pending = sum(pod.state is ReplicaState.PENDING for pod in self.pods[service])
        return self.ready[service], len(self.pods[service]) - pending - self.ready[service], pending

    def placed(self) -> int:
        """Pods that are on a node: what is paid for."""
        return sum(map(len, self.pods)) - len(self._pending)

    def scale(self, service: int, replicas: int) -> None:
        """Ask for so many replicas: bounds hold, and the budget; pods come and go at once."""
        bounds = self.specs[service].replicas
        wanted = min(max(replicas, bounds.minimum), bounds.maximum)
        if self.budget is not None:
            allowed = max(self.asked[service], self.budget - sum(self.asked) + self.asked[service])
            self.refused += max(0, wanted - allowed)
            wanted = min(wanted, allowed)
        self.asked[service] = wanted
        pods = self.pods[service]
        for _ in range(wanted - len(pods)):
            pods.append(self._new(service))
        if len(pods) > wanted:
            pods.sort(key=lambda pod: (pod.state, -pod.ready_since_s, -pod.number), reverse=True)
            for pod in pods[wanted:]:
                self._leave(service, pod)
            del pods[wanted:]
            self._count(service)

    def advance(self, now_s: float) -> None:
        """Everything that is due by now: starts, ends of back-offs and of hanging; pending pods are tried."""
        for service, due in enumerate(self._due):
            if due > now_s:
                continue
            spec = self.specs[service]
            for pod in self.pods[service]:
                if pod.until_s > now_s:
                    continue
                if pod.state is ReplicaState.BACKOFF:
                    pod.state, pod.until_s = ReplicaState.STARTING, now_s + self._start_s(spec)
                elif pod.state is ReplicaState.STARTING:
                    self._images.add((service, pod.node))
                    pod.state, pod.until_s, pod.ready_since_s = ReplicaState.READY, inf, now_s
                elif pod.state is ReplicaState.READY and pod.hung_until_s > now_s:
                    pod.state, pod.until_s = ReplicaState.STUCK, pod.hung_until_s
                else:  # its liveness probe has it restarted
                    self._restart(pod, now_s)
            self._count(service)
        if self._room_changed:
            self.schedule(now_s)

    def schedule(self, now_s: float) -> None:
        """Give every pending pod a node, in the order in which they were made, as far as one takes it."""
        self._room_changed = False
        left: list[tuple[int, ServicePod]] = []
        for service, pod in self._pending:
            pod_class = self._classes[service]
            rows = np.flatnonzero(self._feasibility.of(pod_class).mask)
            if not len(rows):
                left.append((service, pod))
                continue
            score = self._policy.decide(Observation(self.table, pod_class, rows), self._rng).score
            pod.node = int(rows[int(score.argmax())])
            self.table.add_usage(pod.node, pod_class, ())
            spec = self.specs[service]
            pull_s = 0.0 if (service, pod.node) in self._images else spec.image_pull_s
            pod.state, pod.until_s = ReplicaState.STARTING, now_s + pull_s + self._start_s(spec)
            self._due[service] = min(self._due[service], pod.until_s)
        self._pending = left

    def fail(self, service: int, share: float, until_s: float, now_s: float) -> None:
        """Each ready replica fails with probability ``share``: it crashes, or hangs and is restarted at ``until_s``."""
        for pod in self.pods[service]:
            if pod.state is not ReplicaState.READY or self._rng.random() >= share:
                continue
            if self._rng.random() < 0.5:
                self._restart(pod, now_s)
            elif not pod.hung_until_s:
                pod.hung_until_s, pod.until_s = until_s, min(now_s + self._rng.uniform(*READINESS_S), until_s)
        self._count(service)

    def crash_one(self, service: int, now_s: float) -> None:
        """One ready replica, by lot, crashes; nobody where none is ready."""
        ready = [pod for pod in self.pods[service] if pod.state is ReplicaState.READY]
        if ready:
            self._restart(ready[int(self._rng.integers(len(ready)))], now_s)
            self._count(service)

    def press(self, node: int, share: float, now_s: float) -> None:
        """Neighbours ask for this share of a node's cpu from now on (0: they are gone), and get it."""
        before = self._neighbours.pop(node, None)
        if before is not None:
            self.table.add_usage(node, before, (), sign=-1)
        column = self.table.column_of[CPU]
        room = int(self.table.allocatable[column, node])
        wanted = int(share * room)
        here = [
            (pod.ready_since_s, pod.number, at) for at, pods in enumerate(self.pods) for pod in pods if pod.node == node
        ]
        for _, number, service in sorted(here, reverse=True):
            if room - int(self.table.requested[column, node]) >= wanted:
                break
            self._evict(service, number)
        wanted = min(wanted, room - int(self.table.requested[column, node]))
        if wanted > 0:
            self._neighbours[node] = PodClass(requests=((CPU, wanted),), score_cpu_millis=wanted)
            self.table.add_usage(node, self._neighbours[node], ())
        self._room_changed = True
        self.advance(now_s)

    def validate(self) -> Sequence[str]:
        """What is broken; nothing while all is well. F1 no node is over its room, F2 every pod that is asked for is
        there, F3 who is on a node is accounted there."""
        found: list[str] = []
        rows = self.table.rows
        if (self.table.requested[:, :rows] > self.table.allocatable[:, :rows]).any():
            found.append("F1: a node is over its room")
        for service, pods in enumerate(self.pods):
            if len(pods) != self.asked[service]:
                found.append(f"F2: {len(pods)} pods of {self.names[service]}, {self.asked[service]} are asked for")
            if any((pod.node < 0) != (pod.state is ReplicaState.PENDING) for pod in pods):
                found.append(f"F3: a pod of {self.names[service]} is pending on a node, or runs on none")
        if int(self.table.requested[3, :rows].sum()) != self.placed() + len(self._neighbours):
            found.append("F3: the nodes count other pods than there are")
        return found

    def _evict(self, service: int, number: int) -> None:
        """The pod goes, and its controller makes another."""
        pods = self.pods[service]
        at = next(index for index, pod in enumerate(pods) if pod.number == number)
        self._leave(service, pods[at])
        pods[at] = self._new(service)
        self._count(service)

    def _new(self, service: int) -> ServicePod:
        self._number += 1
        pod = ServicePod(self._number)
        self._pending.append((service, pod))
        self._room_changed = True
        return pod

    def _leave(self, service: int, pod: ServicePod) -> None:
        if pod.node < 0:
            self._pending = [one for one in self._pending if one[1] is not pod]
            return
        self.table.add_usage(pod.node, self._classes[service], (), sign=-1)
        self._room_changed = True

    def _start_s(self, spec: GraphService) -> float:
        """How long this start takes; nothing is drawn for a service whose starts are all alike."""
        late = spec.start_jitter * self._rng.random() if spec.start_jitter else 0.0
        return spec.start_delay_s * (1.0 + late)

    def _restart(self, pod: ServicePod, now_s: float) -> None:
        if now_s - pod.crashed_s > FORGET_CRASHES_S:
            pod.crashes = 0
        delay_s = min(FIRST_BACKOFF_S * float(1 << min(pod.crashes, 5)), LONGEST_BACKOFF_S)
        pod.crashes, pod.crashed_s, pod.hung_until_s = pod.crashes + 1, now_s, 0.0
        pod.state, pod.until_s = ReplicaState.BACKOFF, now_s + delay_s

    def _count(self, service: int) -> None:
        ready = hung = 0
        due = inf
        for pod in self.pods[service]:
            if pod.until_s < due:
                due = pod.until_s
            if pod.state is ReplicaState.READY:
                ready += 1
                hung += pod.hung_until_s > 0
        self.ready[service], self.hung[service] = ready, hung
        self._due[service] = due
