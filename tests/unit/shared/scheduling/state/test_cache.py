"""Assume, confirm, forget; and that amounts always equal the sum of the accounts."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shared.scheduling.state.cache import ClusterCache, recount
from tests.builders import make_node, make_pod

CPU = 0


def requested(cache: ClusterCache, node: str) -> int:
    return int(cache.table.requested[CPU, cache.table.row_of[node]])


def cluster(*names: str) -> ClusterCache:
    cache = ClusterCache()
    for name in names:
        cache.upsert_node(make_node(name).gpus(2).node())
    return cache


def test_an_assumed_pod_counts_at_once_and_once() -> None:
    cache, pod = cluster("a"), make_pod().cpu("1").pod()
    cache.assume(pod.uid, "a", pod.pod_class, now=1.0)
    cache.assume(pod.uid, "a", pod.pod_class, now=2.0)
    assert requested(cache, "a") == 1000
    cache.observe(make_pod().cpu("1").on("a").pod())
    cache.observe(make_pod().cpu("1").on("a").pod())
    assert requested(cache, "a") == 1000
    assert cache.overdue(now=1e9, age_s=0) == []


def test_a_pod_seen_on_another_node_moves_there() -> None:
    cache, pod = cluster("a", "b"), make_pod().cpu("1").pod()
    cache.assume(pod.uid, "a", pod.pod_class, now=1.0)
    cache.observe(make_pod().cpu("1").on("b").pod())
    assert (requested(cache, "a"), requested(cache, "b")) == (0, 1000)


def test_a_pending_pod_seen_late_does_not_undo_an_assumption() -> None:
    cache, pod = cluster("a"), make_pod().cpu("1").pod()
    cache.assume(pod.uid, "a", pod.pod_class, now=1.0)
    cache.observe(pod)
    assert requested(cache, "a") == 1000


def test_a_finished_pod_holds_nothing() -> None:
    cache = cluster("a")
    cache.observe(make_pod().cpu("1").on("a").phase("Running").pod())
    cache.observe(make_pod().cpu("1").on("a").phase("Succeeded").pod())
    assert requested(cache, "a") == 0


def test_pods_of_a_node_that_comes_back_count_again() -> None:
    cache = cluster("a")
    cache.observe(make_pod().cpu("1").on("a").pod())
    cache.remove_node("a")
    cache.upsert_node(make_node("a").node())
    assert requested(cache, "a") == 1000


def test_a_pod_seen_before_its_node_counts_when_the_node_appears() -> None:
    cache = ClusterCache()
    cache.observe(make_pod().cpu("1").on("a").pod())
    cache.upsert_node(make_node("a").node())
    assert requested(cache, "a") == 1000


def test_shares_of_a_gpu_fill_one_device_before_the_next() -> None:
    cache = cluster("a")
    first = cache.assume("u1", "a", make_pod().gpu_milli(300).pod().pod_class, now=0)
    second = cache.assume("u2", "a", make_pod().gpu_milli(600).pod().pod_class, now=0)
    third = cache.assume("u3", "a", make_pod().gpu_milli(200).pod().pod_class, now=0)
    assert (first.devices, second.devices, third.devices) == ((0,), (0,), (1,))


def test_the_annotation_decides_which_devices_a_bound_pod_uses() -> None:
    cache = cluster("a")
    cache.observe(make_pod().gpu_milli(1000).on("a").set(annotations={"conclave.io/gpu-devices": "1"}).pod())
    assert cache.table.device_free[cache.table.row_of["a"]] == [1000, 0]


class CacheMachine(RuleBasedStateMachine):
    """Any order of events leaves the amounts equal to the accounts."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = ClusterCache()

    nodes = st.sampled_from(["a", "b", "c"])
    pods = st.sampled_from([f"p{i}" for i in range(6)])

    @rule(node=nodes, gpus=st.integers(0, 3), cpu=st.sampled_from(["2", "4"]))
    def node_seen(self, node: str, gpus: int, cpu: str) -> None:
        self.cache.upsert_node(make_node(node).gpus(gpus).allocatable(cpu=cpu).node())

    @rule(node=nodes)
    def node_gone(self, node: str) -> None:
        self.cache.remove_node(node)

    @rule(pod=pods, node=nodes, milli=st.sampled_from([0, 300, 1000, 2000]))
    def assume(self, pod: str, node: str, milli: int) -> None:
        built = make_pod(pod).cpu("500m").gpu_milli(milli).pod()
        self.cache.assume(built.uid, node, built.pod_class, now=0.0)

    @rule(pod=pods, node=nodes, milli=st.sampled_from([0, 300, 1000]), phase=st.sampled_from(["Running", "Failed"]))
    def seen(self, pod: str, node: str, milli: int, phase: str) -> None:
        self.cache.observe(make_pod(pod).cpu("500m").gpu_milli(milli).on(node).phase(phase).pod())

    @rule(pod=pods)
    def gone(self, pod: str) -> None:
        self.cache.forget(f"uid-{pod}")

    @invariant()
    def amounts_are_the_sum_of_the_accounts(self) -> None:
        assert recount(self.cache, self.cache.table.row_of) == []


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_the_recount_sees_a_lost_account() -> None:
    cache = cluster("a")
    cache.observe(make_pod().cpu("1").on("a").pod())
    cache.table.requested[CPU, cache.table.row_of["a"]] = 0
    assert recount(cache, cache.table.row_of) == ["a"]
