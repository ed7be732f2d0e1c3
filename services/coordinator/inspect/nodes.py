"""Nodes as a leader accounts them, for people: one, a page, all as columns for a map of thousands, and sums over all.

Pure, and reads only what is asked for. ``requested`` is the leader's accounting, what it assumes included; ``used`` is
there only while a policy has the metrics API read. Groups of the map: zone, region, pool or any label; of the labels
that clouds and autoscalers give their pools the first that a node has counts, and labels with more values than
``MOST_GROUPS`` (host names) are not offered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import numpy as np
from msgspec import Struct

from services.coordinator.core.core import Core
from services.coordinator.core.state import NodeHealth
from services.coordinator.lending.ledger import LoanLedger, LoanShown
from services.coordinator.usage.measured import NAMES as PARTS_BY_NAME
from shared.agent.counters import PRESSURES
from shared.model.constraints import Taint
from shared.model.node import Condition, Node
from shared.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from shared.scheduling.devices.census import DeviceCounts
from shared.scheduling.state.node_table import ABSENT, CPU_COLUMN, MEMORY_COLUMN, PODS_COLUMN, IntArray, NodeTable
from shared.wire.records import Drained

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
POOLS = (
    "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "kubernetes.azure.com/agentpool", "agentpool",
    "karpenter.sh/nodepool", "doks.digitalocean.com/node-pool", "lke.linode.com/pool-id", "node.cluster.x-k8s.io/pool",
    "machine.openshift.io/cluster-api-machineset", "node-pool", "nodepool", "pool",
)  # fmt: skip

MOST_GROUPS = 500
MOST_KEYS = 64
REST = "…"
LABEL = "label:"

MOST_RESOURCES = 32
NAMES = {CPU: "cpu_millis", MEMORY: "memory_bytes"}
"""Resources whose unit is said; the others are whole numbers under their own name."""

PODS_SHOWN = 500
MOST_COLUMNS = 16
UNMAPPED = frozenset({CPU, MEMORY, PODS, EPHEMERAL_STORAGE})
"""Resources beside CPU and memory with a column in the map."""

HEALTHY = NodeHealth(())

DRAINED, UNSCHEDULABLE, UNOWNED, NOT_READY, PRESSURE = 1, 2, 4, 8, 16
"""Bits of ``NodeMap.flags``."""


class NodeDrained(Struct, frozen=True, kw_only=True):
    """By whom, why and since when the node gets no new pods from us."""

    by: str
    reason: str
    since: str


class LatencyShown(Struct, frozen=True, kw_only=True):
    """A node's round trip to a target: the median, and how far its samples lie from it."""

    median_ms: float
    spread_ms: float


class NodeUsed(Struct, frozen=True, kw_only=True):
    """What the node used when it was last measured; ``age_s``: of the newest part. ``disk`` and ``network``: shares of
    what the node can do. null: not measured, for the reason in ``masked``; policies go without that part.

    ``sources``: who measured each part; ``pressure``: share of the last 10 s in which tasks waited for it;
    ``oom_kills``: processes killed for memory since this leader looks; ``delay_ms``: median round trip to other nodes;
    ``latencies``: to what users named; ``missing``: what the node's own agent could not tell, and why.
    """

    cpu_millis: int | None
    memory_bytes: int | None
    age_s: float
    disk: float | None = None
    network: float | None = None
    sources: dict[str, str] = {}
    masked: list[str] = []
    pressure: dict[str, float] = {}
    oom_kills: int = 0
    delay_ms: float | None = None
    latencies: dict[str, LatencyShown] = {}
    missing: list[str] = []


class PoolShown(Struct, frozen=True, kw_only=True):
    """What a node reaches of a driver's pool, each device in one state: free; allocated, at least in part; tainted
    against who does not tolerate it; blocked by other partitions. ``whole``: those that are no partition of another,
    ``used`` of them in use, of one that is shared or partitioned that part; ``share``: how much that is, 0 to 1."""

    driver: str
    pool: str
    devices: int
    free: int
    allocated: int
    tainted: int
    blocked: int
    whole: int
    used: float
    share: float


class NodeShown(Struct, frozen=True, kw_only=True):
    """One node. ``agent`` "": nobody decides for it. ``schedulable``: neither cordoned, drained nor being deleted.
    ``conditions``: those that are not as they should be. ``labels``: those that were asked for. ``lent``: null where
    lending is off and nobody lends."""

    name: str
    agent: str
    schedulable: bool
    drained: NodeDrained | None
    taints: list[str]
    pods: int
    allocatable: dict[str, int]
    requested: dict[str, int]
    used: NodeUsed | None
    lent: LoanShown | None = None
    ready: bool = True
    cordoned: bool = False
    deleting: bool = False
    pressure: list[str] = []
    conditions: list[Condition] = []
    zone: str = ""
    region: str = ""
    pool: str = ""
    labels: dict[str, str] = {}
    devices: list[PoolShown] = []


