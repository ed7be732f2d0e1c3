"""Room that is kept for pods which it cannot hold: they are not tried for ever, and cost little each time."""

from __future__ import annotations

import pytest

from shared.model.pod import Pod
from shared.scheduling.state.cluster_state import ClusterState
from tests.sim.reservations import reserve
from tests.sim.test_mesh_reservations import Told


class _Lifts:
    """How often kept room was lifted to see whether a pod may have it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, take_room = 0, ClusterState.take_room

        def counting(cluster: ClusterState, reservation: str, pod: Pod) -> object:
            self.count += 1
            return take_room(cluster, reservation, pod)

        patch.setattr(ClusterState, "take_room", counting)


def test_who_does_not_fit_into_kept_room_is_not_roused_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(nodes=1)
    reserve(told.kube, "launch", "web", cpu="2")
    told.settle()
    told.pod("filler", cpu="2")
    told.settle(2)
    lifts = _Lifts(monkeypatch)
    for number in range(3):
        told.pod(f"web-{number}", "web", cpu="3")
    told.settle()
    state = told.world.coordinator.core.state
    clock, woken = state.cluster.table.clock, state.stats.woken
    told.settle(20)
    assert (lifts.count, state.cluster.table.clock, state.stats.woken) == (0, clock, woken)


def test_a_refusal_costs_few_judgements_at_a_time_and_none_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(nodes=6, cpu="2")
    for number in range(6):
        reserve(told.kube, f"launch-{number}", "web", nodes={"names": [f"n{number}"]})
    told.settle()
    for number in range(6):
        told.kube.nodes[f"n{number}"]["spec"]["taints"] = [{"key": "closed", "effect": "NoSchedule"}]
        told.kube.change_node(f"n{number}")
    told.settle(1)
    lifts = _Lifts(monkeypatch)
    told.pod("web-1", "web")
    told.pod("web-2", "web")
    told.settle(0.5)
    assert lifts.count <= 8
    told.settle(20)
    assert lifts.count == 6  # each for the class once
    told.kube.nodes["n5"]["spec"]["taints"] = []
    told.kube.change_node("n5")
    told.settle(15)
    assert "n5" in (told.node_of("web-1"), told.node_of("web-2"))
