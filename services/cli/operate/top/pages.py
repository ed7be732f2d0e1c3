"""What ``conclave top`` can show: each page says what to ask, what is above its list, and what a row opens into.

Tabs are lists of the whole mesh; a row of one opens a node, a pod or the pods of a group, and those open further. The
overview is drawn by ``top_lines``: figures, how full the nodes are, and the newest placements.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from services.cli.explain.text import lines_of as explain_lines
from services.cli.listing.kinds import Json, ListKind
from services.cli.operate.decisions import DECISIONS
from services.cli.operate.nodes import NODES, PODS_ON_NODE, node_head
from services.cli.operate.pending import PENDING_GROUPS, QUEUED_PODS, group_key, pending_lines
from services.cli.operate.status import MEMBERS, overview_lines
from services.cli.terminal.tables import paint

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

BANDS = 10
BAR = 24
FEWEST_ROWS = 3


def top_lines(found: Json, *, width: int, height: int, colour: bool = False) -> list[str]:
    """At most ``height`` - 1 lines; what does not fit is left out from the bottom."""
    overview = found.get("overview") or {}
    title = f"conclave top  {overview.get('time', '')}"
    lines = [paint(title, "bold", on=colour), "", *overview_lines(overview, colour=colour)]
    nodes = found.get("nodes") or {}
    if nodes.get("names"):
        lines += ["", *bands_lines(nodes, width=width, colour=colour)]
    room = height - len(lines) - 2
    if room > FEWEST_ROWS:
        header, *rows = DECISIONS.lines(found.get("decisions") or ())
        lines += ["", paint(header, "dim", on=colour), *rows[: room - 1]]
    return lines[: max(height - 1, 1)]


def bands_lines(nodes: Json, *, width: int, colour: bool = False) -> list[str]:
    """How many nodes have so much of their CPU and memory requested, in bands of 10 %."""
    cpu, memory = bands(nodes.get("cpu") or ()), bands(nodes.get("memory") or ())
    bar = max(min(BAR, (width - 30) // 2), 4)
    most = max([1, *cpu, *memory])
    lines = [paint(f"{'REQUESTED':<11}{'NODES BY CPU':<{bar + 8}}NODES BY MEMORY", "dim", on=colour)]
    for band in range(BANDS):
        parts = [f"{_bar(counts[band], most, bar)} {counts[band] or ''}" for counts in (cpu, memory)]
        lines.append(f"{f'{band * 10}-{band * 10 + 10}%':<11}{parts[0]:<{bar + 8}}{parts[1]}".rstrip())
    return lines


def bands(shares: Sequence[float]) -> list[int]:
    """How many of the shares (0..1) lie in each of ten bands; the last one holds 1.0 and more."""
    counts = [0] * BANDS
    for share in shares:
        counts[min(max(int(share * BANDS), 0), BANDS - 1)] += 1
    return counts


def _bar(count: int, most: int, width: int) -> str:
    """Longest for the fullest band; anything there is shows at least one mark."""
    length = -(-count * width // most)
    return "#" * length


MOST_ROWS = 2000
"""Rows of a list that are asked for: a leader has pods to place."""
MOST_DECISIONS = 200


@dataclass(slots=True, kw_only=True, eq=False)
class TopPage:
    """One page, and how it is looked at now. ``look`` gives (lines above the list, items of ``kind``)."""

    title: str
    look: Callable[[AdminClient], Awaitable[tuple[Sequence[str], Sequence[Json]]]]
    kind: ListKind | None = None
    opens: Callable[[Json], TopPage | None] = lambda _: None
    key: Callable[[Json], str] = lambda item: f"{item.get('namespace', '')}/{item.get('name', '')}/{item.get('uid')}"
    """What a row is remembered by while the list changes."""

    found: tuple[Sequence[str], Sequence[Json]] | None = None
    chosen: str = ""
    row: int = 0
    scrolled: int = 0
    sort: int | None = None
    reverse: bool = False
    wide: bool = False
    filter: str = ""


def overview_page() -> TopPage:
    """The mesh at a glance, which ``top_lines`` draws from the overview and what this finds."""

    async def look(client: AdminClient) -> tuple[Sequence[str], Sequence[Json]]:
        nodes, placed = await asyncio.gather(client.get("/v1/nodes/map"), client.items("/v1/decisions", most=20))
        return (), [{"nodes": nodes, "decisions": placed}]

    return TopPage(title="overview", look=look)


def nodes_page() -> TopPage:
    """Every node; one opens with its pods."""
    return TopPage(title="nodes", kind=NODES, look=_list("/v1/nodes"), opens=lambda node: node_page(str(node["name"])))


def queue_page(namespace: str = "") -> TopPage:
    """The pods that wait; one opens with why."""
    return TopPage(
        title="queue", kind=QUEUED_PODS, look=_list("/v1/queue", namespace=namespace), opens=_explained,
    )  # fmt: skip


def pending_page(namespace: str = "") -> TopPage:
    """Why pods wait, in groups; one opens with its pods."""

    async def look(client: AdminClient) -> tuple[Sequence[str], Sequence[Json]]:
        answer = await client.list_document("/v1/pending", most=MOST_ROWS, namespace=namespace)
        return pending_lines(answer), answer["items"]

    return TopPage(title="pending", kind=PENDING_GROUPS, look=look, opens=group_page, key=group_key)


def group_page(group: Json) -> TopPage:
    """A group of pending pods above those of its namespace that wait with the same priority for the same rules."""
    plugins = sorted(group.get("plugins") or ())

    async def look(client: AdminClient) -> tuple[Sequence[str], Sequence[Json]]:
        pods = await client.items("/v1/queue", most=MOST_ROWS, namespace=group.get("namespace"))
        alike = [
            pod for pod in pods
            if pod.get("priority") == group.get("priority") and sorted(pod.get("plugins") or ()) == plugins
        ]  # fmt: skip
        helps = [f"  would help: {one.get('text')} (lets in {one.get('lets_in')})" for one in group.get("helps") or ()]
        return [f"{group.get('reason')}: {group.get('message') or 'no message'}", *helps], alike

    return TopPage(title=f"group {group.get('reason')}", kind=QUEUED_PODS, look=look, opens=_explained)


def decisions_page(namespace: str = "") -> TopPage:
    """The newest placements; one opens with what was considered."""
    look = _list("/v1/decisions", most=MOST_DECISIONS)

    async def ours(client: AdminClient) -> tuple[Sequence[str], Sequence[Json]]:
        _, found = await look(client)
        return (), [item for item in found if namespace in ("", item.get("namespace"))]

    return TopPage(title="decisions", kind=DECISIONS, look=ours, opens=_explained)


def members_page() -> TopPage:
    """Who is there."""
    return TopPage(
        title="members", kind=MEMBERS, look=_list("/v1/members"),
        key=lambda member: f"{member.get('service')}/{member.get('id')}",
    )  # fmt: skip


def node_page(name: str) -> TopPage:
    """One node above its pods; one of these opens with why it is there."""

    async def look(client: AdminClient) -> tuple[Sequence[str], Sequence[Json]]:
        node = await client.get(f"/v1/nodes/{quote(name, safe='')}")
        return node_head(node), node.get("pods") or ()

    return TopPage(title=f"node {name}", kind=PODS_ON_NODE, look=look, opens=_explained)


def pod_page(namespace: str, name: str) -> TopPage:
    """Why a pod is where it is, or nowhere."""

    async def look(client: AdminClient) -> tuple[Sequence[str], Sequence[Json]]:
        path = f"/v1/pods/{quote(namespace, safe='')}/{quote(name, safe='')}/explain"
        return list(explain_lines(await client.get(path))), ()

    return TopPage(title=f"pod {namespace}/{name}", look=look)


def tabs(namespace: str = "") -> list[TopPage]:
    """What Tab goes through."""
    return [
        overview_page(), nodes_page(), queue_page(namespace), pending_page(namespace), decisions_page(namespace),
        members_page(),
    ]  # fmt: skip


def _explained(pod: Json) -> TopPage | None:
    return pod_page(str(pod["namespace"]), str(pod["name"])) if pod.get("namespace") and pod.get("name") else None


def _list(
    path: str, *, most: int = MOST_ROWS, **query: Any
) -> Callable[[AdminClient], Awaitable[tuple[Sequence[str], Sequence[Json]]]]:
    async def look(client: AdminClient) -> tuple[Sequence[str], Sequence[Json]]:
        return (), await client.items(path, most=most, **query)

    return look
