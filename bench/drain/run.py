"""One drain after the other: pods are created while nobody schedules, then a contestant is started on them.

Times are those of the bench's own watch. ``pods_per_s`` is from the first Binding seen to the last. CPU is that of the
contestant's whole process tree since its birth; what a further pod costs is that of the drain less that of a start with
one pod, over the pods between them.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bench.drain.scenes import JOIN, DrainScene, node, standing
from bench.stand.cluster import SeenPods
from bench.stand.contest import (
    KUBE,
    LIMIT,
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
from bench.stand.writes import of_pods, per_pod, write_column

BOUND_S = 900.0
"""Longest wait until all is bound."""
GONE_S = 120.0
Figures = dict[str, Any]


async def run(options: argparse.Namespace) -> list[Figures]:
    """Every round of every case: of a scene, so many nodes, so many pods. Who begins changes with the round."""
    found: list[Figures] = []
    everybody = contestants(options, limit=Poster)
    async with opened(options, node=node) as stand:
        running = 0
        scenes = [
            DrainScene(name, stand.cluster, shapes=options.shapes, joining=options.joining) for name in options.scene
        ]  # fmt: skip
        async for contestant, turn in turns(options, stand, everybody):
            if running < options.running:
                await stand.cluster.add_pods(standing(options.running, stand.count))
                running = options.running
            start: Figures = {}
            for scene in scenes:
                if scene.name == JOIN and contestant.name == LIMIT:
                    continue  # it waits for no node
                await scene.prepare(stand.count)
                start = start or await drain(stand, contestant, scene, 1)  # with one pod no scene differs by much
                for count in options.pods:
                    one = turn | {"scene": scene.name, "running": running}
                    one |= await drain(stand, contestant, scene, count)
                    one |= {"start_cpu_s": total(start["cpu_s"]), "cpu_ms_per_further_pod": further(one, start)}
                    found.append(one)
                    said = f"{said_of(one)}, {scene.name}: {one['bound']} of {count} pods bound"
                    print(f"{said}, {one['pods_per_s']} pods/s, load {one['load_before']}", file=sys.stderr)
    return found


async def drain(stand: Stand, contestant: Contestant, scene: DrainScene, count: int) -> Figures:
    """One; the pods are gone afterwards, those that run already stay. Where nodes join, they come once each pod has
    been told that it fits nowhere, and times are from then on."""
    cluster = stand.cluster
    cluster.seen = seen = SeenPods()
    made = await scene.pods(stand.name(), count)
    await cluster.add_pods(made)
    await cluster.until(lambda: len(seen.shown) >= count, BOUND_S)
    before = await stand.writes.so_far()
    async with ContestTurn(stand, contestant) as turn:
        ready = asyncio.create_task(turn.scheduler.ready())
        began = turn.scheduler.started_at
        try:
            if scene.name == JOIN:
                await cluster.until(lambda: turn.failed or len(seen.told) >= count, BOUND_S)
                began = time.monotonic()
                await scene.join()
            await cluster.until(lambda: turn.failed or seen.bound, BOUND_S)
            cpu_to_first = turn.cpu_s()
            await cluster.until(lambda: turn.failed or len(seen.bound) >= count, BOUND_S)
            cpu, server = turn.cpu_s(), turn.server_cpu_s()
            await ready
        finally:
            ready.cancel()  # nobody waits for it where this is ended
        stats = (await turn.scheduler.stats()).get("coordinator") or {}
        rss = turn.scheduler.usage.rss()
    bound, on = len(seen.bound), Counter(seen.node.values())
    first, last = min(seen.bound.values(), default=began), max(seen.bound.values(), default=began)
    writes = per_pod(before, await stand.writes.so_far(), bound)
    cluster.seen = seen = SeenPods()
    await cluster.remove_pods(body["metadata"]["name"] for body in made)
    await cluster.until(lambda: len(seen.gone) >= count, GONE_S)
    await scene.clear(made)
    return {
        "pods": count, "bound": bound,
        "pods_per_s": round((bound - 1) / (last - first), 1) if last > first else 0.0,
        "pods_per_s_from_start": round(bound / (last - began), 1) if bound else 0.0,
        "ready_s": round(turn.scheduler.ready_at - turn.scheduler.started_at, 2),
        "first_bind_s": round(first - began, 2), "last_bind_s": round(last - began, 2),
        "fullest_node": max(on.values(), default=0),
        "cpu_to_first_s": {name: round(used, 2) for name, used in sorted(cpu_to_first.items())},
        "cpu_s": {name: round(used, 2) for name, used in sorted(cpu.items())},
        "cpu_ms_per_pod": round(1000 * total(cpu) / max(1, bound), 3),
        "server_cpu_ms_per_pod": round(1000 * total(server) / max(1, bound), 3),
        "rss_mb": round(sum(rss.values()), 1), "peak_rss_mb": round(turn.peak_rss_mb, 1), "rss_mb_of": rss,
        "writes_per_pod": writes, "writes_of_pods_per_pod": of_pods(writes),
        "bytes_per_pod": {
            name: round(value / max(1, bound), 1) for name, value in sorted(stats.items()) if name.endswith("_bytes")
        },
        "conflicts": stats.get("conflicts", 0), "placements": stats.get("placements", 0),
        "load_before": turn.load_before, "calibration_ms": turn.calibration_ms,
    }  # fmt: skip


def total(cpu_s: dict[str, float]) -> float:
    """Of all processes."""
    return round(sum(cpu_s.values()), 3)


def further(drained: Figures, start: Figures) -> float:
    """CPU ms of one more pod."""
    more = drained["bound"] - start["bound"]
    return round(1000 * (total(drained["cpu_s"]) - total(start["cpu_s"])) / more, 3) if more > 0 else 0.0


def report(found: Sequence[Figures]) -> list[str]:
    """Medians and their spread: one table per scene and number of nodes and pods, and what stands behind it."""
    told: list[str] = []
    for runs, of in by_case(found, "scene", "nodes", "pods"):
        who = list(of)
        size = f"{runs[0]['scene']}: {runs[0]['nodes']:,} nodes, {runs[0]['pods']:,} pods"
        size += f" beside {runs[0]['running']:,} that run" if runs[0]["running"] else ""
        told += ["", f"{size}, {len(of[who[0]])} rounds, {conditions(runs)}", ""]
        head = ("who", "pods/s", "CPU ms per pod, start included", "per further pod", "server's CPU ms per pod",
                "RSS MB", "start to first bind, s", "to the last", "on the fullest node",
                "pod writes per pod")  # fmt: skip
        told += table(head, [row(name, of[name]) for name in who])
        told += [line for name in who for line in details(name, of[name])]
        told += ratios({name: statistics.median(one["pods_per_s"] for one in of[name]) for name in who})
    return told


def row(name: str, runs: Sequence[Figures]) -> list[str]:
    """One contestant."""
    columns = (
        ("pods_per_s", 0), ("cpu_ms_per_pod", 2), ("cpu_ms_per_further_pod", 2), ("server_cpu_ms_per_pod", 2),
        ("rss_mb", 0), ("first_bind_s", 2), ("last_bind_s", 1), ("fullest_node", 0),
    )  # fmt: skip
    unbound = sum(one["pods"] - one["bound"] for one in runs)
    shown = f"{name} ({unbound} NOT BOUND)" if unbound else name
    return [shown, *(spread([one[column] for one in runs], digits) for column, digits in columns), write_column(runs)]


def details(name: str, runs: Sequence[Figures]) -> list[str]:
    """What is only said of a mesh, or only by service: medians."""

    def median_of(group: str, scale: float = 1.0) -> str:
        names = dict.fromkeys(key for one in runs for key in one[group])
        middle = {key: statistics.median(one[group].get(key, 0.0) for one in runs) * scale for key in names}
        return ", ".join(f"{key} {value:.2f}" for key, value in middle.items() if value >= 0.005)

    told = []
    if len(runs[0]["cpu_s"]) > 1:
        told.append(f"{name}: CPU ms per pod by process: {median_of('cpu_s', 1000 / max(1, runs[0]['pods']))}")
        told.append(f"{name}: CPU s by process until the first bind: {median_of('cpu_to_first_s')}")
        told.append(f"{name}: MB by process: {median_of('rss_mb_of')}")
    if runs[0]["bytes_per_pod"]:
        told.append(f"{name}: bytes per pod: {median_of('bytes_per_pod')}")
        refused, placed = (sum(one[key] for one in runs) for key in ("conflicts", "placements"))
        told.append(f"{name}: conflicts: {refused} of {placed} placements")
    told.append(f"{name}: writes per pod: {median_of('writes_per_pod')}")
    return told


def ratios(pods_per_s: dict[str, float]) -> list[str]:
    """Everybody's rate against the limit's and kube-scheduler's."""
    told = []
    for name, rate in pods_per_s.items():
        against = [other for other in (LIMIT, KUBE) if pods_per_s.get(other) and name not in (LIMIT, KUBE)]
        told += [f"{name}: {rate / pods_per_s[other]:.2f} x {other}" for other in against]
    return told
