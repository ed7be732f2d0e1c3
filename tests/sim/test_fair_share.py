"""Fair share within 2 % of the exact allocation after 1,000 units, by the whole coordinator over full nodes.

Every queue always has units waiting, lone pods or gangs; they run for a while and end one after the other. What counts
is how much of the cluster each queue had over time, against what the weights say
(``shared/scheduling/queues/share.fair_shares``).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from services.coordinator.core.state import CoreSettings
from services.coordinator.cycle.gang_waking import GangWaker
from shared.model.cluster_events import ObjectChanged
from shared.model.pod import Pod
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.model.units.queue import QUEUE_LABEL, Queue, QueueStrategy
from shared.scheduling.queue_entries import Entry, QueuedGroup
from shared.scheduling.queue_moves import Moves
from shared.scheduling.queues.share import ShareClaim, fair_shares
from shared.scheduling.queues.turns import QueueTurns
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

UNITS = 1000
WITHIN = 0.02
NODES, CPUS = 4, 32
WAITING = 80
"""Pods of each queue that wait at a time."""
GANGS_WAITING = 10
"""Gangs of each queue that wait at a time."""


class Load:
    """Queues that always ask for more, for pods of 1 to ``cpus``; they run for ``run_s`` and up to half as long again.

    ``settings`` None: the default ones, and every turn is validated.
    """

    waiting = WAITING

    def __init__(
        self, *queues: Queue, cpus: int = 1, seed: int = 0, units: int = UNITS, settings: CoreSettings | None = None,
        run_s: float = 8.0,
    ) -> None:  # fmt: skip
        self.rng = Random(seed)
        self.scene = Scene(seed=seed, settings=settings)
        self.queues = queues
        self.cpus = cpus
        self.units = units
        self.run_s = run_s
        self.made = 0
        self.went = 0
        self.waits: dict[str, set[str]] = {queue.name: set() for queue in queues}
        self.queue_of: dict[str, str] = {}
        self.unit_of: dict[str, str] = {}
        self.members: dict[str, list[str]] = {}
        """By unit its pods; by ``coming`` those that are not bound yet."""
        self.coming: dict[str, set[str]] = {}
        self.ends: list[tuple[float, str]] = []
        self.cpu: dict[str, int] = {}
        self.used = dict.fromkeys(self.waits, 0)
        self.integral = dict.fromkeys(self.waits, 0.0)
        self.seen = 0
        for number in range(NODES):
            self.scene.add_node(make_node(f"n{number}").allocatable(cpu=str(CPUS)).node())
        for queue in queues:
            self.scene.inbox.append(ObjectChanged("queues", queue.name, queue))
        self.scene.begin()
        self.scene.run(batch=100)

    def arrive(self, name: str) -> None:
        """One pod more waits in the queue."""
        self.made += 1
        cpu = self.rng.randint(1, self.cpus)
        self.wait(name, f"u{self.made}", make_pod(f"u{self.made}").cpu(str(cpu)).pod(), cpu=cpu)

    def wait(self, name: str, unit: str, *pods: Pod, cpu: int) -> None:
        """These pods, a unit, wait in the queue."""
        for pod in pods:
            self.scene.add_pod(replace(pod, labels={QUEUE_LABEL: name}))
            self.cpu[pod.uid], self.queue_of[pod.uid], self.unit_of[pod.uid] = cpu, name, unit
        self.members[unit] = [pod.uid for pod in pods]
        self.coming[unit] = set(self.members[unit])
        self.waits[name].add(unit)

    def run(self) -> dict[str, float]:
        """Each queue's share of what all had, over the time."""
        scene = self.scene
        while self.went < self.units:
            for name, waits in self.waits.items():
                while len(waits) < self.waiting:
                    self.arrive(name)
            began = scene.now
            until = self.ends[0][0] if self.ends else scene.now + 0.5
            scene.run(batch=50, until_s=max(0.05, until - scene.now))
            for name, used in self.used.items():
                self.integral[name] += used * (scene.now - began)
            self.note()
            while self.ends and self.ends[0][0] <= scene.now:
                for uid in self.members.pop(heapq.heappop(self.ends)[1]):
                    scene.delete_pod(uid)
                    self.used[self.queue_of[uid]] -= self.cpu[uid]
        whole = sum(self.integral.values())
        return {name: amount / whole for name, amount in self.integral.items()}

    def note(self) -> None:
        """Who was bound since runs for a while."""
        for uid, _ in self.scene.bindings[self.seen :]:
            name, unit = self.queue_of[uid], self.unit_of[uid]
            self.used[name] += self.cpu[uid]
            self.coming[unit].discard(uid)
            if not self.coming[unit]:
                del self.coming[unit]
                self.waits[name].discard(unit)
                self.went += 1
                ends = self.scene.now + self.run_s * (1.0 + 0.5 * self.rng.random())
                heapq.heappush(self.ends, (ends, unit))
        self.seen = len(self.scene.bindings)


