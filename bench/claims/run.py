"""A burst, and steady states: how fast pods get their devices, and what it costs.

*burst*: all pods and their claims are there before a contestant is started. *empty, half, full*: so much of the devices
is held by standing claims; ten pods are outstanding at any time, each replaced when it is bound and deleted (as
scheduler_perf's SteadyState does; *full* leaves ten devices). Times are those of the bench's own watch. CPU is that of
the contestant's whole process tree: of a burst since its birth, of a steady state over the measured stretch.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp

from bench.claims.load import CLAIMS, TEMPLATE, controllers, free_standing, pod, pods, prepare, stand, twice
from bench.stand.cluster import BenchCluster, SeenPods
from bench.stand.contest import (
    KUBE,
    Contestant,
    ContestTurn,
    Stand,
    by_case,
    conditions,
    contestants,
    opened,
    said_of,
    turns,
)
from bench.stand.figures import spread, table

BOUND_S, CLAIMS_S, WARM_S = 900.0, 600.0, 3.0
OUTSTANDING = 10
LOOK_S = 0.5
"""Of how many claims there are: the bench's watch shows pods alone."""
BURST, SHARES = "burst", {"empty": 0.0, "half": 0.5, "full": 1.0}
CASES = (BURST, *SHARES)
Figures = dict[str, Any]


class ClaimCounts:
    """How many claims there are. ``check`` ends the bench where nobody makes any."""

    def __init__(self, cluster: BenchCluster, check: Callable[[], None]) -> None:
        self._cluster, self._check = cluster, check

    async def count(self) -> int:
        """Now."""
        return await self._cluster.count(CLAIMS)

    async def reach(self, count: int) -> None:
        """Until there are so many."""
        await self._until(lambda there: there >= count)

    async def fall_to(self, count: int) -> None:
        """Until there are no more."""
        await self._until(lambda there: there <= count)

    async def _until(self, holds: Callable[[int], bool]) -> None:
        async with asyncio.timeout(CLAIMS_S):
            while True:
                with contextlib.suppress(aiohttp.ServerDisconnectedError):  # a connection that had rested for long
                    if holds(await self.count()):
                        return
                self._check()
                await asyncio.sleep(LOOK_S)


async def run(options: argparse.Namespace) -> list[Figures]:
    """Every round of every case; who begins changes with the round."""
    found: list[Figures] = []
    everybody = contestants(options, limit=None)
    twin_flags = ("--simulate",)
    async with opened(options, twin_flags=twin_flags) as on:
        with controllers(options.kube_controller_manager, on.kubeconfig) as check:
            claims = ClaimCounts(on.cluster, check)
            for case in options.cases:
                await _begin(on, options, case, claims)
                async for contestant, turn in turns(options, on, everybody):
                    one = turn | {"case": case}
                    before = await claims.count()
                    one |= await (burst if case == BURST else steady)(on, contestant, options, claims)
                    found.append(one)
                    said = f"{said_of(one)}, {case}: {one['bound']} of {one['pods']} pods bound"
                    print(f"{said}, {one['pods_per_s']} pods/s, {one['cpu_ms_per_pod']} ms each", file=sys.stderr)
                    await on.cluster.clear_pods()
                    await claims.fall_to(before)
                await free_standing(on.cluster)
    return found


async def _begin(on: Stand, options: argparse.Namespace, case: str, claims: ClaimCounts) -> None:
    nodes = options.nodes[-1]
    await on.nodes(nodes)
    await prepare(on.cluster, nodes, options.devices)
    await claims.fall_to(0)  # what an earlier run left goes with its pods
    whole = nodes * options.devices
    held = max(0, min(round(SHARES.get(case, 0.0) * whole), whole - OUTSTANDING))
    await stand(on.cluster, nodes, options.devices, held)


async def burst(on: Stand, contestant: Contestant, options: argparse.Namespace, claims: ClaimCounts) -> Figures:
    """Everything waits when the contestant is started."""
    cluster, count = on.cluster, min(options.pods, options.nodes[-1] * options.devices)
    before = await claims.count()
    cluster.seen = seen = SeenPods()
    await cluster.add_pods(pods(on.name(), count))
    await cluster.until(lambda: len(seen.shown) >= count, BOUND_S)
    await claims.reach(before + count)
    async with ContestTurn(on, contestant) as turn:
        ready = asyncio.create_task(turn.scheduler.ready())
        try:
            await cluster.until(lambda: turn.failed or len(seen.bound) >= count, BOUND_S)
            cpu, server = turn.cpu_s(), turn.server_cpu_s()
            await ready
        finally:
            ready.cancel()  # nobody waits for it where this is ended
        started_at = turn.scheduler.started_at
    bound = len(seen.bound)
    first, last = min(seen.bound.values(), default=started_at), max(seen.bound.values(), default=started_at)
    rate = (bound - 1) / (last - first) if last > first else 0.0
    return _figures(turn, count, bound, rate, cpu, server) | {
        "pods_per_s_from_start": round(bound / (last - started_at), 1) if bound else 0.0,
        "twice": await twice(cluster),
    }


