"""Policies at an agent: swapped between two decisions, refused without harm, told when it matters."""

from __future__ import annotations

import hashlib
from random import Random

import msgspec
import numpy as np
import pytest

from shared.agent.variants import Lanes
from shared.decide.guard import Failure, no_clock
from shared.decide.stages import Stage
from shared.errors import StoreUnknown
from shared.policy.domain import PLACEMENT
from shared.policy.heuristics import KubeDefault
from shared.policy.marl.policy import MarlDqn
from shared.policy.registry import LEARNED, ref_of
from shared.policy.weights import Card, WeightsFile, encode, shipped, shipped_bytes
from shared.runtime.agent.policies import PolicyLoader
from shared.scheduling.state.cache import ClusterCache
from shared.wire.messages import PolicyFailure
from shared.wire.records import PolicyPointer, PolicyRef, Rehearsed
from tests.builders import make_node, make_pod
from tests.marl_weights import weights

HEURISTIC = PolicyRef("kube-default", 1)
POD = make_pod().cpu("1").pod().pod_class


def blob(kind: str, version: int) -> tuple[PolicyRef, bytes]:
    file = weights(kind, version=version)
    return PolicyRef("marl-dqn", version, file.sha256), encode(file)


GOOD, GOOD_BYTES = blob("good", 1)
OTHER, OTHER_BYTES = blob("terrible", 2)
BROKEN, BROKEN_BYTES = blob("broken", 3)


def make_lanes() -> Lanes:
    cache = ClusterCache()
    for index, load in enumerate((0, 4, 1)):
        cache.upsert_node(make_node(f"n{index}").allocatable(cpu="10", memory="10Gi").node())
        for number in range(load):
            cache.assume(f"u{index}-{number}", f"n{index}", POD, now=0.0)
    made = Lanes(HEURISTIC, KubeDefault(), Random(1), clock=no_clock, limits=PLACEMENT.limits)
    made.rank(cache.table)
    return made


def best(lanes: Lanes, *, candidate: bool) -> str:
    lane = lanes.of(candidate=candidate)
    [slot] = lane.ranker.slots(POD, 1, extra=0)
    lane.judged(1, POD, 0.001)
    return lane.ranker.table.names[slot.row]


def loader(lanes: Lanes, **stored: bytes) -> PolicyLoader:
    async def fetch(sha256: str) -> bytes | None:
        found = stored.get(f"s{sha256}")
        if found == b"no answer":
            raise StoreUnknown("etcd is away")
        return found

    return PolicyLoader(lanes, fetch)


def kept(*items: tuple[PolicyRef, bytes]) -> dict[str, bytes]:
    return {f"s{ref.sha256}": data for ref, data in items}


async def test_the_pointers_policies_decide_from_the_next_decision_on() -> None:
    lanes = make_lanes()
    loading = loader(lanes, **kept((GOOD, GOOD_BYTES), (OTHER, OTHER_BYTES)))
    pointer = PolicyPointer(active=GOOD, candidate=OTHER, stage=Stage.CANARY, percent=10, number=4)
    assert await loading.take_over(pointer)
    assert (best(lanes, candidate=False), best(lanes, candidate=True)) == ("n0", "n1")
    assert [report.policy for report in lanes.reports(4)] == ["marl-dqn@1", "marl-dqn@2"]
    assert await loading.take_over(PolicyPointer(active=GOOD, number=5))
    assert lanes.candidate is None
    assert best(lanes, candidate=True) == "n0"