class PodOnNode(Struct, frozen=True, kw_only=True):
    """A pod that is counted on the node. ``ours``: this scheduler placed it, or is about to. ``devices``: what its
    claims were given, ``driver/pool/device``."""

    namespace: str
    name: str
    uid: str
    priority: int
    ours: bool
    devices: list[str] = []


class NodeMap(Struct, frozen=True, kw_only=True):
    """Columns over all nodes in order of their names. ``cpu`` and ``memory``: requested share, 0 to 1. ``shares``: of
    other resources that some node has, and of devices by driver, null where it has none. ``group``: the place in
    ``groups``, where nodes are grouped; ``group_keys``: what they may be grouped by."""

    names: list[str]
    cpu: list[float]
    memory: list[float]
    flags: list[int]
    shares: dict[str, list[float | None]]
    group: list[int]
    groups: list[str]
    group_keys: list[str]


class ResourceTotal(Struct, frozen=True, kw_only=True):
    """One resource over all nodes; ``nodes``: how many offer it; ``share`` None: nobody does."""

    name: str
    allocatable: int
    requested: int
    share: float | None
    nodes: int


def node_page(
    core: Core, now: float, *, agent: str = "", after: str = "", limit: int = 100,
    wanted: Callable[[Node], bool] | None = None, labels: Sequence[str] = (), loans: LoanLedger | None = None,
) -> tuple[list[NodeShown], str | None]:  # fmt: skip
    """(the next nodes by name, ``after`` of the next page or None). ``wanted``: only those."""
    table = core.state.cache.table
    names, _ = table.by_name()
    owner = core.registry.ownership.owner

    def looked_for(name: str) -> bool:
        if agent and owner.get(name) != agent:
            return False
        node = table.nodes[table.row_of[name]] if wanted is not None else None
        return wanted is None or (node is not None and wanted(node))

    rest = (names[place] for place in range(bisect_right(names, after), len(names)))
    found = list(islice(filter(looked_for, rest), limit + 1))
    page = found[:limit]
    shown = [node for name in page if (node := node_shown(core, name, now, labels=labels, loans=loans)) is not None]
    return shown, page[-1] if len(found) > limit else None


def node_shown(
    core: Core, name: str, now: float, *, labels: Sequence[str] | None = (), loans: LoanLedger | None = None
) -> NodeShown | None:
    """One node; None where there is none of that name. ``labels``: which to show; None: all. ``loans``: what it
    lends."""
    table = core.state.cache.table
    row = table.row_of.get(name)
    node = table.nodes[row] if row is not None else None
    if row is None or node is None:
        return None
    requested = {
        NAMES.get(resource, resource): int(table.requested[column, row])
        for resource, column in table.column_of.items()
        if column != PODS_COLUMN and (table.requested[column, row] or resource in node.allocatable)
    }
    health = core.state.unhealthy.get(name, HEALTHY)
    shown = node.labels if labels is None else {key: node.labels[key] for key in labels if key in node.labels}
    return NodeShown(
        name=name,
        agent=core.registry.ownership.owner.get(name, ""),
        schedulable=not (node.closed or node.deleting),
        drained=_drained(core.state.drained.get(name)),
        taints=[_taint(taint) for taint in node.taints],
        pods=int(table.requested[PODS_COLUMN, row]),
        allocatable={NAMES.get(resource, resource): amount for resource, amount in node.allocatable.items()},
        requested=requested,
        used=_used(core, node, now),
        lent=loans.shown(node) if loans is not None else None,
        ready=health.ready,
        cordoned=node.unschedulable and not node.deleting,
        deleting=node.deleting,
        pressure=health.pressure,
        conditions=list(health.conditions),
        zone=node.labels.get(ZONE, ""),
        region=node.labels.get(REGION, ""),
        pool=pool_of(node.labels),
        labels=shown,
        devices=[
            PoolShown(
                driver=driver,
                pool=pool,
                devices=one.devices,
                free=one.free,
                allocated=one.allocated,
                tainted=one.tainted,
                blocked=one.blocked,
                whole=one.whole,
                used=round(one.used, 4),
                share=round(one.share, 4),
            )
            for (driver, pool), one in core.state.devices.census.on(node)
        ],
    )


