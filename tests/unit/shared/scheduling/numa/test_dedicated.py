"""Pods of dedicated cores by Katalyst's object: which zones they get, what counts there, and until when."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from shared.model.node_topology import Dedicated, NodeTopology, PodNeeds, TopologyPolicy, TopologySource
from shared.scheduling.cycle.constraints import guidance_for
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.numa import dedicated as rules
from shared.scheduling.numa.admission import admit
from shared.scheduling.numa.books import Books
from shared.scheduling.numa.inside import LATE_S
from shared.scheduling.numa.placed import seat
from shared.scheduling.numa.rule import MOST, prepare
from shared.scheduling.numa.zones import NodeZones
from shared.scheduling.state.cluster_state import ClusterState
from tests.unit.shared.scheduling.numa.make import GI, cluster, dedicated, katalyst, later, needs, pod, topology
from twin.model.managers import Managers


def takes(state: ClusterState, asked: PodNeeds, name: str = "n0") -> bool:
    rule = prepare(state, pod("asked", asked))
    return rule is None or rule.verdict(state.table.row_of[name]) is None


def cpus_free(zones: NodeZones) -> list[int]:
    found = zones.inside("n0")
    assert found is not None
    return found[1].cpus_free


def seats(asked: PodNeeds, one: NodeTopology, *before: PodNeeds) -> list[int] | None:
    """The zones that it gets on a node where those before it stand."""
    books = Books(one)
    for other in before:
        assert seat(one, books, other) is not None
    verdict = admit(one, books, asked)
    return None if verdict.refusal is not None else verdict.zones()["main"]


FOUR = katalyst(zones=4)
ALONE = dedicated(2, exclusive=True)


@pytest.mark.parametrize(
    ("asked", "one", "before", "zones"),
    [
        (dedicated(8), FOUR, (), [0]),
        (dedicated(9), FOUR, (), None),
        (dedicated(4), FOUR, (dedicated(5),), [1]),
        (dedicated(3), FOUR, (dedicated(5),), [0]),
        (ALONE, FOUR, (dedicated(5),), [1]),
        (dedicated(1), FOUR, (ALONE,), [1]),
        (dedicated(16, exclusive=True), FOUR, (), [0, 1]),
        (dedicated(16, exclusive=True), FOUR, (dedicated(1),), [2, 3]),
        (dedicated(16, exclusive=True), FOUR, (ALONE, dedicated(20, exclusive=True)), None),
        (dedicated(2, 40 * GI, exclusive=True), FOUR, (), [0, 1]),
        (dedicated(20, exclusive=True), FOUR, (), [0, 1, 2]),
        (dedicated(9, exclusive=True), katalyst(zones=4, policy=TopologyPolicy.SINGLE_NUMA_NODE), (), None),
        (dedicated(9, exclusive=True), katalyst(zones=4, policy=TopologyPolicy.RESTRICTED), (), [0, 1]),
        (dedicated(4, gpus=2), katalyst(gpus=2), (dedicated(1, gpus=2),), [1]),
        (needs(8, 0, count=3), FOUR, (), []),
    ],
    ids=[
        "one zone", "larger than a zone", "the next with room", "beside another", "alone", "beside who is alone",
        "zones of one socket", "the other socket", "no two idle ones", "by memory", "over sockets", "single",
        "restricted", "where its GPUs are", "not of dedicated cores",
    ],
)  # fmt: skip
def test_which_zones_a_pod_gets(
    asked: PodNeeds, one: NodeTopology, before: tuple[PodNeeds, ...], zones: list[int] | None
) -> None:
    if asked.dedicated is None:
        assert admit(one, Books(one), asked).refusal is None
    else:
        assert seats(asked, one, *before) == zones


def test_devices_need_not_be_in_its_zone_but_under_single_numa_node() -> None:
    beside = (dedicated(7, gpus=2), dedicated(1, gpus=2))
    asked = dedicated(8, gpus=2)
    free = replace(katalyst(gpus=3), loose_devices={"nvidia.com/gpu": 1})
    assert seats(asked, free, *beside) is None or seats(asked, free, *beside[:1]) == [1]
    single = replace(free, policy=TopologyPolicy.SINGLE_NUMA_NODE)
    assert seats(dedicated(8, gpus=4), single) is None
    assert seats(dedicated(8, gpus=4), free) == [0, 1]


def test_zones_of_two_sockets_are_not_joined_where_one_has_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, beside = dedicated(16, exclusive=True), (dedicated(1), dedicated(8), dedicated(1), dedicated(8))
    state, zones = cluster(FOUR)
    zones.put("n0", later(replace(FOUR, held={"a": {0: {"cpu": 1}}, "b": {2: {"cpu": 1}}}), 2))
    assert not takes(state, asked), "zones 1 and 3 are idle, of two sockets"
    assert seats(asked, replace(FOUR, sockets={}), beside[0]) == [1, 2]
    monkeypatch.setattr(rules, "_idle", lambda *_: True)
    assert seats(asked, FOUR, dedicated(1, 0)) == [2, 3], "without the rule it would share a zone, were there CPUs"


def test_a_pod_counts_in_its_zone_from_the_plan_on_until_the_object_names_it() -> None:
    state, zones = cluster(katalyst())
    state.assume(pod("a", dedicated(5)), "n0", 0.0)
    assert cpus_free(zones) == [3, 3], "its agent may give it either"
    state.observe(pod("a", dedicated(5), node_name="n0"))
    assert cpus_free(zones) == [3, 3]
    zones.put("n0", katalyst(held={"a": {1: 5}}, version="2"))
    assert cpus_free(zones) == [8, 3], "its agent gave it the other one"
    assert not list(zones.validate())


def test_whose_zone_nobody_knows_yet_is_taken_off_every_one_that_its_agent_may_give_it() -> None:
    state, zones = cluster(katalyst(zones=4, held={"x": {0: 6}, "y": {1: 2}}))
    for uid, cpus in (("x", 6), ("y", 2)):
        state.observe(pod(uid, dedicated(cpus), node_name="n0"))
    state.assume(pod("a", dedicated(5)), "n0", 0.0)
    assert cpus_free(zones) == [2, 1, 3, 3], "zone 0 has no room for it"
    assert not takes(state, dedicated(8))
    state.assume(pod("b", dedicated(3)), "n0", 0.0)
    assert cpus_free(zones) == [2, 0, 0, 0]
    zones.put("n0", katalyst(zones=4, held={"x": {0: 6}, "y": {1: 2}, "a": {3: 5}}, version="2"))
    assert cpus_free(zones) == [2, 3, 5, 0]


def test_a_pod_that_only_one_zone_has_room_for_is_there() -> None:
    state, zones = cluster(katalyst(held={"x": {0: 2}}))
    state.observe(pod("x", dedicated(2), node_name="n0"))
    state.assume(pod("a", ALONE), "n0", 0.0)
    assert cpus_free(zones) == [6, 0]
    state.assume(pod("b", dedicated(4)), "n0", 0.0)
    assert cpus_free(zones) == [2, 0]
    zones.put("n0", later(katalyst(held={"x": {0: 2}}), 2))
    assert cpus_free(zones) == [2, 0]


def test_where_one_trusts_a_newcomer_sits_where_we_would_seat_it() -> None:
    state, zones = cluster(katalyst(), trusting=True)
    state.assume(pod("a", dedicated(5)), "n0", 0.0)
    assert cpus_free(zones) == [3, 8]
    state.assume(pod("b", ALONE), "n0", 0.0)
    assert cpus_free(zones) == [3, 0]


def test_who_wants_a_zone_alone_waits_until_it_is_known_which_ones_are() -> None:
    state, zones = cluster(katalyst())
    state.assume(pod("a", ALONE), "n0", 0.0)
    assert not takes(state, ALONE)
    assert not takes(state, dedicated(1))
    zones.put("n0", katalyst(held={"a": {1: 2}}, version="2"))
    assert takes(state, ALONE)


def test_two_that_want_a_zone_alone_are_not_put_beside_each_other() -> None:
    state, _ = cluster(katalyst(), trusting=True)
    for uid in "ab":
        assert takes(state, ALONE)
        state.assume(pod(uid, ALONE), "n0", 0.0)
    assert not takes(state, ALONE)
    assert not takes(state, dedicated(1))
    assert takes(state, needs(8)), "the kubelet's managers are not asked there"


def test_who_left_counts_until_the_object_drops_it_or_it_is_late() -> None:
    state, zones = cluster(katalyst(held={"a": {0: 8}, "b": {1: 8}}))
    for uid in "ab":
        state.observe(pod(uid, dedicated(8), node_name="n0"))
    assert not takes(state, dedicated(1))
    state.forget("a")
    state.forget("b")
    assert not takes(state, dedicated(1))
    assert set(zones.left("n0")) == {"a", "b"}
    zones.put("n0", katalyst(held={"b": {1: 8}}, version="2"))
    assert cpus_free(zones) == [8, 0]
    assert zones.advance(LATE_S) == ["n0", "n0"]
    assert cpus_free(zones) == [8, 8]


def test_others_than_dedicated_cores_take_no_zone_and_whom_nobody_knows_do() -> None:
    state, zones = cluster(katalyst(held={"shared": {0: 8}, "guaranteed": {1: 3}, "unknown": {1: 2}}))
    state.observe(pod("shared", None, node_name="n0"))
    state.observe(pod("guaranteed", needs(3), node_name="n0"))
    assert cpus_free(zones) == [8, 0], "it may be one that has its zone alone"
    state.observe(pod("unknown", None, node_name="n0"))
    zones.advance(LATE_S)
    assert cpus_free(zones) == [8, 8], "its pod was told of after the object"
    state.forget("shared")
    assert cpus_free(zones) == [8, 8], "it is no stranger for having ended"


def test_whom_nobody_knows_counts_as_long_as_who_left() -> None:
    _, zones = cluster(katalyst(held={"a": {0: 2}}))
    assert cpus_free(zones) == [0, 8]
    zones.advance(LATE_S - 1)
    assert cpus_free(zones) == [0, 8]
    zones.advance(LATE_S)
    assert cpus_free(zones) == [8, 8]
    _, trusting = cluster(katalyst(held={"a": {0: 2}}), trusting=True)
    assert cpus_free(trusting) == [6, 8]


@pytest.mark.parametrize(
    "edited",
    [None, needs(5), PodNeeds((), Dedicated(0, 0, binding=False)), PodNeeds((), Dedicated(5, 0, unreadable="why"))],
    ids=["not dedicated", "guaranteed", "not bound", "unreadable"],
)
def test_a_pod_that_was_named_as_dedicated_counts_whatever_its_annotations_say_later(edited: PodNeeds | None) -> None:
    state, zones = cluster(katalyst(held={"a": {0: 5}, "b": {1: 2}}))
    for uid, asked in (("a", dedicated(5)), ("b", ALONE)):
        state.observe(pod(uid, asked, node_name="n0"))
    assert cpus_free(zones) == [3, 0]
    for uid in "ab":
        state.observe(pod(uid, edited, node_name="n0"))
    assert cpus_free(zones) == [3, 0]
    zones.advance(LATE_S)
    zones.put("n0", katalyst(held={"a": {0: 5}, "b": {1: 2}}, version="2"))
    assert cpus_free(zones) == [3, 0], "it was never gone"
    assert not list(zones.validate())
    zones.put("n0", katalyst(version="3"))
    if edited is None or not edited.of_katalyst:
        assert cpus_free(zones) == [8, 8]


def test_dedicated_cores_that_are_not_bound_count_where_the_object_names_them() -> None:
    state, zones = cluster(katalyst(held={"a": {0: 5}}))
    state.observe(pod("a", PodNeeds((), Dedicated(0, 0, binding=False)), node_name="n0"))
    assert cpus_free(zones) == [3, 8]
    assert prepare(state, pod("b", PodNeeds((), Dedicated(0, 0, binding=False)))) is None


@pytest.mark.parametrize(
    ("held", "free"), [({0: 1}, [3, 8]), ({0: 0, 1: 0}, [3, 3]), ({0: 5}, [3, 8]), ({0: 6}, [2, 8])]
)
def test_a_pod_counts_with_what_it_asks_for_where_the_object_names_less(held: dict[int, int], free: list[int]) -> None:
    state, zones = cluster(katalyst(held={"a": held}))
    state.observe(pod("a", dedicated(5), node_name="n0"))
    assert cpus_free(zones) == free
    less = 5 - sum(held.values())
    assert zones.doubts("n0") == ([f"pod a asks for {less} CPUs more than it is named with"] if less > 0 else [])


def test_one_whose_zones_are_not_all_named_may_have_any_other() -> None:
    state, zones = cluster(katalyst(zones=4, held={"a": {0: 8}}))
    state.observe(pod("a", dedicated(12, exclusive=True), node_name="n0"))
    assert cpus_free(zones) == [0, 4, 4, 4]


def test_a_pod_whose_annotations_nobody_can_read_is_given_to_no_agent_of_katalysts() -> None:
    asked = PodNeeds((), Dedicated(1, 0, unreadable="metadata.annotations[a]: why"))
    state, _ = cluster(katalyst("n0"), topology("n1"))
    rule = prepare(state, pod("a", asked))
    assert rule is not None
    assert rule.mask().tolist() == [False, True]
    assert rule.tally(np.array([0])) == {"metadata.annotations[a]: why": 1}
    other, _ = cluster(topology())
    assert prepare(other, pod("a", asked)) is None, "nothing hangs on it without Katalyst"


def test_what_more_is_allocated_than_a_zone_has_is_told_and_nothing_is_free_there() -> None:
    state, zones = cluster(katalyst(held={"a": {0: 9}}))
    assert cpus_free(zones) == [0, 8]
    assert zones.take_news() == [("node_topology_unclear", "n0", "pods have 1 CPUs more than zone 0 has")]
    state.observe(pod("a", dedicated(9), node_name="n0"))
    assert cpus_free(zones) == [0, 8]


def test_zones_that_vanish_are_taken_with_what_is_in_them() -> None:
    state, zones = cluster(FOUR, trusting=True)
    state.assume(pod("a", dedicated(16, exclusive=True)), "n0", 0.0)
    assert takes(state, dedicated(16, exclusive=True))
    zones.put("n0", later(katalyst(zones=2), 2))
    assert not takes(state, dedicated(16, exclusive=True))
    assert not takes(state, dedicated(1))


def test_katalysts_object_counts_beside_the_other_and_both_are_told_of() -> None:
    state, zones = cluster(topology(free=(0, 0)))
    assert not takes(state, needs(1))
    zones.put("n0", katalyst())
    assert [event for event, _, _ in zones.take_news()] == ["node_topology_twice"]
    assert takes(state, needs(1))
    assert not takes(state, dedicated(9))
    zones.put("n0", topology(free=(1, 1), version="3"))
    assert takes(state, needs(8))
    zones.take_news()
    zones.drop("n0", TopologySource.KATALYST)
    assert takes(state, needs(8)), "one bad value is no reason to believe the other one"
    assert not takes(state, dedicated(9))
    zones.put("n0", katalyst(version="4"))
    assert [event for event, _, _ in zones.take_news()] == ["node_topology_gone"], "and is not told of twice"
    zones.drop("n0", TopologySource.KATALYST)
    zones.advance(LATE_S)
    assert not takes(state, needs(2)), "what stood back counts, as it was last"
    zones.drop("n0", TopologySource.KATALYST)
    assert not takes(state, needs(2))
    zones.put("n0", katalyst(version="5"))
    zones.drop("n0")
    assert takes(state, needs(2))
    assert not takes(state, dedicated(9))


def test_an_object_that_was_deleted_does_not_come_back_when_katalysts_goes() -> None:
    state, zones = cluster(topology(free=(0, 0)))
    assert not takes(state, needs(1))
    zones.drop("n0")
    zones.put("n0", katalyst())
    assert takes(state, needs(1))
    assert "node_topology_twice" not in [event for event, _, _ in zones.take_news()]
    zones.drop("n0", TopologySource.KATALYST)
    zones.advance(2 * LATE_S)
    assert zones.topologies == {}


def test_pods_that_nothing_aligns_there_are_not_asked_about() -> None:
    state, _ = cluster(katalyst())
    assert prepare(state, pod("a", needs(2))) is None
    other, _ = cluster(topology())
    assert prepare(other, pod("a", dedicated(2))) is None


def test_a_zone_that_is_nearly_used_up_is_better_than_an_idle_one_and_no_agent_than_none() -> None:
    state, _ = cluster(katalyst("n0"), katalyst("n1", held={"a": {0: 3}}), topology("n2"))
    state.observe(pod("a", dedicated(3), node_name="n1"))
    rule = prepare(state, pod("p", dedicated(5, 0)))
    assert rule is not None
    scores = rule.scores(np.arange(3))
    assert scores is not None
    assert scores.tolist() == [MOST * 5 // 8, MOST, 0]
    guidance = guidance_for(state, FeasibilityCache(state.table), pod("p", dedicated(5, 0)))
    assert guidance.scores is not None
    assert int(np.argmax(guidance.scores)) == 1
    plain = prepare(state, pod("p", needs(5)))
    assert plain is not None
    assert plain.scores(np.arange(3)) is None


class KatalystWalk:
    """Machines whose agents choose for themselves; each object is published in time or late."""

    def __init__(self, seed: int, late: float, *, trusting: bool = False) -> None:
        self.rng, self.late = Random(seed), late
        made = [
            katalyst(f"n{at}", zones=self.rng.choice([2, 4, 8]), gpus=self.rng.choice([0, 2]),
                     policy=self.rng.choice([TopologyPolicy.NUMERIC, TopologyPolicy.SINGLE_NUMA_NODE]))
            for at in range(4)
        ]  # fmt: skip
        self.state, self.zones = cluster(*made, trusting=trusting)
        self.managers = {one.node: Managers(one) for one in made}
        self.standing: dict[str, str] = {}
        self.refused, self.placed, self.version = 0, 0, 1

    def step(self, number: int) -> None:
        if self.standing and self.rng.random() < 0.35:
            uid = self.rng.choice(sorted(self.standing))
            self.managers[self.standing.pop(uid)].remove(uid)
            self.state.forget(uid)
        else:
            self.place(f"p{number}")
        for name, managers in self.managers.items():
            if self.rng.random() >= self.late:
                self.version += 1
                self.zones.put(name, later(managers.report(), self.version))

    def place(self, uid: str) -> None:
        exclusive = self.rng.random() < 0.4
        asked = dedicated(self.rng.randrange(1, 20 if exclusive else 9), exclusive=exclusive,
                          gpus=self.rng.choice([0, 0, 1]))  # fmt: skip
        rule = prepare(self.state, pod(uid, asked))
        assert rule is not None
        would = [self.managers[name].would_admit(asked) for name in self.state.table.names]
        mask = rule.mask()
        if not self.late:
            assert mask.tolist() == would
        rows = np.flatnonzero(mask)
        if len(rows):
            name = self.state.table.names[self.rng.choice(rows.tolist())]
            self.state.assume(pod(uid, asked), name, 0.0)
            self.placed += 1
            if self.managers[name].admit(uid, asked).refusal is None:
                self.standing[uid] = name
            else:
                self.refused += 1
                self.state.forget(uid)


@pytest.mark.parametrize(("seed", "late"), [(seed, late) for seed in range(4) for late in (0.0, 0.9)])
def test_no_agent_refuses_what_was_let_on_nor_is_room_left_where_objects_are_in_time(seed: int, late: float) -> None:
    walk: Any = KatalystWalk(seed, late)
    for number in range(150):
        walk.step(number)
        assert not list(walk.zones.validate())
    assert walk.placed > 30
    assert walk.refused == 0


def test_agents_refuse_where_one_trusts_that_they_choose_as_we_do() -> None:
    walk: Any = KatalystWalk(3, 0.9, trusting=True)
    for number in range(150):
        walk.step(number)
    assert walk.refused > 0
