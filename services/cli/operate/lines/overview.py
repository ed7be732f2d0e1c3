"""The overview of the admin API as lines: shared by ``conclave status`` and ``conclave top``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from services.cli.terminal.tables import NONE, cell, number, paint, printable

Json = Mapping[str, Any]
UNTOLD = frozenset({"pods", "ephemeral-storage"})
PLACES = ("active", "backoff", "unschedulable", "in_flight")


def overview_lines(found: Json, *, colour: bool = False) -> list[str]:
    """Leader, scheduling, rates, queue, members, nodes, policy: a line each."""
    leader, queue, pods = _part(found, "leader"), _part(found, "queue"), _part(found, "pods")
    nodes, cluster = _part(found, "nodes"), _part(found, "cluster")
    whole, rounds = _part(found, "latency_ms"), _part(found, "round_ms")
    lines = [
        f"leader      {_leader(leader)}",
        f"scheduling  {_scheduling(_part(found, 'scheduling'), colour=colour)}",
        f"queue       {_counts({place: queue.get(place, 0) for place in PLACES})}",
        f"pods        {_counts(pods)}",
        f"rates       {_rates(_part(found, 'rates'))}",
        f"latency     {_ms(whole)}; a round {_ms(rounds)}",
        f"counted     conflicts {_count(found.get('conflicts'))}, refusals {_count(found.get('refusals'))}",
        f"members     {_counts(_part(found, 'members'))}",
        f"nodes       {_nodes(nodes)}",
        f"policy      {_policy(_part(found, 'policy'))}",
    ]
    if found.get("resources"):
        lines.insert(-1, f"requested   {_resources(found['resources'])}")
    if cluster.get("name"):
        lines.insert(0, f"cluster     {printable(str(cluster['name']))}")
    lines += _health(_part(found, "health"), colour=colour)
    if nodes.get("unowned"):
        lines = [paint(line, "yellow", on=colour) if line.startswith("nodes ") else line for line in lines]
    return lines


def _nodes(found: Json) -> str:
    """``drained`` and ``unowned`` always, what only newer leaders tell where there is any."""
    told = [f"{found.get('total', 0)}, drained {found.get('drained', 0)}, unowned {found.get('unowned', 0)}"]
    more = ("cordoned", "not_ready", "pressure")
    return ", ".join([*told, *(f"{name.replace('_', ' ')} {found[name]}" for name in more if found.get(name))])


def _resources(found: Sequence[Json]) -> str:
    names = {"cpu_millis": "cpu", "memory_bytes": "memory"}
    known = [one for one in found if one.get("share") is not None and one.get("name") not in UNTOLD]
    return ", ".join(f"{names.get(one['name'], printable(str(one['name'])))} {one['share']:.0%}" for one in known)


def _health(found: Json, *, colour: bool) -> list[str]:
    """The verdict, and a line per finding with what to do."""
    verdict = found.get("verdict")
    if not verdict:
        return []
    paints = {"ok": "green", "degraded": "yellow", "bad": "red"}
    lines = [f"health      {paint(printable(str(verdict)), paints.get(str(verdict), 'yellow'), on=colour)}"]
    for finding in found.get("findings") or ():
        text = f"  {finding.get('code')}: {finding.get('message')}, since {finding.get('since')}"
        lines += [printable(text), printable(f"    {finding.get('remedy')} ({finding.get('runbook')})")]
    return lines


def _leader(found: Json) -> str:
    if not found.get("id"):
        return "nobody leads"
    return printable(f"{found['id']}, term {found.get('term', NONE)}, since {found.get('since') or NONE}")


def _scheduling(found: Json, *, colour: bool) -> str:
    if not found.get("paused"):
        return paint("on", "green", on=colour)
    why = f": {printable(str(found['reason']))}" if found.get("reason") else ""
    text = f"paused by {printable(str(found.get('by', '')))} since {found.get('since', '')}{why}"
    return paint(text, "yellow", on=colour)


def _policy(found: Json) -> str:
    active = printable(str(found.get("active") or "each agent's own"))
    if not found.get("candidate"):
        return active
    share = f", {found.get('percent')} % of the pods" if found.get("percent") else ""
    return f"{active}; candidate {printable(str(found['candidate']))}, {found.get('stage')}{share}"


def _counts(found: Json) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in found.items()) or NONE


def _rates(found: Json) -> str:
    pods, decided = (found.get(f"{name}_per_s_10s") for name in ("pods", "decisions"))
    return f"{cell(pods)} pods/s, {cell(decided)} decisions/s (over 10 s)"


def _ms(found: Json) -> str:
    if found.get("p50") is None:
        return "not measured yet"
    return f"p50 {number(float(found['p50']))} ms, p99 {number(float(found.get('p99') or 0))} ms"


def _count(found: Any) -> str:
    if isinstance(found, Mapping):
        return str(sum(found.values()))
    return str(found if found is not None else 0)


def _part(found: Json, name: str) -> Json:
    part = found.get(name)
    return part if isinstance(part, Mapping) else {}