def pods_on(core: Core, name: str, *, limit: int = PODS_SHOWN) -> list[PodOnNode]:
    """The pods that are counted on a node, greatest priority first, ``limit`` at most. What a pod group has for its
    members stands with each."""
    state = core.state
    pods = sorted(state.cluster.index.pods_on(name), key=lambda pod: (-pod.priority, pod.namespace, pod.name))
    given: dict[str, list[str]] = {}
    for claim in state.devices.accounts.shown.values() if pods else ():
        if claim.allocation is not None:
            for uid in claim.reserved_for:
                given.setdefault(uid, []).extend("/".join(result.id) for result in claim.allocation.results)
    groups = state.cluster.pod_groups
    return [
        PodOnNode(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            priority=pod.priority,
            ours=pod.scheduler_name in state.ours,
            devices=[*given.get(pod.uid, ()), *(given.get(groups[pod.group].uid, ()) if pod.group in groups else ())],
        )
        for pod in pods[:limit]
    ]


def node_map(core: Core, group_by: str = "") -> NodeMap:
    """All nodes as columns; arrays do the work, and only nodes with a flag are looked at one by one.

    ``group_by``: one of ``group_keys``; "": none."""
    table = core.state.cache.table
    names, rows = table.by_name()
    flags: IntArray = np.zeros(table.rows, np.int64)
    for row in np.flatnonzero(table.unschedulable[: table.rows] & table.present[: table.rows]).tolist():
        node = table.nodes[row]
        if node is not None and (node.unschedulable or node.deleting):
            flags[row] = UNSCHEDULABLE
    unhealthy = core.state.unhealthy
    for bit, named in (
        (DRAINED, core.state.drained), (UNOWNED, core.registry.ownership.unowned),
        (NOT_READY, [name for name, found in unhealthy.items() if not found.ready]),
        (PRESSURE, [name for name, found in unhealthy.items() if found.pressure]),
    ):  # fmt: skip
        flags[[table.row_of[name] for name in named if name in table.row_of]] |= bit
    group, groups = grouped(table, rows, group_by) if group_by else ([], [])
    return NodeMap(
        names=names,
        cpu=_shares(table.requested[CPU_COLUMN, rows], table.allocatable[CPU_COLUMN, rows]),
        memory=_shares(table.requested[MEMORY_COLUMN, rows], table.allocatable[MEMORY_COLUMN, rows]),
        flags=flags[rows].tolist(),
        shares=_other_shares(table, rows) | _device_shares(core, names),
        group=group,
        groups=groups,
        group_keys=group_keys(table),
    )


def pool_of(labels: Mapping[str, str]) -> str:
    """The pool that a node belongs to; empty where no label says so."""
    return next((labels[key] for key in POOLS if key in labels), "")


def region_of(core: Core, name: str) -> str:
    """The region that a node says it is in; empty where it does not, and where there is no such node."""
    table = core.state.cache.table
    row = table.row_of.get(name)
    node = table.nodes[row] if row is not None else None
    return node.labels.get(REGION, "") if node is not None else ""


def labels_of(core: Core, namespace: str, name: str) -> dict[str, str] | None:
    """The labels of the pods that a Service selects; None where there is no such Service, or it selects none."""
    service = core.state.cluster.workloads.service(namespace, name)
    if service is None or service.selector is None:
        return None
    return {one.key: one.values[0] for one in service.selector.requirements if one.operator == "In"}


