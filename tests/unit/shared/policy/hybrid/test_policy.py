"""How a mixture decides: scales, roles, members that fail; and that rankings never mix verdicts that do not compare."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from shared.decide.guard import Failure, GuardLimits
from shared.model.constraints import NO_NORMS, Norms
from shared.policy.guard import PlacementGuard
from shared.policy.heuristics import KubeDefault
from shared.policy.hybrid.mixture import Mixture, MixtureMember
from shared.policy.hybrid.policy import Hybrid, scaled
from shared.policy.observation import NOTHING, Need, Observation, Supplies, Verdicts, supply
from shared.policy.ranking import Ranker
from shared.policy.registry import make_policy
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.cache import ClusterCache
from tests.builders import make_node, make_pod


class Scripted:
    """Scores by row, within 0..100; ``fails`` may raise or spoil them."""

    version, bounds = 1, (0.0, 100.0)

    def __init__(self, name: str, score, *, accept=None, row_local=True, fails=None) -> None:
        self.name, self.score, self.accept, self.row_local, self.fails = name, score, accept, row_local, fails
        self.asked = 0

    def decide(self, observation: Observation, rng) -> Verdicts:
        self.asked += 1
        score = np.asarray(self.score, float)[observation.rows]
        if self.fails is not None:
            score = self.fails(score, observation.rows)
        return Verdicts(score, None if self.accept is None else np.asarray(self.accept)[observation.rows])


def hybrid(members, weights, roles=None, **settings) -> Hybrid:
    told = [MixtureMember(policy=m.name, version=1, role=(roles or {}).get(m.name, "advises")) for m in members]
    return Hybrid(Mixture(told, [], np.array([weights], float), {}), members, **settings)


def cluster(count: int) -> ClusterCache:
    cache = ClusterCache()
    for index in range(count):
        cache.upsert_node(make_node(f"n{index}").node())
    return cache


def observe(count: int) -> Observation:
    cache = cluster(count)
    return Observation(cache.table, make_pod().cpu("1").pod().pod_class, np.arange(count))


def decide(policy, count: int) -> Verdicts:
    return policy.decide(observe(count), Random(1))


def raises(score, rows):
    raise RuntimeError("broken")


def test_scores_are_weighted_sums_in_kube_defaults_points() -> None:
    mixed = hybrid([Scripted("a", [100, 0, 50]), Scripted("b", [0, 100, 50])], [0.75, 0.25])
    assert decide(mixed, 3).score.tolist() == pytest.approx([2 * 75, 2 * 25, 2 * 50])


def test_kube_default_alone_in_a_mixture_scores_as_by_itself() -> None:
    seen = observe(4)
    for row in range(4):
        seen.table.add_usage(row, make_pod().cpu(f"{row}").pod().pod_class, (), sign=1)
    alone = KubeDefault().decide(seen, Random(1)).score
    for norms in (NO_NORMS, Norms(taints=2), Norms(affinity=50), Norms(2, 50)):
        now = replace(seen, norms=norms)
        apart = KubeDefault().decide(now, Random(1)).score - make_policy("kube-default=1").decide(now, Random(1)).score
        assert apart.tolist() == pytest.approx([apart[0]] * 4)
    assert np.ptp(alone) > 30


def test_a_small_share_of_packing_does_not_outweigh_kube_default() -> None:
    """Scores that are the same everywhere (no taints, no preferences) take nothing of kube-default's part."""
    seen = observe(2)
    seen.table.add_usage(1, make_pod().cpu("2").memory("4Gi").pod().pod_class, (), sign=1)
    mixed = make_policy("kube-default=0.7,most-allocated=0.3").decide(seen, Random(1)).score
    assert mixed[0] > mixed[1]


def test_a_member_ranks_as_by_itself_however_far_its_scores_are_from_the_usual() -> None:
    raw = np.array([-1e6, -3.0, -1.0, 0.0, 0.2, 1.0, 1.1, 40.0, 1e5])
    found = scaled(raw, 0.0, 1.0)
    assert (np.diff(found) > 0).all()
    assert found.min() > 0
    assert found.max() < 100
    assert scaled(np.array([0.0, 0.5, 1.0]), 0.0, 1.0).tolist() == pytest.approx([5.0, 50.0, 95.0])


def test_a_nodes_score_does_not_depend_on_which_nodes_are_judged_with_it() -> None:
    mixed, seen = make_policy("kube-default=0.5,most-allocated=0.5"), observe(5)
    whole = mixed.decide(seen, Random(1)).score
    part = mixed.decide(Observation(seen.table, seen.pod_class, np.array([3])), Random(1)).score
    assert part[0] == whole[3]


def test_what_a_member_refuses_is_refused_only_where_it_decides() -> None:
    members = [Scripted("a", [1, 2]), Scripted("b", [2, 1], accept=[False, True])]
    assert decide(hybrid(members, [0.5, 0.5]), 2).accept is None
    accept = decide(hybrid(members, [0.5, 0.5], {"b": "decides"}), 2).accept
    assert accept is not None
    assert accept.tolist() == [False, True]


def test_a_member_of_weight_nothing_may_still_decide_what_is_refused() -> None:
    members = [Scripted("a", [1, 2]), Scripted("b", [9, 9], accept=[False, True])]
    verdicts = decide(hybrid(members, [1.0, 0.0], {"b": "decides"}), 2)
    assert verdicts.accept is not None
    assert verdicts.score.tolist() == pytest.approx([2, 4])


