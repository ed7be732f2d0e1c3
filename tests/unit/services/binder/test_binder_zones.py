"""The binder's own check of zones: by what it has assumed itself, and what kubelets refused."""

from __future__ import annotations

import pytest

from services.binder.core.in_flight import InFlightBinding
from services.binder.core.state import BinderCoreSettings, BinderState
from services.binder.cycle.check import check_node, hold, outdated, surely_fit
from shared.scheduling.numa import rule
from tests.unit.shared.scheduling.numa.make import cluster, needs, pod, topology


def binder() -> BinderState:
    made, _ = cluster(topology())
    state = BinderState(1, BinderCoreSettings())
    node = made.table.nodes[0]
    assert node is not None
    state.cache.upsert_node(node)
    state.zones.put("n0", topology())
    return state


def refusal(state: BinderState, cpus: int) -> str:
    found = check_node(state, pod("asked", needs(cpus)), "n0")
    return "" if found is None else found.reasons[0]


def fill(state: BinderState) -> None:
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


def test_what_a_kubelet_refused_is_for_the_coordinator_to_remember() -> None:
    state = binder()
    assert refusal(state, 5) == ""
    state.observe(pod("a", needs(5), node_name="n0", phase="Pending"))
    state.observe(pod("a", needs(5), node_name="n0", phase="Failed", refused="TopologyAffinityError"))
    assert refusal(state, 5) == "", "one that began anew would not know it, and tried in vain for ever"


def unit(state: BinderState, uid: str) -> InFlightBinding:
    """Assumed, its Binding waits."""
    new = pod(uid, needs(5))
    state.pending[uid] = new
    binding = InFlightBinding(uid, "default", uid, "1", "n0", 1, 1, 1, "kube-default", 0.0)
    hold(state, binding, new)
    return binding


def test_right_before_its_binding_a_unit_is_given_back_whose_zone_others_took() -> None:
    state = binder()
    assert refusal(state, 5) == ""
    first, second = unit(state, "a"), unit(state, "b")
    assert surely_fit(state, (first, second)) == {"a", "b"}
    assert outdated(state, second) == ""
    state.zones.put("n0", topology(free=(2, 8), version="2"))
    state.observe(pod("c", needs(6), node_name="n0"))  # another scheduler's; 16 CPUs hold all three by the totals
    assert surely_fit(state, (first, second)) == {"a"}
    assert outdated(state, first) == ""
    assert outdated(state, second) == "n0: others took its place in the node's zones"
