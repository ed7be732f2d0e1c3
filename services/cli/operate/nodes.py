"""``conclave nodes``: who decides for each node, how full it is, and whether it is drained.

Fields that a leader of another version does not tell are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from services.cli.listing.kinds import Json, ListColumn, ListKind, Of, number, text
from services.cli.listing.options import list_options, show_list
from services.cli.listing.wanted import DOCUMENTS, FoundItems, ListQuery
from services.cli.server.completion_names import complete_nodes
from services.cli.server.options import connector
from services.cli.server.watching import show, watch_option
from services.cli.terminal.tables import NONE, age, cpu, printable, share, size
from services.cli.terminal.tables import number as amount
from shared.model.resources import EPHEMERAL_STORAGE, GPU_MILLI, MILLI_PER_DEVICE

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient


def _requested_share(name: str) -> Of:
    """How much of a resource is requested, of 1; None where the node has none."""

    def of(node: Json) -> float | None:
        has = _part(node, "allocatable").get(name)
        return _part(node, "requested").get(name, 0) / has if has else None

    return of


def _share_text(name: str) -> Of:
    return lambda node: share(_part(node, "requested").get(name), _part(node, "allocatable").get(name))


def _requested(name: str, show: Callable[[float | None], str]) -> ListColumn:
    title = name.partition("_")[0].upper()
    return number(
        f"{title}-REQUESTED",
        lambda node: _part(node, "requested").get(name),
        lambda node: _of(show, _part(node, "requested").get(name), _part(node, "allocatable").get(name)),
        wide=True,
    )


def _used(name: str, show: Callable[[float | None], str]) -> ListColumn:
    title = name.partition("_")[0].upper()
    return number(
        f"{title}-USED",
        lambda node: _part(node, "used").get(name),
        lambda node: show(_part(node, "used").get(name)),
        wide=True,
    )


def _lent(name: str, show: Callable[[float | None], str]) -> ListColumn:
    title = name.partition("_")[0].upper()
    return number(
        f"{title}-LENT",
        lambda node: _part(node, "lent").get(name),
        lambda node: show(_part(node, "lent").get(name)),
        wide=True,
    )


def pods_text(node: Json) -> str:
    """How many pods, of how many there may be."""
    most = _part(node, "allocatable").get("pods")
    return f"{node.get('pods', 0)}/{most}" if most else str(node.get("pods", 0))


def gpus(node: Json) -> tuple[float, float] | None:
    """(requested, there) in devices; None: the node has no GPU. Shares of devices count where the node offers them, and
    devices that claims are given where the driver's name says that they are GPUs, those that are partitioned once."""
    has, asked = _part(node, "allocatable"), _part(node, "requested")
    if has.get(GPU_MILLI):
        return asked.get(GPU_MILLI, 0) / MILLI_PER_DEVICE, has[GPU_MILLI] / MILLI_PER_DEVICE
    names = [name for name, amount in has.items() if name.endswith("/gpu") and amount]
    pools = [pool for pool in node.get("devices") or () if "gpu" in str(pool.get("driver"))]
    there = sum(has[name] for name in names) + sum(pool.get("whole", 0) for pool in pools)
    used = sum(asked.get(name, 0) for name in names) + sum(pool.get("used", 0) for pool in pools)
    return (used, there) if there else None


def devices_text(pool: Json) -> str:
    """How many of a pool's devices are allocated, and what else is the matter with some."""
    other = [f"{pool[state]} {state}" for state in ("tainted", "blocked") if pool.get(state)]
    return ", ".join([f"{pool.get('allocated', 0)} of {pool.get('devices', 0)} allocated", *other])


def _devices(node: Json) -> list[tuple[str, str]]:
    """(driver and pool, how many of what) of every pool that the node reaches; of one named after it the driver."""
    return [
        (printable(str(pool.get("driver")) + ("" if pool.get("pool") == node.get("name") else f"/{pool.get('pool')}")),
         devices_text(pool))
        for pool in node.get("devices") or ()
    ]  # fmt: skip


def _gpus_requested(node: Json) -> float | None:
    found = gpus(node)
    return None if found is None else found[0] / found[1]


def _gpus_text(node: Json) -> str:
    found = gpus(node)
    return NONE if found is None else f"{amount(found[0])}/{amount(found[1])}"


def other_resources(node: Json) -> list[tuple[str, str]]:
    """(name, "requested of allocatable") of everything but CPU, memory and pods."""
    has, asked = _part(node, "allocatable"), _part(node, "requested")
    return [
        (printable(name), _of(_unit(name), asked.get(name, 0), most))
        for name, most in sorted(has.items())
        if name not in ("cpu_millis", "memory_bytes", "pods")
    ]


def _unit(name: str) -> Callable[[float | None], str]:
    return size if name == EPHEMERAL_STORAGE or name.startswith("hugepages-") else str


