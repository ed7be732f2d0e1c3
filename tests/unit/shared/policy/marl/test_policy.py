"""marl-dqn in the mesh: any number of nodes, in any order, with and without measurements; and its central baseline."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from shared.errors import ConfigError
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.policy.marl.features import FEATURES, Observer
from shared.policy.marl.policy import MarlDqn
from shared.policy.marl.single_dqn import SingleDqn, feature_names
from shared.policy.networks import mlp_shapes
from shared.policy.observation import Observation, rows_apart
from shared.policy.ranking import Ranker
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import node_view, pod_view, summary
from shared.policy.weights import Card, WeightsFile
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.node_table import NodeTable

POD = PodClass(requests=(("cpu", 100), ("memory", 64 << 20)), workload="w")
RNG = np.random.default_rng(0)


def weights(sizes: list[int], policy: str, *, version: int = 3, seed: int = 1) -> WeightsFile:
    rng = np.random.default_rng(seed)
    arrays = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in mlp_shapes(sizes).items()}
    names = list(FEATURES) if policy == "marl-dqn" else []
    return WeightsFile(arrays, Card(policy=policy, version=version, features=names))


def marl(store: UtilisationStore | None = None) -> MarlDqn:
    return MarlDqn(weights([len(FEATURES), 16, 2], "marl-dqn"), store)


def table_of(nodes: int, *, order: list[int] | None = None) -> NodeTable:
    table = NodeTable(nodes)
    for number in order or range(nodes):
        table.upsert(Node(name=f"n{number}", allocatable={"cpu": 4000, "memory": 8_000_000_000, "pods": 110}))
    return table


def store_of(nodes: int, use: np.ndarray | None = None) -> UtilisationStore:
    store = UtilisationStore()
    use = np.random.default_rng(5).uniform(0, 0.8, (nodes, 4)) if use is None else use
    for number in range(nodes):
        store.measure(f"n{number}", use[number], at_s=0.0, pods=0)
    store.advance(15.0)
    return store


def scores(policy: MarlDqn, table: NodeTable) -> dict[str, float]:
    rows = table.live_rows()
    verdicts = policy.decide(Observation(table, POD, rows), RNG)
    return {table.names[row]: float(score) for row, score in zip(rows, verdicts.score, strict=True)}


@pytest.mark.parametrize("nodes", [1, 3, 100, 1000])
def test_one_set_of_weights_serves_any_number_of_nodes(nodes: int) -> None:
    found = scores(marl(store_of(nodes)), table_of(nodes))
    assert len(found) == nodes
    assert np.isfinite(list(found.values())).all()


def test_the_order_of_nodes_changes_nothing() -> None:
    store = store_of(20)
    straight, shuffled = table_of(20), table_of(20, order=np.random.default_rng(3).permutation(20).tolist())
    first, second = scores(marl(store), straight), scores(marl(store), shuffled)
    assert first.keys() == second.keys()
    for name in first:
        assert first[name] == pytest.approx(second[name], abs=1e-5)


def test_a_node_is_accepted_when_accepting_is_worth_more() -> None:
    table = table_of(30)
    verdicts = marl(store_of(30)).decide(Observation(table, POD, table.live_rows()), RNG)
    assert verdicts.accept is not None
    assert (verdicts.accept == (verdicts.score > 0)).all()


def test_verdicts_are_for_the_rows_asked_though_all_nodes_are_looked_at() -> None:
    table, store = table_of(8), store_of(8)
    rows = np.array([1, 4, 6])
    everything = scores(marl(store), table)
    some = marl(store).decide(Observation(table, POD, rows), RNG).score
    np.testing.assert_allclose(some, [everything[f"n{row}"] for row in rows], atol=1e-5)


def test_nodes_that_joined_or_left_are_noticed() -> None:
    table, policy = table_of(5), marl(store_of(6))
    assert len(scores(policy, table)) == 5
    table.upsert(Node(name="n5", allocatable={"cpu": 4000, "memory": 8_000_000_000, "pods": 110}))
    table.remove("n2")
    assert scores(policy, table) == scores(marl(store_of(6)), table)
    assert "n2" not in scores(policy, table)


def test_without_measurements_requests_stand_in_and_the_features_say_so() -> None:
    table = table_of(3)
    table.add_usage(1, POD, ())
    seen = Observer(None).of(table, POD, table.live_rows())
    assert seen[:, FEATURES.index("measured")].tolist() == [0.0, 0.0, 0.0]
    assert seen[:, FEATURES.index("pod_known")].tolist() == [0.0, 0.0, 0.0]
    assert seen[1, FEATURES.index("cpu")] == pytest.approx(100 / 4000)
    assert seen[0, FEATURES.index("cpu")] == 0.0


def test_pods_the_table_counts_beyond_the_sample_weigh_in() -> None:
    table, store = table_of(2), store_of(2, np.full((2, 4), 0.3))
    before = Observer(store).of(table, POD, table.live_rows())
    table.add_usage(0, POD, ())
    after = Observer(store).of(table, POD, table.live_rows())
    column = FEATURES.index("cpu")
    assert after[0, column] > before[0, column]
    assert after[1, column] == before[1, column]


def test_a_node_that_takes_no_pods_is_left_out_of_the_mean() -> None:
    use = np.array([[0.5] * 4, [0.5] * 4, [0.0] * 4])
    table, store = table_of(3), store_of(3, use)
    table.upsert(Node(name="n2", unschedulable=True, allocatable={"cpu": 4000, "memory": 8_000_000_000, "pods": 110}))
    pod = pod_view(POD, store)
    view = node_view(table, table.live_rows(), np.arange(3), pod, store)
    assert summary(view)[0] == pytest.approx(0.5)
    assert summary(view)[-1] == pytest.approx(0.0, abs=1e-6)


def test_agents_of_a_part_of_the_cluster_go_by_the_clusters_mean() -> None:
    use = np.random.default_rng(5).uniform(0, 0.8, (6, 4))
    whole_table, whole = table_of(6), store_of(6, use)
    pod = pod_view(POD, whole)
    everybody = Observer(whole).of(whole_table, POD, whole_table.live_rows())
    part_table, part = table_of(2), store_of(2, use)
    part.usage = whole.usage
    part.cluster = summary(node_view(whole_table, whole_table.live_rows(), np.arange(6), pod, whole))
    np.testing.assert_allclose(Observer(part).of(part_table, POD, part_table.live_rows()), everybody[:2], atol=1e-5)


def test_no_input_is_out_of_range_whatever_is_measured() -> None:
    table, store = table_of(2), store_of(2, np.array([[900.0] * 4, [0.0] * 4]))
    seen = Observer(store).of(table, POD, table.live_rows())
    assert np.abs(seen).max() <= 5.0


@pytest.mark.parametrize("sizes", [[len(FEATURES) - 1, 8, 2], [len(FEATURES), 8, 3]])
def test_weights_of_another_shape_are_refused_by_name(sizes: list[int]) -> None:
    with pytest.raises(ConfigError, match="weights of marl-dqn"):
        MarlDqn(weights(sizes, "marl-dqn"))


def test_weights_whose_layers_do_not_fit_each_other_are_refused_by_the_array() -> None:
    good = weights([len(FEATURES), 8, 2], "marl-dqn")
    cut = replace(good, arrays={**good.arrays, "l0.b": np.zeros(4, np.float32)})
    with pytest.raises(ConfigError, match=r"weights of marl-dqn: array 'l0.b' is \(4,\), the layers need \(8,\)"):
        MarlDqn(cut)
    with pytest.raises(ConfigError, match=r"weights of marl-dqn: array 'l1.b' is missing"):
        MarlDqn(replace(good, arrays={name: one for name, one in good.arrays.items() if name != "l1.b"}))


def test_weights_made_for_other_inputs_are_refused_though_their_number_fits() -> None:
    good = weights([len(FEATURES), 8, 2], "marl-dqn")
    with pytest.raises(ConfigError, match="weights of marl-dqn: made for inputs"):
        MarlDqn(replace(good, card=Card(policy="marl-dqn", version=1, features=list(reversed(FEATURES)))))


@pytest.mark.parametrize("policy", ["marl-dqn", "single-dqn"])
@pytest.mark.parametrize("change", ["narrower", "missing", "extra", "flat"])
def test_layers_that_do_not_fit_each_other_are_refused_before_they_decide(policy: str, change: str) -> None:
    sizes = [len(FEATURES), 8, 2] if policy == "marl-dqn" else [len(feature_names(4)), 8, 4]
    file = weights(sizes, policy)
    arrays = dict(file.arrays)
    match change:
        case "narrower":
            arrays["l1.w"] = arrays["l1.w"][1:]
        case "missing":
            del arrays["l0.b"]
        case "extra":
            arrays["l0.g"] = arrays["l0.w"]
        case "flat":
            arrays["l1.b"] = arrays["l1.b"][None]
    with pytest.raises(ConfigError, match=f"weights of {policy}"):
        {"marl-dqn": MarlDqn, "single-dqn": SingleDqn}[policy](WeightsFile(arrays, file.card))


def test_a_policy_names_its_version() -> None:
    policy = marl()
    assert (policy.name, policy.version) == ("marl-dqn", 3)


def test_the_single_dqn_is_for_one_number_of_nodes() -> None:
    policy = SingleDqn(weights([len(feature_names(4)), 8, 4], "single-dqn"), store_of(4))
    table = table_of(4)
    assert policy.decide(Observation(table, POD, np.array([0, 2])), RNG).score.shape == (2,)
    bigger = table_of(5)
    with pytest.raises(ConfigError, match="5 nodes, its weights are for 4"):
        policy.decide(Observation(bigger, POD, bigger.live_rows()), RNG)
    with pytest.raises(ConfigError, match="do not fit"):
        SingleDqn(weights([7, 8, 4], "single-dqn"))


def test_with_the_clusters_means_told_many_units_at_once_are_the_same_greedy_as_one_after_the_other() -> None:
    class OneByOne(MarlDqn):
        rows_apart = False

    store = store_of(12)
    everywhere = store.nodes
    table = table_of(12)
    slots = np.array([everywhere[name] for name in table.names])
    store.cluster = summary(node_view(table, table.live_rows(), slots, pod_view(POD, store), store))
    file = weights([len(FEATURES), 16, 2], "marl-dqn")
    at_once, one_by_one = MarlDqn(file, store), OneByOne(file, store)
    assert rows_apart(at_once)
    assert not rows_apart(MarlDqn(file, store_of(12)))
    mine, theirs = (
        Ranker(table, FeasibilityCache(table), policy, Random(1)).slots(POD, 30, extra=2)
        for policy in (at_once, one_by_one)
    )
    assert len(mine) == 32
    assert [slot.row for slot in mine] == [slot.row for slot in theirs]
    assert [slot.accept for slot in mine] == [slot.accept for slot in theirs]
    assert [slot.score for slot in mine] == pytest.approx([slot.score for slot in theirs], abs=1e-5)
