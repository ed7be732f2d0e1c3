"""Why pods wait, in groups, painted in slices between the turns of the loop and kept while it is fresh; and why one pod
is where it is, the same answer as ``/v1/explain`` of the peer listener.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal
from zlib import crc32

import msgspec

from services.coordinator.core.core import Core
from services.coordinator.http.desk import Desk
from services.coordinator.http.slices import in_slices
from services.coordinator.inspect.pending import (
    ByNamespace,
    ByPriority,
    ByReason,
    HelpShown,
    PendingGroup,
    PendingPicture,
    by_class,
    painted,
)
from shared.runtime.http.callers import Role
from shared.runtime.http.pages import PageQuery, page
from shared.runtime.http.routes import Ask, RoutePage, row

FRESH_S = 1.0
COST_SHARE = 0.1
"""Most of the loop's time that painting may take: a picture that took 0.5 s is kept for 5."""

MOST_AGE_S = 30.0
PRIORITIES = 2**31

Text = Annotated[str, msgspec.Meta(max_length=256)]


class PendingQuery(PageQuery, frozen=True, kw_only=True):
    """Which groups, and in which order: most pods first, or longest waiting, or highest priority. ``by`` class: groups
    that differ in namespace and priority alone are one."""

    namespace: Text = ""
    reason: Text = ""
    priority: Annotated[int, msgspec.Meta(ge=-PRIORITIES, le=PRIORITIES)] | None = None
    class_: Text = msgspec.field(default="", name="class")
    sort: Literal["pods", "oldest", "priority"] = "pods"
    by: Literal["group", "class"] = "group"


class PendingAnswer(RoutePage, frozen=True, kw_only=True):
    """``made``: when the picture was; ``pods``, ``classes``, ``groups``, ``by_*`` and ``helps`` are of all that wait,
    ``items`` of those asked for. ``unjudged``: classes beyond the bound, of which only the counts are known."""

    made: str
    age_s: float
    pods: int
    gated: int
    classes: int
    groups: int
    unjudged: int
    by_reason: list[ByReason]
    by_namespace: list[ByNamespace]
    by_priority: list[ByPriority]
    helps: list[HelpShown]
    items: list[PendingGroup]


class Painter:
    """The last picture, while it is fresh; one is painted at a time, for all who ask."""

    def __init__(self) -> None:
        self._core: Core | None = None
        self._picture: PendingPicture | None = None
        self._fresh_until = 0.0
        self._painting: asyncio.Task[PendingPicture] | None = None

    async def at(self, desk: Desk) -> PendingPicture:
        """As of now, or almost. Refused: 503 ``not_ready``."""
        core, now = desk.core, desk.clock()
        if core is not self._core:  # another term
            self._core, self._picture, self._painting = core, None, None
        if self._picture is not None and now < self._fresh_until:
            return self._picture
        if self._painting is None or self._painting.done():
            self._painting = asyncio.create_task(self._paint(desk, core))
            # whoever asked may have gone when it fails
            self._painting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._painting)

    async def _paint(self, desk: Desk, core: Core) -> PendingPicture:
        picture, spent_s = await in_slices(painted(core, desk.clock()), desk.clock)
        if core is self._core:
            self._picture = picture
            self._fresh_until = desk.clock() + min(MOST_AGE_S, max(FRESH_S, spent_s / COST_SHARE))
        return picture


async def show(desk: Desk, ask: Ask[PendingQuery, Any]) -> PendingAnswer:
    """A page of groups. Refused: 503 ``not_ready``."""
    query = ask.query
    picture = await painter_of(desk).at(desk)
    if query.by == "class":
        found = by_class(picture, lambda group: _asked_for(group, query))
    else:
        found = [group for group in picture.groups if _asked_for(group, query)]
    wanted = {_key(group, query.sort, picture.at): group for group in found}
    keys, more = page(wanted, query, str)
    return PendingAnswer(
        made=desk.wall_of(picture.at),
        age_s=round(max(0.0, desk.clock() - picture.at), 3),
        pods=picture.pods,
        gated=picture.gated,
        classes=picture.classes,
        groups=len(picture.groups),
        unjudged=picture.unjudged,
        by_reason=picture.by_reason,
        by_namespace=picture.by_namespace,
        by_priority=picture.by_priority,
        helps=picture.helps,
        items=[wanted[key] for key in keys],
        continue_=more,
    )


def painter_of(desk: Desk) -> Painter:
    """The process's one."""
    if not isinstance(desk.painter, Painter):
        desk.painter = Painter()
    return desk.painter


def _asked_for(group: PendingGroup, query: PendingQuery) -> bool:
    return (
        query.namespace in ("", group.namespace)
        and query.reason in ("", group.reason)
        and query.priority in (None, group.priority)
        and query.class_ in ("", group.class_)
    )


def _key(group: PendingGroup, sort: str, at: float) -> str:
    """In this order groups are told; the next page begins after the last key, also that of an earlier picture."""
    first = {
        "pods": 10**9 - group.pods,
        "oldest": max(0, round((at - group.oldest_s) * 1000)),  # since when, not how long: that grows
        "priority": PRIORITIES - group.priority,
    }[sort]
    said = crc32(group.message.encode())
    return f"{first:013d}/{group.reason}/{group.namespace}/{group.priority}/{group.class_}/{said:08x}"


async def explain(desk: Desk, ask: Ask[Any, Any]) -> dict[str, Any]:
    """Verdicts of every rule, the queue's view, the decision. Refused: as ``Admin.explain`` says."""
    return await desk.admin.explain_counted(ask.path["namespace"], ask.path["name"])


ROUTES = (
    row(
        "GET", "/v1/pending", Role.VIEWER, "Why pods wait, in groups, and what would help", show, fresh_s=FRESH_S,
        cost=10,
    ),
    row(
        "GET", "/v1/pods/{namespace}/{name}/explain", Role.VIEWER, "Why a pod is where it is, or why it waits",
        explain, errors=("pod_unknown", "kube_rejected"), cost=50,
    ),
)  # fmt: skip
