"""Which agent decides for how many nodes, and which nodes nobody decides for."""

from __future__ import annotations

from heapq import nsmallest
from typing import Any

from services.coordinator.http.access import Role
from services.coordinator.http.desk import Desk
from services.coordinator.http.routing import Answer, Ask, Route

MOST_NAMES = 100


class Partition(Answer, frozen=True, kw_only=True):
    """One agent's. ``node``: the one node it serves (a DaemonSet's agent), empty for any; ``revision``: of the view it
    was sent; ``pending``: nodes of which it has not been told yet."""

    id: str
    node: str
    nodes: int
    revision: int
    pending: int
    suspect: bool


class PartitionsAnswer(Answer, frozen=True, kw_only=True):
    """``epoch`` grows with each dealing. ``unowned``: the first names of the ``unowned_count`` nodes."""

    epoch: int
    agents: list[Partition]
    unowned: list[str]
    unowned_count: int


async def partitions(desk: Desk, _: Ask[Any, Any]) -> PartitionsAnswer:
    """The partition in force."""
    registry = desk.core.registry
    ownership = registry.ownership
    return PartitionsAnswer(
        epoch=ownership.epoch,
        agents=[
            Partition(
                id=agent,
                node=view.record.node,
                nodes=ownership.sizes.get(agent, 0),
                revision=view.revision,
                pending=len(view.pending),
                suspect=view.suspect,
            )
            for agent, view in sorted(registry.views.items())
        ],
        unowned=nsmallest(MOST_NAMES, ownership.unowned),
        unowned_count=len(ownership.unowned),
    )


ROUTES = (
    Route(
        method="GET", path="/v1/partitions", role=Role.VIEWER, summary="Which agent decides for how many nodes",
        answer=PartitionsAnswer, handler=partitions,
    ),
)  # fmt: skip