@pytest.mark.parametrize(
    ("fails", "why"),
    [
        (raises, Failure.EXCEPTION),
        (lambda score, rows: score * np.nan, Failure.NAN),
        (lambda score, rows: score[:1], Failure.SHAPE),
    ],
)
def test_the_weight_of_a_member_that_fails_goes_to_the_others(fails, why: Failure) -> None:
    broken = Scripted("b", [0, 100, 0], fails=fails)
    mixed = hybrid([Scripted("a", [10, 20, 30]), broken], [0.2, 0.8])
    guard = PlacementGuard(mixed)
    verdicts, fallen = guard.decide(observe(3), Random(1))
    assert not fallen
    assert verdicts.score.tolist() == pytest.approx([20, 40, 60])
    assert mixed.left_out == {("b", why): 1}


def test_without_leaving_members_out_the_whole_mixture_falls_back() -> None:
    """The safeguard off: a member's failure is the mixture's, and kube-default decides."""

    class Proud(Hybrid):
        def _part(self, place, weight, observation, rng):
            self.members[place].decide(observation, rng)
            return super()._part(place, weight, observation, rng)

    members = [Scripted("a", [10, 20]), Scripted("b", [1, 2], fails=raises)]
    proud = Proud(hybrid(members, [0.5, 0.5]).mixture, members)
    assert PlacementGuard(proud).decide(observe(2), Random(1))[1]
    assert not PlacementGuard(hybrid(members, [0.5, 0.5])).decide(observe(2), Random(1))[1]


def test_when_no_member_is_left_the_guard_decides() -> None:
    mixed = hybrid([Scripted("a", [1, 2], fails=raises), Scripted("b", [1, 2], fails=raises)], [0.5, 0.5])
    guard = PlacementGuard(mixed)
    assert guard.decide(observe(2), Random(1))[1]
    assert guard.failures == {Failure.EXCEPTION: 1}


def test_a_member_that_fails_again_and_again_rests_and_is_tried_again() -> None:
    broken = Scripted("b", [1, 2], fails=raises)
    mixed = hybrid(
        [Scripted("a", [1, 2]), broken],
        [0.5, 0.5],
        limits=GuardLimits(deadline_s=0.025, patience=2, rest=5, late_stands=False),
    )
    for _ in range(2 + 5 + 1):
        decide(mixed, 2)
    assert broken.asked == 3


def test_a_late_member_is_left_out_and_counted() -> None:
    now = [0.0]

    class Slow(Scripted):
        def decide(self, observation, rng):
            now[0] += 0.03
            return super().decide(observation, rng)

    mixed = hybrid([Scripted("a", [10, 20]), Slow("b", [20, 10])], [0.5, 0.5])
    assert Need.CLOCK in mixed.needs
    supply(mixed, Supplies(clock=lambda: now[0]))
    assert decide(mixed, 2).score.tolist() == pytest.approx([20, 40])
    assert mixed.left_out == {("b", Failure.TIMEOUT): 1}


def test_members_are_handed_what_they_need() -> None:
    class Needy(Scripted):
        needs = frozenset({Need.SCORES})

        def supply(self, supplies: Supplies) -> None:
            self.had = supplies

    needy, given = Needy("a", [1]), Supplies()
    mixed = hybrid([needy, Scripted("b", [1])], [0.5, 0.5])
    assert mixed.needs - {Need.CLOCK} == needy.needs | NOTHING
    supply(mixed, given)
    assert needy.had is given


def test_rows_are_kept_only_where_every_member_judges_them_alone() -> None:
    local, other = Scripted("a", [1]), Scripted("b", [1], row_local=False)
    assert hybrid([local], [1.0]).row_local
    assert hybrid([local], [1.0]).rows_apart
    assert not hybrid([local, other], [0.5, 0.5]).row_local
    assert not hybrid([local, other], [0.5, 0.5]).rows_apart


def moody_ranker(*, basis: bool = True):
    """Nodes of scores 10..13 by a; b says the reverse until it fails on row 3 alone."""
    cache = cluster(4)
    state = {"bad": False}

    def fails(score, rows):
        return np.where((rows == 3) & state["bad"], np.nan, score)

    mixed = hybrid([Scripted("a", [10, 11, 12, 13]), Scripted("b", [80, 60, 40, 20], fails=fails)], [0.5, 0.5])
    if not basis:
        ask = mixed.decide

        def silent(seen, rng) -> Verdicts:
            found = ask(seen, rng)
            return Verdicts(found.score, found.accept)

        mixed.decide = silent
    return cache, state, Ranker(cache.table, FeasibilityCache(cache.table), mixed, np.random.default_rng(0))


@pytest.mark.parametrize("basis", [True, False])
def test_a_ranking_is_by_the_same_members_throughout(basis: bool) -> None:
    """With the safeguard off (verdicts that do not say by whom they are) scores of one and of two members mix."""
    cache, state, ranker = moody_ranker(basis=basis)
    pod_class = make_pod().cpu("100m").pod().pod_class
    assert [slot.row for slot in ranker.slots(pod_class, 1, extra=3)] == [0, 1, 2, 3]
    state["bad"] = True
    cache.upsert_node(make_node("n3").allocatable(cpu="5").node())
    mixed = [slot.row for slot in ranker.slots(pod_class, 1, extra=3)]
    assert (mixed == [3, 2, 1, 0]) is basis


def test_many_units_are_ranked_anew_where_a_member_fails_on_the_way() -> None:
    cache = cluster(2)
    calls = [0]

    def fails(score, rows):
        calls[0] += 1
        return score * np.nan if calls[0] > 1 else score

    mixed = hybrid([Scripted("a", [10, 20]), Scripted("b", [90, 10], fails=fails)], [0.5, 0.5])
    slots = Ranker(cache.table, FeasibilityCache(cache.table), mixed, np.random.default_rng(0)).slots(
        make_pod().cpu("1").pod().pod_class, 4, extra=0
    )
    assert len(slots) == 4
    assert not cache.table.requested[0].any()
