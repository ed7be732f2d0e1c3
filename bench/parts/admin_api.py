"""The admin API under load beside scheduling: its latencies, and what it costs per pod.

    .venv/bin/python -m bench.parts.admin_api [--pods-per-s 300] [--requests-per-s 100] [--seconds 15] [--phases 3]

`conclave twin serve` and `conclave up` as processes, pods created at a steady rate. Phases without requests, with as
many to the open ``/healthz`` (what HTTP itself costs) and with those of the API take turns, so that the machine's mood
falls on all; CPU per pod is the CPU time of the leader, and of the whole mesh (coordinators, agents, binders; not etcd
and the twin), over the pods bound in a phase. A request in ten goes through the standby. Prints one JSON object;
nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from bench.stand.proc import cpu_s, descendants

TOKEN = "bench-token-0123456789"
PATHS = (
    "/v1/overview", "/v1/leader", "/v1/members", "/v1/nodes?limit=100", "/v1/nodes/map", "/v1/nodes/node-7",
    "/v1/queue", "/v1/units", "/v1/decisions?limit=50", "/v1/policies", "/v1/settings", "/v1/scheduling",
)  # fmt: skip
POD = {
    "schedulerName": "conclave",
    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}}}],
}


class Bench:
    """One mesh and the two generators."""

    def __init__(
        self, session: aiohttp.ClientSession, reader: aiohttp.ClientSession, api: str, ready: dict[str, str], pid: int
    ) -> None:
        self.session = session
        self.reader = reader
        """Has connections of its own: behind pods that wait for the twin a request would measure the twin."""
        self.api = api
        self.pid = pid
        self.leader_url = ready["url"]
        self.admins = [ready["admin"], *standbys(ready)]
        self.peer = {"Authorization": f"Bearer {Path(ready['token-file']).read_text().split()[0]}"}
        self.admin = {"Authorization": f"Bearer {Path(ready['admin-token-file']).read_text().split()[0]}"}
        self.made = 0
        self.term = 0
        self.latencies_ms: dict[str, list[float]] = {"api": [], "healthz": []}
        self.failed: dict[str, int] = {}

    async def create(self, path: str, body: dict[str, Any]) -> None:
        """One object at the twin."""
        async with self.session.post(self.api + path, json=body, headers={"Authorization": f"Bearer {TOKEN}"}) as told:
            await told.read()
            if told.status >= 300:
                sys.exit(f"the twin refuses: {told.status}")

    async def nodes(self, count: int) -> None:
        """So many, ready at once."""
        capacity = {"cpu": "64", "memory": "256Gi", "pods": "250"}
        for number in range(count):
            ready = [{"type": "Ready", "status": "True"}]
            status = {"allocatable": capacity, "capacity": capacity, "conditions": ready}
            await self.create(
                "/api/v1/nodes",
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}, "status": status},
            )
            # admission taints a new node as not ready; a node controller would take that back
            headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/merge-patch+json"}
            url = f"{self.api}/api/v1/nodes/node-{number}"
            async with self.session.patch(url, json={"spec": {"taints": None}}, headers=headers) as told:
                await told.read()

    async def pods(self, per_s: float, seconds: float) -> None:
        """A steady stream; requests that are late are not skipped."""

        async def one(number: int) -> None:
            metadata = {"name": f"p{number}", "namespace": "default"}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": POD}
            await self.create("/api/v1/namespaces/default/pods", pod)

        async with asyncio.TaskGroup() as group:
            started = time.perf_counter()
            for place in range(int(per_s * seconds)):
                await asyncio.sleep(max(0.0, started + place / per_s - time.perf_counter()))
                self.made += 1
                group.create_task(one(self.made))

    async def requests(self, per_s: float, seconds: float, paths: tuple[str, ...]) -> None:
        """A steady stream of reading ones, each measured from when it was due."""

        async def one(place: int, due: float) -> None:
            url = self.admins[1 if place % 10 == 9 and len(self.admins) > 1 else 0] + paths[place % len(paths)]
            async with self.reader.get(url, headers=self.admin) as told:
                await told.read()
                if told.status != 200:
                    self.failed[str(told.status)] = self.failed.get(str(told.status), 0) + 1
            self.latencies_ms["api" if paths is PATHS else "healthz"].append((time.perf_counter() - due) * 1000)

        async with asyncio.TaskGroup() as group:
            started = time.perf_counter()
            for place in range(int(per_s * seconds)):
                due = started + place / per_s
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                group.create_task(one(place, due))

    async def stats(self) -> tuple[float, int]:
        """(CPU seconds, pods bound) of the leader so far. It ends here when the leader has changed."""
        async with self.session.get(self.leader_url + "/v1/stats", headers=self.peer) as told:
            figures = await told.json()
        if self.term not in (0, figures["coordinator"]["term"]):
            sys.exit("the leader has changed while it was measured: the machine is too busy for these figures")
        self.term = figures["coordinator"]["term"]
        return figures["cpu_s"], figures["coordinator"]["bound"]

    async def settled(self) -> None:
        """Until nothing waits and nothing is on its way, twice in a row: a watch may be a moment behind."""
        quiet, pending = 0, {}
        try:
            async with asyncio.timeout(120):
                while quiet < 2:
                    await asyncio.sleep(0.2)
                    async with self.session.get(self.leader_url + "/v1/stats", headers=self.peer) as told:
                        pending = (await told.json())["coordinator"]["queue"]
                    quiet = 0 if any(pending.values()) else quiet + 1
        except TimeoutError:
            sys.exit(f"pods are still pending after two minutes: {pending}")

    def mesh_cpu_s(self) -> float:
        """Of every service together."""
        pids = [pid for pid, name in descendants(self.pid).items() if name.startswith(("services.", "lab."))]
        return sum(cpu_s(pid) for pid in pids)

    async def phase(self, options: argparse.Namespace, paths: tuple[str, ...] = ()) -> tuple[float, float]:
        """CPU ms per pod: (of the leader, of the mesh). ``paths``: what is asked for meanwhile."""
        cpu_before, bound_before = await self.stats()
        mesh_before = self.mesh_cpu_s()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pods(options.pods_per_s, options.seconds))
            if paths:
                group.create_task(self.requests(options.requests_per_s, options.seconds, paths))
        await self.settled()
        cpu_after, bound_after = await self.stats()
        pods = bound_after - bound_before
        return 1000 * (cpu_after - cpu_before) / pods, 1000 * (self.mesh_cpu_s() - mesh_before) / pods


async def measured(options: argparse.Namespace, api: str, ready: dict[str, str], pid: int) -> dict[str, Any]:
    """Warm up, then phases in turns."""
    connectors = aiohttp.TCPConnector(limit=256), aiohttp.TCPConnector(limit=256)
    async with (
        aiohttp.ClientSession(connector=connectors[0]) as session,
        aiohttp.ClientSession(connector=connectors[1]) as reader,
    ):
        bench = Bench(session, reader, api, ready, pid)
        await bench.nodes(options.nodes)
        await bench.pods(options.pods_per_s, 3)
        await bench.settled()
        without: list[tuple[float, float]] = []
        http: list[tuple[float, float]] = []
        asked: list[tuple[float, float]] = []
        load = os.getloadavg()[0]
        for _ in range(options.phases):
            without.append(await bench.phase(options))
            http.append(await bench.phase(options, ("/healthz",)))
            asked.append(await bench.phase(options, PATHS))
        without.append(await bench.phase(options))
        ordered = {name: sorted(values) for name, values in bench.latencies_ms.items()}
        return {
            "load": round(load, 2),
            "requests": len(ordered["api"]),
            "failed": bench.failed,
            **{
                f"{name}_p{percent}_ms": round(values[-(-percent * len(values) // 100) - 1], 2)
                for name, values in ordered.items()
                for percent in (50, 99)
            },
            "pods": bench.made,
            "load_after": round(os.getloadavg()[0], 2),
            **{
                name: raised(
                    [one[at] for one in without], [one[at] for one in http], [one[at] for one in asked], options
                )
                for at, name in enumerate(("leader", "mesh"))
            },
        }


def raised(without: list[float], http: list[float], asked: list[float], options: argparse.Namespace) -> dict[str, Any]:
    """CPU per pod of each phase, and what the requests added: the median of differences to the phases around, since a
    pod costs more as the cluster fills."""
    around = [(before + after) / 2 for before, after in pairwise(without)]
    base = statistics.median(around)
    floor = statistics.median(value - calm for value, calm in zip(http, around, strict=True))
    more = statistics.median(value - calm for value, calm in zip(asked, around, strict=True))
    pods_per_request = options.pods_per_s / options.requests_per_s
    return {
        "cpu_ms_per_pod_without": [round(value, 3) for value in without],
        "cpu_ms_per_pod_with_healthz": [round(value, 3) for value in http],
        "cpu_ms_per_pod_with": [round(value, 3) for value in asked],
        "raised_percent": round(100 * more / base, 1),
        "raised_percent_by_healthz": round(100 * floor / base, 1),
        "cpu_ms_per_healthz": round(floor * pods_per_request, 3),
        "cpu_ms_per_request": round(more * pods_per_request, 3),
    }


def standbys(ready: dict[str, str]) -> list[str]:
    """Admin URLs of the coordinators that do not lead, from their logs."""
    logs = Path(ready["token-file"]).parent / "logs"
    lines = [line for file in sorted(logs.glob("coordinator-*.log")) for line in file.read_text().splitlines()]
    return [url for line in lines if line.startswith("admin ") and (url := line.split()[-1]) != ready["admin"]]


def main() -> None:
    """Start, measure, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods-per-s", type=float, default=300.0)
    parser.add_argument("--requests-per-s", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=15.0, help="length of a phase")
    parser.add_argument("--phases", type=int, default=3, help="of each kind")
    options = parser.parse_args()
    conclave = [sys.executable, "-m", "services.cli"]
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = str(Path(folder, "kubeconfig"))
        serve = [*conclave, "twin", "serve", "--port", "0", "--token", TOKEN, "--kubeconfig-out", kubeconfig]
        twin = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
        assert twin.stdout is not None
        api = twin.stdout.readline().split()[-1]
        up = [*conclave, "up", "--kubeconfig", kubeconfig, "--keep", str(Path(folder, "state"))]
        mesh = subprocess.Popen(up, stdout=subprocess.PIPE, text=True)
        assert mesh.stdout is not None
        try:
            line = mesh.stdout.readline()
            if not line.startswith("ready"):
                sys.exit("the mesh did not become ready")
            ready = dict(word.split("=", 1) for word in line.split()[1:])
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                print(json.dumps(runner.run(measured(options, api, ready, mesh.pid)), indent=2))
        finally:
            for process in (mesh, twin):
                process.send_signal(signal.SIGTERM)
                process.wait(30)


if __name__ == "__main__":
    main()
