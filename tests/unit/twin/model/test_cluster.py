"""The cluster model: what kubelets and the node life cycle would do, by rule and by random histories (M1 to M4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twin.model.cluster import NOT_READY_TAINTS, UNREACHABLE_TAINTS, ClusterModel, ModelSettings
from twin.model.events import (
    EvictPod,
    FinishPod,
    Instruction,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    RemovePod,
    RunPod,
    SetNodeReady,
    SetNodeTaints,
)
from twin.model.usage import NO_USAGE, UsageLimits, UsageNow, UsageProfile

NODE = NodeSeen("n1", managed=True, ready="True", limits=UsageLimits(4000, 8 * 10**9))
RUN_10_S = UsageProfile(((0, UsageNow(300, 100)), (4, UsageNow(100, 50))), duration_s=10)


def pod(uid: str = "a", node: str = "n1", **more) -> PodSeen:
    return PodSeen(uid, "default", f"pod-{uid}", node, profile=more.pop("profile", RUN_10_S), **more)


def model_with(*events, at: float = 0.0) -> ClusterModel:
    model = ClusterModel(ModelSettings(start_delay_s=1, stop_delay_s=0.5))
    for event in events:
        model.handle(event, at)
    return model


def kinds(instructions: list[Instruction]) -> list[type]:
    return [type(i) for i in instructions]


def test_a_bound_pod_starts_after_the_delay_runs_its_profile_and_finishes():
    model = model_with(NODE, pod())
    assert model.advance(0.9) == []
    (run,) = model.advance(1.0)
    assert isinstance(run, RunPod)
    assert run.pod.name == "pod-a"
    assert model.used("n1") == UsageNow(300, 100)
    assert model.utilisation()["n1"].cpu == pytest.approx(0.075)
    model.advance(5.0)
    assert model.used("n1") == UsageNow(100, 50)
    (finish,) = model.advance(11.0)
    assert finish == FinishPod(run.pod, 0)
    assert model.used("n1") == NO_USAGE


def test_pods_get_addresses_of_their_own():
    model = model_with(NODE, *(pod(f"{i}") for i in range(300)))
    assert len({i.pod_ip for i in model.advance(1) if isinstance(i, RunPod)}) == 300


def test_a_failing_profile_ends_failed():
    model = model_with(NODE, pod(profile=UsageProfile((), 1, exit_code=3)))
    assert [i.exit_code for i in model.advance(10) if isinstance(i, FinishPod)] == [3]


def test_a_pod_without_a_profile_never_finishes():
    model = model_with(NODE, PodSeen("a", "default", "a", "n1"))
    assert kinds(model.advance(1)) == [RunPod]
    assert model.next_due_s is None


def test_unbound_pods_and_foreign_nodes_are_left_alone():
    model = model_with(NodeSeen("n2", managed=False), pod("a", node=""), pod("b", node="n2"), pod("c", node="nowhere"))
    assert model.advance(100) == []


def test_a_pod_bound_before_its_node_is_seen_starts_when_it_appears():
    model = model_with(pod())
    model.handle(NODE, 5.0)
    assert model.advance(5.9) == []
    assert kinds(model.advance(6.0)) == [RunPod]


def test_a_deleted_pod_ends_gracefully_and_is_removed_once():
    model = model_with(NODE, pod())
    model.advance(2)
    assert model.handle(pod(grace_s=30.0), 2.0) == []
    assert kinds(model.advance(2.5)) == [RemovePod]
    assert model.used("n1") == UsageNow(300, 100)
    model.handle(PodGone("a"), 2.6)
    assert model.used("n1") == NO_USAGE
    assert model.advance(100) == []


def test_the_grace_period_bounds_the_end():
    model = model_with(NODE, pod())
    assert kinds(model.handle(pod(grace_s=0.0), 0.0)) == [RemovePod]


def test_a_finished_pod_that_is_deleted_goes_at_once():
    model = model_with(NODE, pod(phase="Succeeded"))
    assert kinds(model.handle(pod(phase="Succeeded", grace_s=30.0), 1.0)) == [RemovePod]


def test_a_new_node_becomes_ready_and_loses_the_not_ready_taint():
    model = ClusterModel(ModelSettings(ready_delay_s=2))
    model.handle(NodeSeen("n1", managed=True, taints=NOT_READY_TAINTS), 0)
    model.handle(NodeSeen("n1", managed=True, taints=NOT_READY_TAINTS), 1.5)
    ready, taints = model.advance(2)
    assert ready == SetNodeReady("n1", "True", "10.200.0.1")
    assert taints == SetNodeTaints("n1", NOT_READY_TAINTS, frozenset())


def test_a_ready_node_without_taints_gets_no_write():
    assert model_with(NODE).advance(100) == []


def test_a_failed_node_stands_still_is_marked_and_its_pods_evicted_when_their_toleration_ends():
    model = model_with(NODE, pod("a", unreachable_s=300.0), pod("b", unreachable_s=None), pod("c", unreachable_s=0.0))
    assert kinds(model.advance(1)) == [RunPod] * 3
    failed = replace(NODE, failed=True)
    model.handle(failed, 2)
    assert model.advance(41.9) == []
    marked = model.advance(42)
    assert marked[:2] == [
        SetNodeReady("n1", "Unknown", "10.200.0.1"),
        SetNodeTaints("n1", frozenset(), UNREACHABLE_TAINTS),
    ]
    assert [i.pod.uid for i in marked[2:] if isinstance(i, EvictPod)] == ["c"]
    assert [i.pod.uid for i in model.advance(1000) if isinstance(i, EvictPod)] == ["a"]


def test_a_node_that_comes_back_loses_the_taints_and_its_pods_go_on():
    model = model_with(NODE, pod())
    model.advance(1)
    model.handle(replace(NODE, failed=True), 2)
    model.advance(50)
    back = replace(NODE, ready="Unknown", taints=UNREACHABLE_TAINTS)
    model.handle(back, 60)
    done = model.advance(60)
    assert SetNodeReady("n1", "True", "10.200.0.1") in done
    assert SetNodeTaints("n1", UNREACHABLE_TAINTS, frozenset()) in done
    assert FinishPod in kinds(done)


def test_pods_of_a_deleted_node_are_removed_also_one_bound_too_late():
    model = model_with(NODE, pod("a"))
    assert kinds(model.handle(NodeGone("n1"), 1)) == [RemovePod]
    assert kinds(model.handle(pod("late"), 2)) == [RemovePod]
    model.handle(NODE, 3)
    model.handle(pod("new"), 3)
    assert kinds([i for i in model.advance(4) if i.pod.uid == "new"]) == [RunPod]


def test_a_pod_that_ran_before_the_model_started_is_not_started_again():
    model = model_with(NODE, pod(phase="Running"))
    assert model.used("n1") == UsageNow(300, 100)
    assert kinds(model.advance(100)) == [FinishPod]


# --- random histories -------------------------------------------------------------------------------------------------

UIDS = [f"u{i}" for i in range(5)]
NODES = ["n1", "n2"]
STEP = st.tuples(
    st.sampled_from(["pod", "delete", "gone", "fail", "back", "nothing"]),
    st.sampled_from(UIDS),
    st.sampled_from(NODES),
    st.floats(0, 8),
)


class Cluster:
    """Plays an API server that carries out every instruction at once, and checks M1 to M4."""

    def __init__(self, model: ClusterModel) -> None:
        self.model = model
        self.now_s = 0.0
        self.pods: dict[str, PodSeen] = {}
        self.failed: set[str] = set()
        self.started: list[str] = []
        self.finished: list[str] = []
        self.born = 0
        for name in NODES:
            self.carry_out(model.handle(replace(NODE, name=name), 0.0))

    def carry_out(self, instructions: list[Instruction]) -> None:
        for item in instructions:
            if isinstance(item, RunPod | FinishPod | RemovePod):
                assert item.pod.node not in self.failed, "M2"
            if isinstance(item, RunPod):
                assert item.pod.uid not in self.started, "M1"
                self.started.append(item.pod.uid)
                self.change(item.pod.uid, phase="Running")
            elif isinstance(item, FinishPod):
                assert item.pod.uid not in self.finished, "M1"
                self.finished.append(item.pod.uid)
                self.change(item.pod.uid, phase="Succeeded")
            elif isinstance(item, RemovePod):
                self.pods.pop(item.pod.uid, None)
                self.carry_out(self.model.handle(PodGone(item.pod.uid), self.now_s))

    def change(self, uid: str, **fields) -> None:
        if uid in self.pods:
            self.pods[uid] = replace(self.pods[uid], **fields)
            for _ in range(2):  # M4: every event is heard twice, unless the pod is gone meanwhile
                if uid not in self.pods:
                    break
                self.carry_out(self.model.handle(self.pods[uid], self.now_s))

    def step(self, what: str, uid: str, node: str, wait_s: float) -> None:
        before_s = self.model.next_due_s
        self.now_s += wait_s
        assert before_s is None or before_s >= 0
        self.carry_out(self.model.advance(self.now_s))
        alive = next((u for u in self.pods if u.startswith(uid + "/")), "")
        if what == "pod" and not alive:
            self.born += 1
            alive = f"{uid}/{self.born}"
            self.pods[alive] = pod(alive, node)
            self.change(alive)
        elif what == "delete" and alive:
            self.change(alive, grace_s=1.0)
        elif what == "gone" and alive:
            del self.pods[alive]
            self.carry_out(self.model.handle(PodGone(alive), self.now_s))
        elif what in ("fail", "back"):
            (self.failed.add if what == "fail" else self.failed.discard)(node)
            self.carry_out(self.model.handle(replace(NODE, name=node, failed=node in self.failed), self.now_s))
        self.check_use()

    def check_use(self) -> None:
        """M3 from outside: no use where nothing runs, and never a negative part."""
        for name in NODES:
            used = self.model.used(name)
            running = [p for p in self.pods.values() if p.node == name and p.phase == "Running"]
            assert used.cpu_millis >= 0, "M3"
            assert used.cpu_millis in {300 * a + 100 * (len(running) - a) for a in range(len(running) + 1)}, "M3"


@settings(max_examples=300)
@given(st.lists(STEP, max_size=40))
def test_random_histories_keep_the_invariants(steps):
    cluster = Cluster(ClusterModel(ModelSettings(start_delay_s=1, stop_delay_s=0.5, failure_grace_s=2)))
    for step in steps:
        cluster.step(*step)
    cluster.failed.clear()
    for name in NODES:
        cluster.carry_out(cluster.model.handle(replace(NODE, name=name), cluster.now_s))
    cluster.step("nothing", "u0", "n1", 1000.0)
    assert all(p.phase == "Succeeded" for p in cluster.pods.values())


class WithoutTokens(ClusterModel):
    """Ablation: timers of an earlier plan are not voided."""

    def advance(self, now_s: float) -> list[Instruction]:
        self._timers = [
            (due, seq, what, key, self._pods[key].token if key in self._pods else token)
            for due, seq, what, key, token in self._timers
        ]
        return super().advance(now_s)


def test_ablation_without_tokens_a_failed_node_acts():
    cluster = Cluster(WithoutTokens(ModelSettings(start_delay_s=1)))
    cluster.step("pod", "u0", "n1", 0.0)
    cluster.step("fail", "u0", "n1", 0.5)
    with pytest.raises(AssertionError, match="M2"):
        cluster.step("nothing", "u0", "n1", 5.0)