async def steady(on: Stand, contestant: Contestant, options: argparse.Namespace, _: ClaimCounts) -> Figures:
    """Ten pods wait at any time."""
    cluster, prefix = on.cluster, on.name()
    made = 0
    replacing: set[asyncio.Task[None]] = set()

    def more() -> str:
        nonlocal made
        made += 1
        return f"{prefix}-{made:06}"

    async def replace(name: str) -> None:
        await cluster.remove_pod(name)
        await cluster.add_pod(pod(more()))

    def bound(name: str) -> None:
        if going:
            task = asyncio.create_task(replace(name))
            replacing.add(task)
            task.add_done_callback(replacing.discard)

    going, cluster.on_bound = True, bound
    cluster.seen = seen = SeenPods()
    async with ContestTurn(on, contestant) as turn:
        await turn.scheduler.ready()
        for _ in range(OUTSTANDING):
            await cluster.add_pod(pod(more()))
        await cluster.until(lambda: turn.failed or len(seen.bound) >= OUTSTANDING, BOUND_S)
        await asyncio.sleep(WARM_S)
        turn.scheduler.usage.begin()
        server, began, known = turn.server_cpu_s(), time.monotonic(), len(seen.bound)
        await asyncio.sleep(options.seconds)
        took, placed = time.monotonic() - began, len(seen.bound) - known
        cpu = turn.scheduler.usage.cpu_by_name()
        used = {name: after - server[name] for name, after in turn.server_cpu_s().items()}
        going = False
        doubled = await twice(cluster)
    cluster.on_bound = None
    await asyncio.gather(*replacing)
    return _figures(turn, placed, placed, placed / took, cpu, used) | {"twice": doubled}


def _figures(
    turn: ContestTurn, count: int, bound: int, rate: float, cpu: dict[str, float], server: dict[str, float]
) -> Figures:
    return {
        "pods": count, "bound": bound, "pods_per_s": round(rate, 1),
        "cpu_s": {name: round(used, 2) for name, used in sorted(cpu.items())},
        "cpu_ms_per_pod": round(1000 * sum(cpu.values()) / max(1, bound), 3),
        "server_cpu_ms_per_pod": round(1000 * sum(server.values()) / max(1, bound), 3),
        "peak_rss_mb": round(turn.peak_rss_mb, 1), "load_before": turn.load_before,
        "calibration_ms": turn.calibration_ms,
    }  # fmt: skip


def report(found: Sequence[Figures]) -> list[str]:
    """Medians and their spread, a table per case."""
    told: list[str] = []
    for runs, of in by_case(found, "case", "nodes"):
        told += ["", f"{runs[0]['case']}: {runs[0]['nodes']:,} nodes, template {TEMPLATE}, {conditions(runs)}", ""]
        head = ("who", "pods/s", "CPU ms per pod", "server's CPU ms per pod", "peak RSS MB", "devices given twice")
        told += table(head, [_row(name, of[name]) for name in of])
        told += _against(of)
    return told


def _row(name: str, runs: Sequence[Figures]) -> list[str]:
    unbound = sum(one["pods"] - one["bound"] for one in runs)
    columns = (("pods_per_s", 1), ("cpu_ms_per_pod", 2), ("server_cpu_ms_per_pod", 2), ("peak_rss_mb", 0))
    shown = f"{name} ({unbound} NOT BOUND)" if unbound else name
    doubled = str(sum(one["twice"] for one in runs))
    return [shown, *(spread([one[column] for one in runs], digits) for column, digits in columns), doubled]


def _against(of: dict[str, list[Figures]]) -> list[str]:
    """Everybody's rate and CPU against kube-scheduler's."""
    if KUBE not in of:
        return []
    rate, cpu = (statistics.median(one[key] for one in of[KUBE]) for key in ("pods_per_s", "cpu_ms_per_pod"))
    return [
        f"{name}: {statistics.median(one['pods_per_s'] for one in runs) / max(rate, 1e-9):.2f} x its pods/s at "
        f"{statistics.median(one['cpu_ms_per_pod'] for one in runs) / max(cpu, 1e-9):.2f} x its CPU per pod"
        for name, runs in of.items()
        if name != KUBE
    ]