class Gangs(Load):
    """The same of gangs, of a thirty-second to an eighth of the cluster, whose members ask for ``cpus`` each."""

    waiting = GANGS_WAITING

    def __init__(self, *queues: Queue, seed: int = 0, units: int = UNITS) -> None:
        super().__init__(*queues, cpus=2, seed=seed, units=units, settings=CoreSettings(), run_s=48.0)

    def arrive(self, name: str) -> None:
        self.made += 1
        group, size = f"g{self.made}", self.rng.randint(2, NODES * CPUS // self.cpus // 8)
        key = group_key(GroupSource.NATIVE, "default", group)
        labels = {QUEUE_LABEL: name}
        found = PodGroup(key, GroupSource.NATIVE, "default", group, gang=True, min_count=size, labels=labels)
        self.scene.inbox.append(ObjectChanged("podgroups", f"default/{group}", found))
        members = (make_pod(f"{group}-{number}").cpu(str(self.cpus)).pod() for number in range(size))
        self.wait(name, key, *(replace(pod, group=key) for pod in members), cpu=self.cpus)


def exact(*queues: Queue) -> dict[str, float]:
    """What the weights say of the whole cluster."""
    total = NODES * CPUS * 1000
    claims = {queue.name: ShareClaim(queue.guaranteed.get("cpu", 0), queue.weight, total) for queue in queues}
    return {name: float(share / total) for name, share in fair_shares(total, claims).items()}


WEIGHTS = (Queue("double", weight=Fraction(2)), Queue("single"))
THREE = (Queue("a", weight=Fraction(3)), Queue("b", weight=Fraction(2)), Queue("c"))


@pytest.mark.parametrize("queues", [WEIGHTS, THREE], ids=["2-1", "3-2-1"])
def test_shares_are_exact_within_two_percent_after_a_thousand_units(queues: tuple[Queue, ...]) -> None:
    load = Load(*queues, cpus=2)
    found, wanted = load.run(), exact(*queues)
    assert load.scene.overcommitted == []
    for name, share in found.items():
        assert abs(share - wanted[name]) <= WITHIN, (found, wanted)


def test_what_is_guaranteed_comes_first_and_the_rest_is_shared() -> None:
    queues = (
        Queue("a", "top", guaranteed={"cpu": 64_000}),
        Queue("b", "top", weight=Fraction(3)),
        Queue("c", "top"),
    )  # fmt: skip
    load = Load(Queue("top", strategy=QueueStrategy.FAIR), *queues)
    del load.waits["top"], load.used["top"], load.integral["top"]
    found, wanted = load.run(), exact(*queues)
    for name, share in found.items():
        assert abs(share - wanted[name]) <= WITHIN, (found, wanted)


def test_shares_of_gangs_of_mixed_sizes_are_exact_within_two_percent_after_a_thousand_units() -> None:
    load = Gangs(*WEIGHTS)
    found, wanted = load.run(), exact(*WEIGHTS)
    assert load.scene.overcommitted == []
    for name, share in found.items():
        assert abs(share - wanted[name]) <= WITHIN, (found, wanted)


def in_order_of_arrival(_: QueueTurns, units: Iterable[Entry | QueuedGroup]) -> str:
    """Whose turn it would be if queues did not matter."""
    first = min(units, key=lambda unit: unit.arrival)
    return first.key if isinstance(first, QueuedGroup) else first.pod.uid


@pytest.mark.parametrize(
    ("where", "name", "instead", "units"),
    [(GangWaker, "line", lambda *_: "", UNITS), (QueueTurns, "foremost", in_order_of_arrival, 300)],
    ids=["room", "nodes kept"],
)
def test_ablation_what_goes_to_gangs_in_order_of_arrival_goes_past_the_weights(
    monkeypatch: pytest.MonkeyPatch, where: type, name: str, instead: Any, units: int
) -> None:
    monkeypatch.setattr(where, name, instead)
    found, wanted = Gangs(*WEIGHTS, units=units).run(), exact(*WEIGHTS)
    assert any(abs(share - wanted[name]) > WITHIN for name, share in found.items()), (found, wanted)


def test_ablation_units_that_wait_out_a_backoff_lose_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in kube-scheduler: woken in its backoff, a unit joins only when nobody as important is active."""
    monkeypatch.setattr(Moves, "_in_turn", lambda _: False)
    found, wanted = Load(*WEIGHTS).run(), exact(*WEIGHTS)
    assert any(abs(share - wanted[name]) > WITHIN for name, share in found.items()), (found, wanted)
