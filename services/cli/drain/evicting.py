"""``conclave drain NODE --evict``: cordon, find room, reserve it, evict within budgets, see the replacements come."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from services.cli.drain.carry import LEAVER_LABEL, DrainOut
from services.cli.drain.rooms import RoomJudge
from services.cli.explain.offline import opened_cluster
from services.cli.listing.wanted import DOCUMENTS, document_text
from services.cli.terminal.tables import count, printable
from services.cli.terminal.until_signal import until_signal
from shared.errors import ConfigError, KubeError, KubeRejected
from shared.kube.objects import KubeNode
from shared.kube.reservations import RESERVATIONS
from shared.kube.resources import NODES
from shared.rebalance.draining.draining import Departure, Draining, LeaverState
from shared.rebalance.draining.leavers import DrainFlags, NodeDepartures, departures
from shared.runtime.kube.moves.reading import read_live
from shared.runtime.kube.reservations import ReservationName, give_back

if TYPE_CHECKING:
    from shared.adapters.kube.api import KubeClient
    from shared.kube.pods.standing_pods import SourcedPod

Json = dict[str, Any]
MOST_ROUNDS = 3
"""Pods may come between the look and the cordon: then it is looked again."""


class EvictionWish(NamedTuple):
    """What the command line asks."""

    flags: DrainFlags
    timeout_s: float
    partial: bool
    schedulers: tuple[str, ...]
    dry_run: bool


async def evict_all(
    kubeconfig: Path | None, context: str, nodes: Sequence[str], wish: EvictionWish, output: str
) -> int:
    """Every node in turn, all of them cordoned before. 0: they are empty; 1: some pods stay, or were not replaced."""
    async with opened_cluster(kubeconfig, context) as api:
        for node in nodes:  # all are looked at before anything is changed
            await _node(api, node)
        there, raws = await read_live(api)
        for node in nodes:
            if told := _forbidden(departures(raws, node, wish.flags, there.state.budgets)):
                raise ConfigError(f"drain: {node}: nobody is evicted: {told}")
        for node in nodes:
            await _cordon(api, node, wish.dry_run)
        reports, code = list[Json](), 0
        for node in nodes:
            report = await _dry_run(api, node, wish) if wish.dry_run else await _drained(api, node, wish)
            reports.append(report)
            code = max(code, 0 if report["empty"] and not report.get("stopped") else 1)
            if output not in DOCUMENTS:
                click.echo("\n".join(report_lines(report, dry_run=wish.dry_run)))
    if output in DOCUMENTS:
        click.echo(document_text(reports, output))
    return code


def _say(line: str) -> None:
    click.echo(printable(line), err=True)


async def _node(api: KubeClient, name: str) -> KubeNode:
    node = await api.get(NODES, namespace="", name=name)
    if node is None:
        raise ConfigError(f"drain: there is no node {name}; give names as 'kubectl get nodes' shows them")
    return node


async def _cordon(api: KubeClient, name: str, dry_run: bool) -> None:
    node = await _node(api, name)
    if node.spec.unschedulable:
        _say(f"cordon   {name} is cordoned already")
        return
    if not dry_run:
        patch = {"metadata": {"uid": node.metadata.uid}, "spec": {"unschedulable": True}}
        await api.patch(NODES, namespace="", name=name, patch=patch, strategy="merge")
    _say(f"cordon   {name}{' (not made: --dry-run)' if dry_run else ''}")


async def _looked(
    api: KubeClient, node: str, wish: EvictionWish
) -> tuple[NodeDepartures, RoomJudge, dict[str, SourcedPod]]:
    there, raws = await read_live(api)
    found = departures(raws, node, wish.flags, there.state.budgets)
    return found, RoomJudge(there, node), {raw.metadata.uid: raw for raw in raws}


def _forbidden(found: NodeDepartures) -> str:
    """Who may not be evicted, each with its reason."""
    return "; ".join(f"{key}: {why}" for key, why in found.forbidden.items())


async def _empty(api: KubeClient, node: str, wish: EvictionWish) -> bool:
    """Whether nobody is there by now but who stays by rule."""
    try:
        found, _, _ = await _looked(api, node, wish)
    except KubeError:
        return False  # not known: what was done is told all the same
    return not found.leavers and not found.forbidden


async def _dry_run(api: KubeClient, node: str, wish: EvictionWish) -> Json:
    found, judge, _ = await _looked(api, node, wish)
    rooms = judge.in_turn(found.leavers)
    pods = [
        {
            "pod": one.key, "state": "would leave" if rooms.get(one.uid, "-") else "stays", "budgets": one.budgets,
            "why": "" if rooms.get(one.uid, "-") else "no node has room for it",
            "to": rooms.get(one.uid, "") if one.replaced else "",
        }
        for one in found.leavers
    ]  # fmt: skip
    told = _forbidden(found)
    empty = not told and all(one["state"] != "stays" for one in pods)
    return {"node": node, "empty": empty, "pods": pods, "stay": found.stay, "stopped": told}


async def _drained(api: KubeClient, node: str, wish: EvictionWish) -> Json:
    until = time.monotonic() + wish.timeout_s
    done: list[Departure] = []
    stopped = ""
    for _ in range(MOST_ROUNDS):
        found, judge, raws = await _looked(api, node, wish)
        if told := _forbidden(found):
            return _report(node, done, found.stay, f"nobody more is evicted: {told}", empty=False)
        if not found.leavers:
            return _report(node, done, found.stay, stopped, empty=not stopped)
        await give_back_old(api, {one.uid for one in found.leavers})
        draining = Draining(node, found.leavers, set(raws), partial=wish.partial)
        left_s = max(1.0, until - time.monotonic()) if wish.timeout_s else 0.0
        out = DrainOut(api, draining, raws, judge, wish.schedulers, time.monotonic, _say, left_s)
        try:
            await until_signal(out.run())
        except click.Abort:
            for line in report_lines(_report(node, [*done, *draining.departures], {}, "interrupted", empty=False)):
                _say(line)
            raise
        done, stopped = [*done, *draining.departures], draining.stopped
        if stopped or any(one.state is not LeaverState.DONE for one in draining.departures):
            return _report(node, done, found.stay, stopped, empty=await _empty(api, node, wish))
    return _report(node, done, found.stay, "pods come to it again and again: who binds them?", empty=False)


async def give_back_old(api: KubeClient, uids: set[str]) -> None:
    """What an earlier run that was killed has reserved for pods that still stand."""
    try:
        listed = (await api.list(RESERVATIONS)).items
    except KubeRejected:
        return  # asking for room tells why
    for item in listed:
        meta = item.metadata
        if (meta.labels or {}).get(LEAVER_LABEL) in uids:
            await give_back(api, ReservationName(meta.namespace or "", meta.name, meta.uid))


def _report(node: str, of: Sequence[Departure], stay: dict[str, str], stopped: str, *, empty: bool) -> Json:
    pods = [
        {
            "pod": one.leaver.key, "state": "left" if one.state is LeaverState.DONE else one.state.value,
            "to": one.target, "replacement": one.replacement[1], "why": one.why,
        }
        for one in of
    ]  # fmt: skip
    return {"node": node, "empty": empty, "pods": pods, "stay": stay, "stopped": stopped}


def report_lines(report: Json, *, dry_run: bool = False) -> Iterator[str]:
    """What became of each pod, and of the node."""
    for one in report["pods"]:
        to = f" to {one['to']}" if one["to"] else ""
        new = f" as {one['replacement']}" if one.get("replacement") else ""
        why = f": {one['why']}" if one["why"] else ""
        budgets = f" (budget {', '.join(one['budgets'])})" if one.get("budgets") else ""
        yield printable(f"{one['pod']}: {one['state']}{to}{new}{budgets}{why}")
    for key, why in report["stay"].items():
        yield printable(f"{key}: stays: {why}")
    if report.get("stopped"):
        yield printable(f"stopped: {report['stopped']}")
    node = printable(str(report["node"]))
    if dry_run:
        yield f"{node}: nothing was done: leave --dry-run out to carry it out"
    elif report["empty"] and (lost := [one for one in report["pods"] if one["state"] != "left"]):
        yield f"{node}: empty, and cordoned, but of {count(len(lost), 'pod')} no replacement was seen to serve"
    elif report["empty"]:
        yield f"{node}: drained, {count(len(report['pods']), 'pod')} left it"
    else:
        yield f"{node}: not empty, and cordoned: run it again to go on, or 'kubectl uncordon {node}'"
