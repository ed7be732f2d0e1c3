"""The Deep Sets policies in an agent: any number of nodes, any order, feasible rows only, and refusals by name."""

from __future__ import annotations

import numpy as np
import pytest

from shared.errors import ConfigError
from shared.policy.attribution import attribute, lens_of
from shared.policy.deepsets.features import FEATURE_COUNT, FEATURES
from shared.policy.deepsets.policy import SCORE_STEP, DeepSetsPolicy
from shared.policy.networks import mlp_shapes
from shared.policy.observation import Observation, Supplies
from shared.policy.ranking import Ranker
from shared.policy.usage.kept_views import KeptViews
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import NO_POD, summary
from shared.policy.weights import Card, WeightsFile
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.node_table import NodeTable
from tests.builders import make_node, make_pod

RNG = np.random.default_rng(0)
SIZES = [FEATURE_COUNT, 16, 1]


def weights(policy: str = "lb", *, seed: int = 1, scale: float = 1.0, **changes) -> WeightsFile:
    rng = np.random.default_rng(seed)
    arrays = {name: (scale * rng.normal(size=shape)).astype(np.float32) for name, shape in mlp_shapes(SIZES).items()}
    return WeightsFile(arrays, Card(**({"policy": policy, "version": 1, "features": list(FEATURES)} | changes)))


def pod_class(**annotations: str):
    return make_pod().cpu("250m").memory("64Mi").set(annotations=annotations).pod().pod_class


LIMITED = pod_class(latencySoftConstraint="20", latencyHardConstraint="30")


def cluster(loads: dict[str, int], latency_us: dict[str, int] | None = None) -> NodeTable:
    table = NodeTable()
    for name, count in loads.items():
        row = table.upsert(make_node(name).node())
        for _ in range(count):
            table.add_usage(row, pod_class(), ())
        if latency_us:
            table.set_latency(row, latency_us[name])
    return table


@pytest.mark.parametrize("nodes", [1, 3, 10, 100, 1000])
def test_the_same_weights_rank_any_number_of_nodes(nodes):
    table = cluster({f"n{i}": i % 7 for i in range(nodes)})
    verdicts = DeepSetsPolicy(weights()).decide(Observation(table, pod_class(), np.arange(nodes)), RNG)
    assert verdicts.score.shape == (nodes,)
    assert verdicts.score.dtype == np.float64
    assert np.isfinite(verdicts.score).all()


def test_the_order_in_which_nodes_came_changes_no_score_and_no_choice():
    loads = {f"n{i:02d}": int(count) for i, count in enumerate(np.random.default_rng(3).permutation(12))}
    policy = DeepSetsPolicy(weights())
    expected: dict[str, float] | None = None
    for seed in range(20):
        names = [str(name) for name in np.random.default_rng(seed).permutation(list(loads))]
        table = cluster({name: loads[name] for name in names})
        score = policy.decide(Observation(table, pod_class(), np.arange(12)), RNG).score
        found = dict(zip(table.names, score.tolist(), strict=True))
        expected = expected or found
        assert found == expected


def test_nodes_that_look_alike_tie_exactly():
    table = cluster({f"n{i}": 2 for i in range(37)})
    score = DeepSetsPolicy(weights()).decide(Observation(table, pod_class(), np.arange(37)), RNG).score
    assert len(set(score.tolist())) == 1


def test_removing_a_node_leaves_the_ranking_of_the_others_computable():
    table = cluster({f"n{i}": i for i in range(5)})
    policy = DeepSetsPolicy(weights())
    table.remove("n4")
    ranker = Ranker(table, FeasibilityCache(table), policy, np.random.default_rng(1))
    slots = ranker.slots(pod_class(), 1, extra=9)
    assert sorted(slot.row for slot in slots) == [0, 1, 2, 3]
    assert ranker.fallbacks == 0


def test_only_feasible_nodes_are_offered_however_the_network_scores():
    table = cluster({"full": 16, "free": 0})
    for seed in range(20):
        ranker = Ranker(table, FeasibilityCache(table), DeepSetsPolicy(weights(seed=seed)), np.random.default_rng(1))
        assert [table.names[slot.row] for slot in ranker.slots(pod_class(), 1, extra=5)] == ["free"]


def test_el_rejects_what_breaks_the_hard_limit_and_the_others_do_not():
    table = cluster({"a": 0, "b": 1, "c": 2}, {"a": 10_000, "b": 31_000, "c": -1})
    observed = Observation(table, LIMITED, np.arange(3))
    accept = DeepSetsPolicy(weights("el")).decide(observed, RNG).accept
    assert accept is not None
    assert accept.tolist() == [True, False, False]
    assert DeepSetsPolicy(weights("lb")).decide(observed, RNG).accept is None
    free = Observation(table, pod_class(), np.arange(3))
    assert DeepSetsPolicy(weights("el")).decide(free, RNG).accept is None


def test_when_every_node_breaks_the_hard_limit_one_is_offered_all_the_same():
    table = cluster({"a": 0, "b": 1}, {"a": 40_000, "b": 50_000})
    ranker = Ranker(table, FeasibilityCache(table), DeepSetsPolicy(weights("el")), np.random.default_rng(1))
    slots = ranker.slots(LIMITED, 1, extra=0)
    assert len(slots) == 1
    assert not slots[0].accept


