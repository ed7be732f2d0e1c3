"""The binder's own check of zones: by what it has assumed itself, and what kubelets refused."""

from __future__ import annotations

import pytest

from services.binder.core.state import CoreSettings, State
from services.binder.cycle.check import check_node
from shared.scheduling.numa import rule
from tests.unit.shared.scheduling.numa.make import cluster, needs, pod, topology


def binder() -> State:
    made, _ = cluster(topology())
    state = State(1, CoreSettings())
    node = made.table.nodes[0]
    assert node is not None
    state.cache.upsert_node(node)
    state.zones.put("n0", topology())
    return state


def refusal(state: State, cpus: int) -> str:
    found = check_node(state, pod("asked", needs(cpus)), "n0")
    return "" if found is None else found.reasons[0]


def fill(state: State) -> None:
    for uid in "ab":
        assert check_node(state, pod(uid, needs(5)), "n0") is None
        state.cache.assume(uid, "n0", pod(uid, needs(5)).pod_class, 0.0)


def test_what_it_has_assumed_itself_is_taken_though_no_object_shows_it() -> None:
    state = binder()
    fill(state)
    assert refusal(state, 6) == "cannot align container"
    assert refusal(state, 3) == ""
    state.cluster.forget("a")
    assert refusal(state, 6) == ""


def test_without_the_rule_it_would_bind_what_the_kubelet_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    state = binder()
    fill(state)
    monkeypatch.setattr(rule, "prepare", lambda *_: None)
    assert refusal(state, 6) == ""


def test_a_refusal_is_learned_of_a_pod_that_stood_and_of_no_old_one() -> None:
    state = binder()
    failed = pod("a", needs(5), node_name="n0", phase="Failed", refused="TopologyAffinityError")
    state.observe(failed)
    assert refusal(state, 5) == "", "it failed before we looked"
    state.observe(pod("a", needs(5), node_name="n0", phase="Pending"))
    state.observe(failed)
    assert refusal(state, 5) == "its kubelet refused a pod like this one (TopologyAffinityError)"
    assert refusal(state, 4) == ""
