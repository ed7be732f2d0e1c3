"""Room that Reservations keep is taken, and nobody's to move."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from shared.errors import KubeRejected
from shared.kube.objects import KubeNode, ObjectMeta
from shared.kube.pods.standing_pods import STANDING_PODS, SourcedPod
from shared.kube.reservations import RESERVATIONS, ReservationObject
from shared.kube.resources import NODES, ObjectList
from shared.rebalance.plan import GoalName
from shared.runtime.kube.moves.reading import read_live
from tests.builders import make_node
from tests.unit.shared.rebalance.worlds import owned, planned

SPEC = {"resources": {"cpu": "3"}, "owners": [{"controller": {"kind": "Job", "name": "launch"}}]}


class Shown:
    """An API server with three nodes, pods on two of them, and these Reservations."""

    def __init__(self, *reservations: ReservationObject) -> None:
        nodes = tuple(msgspec.convert(make_node(name).json, KubeNode) for name in "abc")
        pods = (owned("a-1", "a", "1"), owned("b-1", "b", "500m"))
        self.shown: dict[Any, tuple[Any, ...]] = {
            NODES.plural: nodes,
            STANDING_PODS.plural: tuple(msgspec.convert(pod.json, SourcedPod) for pod in pods),
            RESERVATIONS.plural: reservations,
        }

    async def list(self, resource: Any, **_: Any) -> ObjectList[Any]:
        if resource.plural not in self.shown:
            raise KubeRejected("nobody serves it", status=404)
        return ObjectList(self.shown[resource.plural], "1")

    async def node_metrics(self, **_: Any) -> tuple[()]:
        return ()


def kept(node: str, phase: str = "Available") -> ReservationObject:
    return ReservationObject(ObjectMeta(name=node, namespace="default", uid=node), SPEC, {"phase": phase, "node": node})


async def test_room_that_is_kept_is_no_place_for_others_and_its_node_is_not_freed() -> None:
    there, _ = await read_live(cast("Any", Shown(kept("a"), kept("c", "Expired"))))
    assert there.reserved == {"a"}
    assert [one.pod.name for one in there.residents] == ["a-1", "b-1"]
    found = planned(there, GoalName.EMPTY_NODES)
    assert not [move for move in found.moves if move.target == "a"]
    assert "a" not in found.freed


async def test_a_cluster_without_reservations_is_planned_over_all_the_same() -> None:
    server = Shown()
    del server.shown[RESERVATIONS.plural]
    there, _ = await read_live(cast("Any", server))
    assert not there.reserved
    assert not [note for note in there.notes if "reservation" in note.lower()]
    assert planned(there, GoalName.EMPTY_NODES).freed == ("b",)
