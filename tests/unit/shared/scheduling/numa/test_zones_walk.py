"""Against kubelets of mixed machines: none refuses a pod that was let on, whether objects are in time or late.

A walk places pods on nodes that take them by our accounting, ends some, and publishes objects at once or late. Each
kubelet's managers then say what they say.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from shared.model.node_topology import PodNeeds, TopologyPolicy, TopologyScope
from shared.model.resources import CPU
from shared.scheduling.numa import inside
from shared.scheduling.numa.inside import same_inside
from shared.scheduling.numa.rule import prepare
from shared.scheduling.numa.zones import NodeZones
from shared.scheduling.state.cluster_state import ClusterState
from tests.unit.shared.scheduling.numa.make import GI, cluster, later, needs, pod, topology
from twin.model.managers import Managers

NODES = 6
KUBELETS = [one for one in TopologyPolicy if one is not TopologyPolicy.NUMERIC]


def machines(rng: Random) -> list[Any]:
    return [
        topology(
            f"n{number}", zones=rng.choice((1, 2, 2, 4)), cpus=rng.choice((4, 8, 12)), gpus=rng.choice((0, 0, 2)),
            memory=rng.choice((16, 32)) * GI, policy=rng.choice(KUBELETS), scope=rng.choice(list(TopologyScope)),
        )
        for number in range(NODES)
    ]  # fmt: skip


def asked(rng: Random) -> PodNeeds:
    return needs(
        rng.choice((0, 1, 2, 3, 5, 8, 10)), rng.choice((1, 2, 6, 20)) * GI, gpus=rng.choice((0, 0, 0, 1)),
        count=rng.choice((1, 1, 1, 2)), init=rng.choice((0, 0, 0, 2, 6)),
    )  # fmt: skip


def told_of(rng: Random) -> PodNeeds:
    """Of which an object tells all: nothing of it is taken as the worst."""
    return needs(rng.choice((1, 2, 3, 5, 8)), GI, count=rng.choice((1, 1, 1, 2)))


class Walk:
    """``lag``: steps by which an object may be late; 0: each is written at once."""

    def __init__(self, seed: int, lag: int, asked: Callable[[Random], PodNeeds] = asked) -> None:
        self.rng, self.lag, self.asked = Random(seed), lag, asked
        found = machines(self.rng)
        self.state, self.zones = cluster(*found)
        self.managers = {one.node: Managers(one) for one in found}
        self.version = 1
        self.read = {name: managers.report() for name, managers in self.managers.items()}
        """What an exporter that is late has read, and not written yet."""
        self.now = 0.0
        self.standing: dict[str, str] = {}
        self.refused: list[str] = []
        self.placed = 0

    def step(self, number: int) -> None:
        self.now += 1.0
        self.zones.advance(self.now)
        if self.rng.random() < 0.3 and self.standing:
            self.end(self.rng.choice(sorted(self.standing)))
        else:
            self.place(f"p{number}", self.asked(self.rng))
        for name in self.managers:
            if not self.lag or self.rng.random() < 1 / self.lag:
                self.publish(name)

    def place(self, uid: str, one: PodNeeds) -> None:
        state, new = self.state, pod(uid, one)
        rule = prepare(state, new)
        mask = np.ones(state.table.rows, np.bool_) if rule is None else rule.mask()
        rows = [row for row in np.flatnonzero(mask).tolist() if self.fits(row, new)]
        if not rows:
            return
        row = self.rng.choice(rows)
        assert rule is None or rule.verdict(row) is None
        name = state.table.names[row]
        state.assume(new, name, 0.0)
        self.placed += 1
        verdict = self.managers[name].admit(uid, one)
        if verdict.refusal is None:
            self.standing[uid] = name
            if self.rng.random() < 0.5:
                state.observe(pod(uid, one, node_name=name))
        else:
            self.refused.append(f"{uid} {one} on {name} {self.managers[name].topology.policy}: {verdict.message}")
            state.forget(uid)

    def fits(self, row: int, new: Any) -> bool:
        table = self.state.table
        return all(
            table.requested[table.column_of[name], row] + amount <= table.allocatable[table.column_of[name], row]
            for name, amount in new.pod_class.requests
        )

    def end(self, uid: str) -> None:
        self.managers[self.standing.pop(uid)].remove(uid)
        self.state.forget(uid)

    def publish(self, name: str) -> None:
        """One that reads the same as before is no event: the API server keeps its version."""
        fresh = self.managers[name].report()
        written = self.read[name] if self.lag else fresh
        self.read[name] = fresh
        if not same_inside(self.zones.topologies[name], written):
            self.version += 1
            self.zones.put(name, later(written, self.version))

    def quiet(self) -> None:
        """Nothing happens for so long that no object is late."""
        for name in [*self.managers] * 2:
            self.publish(name)
        self.zones.advance(self.now + inside.LATE_S)


def walk(seed: int, lag: int, steps: int = 120, asked: Callable[[Random], PodNeeds] = asked) -> Walk:
    found = Walk(seed, lag, asked)
    for number in range(steps):
        found.step(number)
        assert list(found.zones.validate()) == []
    return found


@pytest.mark.parametrize("seed", range(8))
def test_no_kubelet_refuses_what_was_let_on_where_objects_are_fresh(seed: int) -> None:
    found = walk(seed, 0)
    assert found.refused == []
    assert found.placed > 10


@pytest.mark.parametrize("seed", range(8))
def test_late_objects_make_no_kubelet_refuse(seed: int) -> None:
    found = walk(seed, 8)
    assert found.refused == []
    assert found.placed > 10


def lost(found: Walk) -> list[str]:
    """Nodes of which the managers, after a long quiet, have other CPUs free than our accounting."""
    found.quiet()
    return [
        name
        for name, managers in found.managers.items()
        if (known := found.zones.inside(name)) is not None
        and known[1].cpus_free != [zone.available[CPU] for zone in managers.report().zones]
    ]


@pytest.mark.parametrize("lag", [0, 8])
@pytest.mark.parametrize("seed", range(8))
def test_no_room_stays_lost_though_objects_that_read_the_same_are_not_written(seed: int, lag: int) -> None:
    assert lost(walk(seed, lag, asked=told_of)) == []


def test_zones_that_stay_lost_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside.Inside, "outlast", lambda *_: False)
    assert any(lost(walk(seed, 8, asked=told_of)) for seed in range(8))


@pytest.mark.parametrize("seed", range(5))
def test_who_takes_over_says_yes_only_where_the_kubelet_does(seed: int) -> None:
    found = walk(seed, 0, 60)
    state = ClusterState()
    zones = NodeZones(state.cache)
    state.cache.zones = zones
    for name, managers in found.managers.items():
        node = found.state.table.nodes[found.state.table.row_of[name]]
        assert node is not None
        state.upsert_node(node)
        zones.put(name, later(managers.report(), 1))
    for uid, name in found.standing.items():
        account = found.state.cache.accounts[uid]
        state.observe(pod(uid, account.pod_class.needs, node_name=name))
    found.state, found.zones, found.refused = state, zones, []
    for number in range(60, 160):
        found.step(number)
    assert found.refused == []


@pytest.mark.parametrize("seed", range(4))
def test_where_objects_are_in_time_no_pod_is_kept_from_a_node_that_would_take_it(seed: int) -> None:
    found = Walk(seed, 0)
    for number in range(80):
        found.step(number)
        one = asked(found.rng)
        rule = prepare(found.state, pod("asked", one))
        for row, name in enumerate(found.state.table.names):
            says = rule is None or rule.verdict(row) is None
            assert says == found.managers[name].would_admit(one), (name, one)


MISTAKES: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "assumed pods hold nothing": (NodeZones, "count", lambda *_, **__: None),
    "everybody is shown at once": (inside.Inside, "_find_shown", lambda self, **_: [
        setattr(one, "shown", True) for one in self.pods.values()
    ]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_walk_sees_a_mistake(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    of, name, instead = MISTAKES[mistake]
    monkeypatch.setattr(of, name, instead)
    monkeypatch.setattr(NodeZones, "validate", lambda _: iter(()))
    assert any(walk(seed, 8).refused for seed in range(10))
