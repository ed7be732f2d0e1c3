"""Fair share within 2 % of the exact allocation after 1,000 units, by the whole coordinator over full nodes.

Every queue always has pods waiting; they run for a while and end one after the other. What counts is how much of the
cluster each queue had over time, against what the weights say (``shared/scheduling/queues/share.fair_shares``).
"""

from __future__ import annotations

import heapq
from fractions import Fraction
from random import Random

import pytest
from msgspec.structs import replace

from shared.model.cluster_events import ObjectChanged
from shared.model.queue import QUEUE_LABEL, Queue, Strategy
from shared.scheduling.queue_moves import Moves
from shared.scheduling.queues.share import Claim, fair_shares
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

UNITS = 1000
WITHIN = 0.02
NODES, CPUS = 4, 32
WAITING = 80
"""Pods of each queue that wait at a time."""


class Load:
    """Queues that always ask for more, for pods of 1 to ``cpus``."""

    def __init__(self, *queues: Queue, cpus: int = 1, seed: int = 0) -> None:
        self.rng = Random(seed)
        self.scene = Scene(seed=seed)
        self.queues = queues
        self.cpus = cpus
        self.made = 0
        self.went = 0
        self.waits: dict[str, set[str]] = {queue.name: set() for queue in queues}
        self.queue_of: dict[str, str] = {}
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
        pod = replace(make_pod(f"u{self.made}").cpu(str(cpu)).pod(), labels={QUEUE_LABEL: name})
        self.scene.add_pod(pod)
        self.cpu[pod.uid], self.queue_of[pod.uid] = cpu, name
        self.waits[name].add(pod.uid)

    def run(self) -> dict[str, float]:
        """Each queue's share of what all had, over the time."""
        scene = self.scene
        while self.went < UNITS:
            for name, waits in self.waits.items():
                while len(waits) < WAITING:
                    self.arrive(name)
            began = scene.now
            until = self.ends[0][0] if self.ends else scene.now + 0.5
            scene.run(batch=50, until_s=max(0.05, until - scene.now))
            for name, used in self.used.items():
                self.integral[name] += used * (scene.now - began)
            self.note()
            while self.ends and self.ends[0][0] <= scene.now:
                uid = heapq.heappop(self.ends)[1]
                scene.delete_pod(uid)
                self.used[self.queue_of[uid]] -= self.cpu[uid]
        whole = sum(self.integral.values())
        return {name: amount / whole for name, amount in self.integral.items()}

    def note(self) -> None:
        """Who was bound since runs for a while."""
        for uid, _ in self.scene.bindings[self.seen :]:
            name = self.queue_of[uid]
            self.used[name] += self.cpu[uid]
            self.waits[name].discard(uid)
            self.went += 1
            heapq.heappush(self.ends, (self.scene.now + 8 + 4 * self.rng.random(), uid))
        self.seen = len(self.scene.bindings)


def exact(*queues: Queue) -> dict[str, float]:
    """What the weights say of the whole cluster."""
    total = NODES * CPUS * 1000
    claims = {queue.name: Claim(queue.guaranteed.get("cpu", 0), queue.weight, total) for queue in queues}
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
        Queue("a", "top", guaranteed={"cpu": 64_000, "pods": 440}),  # of what is not guaranteed all is borrowed
        Queue("b", "top", weight=Fraction(3)),
        Queue("c", "top"),
    )  # fmt: skip
    load = Load(Queue("top", strategy=Strategy.FAIR), *queues)
    del load.waits["top"], load.used["top"], load.integral["top"]
    found, wanted = load.run(), exact(*queues)
    for name, share in found.items():
        assert abs(share - wanted[name]) <= WITHIN, (found, wanted)


def test_ablation_units_that_wait_out_a_backoff_lose_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in kube-scheduler: roused in its backoff, a unit joins only when nobody as important is active."""
    monkeypatch.setattr(Moves, "_in_turn", lambda _: False)
    found, wanted = Load(*THREE).run(), exact(*THREE)
    assert any(abs(share - wanted[name]) > WITHIN for name, share in found.items()), (found, wanted)