def test_no_candidates_give_no_verdicts():
    verdicts = DeepSetsPolicy(weights()).decide(Observation(NodeTable(), pod_class(), np.arange(0)), RNG)
    assert verdicts.score.shape == (0,)


def test_weights_that_overflow_fall_back_within_the_decision():
    table = cluster({"a": 0, "b": 3})
    with np.errstate(all="ignore"):
        policy = DeepSetsPolicy(weights(scale=1e39))
        ranker = Ranker(table, FeasibilityCache(table), policy, np.random.default_rng(1))
        slots = ranker.slots(pod_class(), 1, extra=1)
    assert ranker.fallbacks == 1
    assert [table.names[slot.row] for slot in slots] == ["a", "b"]


@pytest.mark.parametrize("name", ["ee", "lb", "el"])
def test_how_many_nodes_are_judged_together_changes_no_score(name):
    """By however little: agents judge a few rows that changed, or all, and their scores are compared."""
    rng = np.random.default_rng(4)
    names = [f"n{i}" for i in range(300)]
    table = cluster({n: int(rng.integers(12)) for n in names}, {n: int(rng.integers(50_000)) for n in names})
    policy = DeepSetsPolicy(weights(name, scale=3.0))
    policy.supply(Supplies(told(table)))
    whole = policy.decide(Observation(table, LIMITED, np.arange(300)), RNG)
    for rows in (rng.permutation(300)[:7], np.arange(200, 300), *np.arange(20)[:, None]):
        assert (policy.decide(Observation(table, LIMITED, rows), RNG).score == whole.score[rows]).all()


def told(table: NodeTable) -> UtilisationStore:
    store = UtilisationStore()
    store.cluster = summary(KeptViews().of(table, table.live_rows(), NO_POD, store))
    return store


class Counting(DeepSetsPolicy):
    """How many rows it was asked about."""

    asked = 0

    def decide(self, observation, rng):
        self.asked += len(observation.rows)
        return super().decide(observation, rng)


def test_only_changed_rows_are_judged_again_until_the_cluster_is_another():
    table = cluster({f"n{i}": 1 for i in range(50)})
    policy, store = Counting(weights()), told(table)
    policy.supply(Supplies(store))
    ranker = Ranker(table, FeasibilityCache(table), policy, np.random.default_rng(1))
    ranker.slots(pod_class(), 1, extra=0)
    assert policy.asked == 50
    table.add_usage(7, pod_class(), ())
    ranker.slots(pod_class(), 1, extra=0)
    assert policy.asked == 51
    store.cluster = store.cluster + 0.5
    ranker.slots(pod_class(), 1, extra=0)
    assert policy.asked == 101


def test_ablation_a_policy_that_did_not_say_what_rows_are_compared_with_would_keep_old_scores(monkeypatch):
    """Nothing changed but what was told: agents that had kept theirs would not compare with one that began anew."""
    table = cluster({f"n{i}": i % 3 for i in range(20)})
    store, policy = told(table), DeepSetsPolicy(weights())
    policy.supply(Supplies(store))
    ranker = Ranker(table, FeasibilityCache(table), policy, np.random.default_rng(1))

    def best() -> float:
        return ranker.slots(pod_class(), 1, extra=0)[0].score

    before = best()
    store.cluster = store.cluster + 0.5
    assert best() != before
    monkeypatch.setattr("shared.policy.guard.context_of", lambda policy, table: None)
    ranker.use(policy)
    kept = best()
    store.cluster = store.cluster - 0.5
    assert best() == kept != before


def test_it_can_be_explained_as_any_learned_policy():
    table = cluster({"a": 0, "b": 5, "c": 9})
    policy = DeepSetsPolicy(weights())
    seen = Observation(table, pod_class(), np.arange(3))
    lens = lens_of(policy)
    assert lens is not None
    found = attribute(lens, seen)
    verdicts = policy.decide(seen, RNG)
    assert found.chosen.row == int(verdicts.score.argmax())
    assert found.chosen.score == pytest.approx(verdicts.score.max(), abs=SCORE_STEP)
    assert {moved.feature for moved in found.moved} <= {*FEATURES}
    assert not any(moved.feature.startswith("cluster_") for moved in found.moved)  # the same for all candidates


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"policy": "frag"}, "frag: not a Deep Sets policy", id="policy"),
        pytest.param({"features": ["cpu"]}, "made for inputs", id="features"),
    ],
)
def test_weights_of_something_else_are_refused_by_name(changes, words):
    with pytest.raises(ConfigError, match=words):
        DeepSetsPolicy(weights(**changes))


@pytest.mark.parametrize(("name", "shape"), [("l0.w", (3, 16)), ("l1.b", (3,)), ("extra", (1,))])
def test_arrays_of_another_shape_are_refused(name, shape):
    file = weights()
    arrays = dict(file.arrays) | {name: np.zeros(shape, np.float32)}
    with pytest.raises(ConfigError, match="no Deep Sets network"):
        DeepSetsPolicy(WeightsFile(arrays, file.card))