def state_of(node: Json) -> str:
    """``Ready``, or what keeps pods of ours from it. Of an older leader, fields that it does not tell do not count."""
    found = [
        word
        for word, holds in (
            ("NotReady", node.get("ready") is False),
            ("Deleting", node.get("deleting")),
            ("Drained", node.get("drained")),
            ("SchedulingDisabled", node.get("cordoned", _closed(node))),
            ("Unowned", not node.get("agent")),
        )
        if holds
    ]
    found += [f"{str(name).capitalize()}Pressure" for name in node.get("pressure") or ()]
    return ",".join(found) or "Ready"


def _closed(node: Json) -> bool:
    return node.get("schedulable") is False and not node.get("drained")


def drained_text(drained: Json | None) -> str:
    """Who drained it, when and why."""
    if not drained:
        return ""
    why = f": {printable(str(drained['reason']))}" if drained.get("reason") else ""
    return f"by {printable(str(drained.get('by', '')))} since {drained.get('since', '')}{why}"


NODES = ListKind(
    title="Node",
    resource="node",
    labelled=True,
    empty="no nodes",
    columns=(
        text("NAME", "name"),
        text("AGENT", lambda node: node.get("agent") or "none"),
        text("STATE", state_of),
        number("PODS", "pods", pods_text),
        number("CPU", _requested_share("cpu_millis"), _share_text("cpu_millis")),
        number("MEMORY", _requested_share("memory_bytes"), _share_text("memory_bytes")),
        number("GPU", _gpus_requested, _gpus_text, where_any=True),
        text("ZONE", "zone", wide=True),
        text("POOL", "pool", wide=True),
        _requested("cpu_millis", cpu),
        _requested("memory_bytes", size),
        _used("cpu_millis", cpu),
        _used("memory_bytes", size),
        _lent("cpu_millis", cpu),
        _lent("memory_bytes", size),
        text("OTHER-RESOURCES", lambda node: ", ".join(" ".join(pair) for pair in other_resources(node)), wide=True),
        text("DEVICES", lambda node: "; ".join(" ".join(pair) for pair in _devices(node)), wide=True),
        text("TAINTS", lambda node: ", ".join(str(taint) for taint in node.get("taints") or ()), wide=True),
        text("DRAINED", lambda node: drained_text(node.get("drained")), wide=True),
    ),
)

PODS_ON_NODE = ListKind(
    title="PodOnNode",
    resource="pod",
    namespace=lambda pod: pod.get("namespace"),
    columns=(
        text("NAMESPACE", "namespace"),
        text("POD", "name"),
        number("PRIORITY", lambda pod: pod.get("priority", 0)),
        text("PLACED-BY-US", "ours"),
        text("DEVICES", lambda pod: ", ".join(map(str, pod.get("devices") or ())) or None, where_any=True),
    ),
)


def node_lines(node: Json) -> list[str]:
    """One node and the pods on it."""
    pods = node.get("pods")
    below = ["", *PODS_ON_NODE.lines(pods)] if isinstance(pods, list) and pods else []
    return [*node_head(node), *below]


def node_head(node: Json) -> list[str]:
    """One node."""
    has, asked, used = _part(node, "allocatable"), _part(node, "requested"), _part(node, "used")
    pods = node.get("pods")
    count = node.get("pod_count") if isinstance(pods, list) else pods
    lines = [
        f"{printable(str(node.get('name')))}: {state_of(node)}",
        f"  agent      {node.get('agent') or 'none decides for it'}",
        f"  cpu        {_of(cpu, asked.get('cpu_millis'), has.get('cpu_millis'))} requested",
        f"  memory     {_of(size, asked.get('memory_bytes'), has.get('memory_bytes'))} requested",
        f"  pods       {count} of {has.get('pods', '?')}",
    ]
    lines += [f"  {name:<10} {told} requested" for name, told in other_resources(node)]
    lines += [f"  devices    {name}: {told}" for name, told in _devices(node)]
    lines += used_lines(used)
    lines += lent_lines(_part(node, "lent"))
    lines += zone_lines(_part(node, "numa"))
    if node.get("taints"):
        lines.append(f"  taints     {', '.join(printable(str(taint)) for taint in node['taints'])}")
    if node.get("drained"):
        lines.append(f"  drained    {drained_text(node['drained'])}")
    return lines