def group_keys(table: NodeTable) -> list[str]:
    """What the nodes may be grouped by."""
    found = [name for name, key in (("zone", ZONE), ("region", REGION)) if key in table.label_codes]
    if any(key in table.label_codes for key in POOLS):
        found.append("pool")
    # more values than nodes can share make no groups
    most = min(MOST_GROUPS, max(1, len(table.row_of) // 2))
    labels = (f"{LABEL}{key}" for key in sorted(table.label_codes) if 0 < len(table.label_values[key]) <= most)
    return [*found, *labels][:MOST_KEYS]


def grouped(table: NodeTable, rows: IntArray, by: str) -> tuple[list[int], list[str]]:
    """(place of each row's group, the groups by name; "" is those without). ``by``: zone, region, pool or label:KEY."""
    keys = {"zone": (ZONE,), "region": (REGION,), "pool": POOLS}.get(by, (by.removeprefix(LABEL),))
    values = [""] * len(rows)
    for key in reversed(keys):  # the first of the keys wins
        codes = table.codes_of(key)
        if codes is not None:
            texts = list(table.label_values[key])
            for place, code in enumerate(codes[rows].tolist()):
                if code != ABSENT:
                    values[place] = texts[code]
    names = sorted(set(values))
    if len(names) > MOST_GROUPS:
        names = [*names[: MOST_GROUPS - 1], REST]
    place_of = {name: place for place, name in enumerate(names)}
    return [place_of.get(value, len(names) - 1) for value in values], names


def resource_totals(core: Core) -> list[ResourceTotal]:
    """CPU and memory first, the others by name: those that a node offers or a pod on a node asks for; then devices by
    driver, of which those that somebody has at least a part of count as requested."""
    table = core.state.cache.table
    rows = table.present[: table.rows]
    allocatable = table.allocatable[:, : table.rows][:, rows]
    requested = table.requested[:, : table.rows][:, rows]
    has, asked, offering = allocatable.sum(axis=1), requested.sum(axis=1), np.count_nonzero(allocatable, axis=1)
    others = sorted(name for name in table.column_of if name not in (CPU, MEMORY))
    columns = [CPU_COLUMN, MEMORY_COLUMN, *(table.column_of[name] for name in others)]
    names = [CPU, MEMORY, *others]
    found = []
    for name, column in zip(names, columns, strict=True):
        if column > MEMORY_COLUMN and not has[column] and not asked[column]:
            continue
        share = round(float(asked[column] / has[column]), 4) if has[column] else None
        found.append(
            ResourceTotal(
                name=NAMES.get(name, name), allocatable=int(has[column]), requested=int(asked[column]), share=share,
                nodes=int(offering[column]),
            )
        )  # fmt: skip
        if len(found) == MOST_RESOURCES:
            break
    return [*found, *_device_totals(core)][:MOST_RESOURCES]


def device_counts(core: Core) -> dict[str, DeviceCounts]:
    """All devices, by driver."""
    devices = core.state.devices
    return devices.census.drivers(devices.nodes()[0])


def _device_totals(core: Core) -> list[ResourceTotal]:
    devices = core.state.devices
    shares = devices.census.shares(devices.nodes()[0])
    return [
        ResourceTotal(
            name=driver, allocatable=one.devices, requested=one.allocated, share=round(one.share, 4),
            nodes=sum(share is not None for share in shares.get(driver, ())),
        )
        for driver, one in device_counts(core).items() if one.devices
    ]  # fmt: skip


def resource_shares(core: Core) -> dict[str, float]:
    """Requested share by resource, without ``pods``: nobody asks for those."""
    return {
        total.name: total.share for total in resource_totals(core) if total.share is not None and total.name != PODS
    }


def cordoned(core: Core) -> int:
    """How many nodes are: not counting those that are drained from our scheduling alone."""
    table = core.state.cache.table
    closed = np.flatnonzero(table.unschedulable[: table.rows] & table.present[: table.rows]).tolist()
    nodes = (table.nodes[row] for row in closed)
    return sum(node is not None and node.unschedulable and not node.deleting for node in nodes)


def _other_shares(table: NodeTable, rows: IntArray) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {}
    for name, column in sorted(table.column_of.items()):
        has = table.allocatable[column, rows]
        if name in UNMAPPED or not has.any() or len(found) == MOST_COLUMNS:
            continue
        shares = _shares(table.requested[column, rows], has)
        found[name] = [share if there else None for share, there in zip(shares, has.tolist(), strict=True)]
    return found


def _device_shares(core: Core, names: Sequence[str]) -> dict[str, list[float | None]]:
    """Of each node of the map, by driver."""
    devices = core.state.devices
    nodes, _ = devices.nodes()
    place_of = {node.name: place for place, node in enumerate(nodes)}
    shares = devices.census.shares(nodes)
    return {
        driver: [of_node[place_of[name]] for name in names] for driver, of_node in list(shares.items())[:MOST_COLUMNS]
    }


def _shares(requested: IntArray, allocatable: IntArray) -> list[float]:
    shares = requested / np.maximum(allocatable, 1)
    found: list[float] = np.round(np.clip(shares, 0.0, 1.0), 3).tolist()
    return found


def _drained(record: Drained | None) -> NodeDrained | None:
    return None if record is None else NodeDrained(by=record.by, reason=record.reason, since=record.since)


def _taint(taint: Taint) -> str:
    """As kubectl writes it: ``key=value:effect``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _used(core: Core, node: Node, now: float) -> NodeUsed | None:
    used = core.variants.used.get(node.name)
    if used is None:
        return None
    fresh = used.fresh()
    cpu, memory, disk, network = (part.amount if part is not None else None for part in fresh)
    return NodeUsed(
        cpu_millis=None if cpu is None else round(cpu),
        memory_bytes=None if memory is None else round(memory),
        age_s=round(max(0.0, now - max(used.newest_s, used.told_s)), 3),
        disk=disk,
        network=network,
        sources={name: part.source for name, part in zip(PARTS_BY_NAME, fresh, strict=True) if part is not None},
        masked=used.masked(now),
        pressure={name: share for name, share in zip(PRESSURES, used.pressure, strict=False) if share >= 0},
        oom_kills=used.oom_kills,
        delay_ms=None if used.delay_us is None else used.delay_us / 1000,
        latencies={
            target: LatencyShown(median_ms=median / 1000, spread_ms=spread / 1000)
            for target, (median, spread) in used.latencies.items()
        },
        missing=list(used.missing),
    )
