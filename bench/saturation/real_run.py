"""``full``, ``churn`` and ``soak`` with real processes, on the twin or on the cluster of a kubeconfig."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Any

from bench.gangs.load import group
from bench.saturation import load
from bench.stand.cluster import NAMESPACE, BenchCluster
from bench.stand.contest import whole_number
from bench.stand.ending import run_to_its_end
from bench.stand.figures import quantile
from bench.stand.processes import BenchMesh, KubeScheduler, Scheduler, WatchedProcesses, start_twin, stop

LET_IN_S = 120.0
TOLD_S = 300.0
WARM_S = 10.0
MEMORY_FROM_S = 600.0


def add_arguments(parser: argparse.ArgumentParser, experiment: str) -> None:
    parser.add_argument("--kubeconfig", type=Path, help="an API server to use; default: the twin's, started here")
    parser.add_argument("--kube-scheduler", metavar="BINARY", help="measure this one after the mesh, the same load")
    parser.add_argument("--only-kube-scheduler", action="store_true", help="leave out the mesh")
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--grace-s", type=int, default=0, help="seconds that victims take to leave")
    parser.add_argument("--nodes", type=int, default=300 if experiment == "full" else 5000)
    parser.add_argument("--waiting", type=int, default=2000 if experiment == "full" else 10_000)
    parser.add_argument("--classes", type=int, default=150 if experiment == "full" else 500)
    if experiment == "full":
        parser.add_argument("--others", type=int, default=0, help="more nodes that the pods may not use")
        parser.add_argument(
            "--members", type=whole_number, default=1, help="those that wait are in gangs of so many (1)"
        )
        parser.add_argument("--seconds", type=float, default=60.0, help="one urgent pod each second for so long")
        return
    parser.add_argument("--guided", type=float, default=0.2, help="share of the classes with spread or affinity")
    parser.add_argument("--preempting", type=float, default=0.1, help="share of the classes that would preempt")
    parser.add_argument(
        "--rate", type=float, default=50.0 if experiment == "churn" else 250.0, help="each way, a second"
    )
    if experiment == "churn":
        parser.add_argument("--seconds", type=float, default=60.0, help="length of each of the three phases")
    else:
        parser.add_argument("--minutes", type=float, default=60.0)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The experiment with each scheduler, one after the other."""
    return run_to_its_end(_run(options))


async def _run(options: argparse.Namespace) -> dict[str, Any]:
    experiment = {"full": full, "churn": churn, "soak": soak}[options.command]
    found: dict[str, Any] = {"machine_load": round(os.getloadavg()[0], 2), "cpus": os.cpu_count(), "seed": options.seed}
    makers: dict[str, Callable[[Path, Path], Scheduler]] = {}
    if not options.only_kube_scheduler:
        makers["conclave"] = lambda kubeconfig, folder: BenchMesh(kubeconfig, folder, options.agents)
    if options.kube_scheduler:
        makers["kube_scheduler"] = lambda kubeconfig, folder: KubeScheduler(options.kube_scheduler, kubeconfig, folder)
    for name, maker in makers.items():
        with tempfile.TemporaryDirectory() as folder:
            twin = None
            kubeconfig = options.kubeconfig
            if kubeconfig is None:
                twin, kubeconfig = start_twin(Path(folder))
            try:
                async with BenchCluster.open(kubeconfig.absolute(), grace_s=options.grace_s) as cluster:
                    others = {"bench": os.getpid()} | ({"twin": twin.pid} if twin is not None else {})
                    place = ExperimentPlace(
                        options, cluster, partial(maker, kubeconfig.absolute(), Path(folder)), others
                    )
                    try:
                        found[name] = await experiment(place)
                    finally:
                        await place.close()
                    await cluster.clear()
            finally:
                if twin is not None:
                    stop(twin)
    return found


