"""The weights that come with the package keep their promises in small, and stand for what their cards say.

The promises in full are `conclave evaluate --suite deepsets`; here every objective meets a few waves on a few nodes.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from lab.environments.placement import PlacementEnv
from lab.environments.placement_rewards import REWARDS
from lab.environments.placement_scenarios import filled, moving_latency
from lab.suites.deepsets import experiments, run_suite
from lab.suites.suites import SuiteInput
from lab.worlds.placement.placement_rollout import choose, policy_decider, roll_out
from shared.policy.deepsets.features import FEATURES
from shared.policy.deepsets.policy import DEEP_SETS_POLICIES, DeepSetsPolicy
from shared.policy.heuristics import LeastAllocated
from shared.policy.observation import Observation, Supplies
from shared.policy.usage.load import node_load
from shared.policy.weights import Card, WeightsFile, shipped
from shared.scheduling.state.node_table import PODS_COLUMN, NodeTable
from tests.builders import make_node, make_pod


@pytest.mark.parametrize("name", DEEP_SETS_POLICIES)
def test_the_card_names_data_seeds_figures_and_limits(name):
    card = shipped(name).card
    assert card.features == list(FEATURES)
    assert min(card.trained["seeds"]["training"]) >= 1000
    assert card.trained["seeds"]["validation"] == list(range(500, 510))
    assert card.trained["command"].startswith(f"python -m lab.learner train {name} ")
    assert card.figures
    assert card.limits


@pytest.mark.parametrize("name", DEEP_SETS_POLICIES)
def test_every_promise_is_kept_in_small(name):
    planned = experiments((3, 10), share=0.02, objectives=[name])
    result = run_suite(SuiteInput((42,), "", (name,)), planned=planned)
    assert not result.unmet, result.unmet


def test_weights_that_were_made_worse_break_a_promise():
    """The check above can fail: the same network with its last layer turned round."""
    file = shipped("lb")
    arrays = {key: -array if key.startswith("l2") else array for key, array in file.arrays.items()}
    worse = WeightsFile(arrays, Card(policy="lb", version=1, features=list(FEATURES)))
    planned = experiments((3,), share=0.02, objectives=["lb"])
    assert run_suite(SuiteInput((42,), "", ("lb",), weights={"lb": worse}), planned=planned).unmet


@pytest.mark.parametrize("nodes", [10, 16])
@pytest.mark.parametrize("name", ["ee", "el"])
def test_a_cluster_that_another_has_spread_over_all_nodes_is_packed(name, nodes):
    """Nobody is asked to move: pods come and go, and nodes empty by themselves."""
    scenario = filled(nodes, 4 * 20 * nodes, pods=20 * nodes)
    seed = next(seed for seed in range(20) if PlacementEnv(scenario, seed).active[-1] == nodes)
    decider = policy_decider(DeepSetsPolicy(shipped(name)), np.random.default_rng(1))
    assert roll_out(scenario, seed, decider, REWARDS[name]).active_at_end <= 1.05
    spreading = policy_decider(LeastAllocated(), np.random.default_rng(1))
    assert roll_out(scenario, seed, spreading, REWARDS[name]).active_at_end == 2.0


@pytest.mark.parametrize("name", ["ee", "el"])
def test_the_first_choice_in_a_cluster_without_unused_nodes_is_the_fullest(name):
    policy, fullest, trials = DeepSetsPolicy(shipped(name)), 0, 60
    for seed in range(trials):
        nodes, rng = (10, 50, 100)[seed % 3], np.random.default_rng(seed)
        env = PlacementEnv(filled(nodes, 10, pods=20 * nodes), seed)
        rows = env.rows()
        verdicts = policy.decide(Observation(env.table, env.pod_class, rows), rng)
        load = node_load(env.table, rows)
        fullest += load[choose(verdicts, rng)] > load.max() - 1e-9
    assert fullest >= 0.95 * trials


@pytest.mark.parametrize("name", DEEP_SETS_POLICIES)
def test_any_order_of_a_hundred_nodes_gives_the_same_choice(name):
    policy = DeepSetsPolicy(shipped(name))
    env = PlacementEnv(moving_latency(100, 800), 42)
    rng = np.random.default_rng(1)
    for _ in range(400):
        env.place(int(rng.choice(env.rows())))
    rows = env.rows()
    for _ in range(50):
        order = rng.permutation(len(rows))
        first, again = (policy.decide(Observation(env.table, env.pod_class, r), rng) for r in (rows, rows[order]))
        best = {int(rows[i]) for i in np.flatnonzero(first.score == first.score.max())}
        assert {int(rows[order[i]]) for i in np.flatnonzero(again.score == again.score.max())} == best


@pytest.mark.parametrize(
    "parts", [("cpu", "memory"), ("disk",), ("cpu", "disk", "network"), ("memory", "pods")], ids=str
)
@pytest.mark.parametrize("name", ["ee", "lb"])
def test_whatever_the_load_is_the_mean_of_the_weights_rank_by_it(name, parts):
    """They were trained on requests of cpu and memory, which rise together; measured shares have their own ways."""
    rng, pod = np.random.default_rng(500), make_pod("p").cpu("300m").memory("512Mi").pod().pod_class
    policy, off = DeepSetsPolicy(shipped(name)), []
    policy.supply(Supplies(load_parts=parts))
    for _ in range(100):
        nodes = int(rng.integers(2, 40))
        table, rows = NodeTable(nodes), np.arange(nodes)
        for row in rows.tolist():
            table.upsert(make_node(f"n{row}").allocatable(cpu="16", memory="64Gi", pods="110").node())
            for _ in range(int(rng.integers(1, 30))):
                table.add_usage(row, pod, ())
            table.use.put(row, rng.uniform(0, 0.9, 4).tolist(), 0, table.requested[:2, row].tolist())
        load = node_load(table, rows, parts)
        chosen = load[np.argmax(policy.decide(Observation(table, pod, rows), rng).score)]
        off.append(abs(chosen - (load.min() if name == "lb" else load.max())))
    assert np.mean(off) < 0.003


def idle_table(rng: np.random.Generator) -> NodeTable:
    """Every other node is empty, and all use a little, as a node does by itself: the empty ones rather more."""
    pod = make_pod("p").cpu("300m").memory("512Mi").pod().pod_class
    table = NodeTable(nodes := int(rng.integers(2, 40)))
    for row in range(nodes):
        table.upsert(make_node(f"n{row}").allocatable(cpu="16", memory="64Gi", pods="110").node())
        for _ in range(int(rng.integers(1, 4)) * (row % 2)):
            table.add_usage(row, pod, ())
        most = 0.06 if row % 2 else 0.1
        table.use.put(row, rng.uniform(0.02, most, 4).tolist(), 0, table.requested[:2, row].tolist())
    return table


@pytest.mark.parametrize("name", ["ee", "el"])
def test_an_empty_node_that_uses_a_little_by_itself_is_not_opened(name):
    rng, pod = np.random.default_rng(501), make_pod("p").cpu("300m").memory("512Mi").pod().pod_class
    policy = DeepSetsPolicy(shipped(name))
    for _ in range(200):
        table = idle_table(rng)
        score = policy.decide(Observation(table, pod, np.arange(table.rows)), rng).score
        assert table.requested[PODS_COLUMN, int(np.argmax(score))] > 0


@pytest.mark.parametrize("known", [True, False], ids=["measured", "as far as requested"])
def test_whatever_nodes_are_measured_to_use_el_keeps_the_soft_limit_wherever_a_node_does(known):
    rng = np.random.default_rng(502)
    asks = make_pod("p").cpu("300m").memory("512Mi").pod().pod_class
    pod = replace(asks, latency_soft_us=20_000, latency_hard_us=30_000)
    policy, kept, possible = DeepSetsPolicy(shipped("el")), 0, 0
    for _ in range(300):
        nodes = int(rng.integers(2, 40))
        table, rows = NodeTable(nodes), np.arange(nodes)
        for row in rows.tolist():
            table.upsert(make_node(f"n{row}").allocatable(cpu="16", memory="64Gi", pods="110").node())
            for _ in range(int(rng.integers(0, 30))):
                table.add_usage(row, asks, ())
            if known:
                table.use.put(row, rng.uniform(0, 1, 4).tolist(), 0, table.requested[:2, row].tolist())
        near = rng.random(nodes) < rng.choice([0.05, 0.5])
        table.latency_us[:nodes] = np.where(near, rng.integers(100, 20_000, nodes), rng.integers(20_001, 80_000, nodes))
        kept += near[int(np.argmax(policy.decide(Observation(table, pod, rows), rng).score))]
        possible += near.any()
    assert possible > 150
    assert kept == possible
