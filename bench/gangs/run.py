"""One scheduler, one shape after the other: create everything as fast as the server takes it, wait until all is bound.

Times are those of the bench's own watch; CPU is that of the whole mesh, with its etcd and without.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from bench.gangs import load
from bench.gangs.load import GangShape
from bench.stand.cluster import NAMESPACE, BenchCluster, SeenPods
from bench.stand.figures import quantile
from bench.stand.processes import BenchMesh, KubeScheduler, Scheduler, WatchedProcesses, start_twin, stop

BOUND_S = 900.0
"""Longest wait until all of a shape is bound."""
REST_S = 2.0
GATES = "GenericWorkload=true,GangScheduling=true"
"""What a kube-scheduler 1.36 needs for gangs; ``--gates`` for another version."""
KILL_AT = 0.3
"""The share of pods that are bound when somebody is killed."""


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Every shape with each scheduler."""
    found: dict[str, Any] = {"machine_load": round(os.getloadavg()[0], 2), "cpus": os.cpu_count(), "seed": options.seed}
    makers: dict[str, Callable[[Path, Path], Scheduler]] = {}
    if not options.only_kube_scheduler:
        makers["conclave"] = lambda kubeconfig, folder: BenchMesh(kubeconfig, folder, options.agents)
    if options.kube_scheduler:
        makers["kube_scheduler"] = lambda kubeconfig, folder: KubeScheduler(
            options.kube_scheduler, kubeconfig, folder, gates=options.gates
        )
    for name, maker in makers.items():
        with tempfile.TemporaryDirectory() as folder:
            twin, kubeconfig = None, options.kubeconfig
            if kubeconfig is None:
                twin, kubeconfig = start_twin(Path(folder))
            try:
                found[name] = await measure(
                    options, kubeconfig.absolute(), Path(folder), maker, twin.pid if twin is not None else None
                )
            finally:
                if twin is not None:
                    stop(twin)
    return found


async def measure(
    options: argparse.Namespace, kubeconfig: Path, folder: Path, make: Callable[[Path, Path], Scheduler],
    twin: int | None,
) -> dict[str, Any]:  # fmt: skip
    """All shapes with one scheduler, which stays up between them."""
    others = {"bench": os.getpid()} | ({"twin": twin} if twin else {})
    async with BenchCluster.open(kubeconfig, grace_s=0) as cluster:
        api = await cluster.serving("scheduling.k8s.io", ("v1beta1", "v1alpha2"), "podgroups")
        if not api and any(shape.size != 1 for shape in options.shapes):
            sys.exit("bench.gangs: the server has no PodGroup in scheduling.k8s.io; switch on the gate GenericWorkload")
        await cluster.add_nodes(load.node(number, options.racks) for number in range(options.nodes))
        scheduler = make(kubeconfig, folder)
        try:
            await scheduler.ready()
            found: dict[str, Any] = {"nodes": options.nodes, "api": api}
            for shape in options.shapes:
                found[shape.name] = await GangRun(options, cluster, scheduler, others, api).shape(shape)
                print(f"{scheduler.title}, {shape.name}: {found[shape.name]['pods_per_s']} pods/s", file=sys.stderr)
        finally:
            await scheduler.close()
        await cluster.clear()
    if "lone" in found and "mixed" in found and found["lone"]["pods_per_s"]:
        found["mixed_of_lone"] = round(found["mixed"]["pods_per_s"] / found["lone"]["pods_per_s"], 3)
    return found


