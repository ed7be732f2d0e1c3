"""Nodes as the leader accounts them, and draining them from scheduling: as ``kubectl cordon``, for Conclave alone."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Annotated, Any, Literal

import msgspec

from services.coordinator.core.core import Core
from services.coordinator.http.desk import Desk
from services.coordinator.inspect.node_zones import NumaShown, numa_shown
from services.coordinator.inspect.nodes import (
    HEALTHY,
    ZONE,
    NodeDrained,
    NodeMap,
    NodeShown,
    NodeUsed,
    PodOnNode,
    PoolShown,
    node_map,
    node_page,
    node_shown,
    pods_on,
    pool_of,
)
from services.coordinator.lending.ledger import LoanShown
from shared.model.node import Condition, Node
from shared.runtime.http.callers import Role
from shared.runtime.http.pages import PageQuery, Selector, key_token, page, selector_of, token_key
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.http.routes import SLOW_FRESH_S, Ask, Because, RouteAnswer, RoutePage, Schema, row
from shared.runtime.records.control import set_drained

MOST_LABELS = 8

Name = Annotated[str, msgspec.Meta(max_length=253)]


class NodesQuery(PageQuery, frozen=True, kw_only=True):
    """``agent``: only the nodes it decides for. ``gone``: those that were deleted while drained, and nothing else; a
    node that comes back by that name is drained. ``selector``: as kubectl's -l; ``labels``: keys to show."""

    agent: Name = ""
    gone: bool = False
    state: Literal["", "ready", "not_ready", "pressure", "cordoned", "drained", "unowned"] = ""
    zone: Name = ""
    pool: Name = ""
    selector: Selector = ""
    labels: Annotated[
        str,
        msgspec.Meta(
            max_length=2048, description="Keys, comma-separated; at most 8.",
            extra_json_schema={"pattern": r"^[^,]*(,[^,]*){0,7}$"},
        ),
    ] = ""  # fmt: skip


class MapQuery(Schema, frozen=True, kw_only=True):
    """``groupBy``: zone, region, pool or label:KEY; one of the answer's ``group_keys``."""

    group_by: Annotated[str, msgspec.Meta(max_length=330, pattern="^(zone|region|pool|label:.+)?$")] = msgspec.field(
        default="", name="groupBy"
    )


class NodesAnswer(RoutePage, frozen=True, kw_only=True):
    """By name."""

    items: list[NodeShown]


class NodeAnswer(RouteAnswer, frozen=True, kw_only=True):
    """One node. ``pods``: those that are counted on it, greatest priority first, 500 at most; ``pod_count``: of all.
    ``numa``: its zones; null where no object tells of them."""

    name: str
    agent: str
    schedulable: bool
    drained: NodeDrained | None
    taints: list[str]
    pod_count: int
    pods: list[PodOnNode]
    allocatable: dict[str, int]
    requested: dict[str, int]
    used: NodeUsed | None
    lent: LoanShown | None
    ready: bool
    cordoned: bool
    deleting: bool
    pressure: list[str]
    conditions: list[Condition]
    zone: str
    region: str
    pool: str
    labels: dict[str, str]
    devices: list[PoolShown]
    numa: NumaShown | None


class NodeChanged(NodeShown, frozen=True, kw_only=True):
    """A node after a change. ``obeyed``: the leader goes by it; false: it has not heard of it in 2 s, and will.
    ``gone``: the cluster has no node of that name; what was kept of one that was deleted while drained is forgotten."""

    obeyed: bool
    gone: bool = False


async def listed(desk: Desk, ask: Ask[NodesQuery, Any]) -> NodesAnswer:
    """A page of nodes."""
    query = ask.query
    if query.gone:
        names, more_names = page(() if query.agent else _drained_and_gone(desk.core), query, str)
        return NodesAnswer(items=[_gone(desk.core, name) for name in names], continue_=more_names)
    after = token_key(query.continue_, str) if query.continue_ else ""
    items, more = node_page(
        desk.core, desk.clock(), agent=query.agent, after=after, limit=query.limit, wanted=_wanted(desk.core, query),
        labels=_labels(query.labels), loans=desk.admin.loans,
    )  # fmt: skip
    return NodesAnswer(items=items, continue_=key_token(more) if more is not None else "")


def _labels(text: str) -> list[str]:
    keys = [key.strip() for key in text.split(",") if key.strip()]
    if len(keys) > MOST_LABELS:
        raise RequestRefused(f"labels: {len(keys)} keys; at most {MOST_LABELS} are shown", code="invalid_request")
    return keys


