"""A pod's priority: it counts where a node is short and priorities differ, and nowhere else."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace

from shared.policy.attribution import attribute, lens_of
from shared.policy.marl.policy import MOST_RANK_COST, NAME, PUBLISHED, MarlDqn
from shared.policy.observation import Observation
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import SUMMARY
from shared.policy.weights import shipped
from shared.scheduling.state.node_table import NodeTable
from tests.builders import make_node, make_pod

CLASS = make_pod().cpu("100m").memory("64Mi").pod().pod_class
LOW, HIGH = replace(CLASS, workload="low"), replace(CLASS, workload="high")


def scene(fill: float, priorities: dict[str, int]) -> tuple[MarlDqn, NodeTable]:
    """Two nodes alike that are used to ``fill``: pods of ``high`` stand on the first, of ``low`` on the second."""
    table, store = NodeTable(), UtilisationStore(start_delay_s=0.0)
    for workload in ("low", "high"):
        store.usage.teach(store.column(workload), np.array([0.08, 0.01, 0.0, 0.0]), 1.0)
    for number, workload in enumerate(("high", "low")):
        row = table.upsert(make_node(f"n{number}").allocatable(cpu="4", memory="8G", pods="110").node())
        for place in range(10):
            table.add_usage(row, CLASS, ())
            store.bound(f"{workload}{place}", f"n{number}", workload, now_s=0.0)
        store.measure(f"n{number}", np.full(4, fill), at_s=1.0, pods=10)
    store.priorities.update(priorities)
    return MarlDqn(shipped(NAME), store), table


def gains(policy: MarlDqn, table: NodeTable, pod_class=LOW) -> list[float]:
    rows = table.live_rows()
    return policy.decide(Observation(table, pod_class, rows), np.random.default_rng(1)).score.tolist()


@pytest.mark.parametrize("fill", [0.3, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("both", [0, 1000, -5])
@pytest.mark.parametrize("pod_class", [LOW, HIGH, CLASS])
def test_where_all_pods_have_one_priority_nothing_changes(fill, both, pod_class):
    policy, table = scene(fill, {"low": both, "high": both})
    assert gains(policy, table, pod_class) == gains(*scene(fill, {}), pod_class)


def test_where_no_node_is_short_priority_changes_nothing():
    priorities = {"low": 0, "high": 1000}
    assert gains(*scene(0.6, priorities)) == gains(*scene(0.6, {}))


def test_a_pod_keeps_away_from_a_short_node_of_pods_that_outrank_it():
    plain, ranked = gains(*scene(0.95, {})), gains(*scene(0.95, {"low": 0, "high": 1000}))
    assert plain[0] == pytest.approx(plain[1])
    assert ranked[1] == plain[1]
    assert plain[0] - MOST_RANK_COST <= ranked[0] < plain[0] - 1.0


def test_a_pod_that_outranks_all_is_scored_as_ever():
    assert gains(*scene(0.95, {"low": 0, "high": 1000}), HIGH) == gains(*scene(0.95, {}), HIGH)


def test_a_pod_whose_priority_nobody_told_is_scored_as_ever():
    assert gains(*scene(0.95, {"high": 1000})) == gains(*scene(0.95, {}))


def test_one_more_point_of_use_on_a_short_node_costs_no_less():
    costs = []
    for fill in np.linspace(0.6, 1.0, 21):
        plain, ranked = gains(*scene(fill, {})), gains(*scene(fill, {"low": 0, "high": 1}))
        costs.append(plain[0] - ranked[0])
    assert costs[0] == 0.0
    assert all(after >= before - 1e-4 for before, after in pairwise(costs))


def test_short_nodes_among_others_cost_what_they_cost_alone():
    policy, table = scene(0.95, {"low": 0, "high": 1000})
    alone = policy.features(Observation(table, LOW, table.live_rows()))[:, -1]
    assert alone[0] > alone[1] == 0.0
    store = policy.observer.store
    for number in range(2, 6):
        row = table.upsert(make_node(f"n{number}").allocatable(cpu="4", memory="8G", pods="110").node())
        table.add_usage(row, CLASS, ())
        store.bound(f"more{number}", f"n{number}", "high", now_s=0.0)
        store.measure(f"n{number}", np.full(4, 0.95 if number == 5 else 0.3), at_s=1.0, pods=1)
    seen = policy.features(Observation(table, LOW, table.live_rows()))[:, -1]
    assert seen[:5].tolist() == [*alone.tolist(), 0.0, 0.0, 0.0]
    assert 0.0 < seen[5] < alone[0]
    store.cluster = np.zeros(len(SUMMARY))
    some = table.live_rows()[[5, 0, 2]]
    assert policy.features(Observation(table, LOW, some))[:, -1].tolist() == seen[[5, 0, 2]].tolist()


def test_the_reproduced_variant_knows_no_priorities():
    policy, table = scene(0.95, {"low": 0, "high": 1000})
    published = MarlDqn(shipped(PUBLISHED), policy.observer.store)
    assert gains(published, table) == gains(MarlDqn(shipped(PUBLISHED), scene(0.95, {})[0].observer.store), table)


def test_an_explanation_names_it():
    policy, table = scene(0.95, {"low": 0, "high": 1000})
    lens = lens_of(policy)
    assert lens is not None
    told = attribute(lens, Observation(table, LOW, table.live_rows()))
    assert told.chosen.row == 1
    assert told.moved[0].feature == "outranked"
    assert lens.inputs == len(lens.names) - 1
