"""Who stands in which zones: what counts from when on, what an object shows, and what is not known."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from msgspec import structs

from shared.model.node_topology import NodeTopology, TopologyPolicy
from shared.model.resources import CPU
from shared.scheduling.framework import Code
from shared.scheduling.numa.inside import LATE_S
from shared.scheduling.numa.kinds import ZoneKinds
from shared.scheduling.numa.refusals import FIRST_S, LONGEST_S, NEVER
from shared.scheduling.numa.rule import NodeResourceTopologyMatch, prepare
from shared.scheduling.numa.zones import NodeZones
from shared.scheduling.state.cluster_state import ClusterState
from tests.unit.shared.scheduling.numa.make import GI, cluster, later, needs, pod, topology
from twin.model.managers import Managers


def takes(state: ClusterState, cpus: int, name: str = "n0", **asked: int) -> bool:
    rule = prepare(state, pod("asked", needs(cpus, **asked)))
    return rule is None or rule.verdict(state.table.row_of[name]) is None


def cpus_free(zones: NodeZones, name: str = "n0") -> list[int]:
    found = zones.inside(name)
    assert found is not None
    return found[1].cpus_free


def test_a_pod_counts_in_its_zone_as_soon_as_it_is_assumed() -> None:
    state, _ = cluster(topology())
    assert takes(state, 8)
    state.assume(pod("a", needs(5)), "n0", 0.0)
    state.assume(pod("b", needs(5)), "n0", 0.0)
    assert not takes(state, 4)
    assert takes(state, 3)


def test_a_pod_that_comes_to_nothing_gives_its_zone_back() -> None:
    state, _ = cluster(topology())
    for uid in "ab":
        state.assume(pod(uid, needs(8)), "n0", 0.0)
    assert not takes(state, 1)
    state.forget("b")
    assert takes(state, 8)


def test_a_pod_that_the_object_shows_is_counted_once() -> None:
    state, zones = cluster(topology())
    state.assume(pod("a", needs(5, 0)), "n0", 0.0)
    assert cpus_free(zones) == [3, 8]
    zones.put("n0", topology(free=(3, 8), version="2"))
    assert cpus_free(zones) == [3, 8]


def test_an_object_that_is_written_again_before_the_pod_came_there_still_does_not_count_it() -> None:
    state, zones = cluster(topology())
    state.assume(pod("a", needs(5, 0)), "n0", 0.0)
    zones.put("n0", later(topology(), 2))
    assert cpus_free(zones) == [3, 8]


def test_where_the_object_shows_another_zone_than_foreseen_the_object_is_right() -> None:
    state, zones = cluster(topology())
    state.assume(pod("a", needs(5, 0)), "n0", 0.0)
    zones.put("n0", topology(free=(8, 3), version="2"))
    assert cpus_free(zones) == [8, 3]


def test_what_a_pod_leaves_stays_taken_until_the_object_shows_it_free() -> None:
    state, zones = cluster(topology(free=(3, 8)))
    state.observe(pod("a", needs(5, 0), node_name="n0"))
    assert cpus_free(zones) == [3, 8]
    state.forget("a")
    assert cpus_free(zones) == [3, 8]
    zones.put("n0", topology(version="2"))
    assert cpus_free(zones) == [8, 8]


def test_a_pod_like_one_that_left_is_not_taken_for_it() -> None:
    state, zones = cluster(topology(free=(3, 8)))
    state.observe(pod("a", needs(5, 0), node_name="n0"))
    assert cpus_free(zones) == [3, 8]
    state.forget("a")
    state.assume(pod("b", needs(5, 0)), "n0", 0.0)
    assert cpus_free(zones) == [3, 3]


def test_an_object_that_was_read_before_a_pod_came_does_not_count_it() -> None:
    state, zones = cluster(topology(free=(3, 8)))
    state.observe(pod("a", needs(5, 0), node_name="n0"))
    assert cpus_free(zones) == [3, 8]
    state.forget("a")
    state.assume(pod("b", needs(5, 0)), "n0", 0.0)  # foreseen in the other zone: a may be there still
    zones.put("n0", later(topology(free=(3, 8)), 2))
    assert cpus_free(zones) == [3, 3]
    zones.put("n0", topology(free=(8, 3), version="3"))
    assert cpus_free(zones) == [8, 3]


def test_of_pods_that_left_the_first_are_gone_first() -> None:
    state, zones = cluster(topology(free=(0, 1)))
    for uid, cpus in (("a", 5), ("b", 7), ("c", 3)):
        state.observe(pod(uid, needs(cpus, 0), node_name="n0"))
    assert cpus_free(zones) == [0, 1]
    state.forget("a")
    state.forget("b")
    state.forget("c")
    zones.put("n0", topology(free=(5, 1), version="2"))
    assert cpus_free(zones) == [5, 1]
    assert zones.take_news() == []
    zones.put("n0", topology(version="3"))
    assert cpus_free(zones) == [8, 8]


def test_a_successor_learns_from_bound_pods_and_the_object() -> None:
    state, zones = cluster(topology(free=(8, 3)))
    state.observe(pod("a", needs(5, 0), node_name="n0"))
    assert cpus_free(zones) == [8, 3]


@pytest.mark.parametrize(("trusting", "left"), [(False, [8, 0]), (True, [8, 3])])
def test_what_init_containers_hold_is_taken_unless_settings_say_otherwise(trusting: bool, left: list[int]) -> None:
    state, zones = cluster(topology(free=(8, 3)), trusting=trusting)
    state.observe(pod("a", needs(5, 0, init=8), node_name="n0"))  # b went since, so that a sits in zone 1
    assert cpus_free(zones)[1] == left[1]


@pytest.mark.parametrize(("trusting", "left"), [(False, [4, 1]), (True, [4, 6])])
def test_an_object_that_fits_no_pods_is_named_and_taken_as_the_worst(trusting: bool, left: list[int]) -> None:
    state, zones = cluster(topology(free=(4, 6)), trusting=trusting)
    state.observe(pod("a", needs(5, 0), node_name="n0"))
    assert cpus_free(zones) == left
    assert [event for event, _, _ in zones.take_news()] == ["node_topology_unclear"]
    assert zones.take_news() == []


def test_zones_that_vanish_take_no_pod_with_them() -> None:
    state, zones = cluster(topology())
    for uid in "ab":
        state.assume(pod(uid, needs(8, 0)), "n0", 0.0)
    assert cpus_free(zones) == [0, 0]
    zones.put("n0", topology(zones=1, version="2"))
    assert cpus_free(zones) == [0]
    zones.drop("n0")
    zones.advance(LATE_S)
    assert zones.inside("n0") is None
    assert takes(state, 8)


def test_a_node_that_goes_and_comes_again_keeps_its_zones() -> None:
    state, zones = cluster(topology())
    state.assume(pod("a", needs(5, 0)), "n0", 0.0)
    there = state.table.nodes[state.table.row_of["n0"]]
    assert there is not None
    state.remove_node("n0")
    state.upsert_node(there)
    assert cpus_free(zones) == [3, 8]
    assert list(zones.validate()) == []


def test_a_kubelet_that_refuses_is_believed_until_its_object_changes() -> None:
    state, zones = cluster(topology(), topology("n1"))
    zones.refused("n0", needs(2), "TopologyAffinityError")
    assert not takes(state, 2)
    assert takes(state, 3)
    assert takes(state, 2, "n1")
    zones.put("n0", later(topology(), 2))
    assert not takes(state, 2), "written again, and says the same"
    zones.put("n0", topology(free=(7, 8), version="3"))
    assert takes(state, 2)


def test_of_a_kubelet_without_an_object_nothing_is_learnt() -> None:
    state, zones = cluster(topology("n1"))
    there = state.table.nodes[state.table.row_of["n1"]]
    assert there is not None
    state.upsert_node(type(there)("n0", allocatable=there.allocatable))
    zones.refused("n0", needs(2), "UnexpectedAdmissionError")
    assert takes(state, 2)
    alone, zones = cluster()
    alone.upsert_node(type(there)("n0", allocatable=there.allocatable))
    zones.refused("n0", needs(2), "UnexpectedAdmissionError")
    assert prepare(alone, pod("asked", needs(2))) is None
    assert zones.take_news() == []


def test_a_refusal_is_over_by_time_and_lasts_longer_each_time() -> None:
    state, zones = cluster(topology())
    now, lasted = 0.0, FIRST_S
    for _ in range(10):
        zones.refused("n0", needs(2), "UnexpectedAdmissionError")
        zones.refused("n0", needs(2), "UnexpectedAdmissionError")  # of the same burst
        assert zones.wake_at <= now + lasted
        assert zones.advance(now + lasted - 1) == []
        assert not takes(state, 2)
        now += lasted
        assert zones.advance(now) == ["n0"]
        assert takes(state, 2)
        lasted = min(2 * lasted, LONGEST_S)
    assert lasted == LONGEST_S
    zones.advance(now + LONGEST_S)
    assert zones.wake_at == NEVER, "and is forgotten where it does not come again"


def test_an_object_that_changes_all_the_time_does_not_let_pods_fail_all_the_time() -> None:
    state, zones = cluster(topology())
    zones.refused("n0", needs(2), "SMTAlignmentError")
    zones.put("n0", topology(free=(7, 8), version="2"))
    assert takes(state, 2), "the first time it may have been late"
    zones.advance(FIRST_S + 1)
    zones.refused("n0", needs(2), "SMTAlignmentError")
    zones.put("n0", topology(free=(6, 8), version="3"))
    assert not takes(state, 2)


def test_a_zone_is_free_though_the_object_reads_the_same_once_it_cannot_be_late() -> None:
    state, zones = cluster(topology(free=(3, 8)))
    state.observe(pod("b", needs(5, 0), node_name="n0"))
    assert cpus_free(zones) == [3, 8]
    state.forget("b")
    state.assume(pod("a", needs(5, 0)), "n0", 0.0)
    assert not takes(state, 6)
    assert zones.wake_at == LATE_S
    assert zones.advance(LATE_S - 1) == []
    assert cpus_free(zones) == [3, 3]
    assert zones.advance(LATE_S) == ["n0"]
    assert cpus_free(zones) == [3, 8]
    assert zones.take_news() == []
    assert list(zones.validate()) == []


def test_an_exporter_that_is_dead_is_told_once_its_object_cannot_be_late() -> None:
    state, zones = cluster(topology(free=(3, 8)))
    state.observe(pod("b", needs(5, 0), node_name="n0"))
    assert not takes(state, 8, memory=40 * GI)
    state.forget("b")
    zones.advance(LATE_S)
    assert cpus_free(zones) == [3, 8]
    assert [event for event, _, _ in zones.take_news()] == ["node_topology_unclear"]


def test_what_nobody_takes_does_not_grow() -> None:
    state, zones = cluster(topology())
    state.observe(pod("a", needs(5, 0), node_name="n0"))
    for version in range(2, 20):
        zones.put("n0", topology(free=(8 - version % 2, 8), version=str(version)))
        zones.kinds()
    assert len(zones.news) == 1


def test_a_pod_heard_of_after_the_object_that_holds_it_is_counted_once() -> None:
    state, zones = cluster(topology(free=(3, 8)))
    assert cpus_free(zones) == [3, 8]
    state.observe(pod("b", needs(5, 0), node_name="n0"))
    assert cpus_free(zones) == [3, 8]
    assert zones.take_news()[1:] == []


def test_a_pod_that_counts_otherwise_stays_in_its_zone() -> None:
    state, zones = cluster(topology(free=(3, 8)))
    there = pod("b", needs(5, 0), node_name="n0")
    state.observe(there)
    assert cpus_free(zones) == [3, 8]
    state.observe(structs.replace(there, pod_class=structs.replace(there.pod_class, latency_target="fast")))
    assert cpus_free(zones) == [3, 8]
    assert not zones.left("n0")


def test_an_object_that_goes_or_cannot_be_read_counts_for_a_while() -> None:
    state, zones = cluster(topology())
    state.assume(pod("a", needs(5)), "n0", 0.0)
    assert not takes(state, 12)
    zones.drop("n0")
    assert not takes(state, 12)
    assert zones.take_news() == [("node_topology_gone", "n0", "what it said last counts for 180 s more")]
    zones.put("n0", topology())
    assert zones.advance(LATE_S) == []
    assert not takes(state, 12), "it is there again"
    zones.drop("n0")
    assert zones.advance(2 * LATE_S) == ["n0"]
    assert takes(state, 12)


def test_an_object_goes_with_its_node() -> None:
    state, zones = cluster(topology())
    assert not takes(state, 12)
    zones.drop("n0")
    state.remove_node("n0")
    assert zones.topologies == {}
    assert list(zones.validate()) == []


def test_parked_pods_are_judged_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    state, zones = cluster(*(topology(f"n{number}", cpus=4 + number % 2) for number in range(50)))
    for number in range(50):
        state.assume(pod(f"p{number}", needs(4, 0)), f"n{number}", 0.0)
        state.assume(pod(f"q{number}", needs(4, 0)), f"n{number}", 0.0)
    rule = prepared(state, 5)
    zones.refused("n3", needs(5, 0), "TopologyAffinityError")
    rows = np.arange(50)
    one_by_one = [rule.verdict(row) for row in range(50)]
    asked: list[int] = []
    says = NodeResourceTopologyMatch._says

    def counted(self: NodeResourceTopologyMatch, kind: int) -> object:
        asked.append(kind)
        return says(self, kind)

    monkeypatch.setattr(NodeResourceTopologyMatch, "_says", counted)
    assert rule.tally(rows) == dict(Counter(one[1][0] for one in one_by_one if one is not None))
    assert len(asked) == 2
    helped = [one is not None and one[0] is Code.UNSCHEDULABLE for one in one_by_one]
    assert rule.resolvable(rows).tolist() == helped
    assert any(helped)
    assert not all(helped)


def test_who_has_no_place_any_more_is_known_though_totals_have_room() -> None:
    state, zones = cluster(topology())
    state.assume(pod("a", needs(5, 0)), "n0", 0.0)
    state.assume(pod("b", needs(5, 0)), "n0", 0.0)
    assert zones.sits("a", "n0")
    assert zones.sits("b", "n0")
    zones.put("n0", topology(free=(2, 8), version="2"))  # somebody else's pod of 6
    state.observe(pod("c", needs(6, 0), node_name="n0"))
    assert zones.sits("a", "n0")
    assert not zones.sits("b", "n0")


def test_pods_that_nothing_aligns_are_not_asked_about() -> None:
    state, _ = cluster(topology())
    assert prepare(state, pod("a", None)) is None
    gpus = needs(0, 0, gpus=1)
    assert prepare(state, pod("a", gpus)) is None, "no zone has such devices"
    state, _ = cluster(topology(gpus=2))
    assert prepare(state, pod("a", gpus)) is not None


def test_a_kubelet_that_refuses_nobody_is_of_no_concern() -> None:
    bare = topology(memory=0, policy=TopologyPolicy.BEST_EFFORT)
    state, _ = cluster(bare)
    assert prepare(state, pod("a", needs())) is None


def prepared(state: ClusterState, cpus: int) -> NodeResourceTopologyMatch:
    rule = prepare(state, pod("asked", needs(cpus, 0)))
    assert rule is not None
    return rule


def test_eviction_helps_where_an_empty_node_would_take_the_pod() -> None:
    state, _ = cluster(topology(), topology("n1", cpus=4))
    for uid in "ab":
        state.assume(pod(uid, needs(5, 0)), "n0", 0.0)
    rule = prepared(state, 8)
    assert rule.verdict(0) == (Code.UNSCHEDULABLE, ("cannot align container",))
    assert rule.verdict(1) == (Code.UNRESOLVABLE, ("cannot align container",))
    trial = rule.copy()
    trial.adjust(pod("b", needs(5, 0), node_name="n0"), 0, -1)
    assert trial.verdict(0) is None
    assert rule.verdict(0) is not None
    trial.adjust(pod("c", needs(1, 0)), 0, 1)
    assert trial.verdict(0) is None, "it goes to the zone that a is in"
    trial.adjust(pod("d", needs(8, 0)), 0, 1)
    assert trial.verdict(0) is not None


def test_a_burst_on_like_nodes_asks_a_kubelets_rules_once_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    state, zones = cluster(*(topology(f"n{number}") for number in range(50)))
    asked: list[object] = []
    admit = ZoneKinds.verdict

    def counted(self: ZoneKinds, kind: int, one: object) -> object:
        if (kind, one) not in self._verdicts:
            asked.append(kind)
        return admit(self, kind, one)  # type: ignore[arg-type]

    monkeypatch.setattr(ZoneKinds, "verdict", counted)
    for number in range(200):
        assert prepared(state, 4).mask()[: state.table.rows].any()
        state.assume(pod(f"p{number}", needs(4, 0)), f"n{number % 50}", 0.0)
    assert len(asked) <= 5
    assert not zones.mask(needs(4, 0))[: state.table.rows].any()


def test_the_same_room_in_a_different_make_is_another_kind() -> None:
    strict, loose = topology("n0"), topology("n1", policy=TopologyPolicy.BEST_EFFORT)
    state, _ = cluster(strict, loose)
    rule = prepare(state, pod("a", needs(12, GI)))
    assert rule is not None
    assert rule.mask()[:2].tolist() == [False, True]


def test_an_object_that_claims_more_than_there_is_gives_no_more_than_is_allocatable() -> None:
    odd = topology(free=(80, -4))
    assert odd.zones[0].available[CPU] == 80
    _, zones = cluster(odd)
    assert cpus_free(zones) == [8, 0]


def test_exporter_and_managers_agree_with_what_was_foreseen() -> None:
    state, zones = cluster(topology())
    managers = Managers(topology().with_node({}))
    for number in range(6):
        uid, asked = f"p{number}", needs(2 + number % 2)
        if not takes(state, 2 + number % 2):
            break
        state.assume(pod(uid, asked), "n0", 0.0)
        assert managers.admit(uid, asked).refusal is None
        report: NodeTopology = later(managers.report(), number + 2)
        zones.put("n0", report)
        assert cpus_free(zones) == [zone.available[CPU] for zone in report.zones]