class GangRun:
    """One shape."""

    def __init__(
        self, options: argparse.Namespace, cluster: BenchCluster, scheduler: Scheduler, others: dict[str, int], api: str
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._scheduler = scheduler
        self._others = others
        self._api = api

    async def shape(self, shape: GangShape) -> dict[str, Any]:
        """Its figures; the pods and groups are gone afterwards."""
        cluster, options = self._cluster, self._options
        cluster.seen = SeenPods()
        sizes = shape.sizes(Random(options.seed))
        made = list(load.members(shape, sizes))
        names: defaultdict[str, list[str]] = defaultdict(list)
        for gang, body in made:
            names[gang or body["metadata"]["name"]].append(body["metadata"]["name"])
        groups = [
            load.group(gang, len(members), racks=shape.racks, api_version=self._api, namespace=NAMESPACE)
            for gang, members in names.items() if shape.size != 1
        ]  # fmt: skip
        await cluster.add(f"/apis/{self._api}/namespaces/{NAMESPACE}/podgroups", groups)
        await asyncio.sleep(REST_S)
        seen, watch = cluster.seen, PartialGangs(names, kill_after=KILL_AT * len(made))
        cluster.on_bound = watch.bound
        killing = asyncio.create_task(self._kill(watch))
        async with WatchedProcesses(self._scheduler, self._others) as watched:
            began = time.monotonic()
            done, _ = await asyncio.gather(
                cluster.until(lambda: len(seen.bound) >= len(made), BOUND_S),
                cluster.add_pods(body for _, body in made),
            )
            ended = max(seen.bound.values(), default=time.monotonic())
        killing.cancel()
        killed = await asyncio.gather(killing, return_exceptions=True)
        cpu = watched.figures["cpu_s"]
        mesh_s = sum(used for name, used in cpu.items() if not name.startswith("etcd"))
        bound, spans = len(seen.bound), watch.spans(seen)
        found = {
            "gangs": 0 if shape.size == 1 else len(names), "pods": len(made), "bound": bound, "all_bound": done,
            "pods_per_s": round(bound / (ended - began), 1) if bound else 0.0,
            "cpu_ms_per_pod": round(1000 * mesh_s / max(1, bound), 3),
            "cpu_ms_per_pod_with_etcd": round(1000 * sum(cpu.values()) / max(1, bound), 3),
            "first_bind_s": round(min(seen.bound.values(), default=began) - began, 3),
            "created_s": round(max(seen.created.values()) - began, 3),
            "first_to_last_s": {"p50": quantile(spans, 50), "p99": quantile(spans, 99), "max": quantile(spans, 100)},
            "partial_gangs": watch.partial(), "most_in_part": watch.most,
            "killed": next((one for one in killed if isinstance(one, str)), ""),
            "scattered": watch.scattered(seen, options.racks) if shape.racks else 0,
            "machine_load": watched.figures["machine_load"], "cpu_s": cpu,
            "cores_of_others": watched.figures["cores_of_others"], "rss_mb": watched.figures["rss_mb"],
        }  # fmt: skip
        cluster.on_bound = None
        await cluster.remove_pods(list(seen.created))
        await cluster.drop(
            f"/apis/{self._api}/namespaces/{NAMESPACE}/podgroups", [one["metadata"]["name"] for one in groups]
        )
        await cluster.until(lambda: seen.gone.keys() >= seen.bound.keys(), 60)
        return found

    async def _kill(self, watch: PartialGangs) -> str:
        """SIGKILL to the process that leads, in the middle; its name."""
        if not self._options.kill or not isinstance(self._scheduler, BenchMesh):
            return ""
        await watch.in_the_middle.wait()
        name = await self._scheduler.leading_process(self._options.kill)
        os.kill(self._scheduler.usage.pid_of(name), signal.SIGKILL)
        return name


class PartialGangs:
    """Which gangs stand in part, from the watch. ``names``: the members of each gang. ``in_the_middle``: set when more
    than ``kill_after`` pods are bound."""

    def __init__(self, names: dict[str, list[str]], kill_after: float) -> None:
        self.in_the_middle = asyncio.Event()
        self._until_kill = kill_after
        self._sizes = {gang: len(members) for gang, members in names.items()}
        self._gang = {member: gang for gang, members in names.items() for member in members}
        self._names = names
        self._bound: dict[str, int] = dict.fromkeys(names, 0)
        self._in_part = 0
        self.most = 0
        """How many gangs stood in part at once, at most."""

    def bound(self, pod: str) -> None:
        """A pod was bound."""
        self._until_kill -= 1
        if self._until_kill < 0:
            self.in_the_middle.set()
        gang = self._gang.get(pod)
        if gang is None:
            return
        self._bound[gang] += 1
        if self._sizes[gang] > 1:
            self._in_part += (self._bound[gang] == 1) - (self._bound[gang] == self._sizes[gang])
            self.most = max(self.most, self._in_part)

    def partial(self) -> int:
        """Gangs of which some stand and others do not, now."""
        return sum(0 < count < self._sizes[gang] for gang, count in self._bound.items())

    def spans(self, seen: SeenPods) -> list[float]:
        """From the first to the last bind of each gang that is whole."""
        times = [
            [seen.bound[name] for name in names] for names in self._names.values() if seen.bound.keys() >= set(names)
        ]
        return [max(one) - min(one) for one in times if len(one) > 1]

    def scattered(self, seen: SeenPods, racks: int) -> int:
        """Gangs whose members stand in more than one rack."""
        return sum(
            len({int(seen.node[name].rpartition("-")[2]) % racks for name in names if name in seen.node}) > 1
            for names in self._names.values()
        )
