"""What an agent lives through: read when due, bounded, and only for a learner that wants it."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from shared.agent.experience import Experience, ExperienceSettings
from shared.policy.heuristics import KubeDefault
from shared.policy.marl.features import FEATURES
from shared.policy.marl.policy import MarlDqn
from shared.policy.marl.reward import BAND_UNIT, band_reward
from shared.policy.usage.kept_views import KeptViews
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import NO_POD, SUMMARY, balance_of, sample_of, summary
from shared.policy.weights import WeightsFile
from shared.scheduling.state.cache import ClusterCache
from tests.builders import make_node, make_pod
from tests.marl_weights import weights

POD = make_pod().cpu("1").memory("1Gi").pod().pod_class
CLUSTER = UtilisationStore()
CLUSTER.cluster = np.zeros(len(SUMMARY))


def cluster(nodes: int = 3) -> ClusterCache:
    cache = ClusterCache()
    for index in range(nodes):
        cache.upsert_node(make_node(f"n{index}").allocatable(cpu="10", memory="10Gi").node())
    return cache


def experience(**changes) -> Experience:
    made = Experience(ExperienceSettings(**changes))
    made.want("marl-dqn")
    return made


def test_the_reward_is_read_fifteen_seconds_later_and_says_whether_the_node_got_a_pod():
    cache, lived, policy = cluster(), experience(), MarlDqn(weights())
    lived.judged(policy, cache.table, POD, [2, 0], now_s=100.0)
    cache.assume("u", "n2", POD, now=100.0)
    lived.read(cache.table, CLUSTER, 114.9)
    assert lived.waiting == 0
    lived.told += 1
    lived.read(cache.table, CLUSTER, 115.0)
    first, second = lived.take(10)
    assert (first.a_tm1, second.a_tm1) == (0, 1)
    assert first.r_t == 0.0
    assert second.r_t == pytest.approx(-((0.1 / 0.05) ** 2))
    assert len(second.s_tm1) == len(second.s_t) == len(FEATURES)
    assert second.s_tm1 != second.s_t


def test_nothing_is_recorded_for_nobody_or_for_another_policy():
    cache = cluster()
    lived = Experience()
    lived.judged(MarlDqn(weights()), cache.table, POD, [0], now_s=0.0)
    lived.want("marl-dqn")
    lived.judged(KubeDefault(), cache.table, POD, [0], now_s=0.0)
    lived.told += 1
    lived.read(cache.table, CLUSTER, 100.0)
    assert lived.waiting == 0


def test_full_buffers_drop_the_oldest_and_count():
    cache, policy = cluster(1), MarlDqn(weights())
    lived = experience(pending=5, ready=3, rows=1)
    for number in range(8):
        lived.judged(policy, cache.table, POD, [0], now_s=float(number))
    assert lived.dropped == 3
    lived.told += 1
    lived.read(cache.table, CLUSTER, 100.0)
    assert (lived.waiting, lived.dropped) == (3, 5)


def test_what_could_not_be_sent_is_kept_while_there_is_room():
    cache, policy = cluster(1), MarlDqn(weights())
    lived = experience(ready=3, rows=1)
    for number in range(3):
        lived.judged(policy, cache.table, POD, [0], now_s=float(number))
    lived.told += 1
    lived.read(cache.table, CLUSTER, 100.0)
    batch = lived.take(3)
    lived.judged(policy, cache.table, POD, [0], now_s=100.0)
    lived.told += 1
    lived.read(cache.table, CLUSTER, 200.0)
    lived.give_back(batch)
    assert (lived.waiting, lived.dropped) == (3, 1)
    assert lived.take(3)[:2] == batch[1:]


def test_a_node_that_is_gone_or_a_cluster_nobody_told_of_teaches_nothing():
    cache, policy = cluster(), MarlDqn(weights())
    lived = experience()
    lived.judged(policy, cache.table, POD, [0], now_s=0.0)
    cache.table.remove("n0")
    lived.told += 1
    lived.read(cache.table, CLUSTER, 20.0)
    lived.judged(policy, cache.table, POD, [1], now_s=20.0)
    lived.told += 1
    lived.read(cache.table, UtilisationStore(), 40.0)
    assert (lived.waiting, lived.lost) == (0, 2)


def test_a_node_of_which_nothing_was_told_since_it_was_judged_teaches_nothing():
    cache, policy = cluster(), MarlDqn(weights())
    lived = experience()
    lived.told += 1
    lived.judged(policy, cache.table, POD, [0], now_s=0.0)
    lived.read(cache.table, CLUSTER, 20.0)  # it may have got the pod
    assert (lived.waiting, lived.lost) == (0, 1)


def test_another_learner_begins_with_nothing():
    cache = cluster()
    lived = experience()
    lived.judged(MarlDqn(weights()), cache.table, POD, [0], now_s=0.0)
    lived.told += 1
    lived.read(cache.table, CLUSTER, 20.0)
    lived.want("")
    assert lived.waiting == 0


def test_the_reward_prefers_a_node_at_the_mean():
    cache = cluster()
    for number in range(5):
        cache.assume(f"u{number}", "n0", POD, now=0.0)
    table, store = cache.table, UtilisationStore()
    assert balance_of(table, 0, store, mean=0.5) == 0.0
    assert balance_of(table, 1, store, mean=0.5) == -25.0
    assert balance_of(table, 0, store, mean=0.4) == pytest.approx(-4.0)
    sample = sample_of(table, 0, [4500 / table.allocatable[0, 0], 0.0, 0.0, 0.0], 0.0)
    assert sample is not None
    store.measure_some([sample])
    assert balance_of(table, 0, store, mean=0.5) == pytest.approx(-1.0)


def using(cache: ClusterCache, **shares: tuple[float, float, float, float]) -> UtilisationStore:
    """Nodes measured to use so much of cpu, memory, disk and network, and what is told of all of them."""
    store = UtilisationStore()
    for name, each in shares.items():
        sample = sample_of(cache.table, cache.table.row_of[name], each, 0.0)
        assert sample is not None
        store.measure_some([sample])
    store.cluster = summary(KeptViews().of(cache.table, cache.table.live_rows(), NO_POD, store))
    return store


def test_who_is_paid_by_the_thesis_bands_is_paid_by_them_live_as_in_the_experiment():
    cache, lived = cluster(), Experience()
    lived.want("marl-dqn-published")
    made = weights()
    policy = MarlDqn(WeightsFile(made.arrays, replace(made.card, policy="marl-dqn-published")))
    shares = np.array([[0.6, 0.85, 0.2, 0.9], [0.95, 0.5, 0.7, 0.1], [0.3, 0.6, 0.55, 0.0]])
    store = using(cache, **{f"n{row}": tuple(each) for row, each in enumerate(shares.tolist())})
    lived.judged(policy, cache.table, POD, [0, 1, 2], now_s=100.0)
    lived.told += 1
    lived.read(cache.table, store, 115.0)
    assert [one.r_t for one in lived.take(9)] == pytest.approx((band_reward(shares) / BAND_UNIT).tolist(), rel=1e-6)


def test_a_policys_own_reward_that_fails_costs_a_transition_and_nothing_else(monkeypatch):
    def failing(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(MarlDqn, "live_reward", failing)
    cache, lived = cluster(), experience()
    lived.judged(MarlDqn(weights()), cache.table, POD, [0, 1], now_s=100.0)
    lived.told += 1
    lived.read(cache.table, CLUSTER, 115.0)
    assert (lived.waiting, lived.lost) == (0, 2)