async def test_a_candidate_that_becomes_active_is_not_loaded_again() -> None:
    lanes = make_lanes()
    await loader(lanes, **kept((OTHER, OTHER_BYTES))).take_over(
        PolicyPointer(active=HEURISTIC, candidate=OTHER, stage=Stage.SHADOW, number=2)
    )
    assert lanes.candidate is not None
    guard = lanes.candidate.guard
    assert await loader(lanes).take_over(PolicyPointer(active=OTHER, previous=HEURISTIC, number=3))
    assert lanes.active.guard is guard
    assert lanes.failures() == []


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(None, id="gone"),
        pytest.param(OTHER_BYTES, id="another digest"),
        pytest.param(GOOD_BYTES[:-20], id="cut"),
    ],
)
async def test_weights_that_cannot_be_used_leave_the_active_policy_and_are_told(data: bytes | None) -> None:
    lanes = make_lanes()
    stored = {} if data is None else {f"s{GOOD.sha256}": data}
    assert await loader(lanes, **stored).take_over(PolicyPointer(active=GOOD, number=2))
    assert lanes.active.ref == HEURISTIC
    [told] = lanes.failures()
    assert (told.policy, told.sha256, told.failure) == ("marl-dqn@1", GOOD.sha256, Failure.DIGEST)
    assert lanes.number == 0
    assert await loader(lanes).take_over(PolicyPointer(active=HEURISTIC, number=3))
    assert lanes.failures() == []


async def test_weights_of_another_releases_inputs_are_told_apart_from_broken_ones() -> None:
    """So that the coordinator lets those who can read them go on by them."""
    card = Card(policy="lb", version=1, features=["cpu_share", "steps_above_least"])
    data = encode(WeightsFile(shipped("lb").arrays, card))
    ref = PolicyRef("lb", 1, hashlib.sha256(data).hexdigest())
    lanes = make_lanes()
    assert await loader(lanes, **kept((ref, data))).take_over(PolicyPointer(active=ref, number=2))
    assert (lanes.active.ref, [told.failure for told in lanes.failures()]) == (HEURISTIC, ["release"])


async def test_weights_that_the_policy_cannot_be_made_of_are_refused_too(monkeypatch) -> None:
    def picky(file):
        return file.arrays["l9.w"]

    monkeypatch.setitem(LEARNED, "marl-dqn", picky)
    lanes = make_lanes()
    assert await loader(lanes, **kept((GOOD, GOOD_BYTES))).take_over(PolicyPointer(active=GOOD, number=2))
    assert (lanes.active.ref, [told.failure for told in lanes.failures()]) == (HEURISTIC, ["digest"])


async def test_weights_of_another_version_than_the_pointer_says_are_refused() -> None:
    lanes = make_lanes()
    wrong = PolicyRef("marl-dqn", 7, GOOD.sha256)
    await loader(lanes, **kept((GOOD, GOOD_BYTES))).take_over(PolicyPointer(active=wrong, number=2))
    assert lanes.active.ref == HEURISTIC
    assert [told.policy for told in lanes.failures()] == ["marl-dqn@7"]


async def test_while_etcd_is_away_everything_stays_and_is_tried_again() -> None:
    lanes = make_lanes()
    away = loader(lanes, **{f"s{GOOD.sha256}": b"no answer"})
    assert not await away.take_over(PolicyPointer(active=GOOD, number=2))
    assert (lanes.active.ref, lanes.failures()) == (HEURISTIC, [])


async def test_an_answer_says_by_whom_only_where_it_does_not_go_without_saying() -> None:
    lanes = make_lanes()
    loading = loader(lanes, **kept((GOOD, GOOD_BYTES), (BROKEN, BROKEN_BYTES)))
    await loading.take_over(PolicyPointer(active=GOOD, number=4))
    best(lanes, candidate=False)
    assert lanes.reports(4) == []
    best(lanes, candidate=False)
    assert [report.policy for report in lanes.reports(5)] == ["marl-dqn@1"]
    await loading.take_over(PolicyPointer(active=BROKEN, number=6))
    assert best(lanes, candidate=False) == "n0"
    [report] = lanes.reports(6)
    assert (report.policy, report.fallen) == ("marl-dqn@3", [1])
    assert [(told.failure, told.count) for told in lanes.failures()] == [("nan", 1)]
    assert lanes.fallbacks == 1