def _wanted(core: Core, query: NodesQuery) -> Callable[[Node], bool] | None:
    """Whether a node is among those that the query names; None: all are. Refused: 400."""
    selector = selector_of(query.selector)
    if not (query.state or query.zone or query.pool or selector is not None):
        return None
    unhealthy, drained, unowned = core.state.unhealthy, core.state.drained, core.registry.ownership.unowned

    def is_ready(node: Node) -> bool:
        found = unhealthy.get(node.name, HEALTHY)
        return found.ready and not found.pressure and not node.closed and node.name not in unowned

    states: dict[str, Callable[[Node], bool]] = {
        "": lambda _: True,
        "ready": is_ready,
        "not_ready": lambda node: not unhealthy.get(node.name, HEALTHY).ready,
        "pressure": lambda node: bool(unhealthy.get(node.name, HEALTHY).pressure),
        "cordoned": lambda node: node.unschedulable and not node.deleting,
        "drained": lambda node: node.name in drained,
        "unowned": lambda node: node.name in unowned,
    }
    in_state = states[query.state]

    def holds(node: Node) -> bool:
        labels = node.labels
        return (
            in_state(node)
            and query.zone in ("", labels.get(ZONE))
            and query.pool in ("", pool_of(labels))
            and (selector is None or selector.matches(labels))
        )

    return holds


async def mapped(desk: Desk, ask: Ask[MapQuery, Any]) -> NodeMap:
    """All nodes as columns."""
    return node_map(desk.core, ask.query.group_by)


async def shown(desk: Desk, ask: Ask[Any, Any]) -> NodeAnswer:
    """One node and its pods. Refused: 404 ``node_unknown``."""
    name = ask.path["name"]
    node = node_shown(desk.core, name, desk.clock(), labels=None, loans=desk.admin.loans)
    fields = msgspec.structs.asdict(node or _node(desk, name))
    zones = numa_shown(desk.core, name, desk.clock())
    return NodeAnswer(**fields | {"pods": pods_on(desk.core, name), "pod_count": fields["pods"], "numa": zones})


async def drained(desk: Desk, ask: Ask[Any, Because]) -> NodeChanged:
    """No new pods for it from us. Refused: 404 ``node_unknown``, 422 ``invalid_value``."""
    node = _node(desk, ask.path["name"])
    record = await set_drained(
        desk.store, desk.keys, node.name, True, by=ask.caller.title, reason=ask.body.reason, now=desk.wall()
    )
    obeyed = await desk.obeyed(lambda core: node.name in core.state.drained)
    told = NodeDrained(by=record.by, reason=record.reason, since=record.since) if record is not None else None
    return _changed(node, drained=told, schedulable=False, obeyed=obeyed)


async def resumed(desk: Desk, ask: Ask[Any, Because]) -> NodeChanged:
    """New pods again. Also for a node that is gone, so that nothing is left behind. Refused: 404 ``node_unknown``."""
    name, core = ask.path["name"], desk.core
    node = _gone(core, name) if name in _drained_and_gone(core) else _node(desk, name)
    await set_drained(desk.store, desk.keys, name, False, by=ask.caller.title, reason=ask.body.reason, now=desk.wall())
    obeyed = await desk.obeyed(lambda core: name not in core.state.drained)
    gone = name not in core.state.cache.table.row_of
    return _changed(node, drained=None, schedulable=is_open(core, name), obeyed=obeyed, gone=gone)


def _changed(node: NodeShown, **fields: Any) -> NodeChanged:
    return NodeChanged(**msgspec.structs.asdict(node) | fields)


def _drained_and_gone(core: Core) -> Set[str]:
    return core.state.drained.keys() - core.state.cache.table.row_of.keys()


def _gone(core: Core, name: str) -> NodeShown:
    record = core.state.drained[name]
    return NodeShown(
        name=name, agent="", schedulable=False,
        drained=NodeDrained(by=record.by, reason=record.reason, since=record.since),
        taints=[], pods=0, allocatable={}, requested={}, used=None,
    )  # fmt: skip


def _node(desk: Desk, name: str) -> NodeShown:
    node = node_shown(desk.core, name, desk.clock(), loans=desk.admin.loans)
    if node is None:
        raise RequestRefused(f"there is no node {name}", code="node_unknown")
    return node


def is_open(core: Core, name: str) -> bool:
    """Whether the cluster itself lets pods on the node: it is neither cordoned nor being deleted."""
    table = core.state.cache.table
    row = table.row_of.get(name)
    node = table.nodes[row] if row is not None else None
    return node is not None and not node.unschedulable and not node.deleting


ROUTES = (
    row("GET", "/v1/nodes", Role.VIEWER, "Nodes with what is requested on them", listed, cost=2, fresh_s=SLOW_FRESH_S),
    row(
        "GET", "/v1/nodes/map", Role.VIEWER, "All nodes as columns, for a picture", mapped, cost=2,
        fresh_s=SLOW_FRESH_S,
    ),
    row("GET", "/v1/nodes/{name}", Role.VIEWER, "One node and its pods", shown, errors=("node_unknown",)),
    row(
        "POST", "/v1/nodes/{name}/drain", Role.OPERATOR, "Give a node no new pods", drained,
        errors=("node_unknown", "invalid_value"), audit_path="name",
    ),
    row(
        "POST", "/v1/nodes/{name}/resume", Role.OPERATOR, "Give a node new pods again", resumed,
        errors=("node_unknown",), audit_path="name",
    ),
)  # fmt: skip
