"""One burst after the other: every node is full, who wants room is pending, then a contestant is started on them.

Times are those of the bench's own watch, of which a victim that leaves is one that was asked. ``victims_per_s`` is from
the first that was asked to the last Binding. CPU is that of the contestant's whole process tree since its birth; what a
further preemptor costs is that of the burst less that of a start with one, over the preemptors between them. With a
grace the bench is the kubelet: what was asked is gone after it.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from bench.drain.run import ratios
from bench.preemption import load
from bench.preemption.load import GANGS, MEMBERS, RECLAIM
from bench.stand.cluster import NAMESPACE, SeenPods
from bench.stand.contest import (
    KUBE,
    Contestant,
    ContestTurn,
    Poster,
    Stand,
    by_case,
    conditions,
    contestants,
    opened,
    said_of,
    turns,
)
from bench.stand.figures import spread, table

SHOWN_S, GONE_S = 300.0, 300.0
CRD = Path(__file__).parents[2] / "k8s/base/queues-crd.yaml"
QUEUES = "/apis/conclave.io/v1alpha1/queues"
LOOKS, LOOK_AGAIN_S = 100, 0.2
Figures = dict[str, Any]


async def run(options: argparse.Namespace) -> list[Figures]:
    """Every round of every scene and size."""
    found: list[Figures] = []
    everybody = contestants(options, limit=lambda kubeconfig, folder: Poster(kubeconfig, folder, "--victims"))
    async with opened(options, node=load.node, grace_s=options.grace_s) as stand:
        full = Full(stand, options.longest_s)
        await full.prepare(options.scenes)
        async for contestant, turn in turns(options, stand, everybody):
            for scene in options.scenes:
                if scene == RECLAIM and contestant.name == KUBE:
                    continue  # it knows no Queue
                start = await full.burst(contestant, scene, MEMBERS if scene == GANGS else 1)
                for count in options.preemptors:
                    one = turn | {"scene": scene} | await full.burst(contestant, scene, count)
                    one |= {"start_cpu_s": start["cpu_s"], "cpu_ms_per_further": further(one, start, "cpu_s")}
                    one["server_cpu_ms_per_further"] = further(one, start, "server_cpu_s")
                    found.append(one)
                    said = f"{said_of(one)}, {scene}: {one['bound']} of {count} bound, {one['victims']} victims"
                    print(f"{said}, {one['victims_per_s']}/s, load {one['load_before']}", file=sys.stderr)
    return found


class Full:
    """Nodes that are full of pods of low priority, also after each burst."""

    def __init__(self, stand: Stand, longest_s: float) -> None:
        self._stand = stand
        self._longest_s = longest_s
        self._there: set[str] = set()
        self._podgroups = ""

    async def prepare(self, scenes: Sequence[str]) -> None:
        """The kinds that scenes need are served. ``SystemExit``: they are not."""
        cluster = self._stand.cluster
        if GANGS in scenes:
            api = await cluster.serving("scheduling.k8s.io", ("v1beta1", "v1alpha2"), "podgroups")
            if not api:
                sys.exit("bench: the server has no PodGroup in scheduling.k8s.io; switch on the gate GenericWorkload")
            self._podgroups = f"/apis/{api}/namespaces/{NAMESPACE}/podgroups"
        if RECLAIM in scenes and not await self._queues():
            await cluster.add(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", [yaml.safe_load(CRD.read_text())]
            )
            for _ in range(LOOKS):
                if await self._queues():
                    return
                await asyncio.sleep(LOOK_AGAIN_S)
            sys.exit(f"bench: the server does not serve Queues, though it has {CRD.name}")

    async def _queues(self) -> str:
        return await self._stand.cluster.serving("conclave.io", ("v1alpha1",), "queues")

    async def _fill(self) -> None:
        cluster = self._stand.cluster
        missing = [one for one in load.standing(self._stand.count) if one["metadata"]["name"] not in self._there]
        cluster.seen = seen = SeenPods()
        await cluster.add_pods(missing)
        await cluster.until(lambda: len(seen.shown) >= len(missing), SHOWN_S)
        self._there |= {one["metadata"]["name"] for one in missing}

    async def burst(self, contestant: Contestant, scene: str, count: int) -> Figures:
        """One; who wanted room is gone afterwards."""
        stand, cluster = self._stand, self._stand.cluster
        await self._fill()
        cluster.seen = seen = SeenPods()
        prefix = f"{stand.name()}-{time.time_ns():x}"  # a server without controllers may keep PodGroups of earlier runs
        made = list(load.wanting(scene, prefix, count))
        wanted, gangs = {body["metadata"]["name"] for _, body in made}, list(dict.fromkeys(gang for gang, _ in made))
        bound: dict[str, float] = {}

        def note(name: str) -> None:
            if name in wanted:  # victims that are marked are seen on their nodes too
                bound[name] = time.monotonic()

        await self._begin(scene, gangs)
        await cluster.add_pods(body for _, body in made)
        await cluster.until(lambda: len(seen.shown) >= count, SHOWN_S)
        cluster.on_bound = note
        before = await stand.writes.so_far()
        async with ContestTurn(stand, contestant) as turn:
            ready = asyncio.create_task(turn.scheduler.ready())
            try:
                await cluster.until(lambda: turn.failed or len(bound) >= count, self._longest_s)
                cpu, server = turn.cpu_s(), turn.server_cpu_s()
                if not turn.failed:
                    await ready
            finally:
                ready.cancel()  # nobody waits for it where this is ended
            rss = sum(turn.scheduler.usage.rss().values())
        written = await stand.writes.so_far() - before
        cluster.on_bound = None
        asked = {name: min(seen.leaving.get(name, at), at) for name, at in (seen.gone | seen.leaving).items()}
        victims = {name: at for name, at in asked.items() if name in self._there}
        await self._end(scene, gangs, wanted, set(victims))
        started_at = turn.scheduler.started_at
        first, last = min(victims.values(), default=started_at), max(bound.values(), default=started_at)
        return {
            "preemptors": count, "bound": len(bound), "victims": len(victims),
            "victims_per_s": round(len(bound) / (last - first), 1) if last > first else 0.0,
            "victims_per_needed": round(len(victims) / count, 4),
            "first_asked_s": round(first - started_at, 2),
            "asked_within_s": round(max(victims.values(), default=first) - first, 2),
            "took_s": round(last - first, 2),
            "cpu_s": {name: round(used, 2) for name, used in sorted(cpu.items())},
            "server_cpu_s": {name: round(used, 2) for name, used in server.items()},
            "rss_mb": round(rss, 1), "writes_each": each(written, len(bound)),
            "load_before": turn.load_before, "calibration_ms": turn.calibration_ms,
        }  # fmt: skip

    async def _begin(self, scene: str, gangs: Sequence[str]) -> None:
        cluster = self._stand.cluster
        if scene == GANGS:
            api = self._podgroups.removeprefix("/apis/").partition("/namespaces")[0]
            groups = [
                load.group(gang, MEMBERS, racks=False, api_version=api, namespace=NAMESPACE) for gang in gangs
            ]  # fmt: skip
            await cluster.add(self._podgroups, groups)
        elif scene == RECLAIM:
            await cluster.add(QUEUES, load.queues(self._stand.count))

    async def _end(self, scene: str, gangs: Sequence[str], wanted: set[str], victims: set[str]) -> None:
        cluster, seen = self._stand.cluster, self._stand.cluster.seen
        await cluster.remove_pods([*wanted, *(victims - seen.gone.keys())])
        await cluster.until(lambda: len(seen.gone) >= len(wanted) + len(victims), GONE_S)
        self._there -= victims
        if scene == GANGS:
            await cluster.remove(self._podgroups, gangs)
        elif scene == RECLAIM:
            await cluster.remove(QUEUES, (load.LENDER, load.BORROWER))


def each(written: Counter[str], count: int) -> dict[str, float]:
    """Writes over so many."""
    return {name: round(many / max(1, count), 3) for name, many in sorted(written.items())}


def further(one: Figures, start: Figures, group: str) -> dict[str, float]:
    """CPU ms of one more, by process, and of all."""
    more, before = one["bound"] - start["bound"], start[group]
    if more <= 0:
        return {"all": 0.0}
    grown = {name: 1000 * (used - before.get(name, 0.0)) / more for name, used in one[group].items()}
    return {name: round(used, 3) for name, used in grown.items()} | {"all": round(sum(grown.values()), 3)}


def report(found: Sequence[Figures]) -> list[str]:
    """Medians and their spread: one table per scene and number of preemptors, and what stands behind it."""
    told: list[str] = []
    for runs, of in by_case(found, "nodes", "scene", "preemptors"):
        size = f"{runs[0]['scene']}: {runs[0]['preemptors']:,} onto {runs[0]['nodes']:,} nodes of {load.GPUS} GPUs"
        told += ["", f"{size}, {len(next(iter(of.values())))} rounds, {conditions(runs)}", ""]
        head = ("who", "victims/s", "victims per needed", "start to the first asked, s", "all asked within, s",
                "CPU ms per further one", "server's")  # fmt: skip
        told += table(head, [row(name, runs_of) for name, runs_of in of.items()])
        told += [line for name, runs_of in of.items() for line in details(name, runs_of)]
        rates = {name: statistics.median(one["victims_per_s"] for one in runs_of) for name, runs_of in of.items()}
        told += ratios(rates)
    return told


def row(name: str, runs: Sequence[Figures]) -> list[str]:
    """One contestant."""
    columns = (("victims_per_s", 0), ("victims_per_needed", 3), ("first_asked_s", 2), ("asked_within_s", 2))
    unbound = sum(one["preemptors"] - one["bound"] for one in runs)
    shown = f"{name} ({unbound} NOT BOUND)" if unbound else name
    cells = [spread([one[column] for one in runs], digits) for column, digits in columns]
    groups = "cpu_ms_per_further", "server_cpu_ms_per_further"
    return [shown, *cells, *(spread([one[group]["all"] for one in runs], 2) for group in groups)]


def details(name: str, runs: Sequence[Figures]) -> list[str]:
    """By process, and what was written: medians."""

    def middle(group: str) -> str:
        names = dict.fromkeys(key for one in runs for key in one[group] if key != "all")
        found = {key: statistics.median(one[group].get(key, 0.0) for one in runs) for key in names}
        return ", ".join(f"{key} {value:.2f}" for key, value in found.items() if value >= 0.005)

    told = [f"{name}: writes for each: {middle('writes_each')}"]
    if len(runs[0]["cpu_s"]) > 1:
        told.append(f"{name}: CPU ms per further one by process: {middle('cpu_ms_per_further')}")
    return told