class ExperimentPlace:
    """One experiment's surroundings: the cluster, and the scheduler once it is started."""

    def __init__(
        self, options: argparse.Namespace, cluster: BenchCluster, make: Callable[[], Scheduler], others: dict[str, int]
    ) -> None:
        self.options = options
        self.cluster = cluster
        self.others = others
        self._make = make
        self._scheduler: Scheduler | None = None

    async def start(self) -> Scheduler:
        """Start it; back once it is ready."""
        self._scheduler = self._make()
        await self._scheduler.ready()
        return self._scheduler

    async def close(self) -> None:
        if self._scheduler is not None:
            await self._scheduler.close()


async def steadily(rate: float, seconds: float, one: Callable[[int], Awaitable[None]]) -> None:
    """``one(n)`` so often a second; a late one is not skipped, a slow one holds nobody up."""
    async with asyncio.TaskGroup() as group:
        began = time.monotonic()
        for number in range(round(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            group.create_task(_awaited(one(number)))
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def _waiting(options: argparse.Namespace, cluster: BenchCluster) -> list[dict[str, Any]]:
    """The pods that wait; in gangs of ``--members``, whose groups are there then. ``SystemExit``: none are served."""
    lows = [load.low(number, options.classes) for number in range(options.waiting)]
    if options.members == 1:
        return lows
    api = await cluster.serving("scheduling.k8s.io", ("v1beta1", "v1alpha2"), "podgroups")
    if not api:
        sys.exit("bench: the server has no PodGroup in scheduling.k8s.io; switch on the gate GenericWorkload")
    path, groups = f"/apis/{api}/namespaces/{NAMESPACE}/podgroups", dict[str, dict[str, Any]]()
    for number in range(len(lows) // options.members * options.members):
        name = f"low-{number // options.members:05}"
        groups[name] = group(name, options.members, racks=False, api_version=api, namespace=NAMESPACE)
        lows[number] = load.low(number // options.members, options.classes)  # members of a gang are alike
        lows[number]["metadata"]["name"] = f"{name}-{number % options.members:03}"
        lows[number]["spec"]["schedulingGroup"] = {"podGroupName": name}
    await cluster.remove(path, groups)
    await cluster.add(path, groups.values())
    return lows


async def full(place: ExperimentPlace) -> dict[str, Any]:
    """The waiting pods are there before the scheduler; then each second a filler leaves and an urgent pod comes."""
    options, cluster, rng = place.options, place.cluster, Random(place.options.seed)
    names = [f"node-{number:05}" for number in range(options.nodes)]
    await cluster.add_nodes(load.node(name, number) for number, name in enumerate(names))
    await cluster.add_nodes(load.node(f"other-{n:05}", n, other=True) for n in range(options.others))
    fillers = [load.filler(n, names[n % len(names)]) for n in range(options.nodes * load.FILLERS_PER_NODE)]
    await cluster.add_pods(fillers)
    lows = await _waiting(options, cluster)
    await cluster.add_pods(lows)
    low_names = [body["metadata"]["name"] for body in lows]
    scheduler, seen = await place.start(), cluster.seen
    async with WatchedProcesses(scheduler, place.others) as telling:
        all_told = await cluster.until(lambda: all(name in seen.told for name in low_names), TOLD_S)
    told = [seen.told[name] - scheduler.ready_at for name in low_names if name in seen.told]
    await asyncio.sleep(WARM_S)
    leave = [body["metadata"]["name"] for body in fillers]
    rng.shuffle(leave)
    urgent = []

    async def second(number: int) -> None:
        while leave and (leave[-1] in seen.gone or leave[-1] in seen.leaving):
            leave.pop()
        body = load.urgent(number)
        urgent.append(body["metadata"]["name"])
        await asyncio.gather(*([cluster.remove_pod(leave.pop())] if leave else []), cluster.add_pod(body))

    async with WatchedProcesses(scheduler, place.others) as loading:
        await steadily(1.0, options.seconds, second)
    within = sum(name in seen.bound for name in urgent)
    await cluster.until(lambda: all(name in seen.bound for name in urgent), LET_IN_S)
    waited = [seen.bound[name] - seen.created[name] for name in urgent if name in seen.bound]
    evicted = seen.evicted()
    return {
        "what": f"{options.nodes} full nodes, {options.others} others, {options.waiting} waiting of {options.classes} "
        f"shapes, in gangs of {options.members}; {len(urgent)} urgent pods, one a second",
        "ready_s": round(scheduler.ready_at - scheduler.started_at, 2),
        "told": len(told), "all_told": all_told,
        "told_after_ready_s": {"p50": quantile(told, 50), "p99": quantile(told, 99), "max": quantile(told, 100)},
        "urgent": len(urgent), "urgent_bound": len(waited), "urgent_bound_within_load": within,
        "urgent_s": {"p50": quantile(waited, 50), "p99": quantile(waited, 99), "max": quantile(waited, 100)},
        "evicted": len(evicted), "victims_per_urgent_pod": round(len(evicted) / max(1, len(urgent)), 2),
        "let_in": sum(name in seen.bound for name in low_names),
        "telling": telling.figures, "load": loading.figures,
    }  # fmt: skip


class Churn:
    """Small pods that come and go, on nodes with a quarter free."""

    def __init__(self, place: ExperimentPlace) -> None:
        self.place = place
        self.options = place.options
        self.cluster = place.cluster
        self.rng = Random(place.options.seed)
        self.standing: list[str] = []
        self.count = 0
        self.hopeless: list[str] = []

    async def prepare(self) -> Scheduler:
        """Nodes, fillers, the scheduler, and small pods at rest."""
        nodes = self.options.nodes
        await self.cluster.add_nodes(load.node(f"node-{n:05}", n) for n in range(nodes))
        fillers = range(nodes * (load.FILLERS_PER_NODE - 1))
        await self.cluster.add_pods(load.filler(n, f"node-{n % nodes:05}") for n in fillers)
        scheduler = await self.place.start()
        await self.cluster.add_pods(self._small() for _ in range(2 * nodes // 5))
        await self.cluster.until(lambda: all(name in self.cluster.seen.bound for name in self.standing), TOLD_S)
        return scheduler

    def _small(self) -> dict[str, Any]:
        self.count += 1
        body = load.small(self.count, self.rng)
        self.standing.append(body["metadata"]["name"])
        return body

    async def step(self, _: int) -> None:
        """One comes, one goes: any that stands."""
        body, seen = self._small(), self.cluster.seen
        for _ in range(8):
            place = self.rng.randrange(len(self.standing))
            if self.standing[place] in seen.bound:
                break
        self.standing[place], self.standing[-1] = self.standing[-1], self.standing[place]
        await asyncio.gather(self.cluster.add_pod(body), self.cluster.remove_pod(self.standing.pop()))

    async def wait_in_vain(self) -> dict[str, Any]:
        """Pods come that fit nowhere; back when all are told so."""
        seen, o = self.cluster.seen, self.options
        bodies = [load.hopeless(n, o.classes, guided=o.guided, preempting=o.preempting) for n in range(o.waiting)]
        self.hopeless = [body["metadata"]["name"] for body in bodies]
        async with WatchedProcesses(self._scheduler, self.place.others) as watched:
            await self.cluster.add_pods(bodies)
            all_told = await self.cluster.until(lambda: all(name in seen.told for name in self.hopeless), TOLD_S)
        told = [seen.told[name] - seen.created[name] for name in self.hopeless if name in seen.told]
        return {
            "told": len(told), "all_told": all_told,
            "told_after_creation_s": {"p50": quantile(told, 50), "p99": quantile(told, 99)}, **watched.figures,
        }  # fmt: skip

    async def phase(self, seconds: float) -> dict[str, Any]:
        """So long of it; CPU per placement."""
        seen = self.cluster.seen
        began = time.monotonic()
        async with WatchedProcesses(self._scheduler, self.place.others) as watched:
            await steadily(self.options.rate, seconds, self.step)
        newest = takewhile(lambda bound: bound[1] >= began, reversed(seen.bound.items()))
        waited = [at - seen.created[name] for name, at in newest if seen.created[name] >= began]
        cpu_s = watched.figures["cores"] * watched.figures["seconds"]
        return {
            "placed": len(waited), "cpu_ms_per_placement": round(1000 * cpu_s / max(1, len(waited)), 3),
            "bound_s": {"p50": quantile(waited, 50), "p99": quantile(waited, 99)},
            **watched.figures,
        }  # fmt: skip

    async def longest_turn_ms(self) -> float:
        """Of the leader, in the last minute."""
        return float((await self._scheduler.stats()).get("coordinator", {}).get("longest_turn_ms", 0.0))

    async def run(self) -> Scheduler:
        """As ``prepare``, remembered."""
        self._scheduler = await self.prepare()
        return self._scheduler


async def churn(place: ExperimentPlace) -> dict[str, Any]:
    """Nobody waiting, ten thousand waiting, nobody waiting again: the same load each time."""
    options, made = place.options, Churn(place)
    await made.run()
    await made.phase(WARM_S)
    before = await made.phase(options.seconds)
    telling = await made.wait_in_vain()
    await asyncio.sleep(WARM_S)
    beside = await made.phase(options.seconds)
    wrong = sum(name in place.cluster.seen.bound for name in made.hopeless)
    await place.cluster.remove_pods(made.hopeless)
    await asyncio.sleep(WARM_S)
    after = await made.phase(options.seconds)
    alone = (before["cpu_ms_per_placement"] + after["cpu_ms_per_placement"]) / 2
    return {
        "what": f"{options.nodes} nodes, {options.waiting} waiting of {options.classes} classes, {options.rate:g} "
        f"arrivals and departures a second, {options.seconds:g} s each",
        "more_cpu_percent": round(100 * (beside["cpu_ms_per_placement"] / alone - 1), 1) if alone else 0.0,
        "wrongly_placed": wrong,
        "nobody_waiting": before, "telling": telling, "waiting": beside, "nobody_waiting_again": after,
    }  # fmt: skip


async def soak(place: ExperimentPlace) -> dict[str, Any]:
    """The load beside those that wait, minute by minute."""
    options, made = place.options, Churn(place)
    scheduler = await made.run()
    telling = await made.wait_in_vain()
    minutes, began = [], time.monotonic()
    for _ in range(max(1, round(options.minutes))):
        one = await made.phase(min(60.0, options.minutes * 60))
        one["longest_turn_ms"] = await made.longest_turn_ms()
        one["pending_small"] = len([name for name in made.standing if name not in place.cluster.seen.bound])
        minutes.append(one | {"at_s": round(time.monotonic() - began)})
        print(f"{minutes[-1]['at_s']} s: placed {one['placed']}, longest turn {one['longest_turn_ms']} ms, "
              f"above 50 ms {one['turns']['above_50_ms']} (of CPU {one['turns_cpu']['above_50_ms']}), {one['rss_mb']}",
              flush=True)  # fmt: skip
    ten = next((one for one in minutes if one["at_s"] >= MEMORY_FROM_S), minutes[-1])
    last = minutes[-1]
    grown = {
        name: round(100 * (now / ten["rss_mb"][name] - 1), 1)
        for name, now in last["rss_mb"].items() if name in ten["rss_mb"]
    }  # fmt: skip
    return {
        "what": f"{options.nodes} nodes, {options.waiting} waiting of {options.classes} classes, {options.rate:g} "
        f"arrivals and departures a second for {options.minutes:g} minutes",
        "longest_turn_ms": max(one["longest_turn_ms"] for one in minutes),
        "turns_above_50_ms": sum(one["turns"]["above_50_ms"] for one in minutes),
        "turns_cpu_above_50_ms": sum(one["turns_cpu"]["above_50_ms"] for one in minutes),
        "memory_grown_percent_since_ten_minutes": grown,
        "lease": await scheduler.lease_figures(),
        "telling": telling, "minutes": minutes,
    }  # fmt: skip