def test_a_profiles_policy_neither_hides_nor_adds_to_the_failures_of_the_candidate() -> None:
    lanes, same = make_lanes(), ref_of("most-allocated")
    lanes.try_out(same, MarlDqn(weights("broken", version=3)))
    best(lanes, candidate=True)
    before = lanes.failures()
    assert [(told.policy, told.failure, told.own) for told in before] == [("most-allocated@1", "nan", "")]
    own = lanes.own("most-allocated")
    assert lanes.failures() == before
    own.guard.failures[Failure.NAN] += 7
    assert lanes.failures() == [*before, PolicyFailure(same.title, same.sha256, "nan", 7, "most-allocated")]


def test_a_stand_in_for_a_profiles_policy_is_told_for_as_long_as_it_stands_in() -> None:
    lanes = make_lanes()
    lanes.own("only-elsewhere")
    told = lanes.failures()
    assert [(one.policy, one.failure, one.own) for one in told] == [("only-elsewhere@0", "digest", "only-elsewhere")]
    lanes.forgive()
    assert lanes.failures() == told


def test_another_view_of_the_nodes_keeps_the_guards_and_what_they_counted() -> None:
    lanes = make_lanes()
    lanes.use(BROKEN, MarlDqn(weights("broken", version=3)))
    best(lanes, candidate=False)
    lanes.rank(lanes.active.ranker.table)
    assert lanes.active.guard.failures == {Failure.NAN: 1}


def test_what_the_coordinator_tells_of_the_cluster_reaches_the_policy() -> None:
    lanes = make_lanes()
    policy = MarlDqn(weights())
    lanes.use(GOOD, policy)
    lanes.see_cluster(np.full(11, 0.25))
    assert policy.observer.store is not None
    assert policy.observer.store.cluster is not None
    assert policy.observer.store.cluster[0] == 0.25


FRAG = ref_of("frag")
FGD_PLACES = Rehearsed(policy=FRAG.title, sha256=FRAG.sha256, places="fgd", told="because")


async def test_what_a_rehearsal_said_is_heeded_with_the_pointer_and_forgotten_with_it() -> None:
    lanes = make_lanes()
    loading = loader(lanes, **kept((FRAG, shipped_bytes("frag")), (GOOD, GOOD_BYTES)))
    assert await loading.take_over(PolicyPointer(active=FRAG, number=2))
    policy = lanes.active.guard.policy
    assert policy.placed_by == "frag"
    assert await loading.take_over(PolicyPointer(active=FRAG, number=3, rehearsed=(FGD_PLACES,)))
    assert (lanes.active.guard.policy, policy.placed_by) == (policy, "fgd")
    assert await loading.take_over(PolicyPointer(active=FRAG, number=4))
    assert policy.placed_by == "frag"
    both = PolicyPointer(active=GOOD, candidate=FRAG, stage=Stage.SHADOW, number=5, rehearsed=(FGD_PLACES,))
    assert await loading.take_over(both)
    assert lanes.candidate.guard.policy.placed_by == "fgd"


async def test_what_was_said_of_the_active_policy_is_heeded_though_the_candidates_weights_cannot_be_read() -> None:
    lanes = make_lanes()
    loading = loader(lanes, **kept((FRAG, shipped_bytes("frag")), (GOOD, b"no answer")))
    pointer = PolicyPointer(active=FRAG, candidate=GOOD, stage=Stage.SHADOW, number=2, rehearsed=(FGD_PLACES,))
    assert not await loading.take_over(pointer)
    assert (lanes.active.ref, lanes.active.guard.policy.placed_by) == (FRAG, "fgd")


async def test_a_verdict_on_other_weights_changes_nothing() -> None:
    lanes = make_lanes()
    loading = loader(lanes, **kept((FRAG, shipped_bytes("frag"))))
    other = msgspec.structs.replace(FGD_PLACES, sha256="0" * 64)
    assert await loading.take_over(PolicyPointer(active=FRAG, number=2, rehearsed=(other,)))
    assert lanes.active.guard.policy.placed_by == "frag"
