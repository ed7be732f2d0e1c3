"""Nodes of the admin API as tables. Pure; fields that are missing are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.cli.tables import age, cpu, left, printable, right, share, size, table

Json = Mapping[str, Any]


def nodes_lines(nodes: Sequence[Json], *, wide: bool = False) -> list[str]:
    """The list. ``wide``: quantities, what is used, taints, and who drained it."""
    columns = [*left("NAME", "AGENT", "STATE"), *right("PODS", "CPU", "MEMORY")]
    if wide:
        columns += [*right("CPU-REQUESTED", "MEMORY-REQUESTED", "CPU-USED", "MEMORY-USED"), *left("TAINTS", "DRAINED")]
    rows = []
    for node in nodes:
        has, asked, used = _part(node, "allocatable"), _part(node, "requested"), _part(node, "used")
        row = [
            node.get("name"),
            node.get("agent") or "none",
            state_of(node),
            f"{node.get('pods', 0)}/{has['pods']}" if has.get("pods") else node.get("pods", 0),
            share(asked.get("cpu_millis"), has.get("cpu_millis")),
            share(asked.get("memory_bytes"), has.get("memory_bytes")),
        ]
        if wide:
            row += [
                _of(cpu, asked.get("cpu_millis"), has.get("cpu_millis")),
                _of(size, asked.get("memory_bytes"), has.get("memory_bytes")),
                cpu(used.get("cpu_millis")),
                size(used.get("memory_bytes")),
                ", ".join(printable(str(taint)) for taint in node.get("taints") or ()),
                drained_text(node.get("drained")),
            ]
        rows.append(row)
    return table(columns, rows)


def node_lines(node: Json) -> list[str]:
    """One node and the pods on it."""
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
    lines += [
        f"  {name:<10} {asked.get(name, 0)} of {amount} requested"
        for name, amount in sorted(has.items())
        if name not in ("cpu_millis", "memory_bytes", "pods")
    ]
    if used:
        lines.append(
            f"  used       cpu {cpu(used.get('cpu_millis'))}, memory {size(used.get('memory_bytes'))},"
            f" measured {age(used.get('age_s'))} ago"
        )
    if node.get("taints"):
        lines.append(f"  taints     {', '.join(printable(str(taint)) for taint in node['taints'])}")
    if node.get("drained"):
        lines.append(f"  drained    {drained_text(node['drained'])}")
    if isinstance(pods, list) and pods:
        columns = [*left("NAMESPACE", "POD"), *right("PRIORITY"), *left("PLACED-BY-US")]
        rows = [[pod.get("namespace"), pod.get("name"), pod.get("priority", 0), pod.get("ours")] for pod in pods]
        lines += ["", *table(columns, rows)]
    return lines


def state_of(node: Json) -> str:
    """``Ready``, or why it takes nothing from us."""
    found = [
        word
        for word, holds in (
            ("Drained", node.get("drained")),
            ("Unschedulable", node.get("schedulable") is False and not node.get("drained")),
            ("Unowned", not node.get("agent")),
        )
        if holds
    ]
    return ",".join(found) or "Ready"


def drained_text(drained: Json | None) -> str:
    """Who drained it, when and why."""
    if not drained:
        return ""
    why = f": {printable(str(drained['reason']))}" if drained.get("reason") else ""
    return f"by {printable(str(drained.get('by', '')))} since {drained.get('since', '')}{why}"


def _part(node: Json, name: str) -> Json:
    found = node.get(name)
    return found if isinstance(found, Mapping) else {}


def _of(text: Any, part: float | None, whole: float | None) -> str:
    return f"{text(part)} of {text(whole)}"