def used_lines(used: Json) -> list[str]:
    """What was measured of a node, by whom, what was not, and how far it is from others."""
    if not used:
        return []
    sources = sorted({str(source) for source in _part(used, "sources").values()})
    by = f" by {printable(', '.join(sources))}" if sources else ""
    parts = [f"cpu {cpu(used.get('cpu_millis'))}", f"memory {size(used.get('memory_bytes'))}"]
    parts += [f"{name} {_percent(used[name])}" for name in ("disk", "network") if used.get(name) is not None]
    lines = [f"  used       {', '.join(parts)}, measured {age(used.get('age_s'))} ago{by}"]
    if pressure := _part(used, "pressure"):
        told = ", ".join(f"{printable(str(name))} {_percent(share)}" for name, share in pressure.items())
        kills = used.get("oom_kills") or 0
        lines.append(f"  pressure   {told}{f', {kills} processes killed for memory' if kills else ''}")
    if used.get("delay_ms") is not None:
        lines.append(f"  delay      {used['delay_ms']:.2f} ms to other nodes (median)")
    for target, known in _part(used, "latencies").items():
        lines.append(
            f"  latency    {known.get('median_ms'):.2f} ms to {printable(str(target))}"
            f" (spread {known.get('spread_ms'):.2f} ms)"
        )
    notes = dict.fromkeys([*(used.get("masked") or ()), *(used.get("missing") or ())])
    return [*lines, *(f"  unmeasured {printable(str(note))}" for note in notes)]


def lent_lines(lent: Json) -> list[str]:
    """What the node lends to offline pods, and why no more."""
    if not lent:
        return []
    amounts = f"cpu {cpu(lent.get('cpu_millis'))}, memory {size(lent.get('memory_bytes'))}"
    why = f": {printable(str(lent['why']))}" if lent.get("why") else ""
    return [
        f"  lent       {amounts}{why}",
        *(f"  unbelieved {printable(str(doubt))}" for doubt in lent.get("doubts") or ()),
    ]


def zone_lines(numa: Json) -> list[str]:
    """What is free in each zone, who tells of them, and what is not shown there yet."""
    zones = numa.get("zones") or ()
    if not zones:
        return []
    by = f"{printable(str(numa.get('source')))}, {printable(str(numa.get('policy')))} by {numa.get('scope')}"
    lines = [f"  zones      by {by}, told {age(numa.get('age_s'))} ago"]
    for zone in zones:
        free, whole, assumed = (_part(zone, one) for one in ("free", "allocatable", "assumed"))
        parts = [f"{_short(name)} {_of(_shown(name), free[name], whole.get(name))} free" for name in free]
        soon = [f"{_short(name)} {_shown(name)(held)}" for name, held in assumed.items()]
        told = f"; assumed: {', '.join(soon)}" if soon else ""
        socket = f", socket {printable(str(zone['socket']))}" if zone.get("socket") else ""
        lines.append(f"    zone {zone.get('zone')}{socket}: {', '.join(parts)}{told}")
    return [*lines, *(f"    doubted: {printable(str(doubt))}" for doubt in numa.get("doubts") or ())]


def _short(name: str) -> str:
    return {"cpu_millis": "cpu", "memory_bytes": "memory"}.get(name, printable(name))


def _shown(name: str) -> Callable[[float | None], str]:
    if name == "cpu_millis":
        return cpu
    if name == "memory_bytes" or name.startswith("hugepages-"):
        return size
    return lambda value: amount(value or 0)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}%"


def _part(node: Json, name: str) -> Json:
    found = node.get(name)
    return found if isinstance(found, Mapping) else {}


def _of(show: Callable[[float | None], str], part: float | None, whole: float | None) -> str:
    return f"{show(part)} of {show(whole)}"


@click.command()
@click.argument("name", required=False, shell_complete=complete_nodes)
@click.option("--agent", default="", help="Only the nodes of this agent.")
@click.option("--drained", is_flag=True, help="Only drained nodes.")
@click.option(
    "--gone", is_flag=True, help="Only nodes that were deleted while drained: 'conclave resume NODE' forgets."
)
@click.option("--limit", type=click.IntRange(min=0), default=0, help="At most so many; default: all.")
@watch_option
@list_options(NODES)
def nodes(
    name: str | None, agent: str, drained: bool, gone: bool, watch: bool, wanted: ListQuery, **server: Any
) -> None:
    """List the nodes; with NAME show one, and the pods on it."""

    async def one(client: AdminClient) -> dict[str, Any]:
        return NODES.object(await client.get(f"/v1/nodes/{quote(str(name), safe='')}"))

    async def one_listed(client: AdminClient) -> FoundItems:
        return FoundItems([await client.get(f"/v1/nodes/{quote(str(name), safe='')}")])

    async def every(client: AdminClient) -> FoundItems:
        found = await client.items(
            "/v1/nodes", most=0 if drained else wanted.limit, agent=agent, gone="true" if gone else "",
            selector=wanted.selector, labels=wanted.label,
        )  # fmt: skip
        return FoundItems([item for item in found if item.get("drained")] if drained else found)

    connect = connector(server)
    if name is None:
        show_list(connect, every, wanted, watch=watch)
    elif wanted.output == "name":
        show_list(connect, one_listed, wanted, watch=watch)
    else:
        output = wanted.output if wanted.output in DOCUMENTS else "table"
        show(connect, one, node_lines, output=output, watch=watch)
