"""Who is measured against whom, and where: the options that benches with real processes share.

Contestants take turns on one API server (the twin, started here, or the one of a kubeconfig), so that whatever else the
machine does falls on all of them. A scheduler lives for one run; the nodes stay.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench.gangs import load
from bench.stand.cluster import NAMESPACE, BenchCluster
from bench.stand.ending import run_to_its_end
from bench.stand.figures import spread
from bench.stand.proc import alive, calibration_ms, cpu_s
from bench.stand.processes import BenchMesh, KubeScheduler, ProcessTreeUsage, start_twin, stop
from bench.stand.writes import AuditWrites, MetricsWrites, WritesCounter

LIMIT, KUBE, CONCLAVE = "bindings", "kube-scheduler", "conclave"
SAMPLE_S = 0.25


class Poster:
    """Bare Bindings, no thinking: what the server and this machine can take at most (``bench.drain.poster``)."""

    title = "bare Bindings"

    def __init__(self, kubeconfig: Path, _folder: Path, *further: str) -> None:
        self.started_at = self.ready_at = time.monotonic()
        words = [sys.executable, "-m", "bench.drain.poster", "--kubeconfig", str(kubeconfig), "--namespace", NAMESPACE]
        words += further
        self.process = subprocess.Popen(words, text=True)
        self.usage = ProcessTreeUsage(self.process.pid, "poster")

    async def ready(self) -> None:
        """It posts as soon as it can."""

    async def stats(self) -> dict[str, Any]:
        """It keeps none."""
        return {}

    async def close(self) -> None:
        """It ends by itself when all is posted."""
        stop(self.process)


Scheduler = BenchMesh | KubeScheduler | Poster


@dataclass(frozen=True, slots=True)
class Contestant:
    """``make``: of (kubeconfig, folder), a scheduler that has been started."""

    name: str
    make: Callable[[Path, Path], Scheduler]


def numbers(text: str, *, least: int = 1) -> list[int]:
    """``1000,5000``."""
    found = [int(part) for part in text.split(",")]
    if not found or min(found) < least:
        raise argparse.ArgumentTypeError(f"{text}: give whole numbers from {least} on, such as 1000,5000")
    return found


def whole_number(text: str, *, least: int = 1) -> int:
    """One whole number. ``argparse.ArgumentTypeError``: it is none, or less."""
    if not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number from {least} on")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What every contest is asked."""
    parser.add_argument("--kubeconfig", type=Path, help="an API server to use; default: the twin's, started here")
    parser.add_argument("--nodes", type=numbers, default=[5000], help="5000; several, such as 1000,5000: one by one")
    parser.add_argument(
        "--agents",
        type=partial(numbers, least=0),
        default=[1],
        help="of the mesh (1); several take turns; 0: the leader decides",
    )
    parser.add_argument(
        "--binders", type=numbers, default=[1], help="that work, each for a shard of the nodes (1); several take turns"
    )
    parser.add_argument("--single", action="store_true", help="measure the mesh in one process too, without agents")
    parser.add_argument("--coordinators", type=int, default=1, help="of the mesh, of which one leads (1)")
    parser.add_argument("--kube-scheduler", metavar="BINARY", help="measure this one too")
    parser.add_argument("--qps", type=int, default=5000, help="of that kube-scheduler's client (5000)")
    parser.add_argument("--gates", default="", help="feature gates of that kube-scheduler (none)")
    parser.add_argument("--beside", type=Path, action="append", default=[], metavar="CHECKOUT",
                        help="the mesh of another checkout of Conclave, with its .venv; may repeat")  # fmt: skip
    parser.add_argument("--only", metavar="NAME", action="append", help=f"{LIMIT}, {KUBE} or {CONCLAVE}; may repeat")
    parser.add_argument("--shapes", type=whole_number, default=1, help="kinds of pods by what they ask for (1)")
    parser.add_argument("--server-pid", type=int, action="append", default=[], metavar="PID",
                        help="a process of the API server of --kubeconfig here, etcd too; may repeat")  # fmt: skip
    parser.add_argument("--json", metavar="FILE", default="", help="the figures, also as JSON")


def contestants(options: argparse.Namespace, *, limit: Callable[[Path, Path], Poster] | None) -> list[Contestant]:
    """Those that were asked for; ``limit``: with this poster of bare calls."""
    found = [Contestant(LIMIT, limit)] if limit is not None else []
    if options.kube_scheduler:
        kube = partial(_kube_scheduler, options)
        found.append(Contestant(KUBE, kube))
    meshes = [(agents, binders) for agents in options.agents for binders in options.binders]
    for agents, binders in meshes:
        name = CONCLAVE if len(meshes) == 1 else f"{CONCLAVE}, {agents} agents, {binders} binders"
        found.append(Contestant(name, partial(_mesh, agents, options.coordinators, binders)))
    if options.single:
        found.append(Contestant(f"{CONCLAVE}, single", partial(_mesh, 0, options.coordinators, 1, single=True)))
    for checkout in options.beside:
        make = partial(_mesh, options.agents[0], options.coordinators, options.binders[0], checkout=checkout.absolute())
        found.append(Contestant(f"{CONCLAVE}, {checkout.name}", make))
    only = options.only or [LIMIT, KUBE, CONCLAVE]
    chosen = [one for one in found if one.name.split(",")[0] in only]
    if not chosen:
        sys.exit(f"bench: --only {' --only '.join(only)}: nobody is left to measure; take of "
                 f"{', '.join(dict.fromkeys(one.name.split(',')[0] for one in found))}")  # fmt: skip
    return chosen


def _mesh(
    agents: int, coordinators: int, binders: int, kubeconfig: Path, folder: Path, *, checkout: Path | None = None,
    single: bool = False,
) -> BenchMesh:  # fmt: skip
    return BenchMesh(
        kubeconfig, folder, agents, coordinators=coordinators, binders=1, shards=binders, checkout=checkout,
        single=single,
    )  # fmt: skip


def _kube_scheduler(options: argparse.Namespace, kubeconfig: Path, folder: Path) -> KubeScheduler:
    return KubeScheduler(options.kube_scheduler, kubeconfig, folder, qps=options.qps, gates=options.gates)


def pods(prefix: str, count: int, shapes: int) -> Iterator[dict[str, Any]]:
    """scheduler_perf's small pod, in so many shapes."""
    for number in range(count):
        body = load.pod(f"{prefix}-{number:06}", app="bench")
        requests = {"cpu": f"{100 + 10 * (number % shapes)}m", "memory": load.POD["memory"]}
        body["spec"]["containers"][0]["resources"] = {"requests": requests}
        yield body


@dataclass
class Stand:
    """One API server with nodes. ``servers``: its processes, as far as they are known; ``node``: the body of one."""

    kubeconfig: Path
    cluster: BenchCluster
    servers: dict[str, int]
    writes: WritesCounter
    node: Callable[[int], dict[str, Any]] = load.node
    count: int = 0
    """Nodes so far."""
    _names: int = 0

    def name(self) -> str:
        """A prefix of pods' names that was not used before."""
        self._names += 1
        return f"pods-{self._names}"

    async def nodes(self, count: int) -> None:
        """So many in all: more are added."""
        await self.cluster.add_nodes(self.node(number) for number in range(self.count, count))
        self.count = max(self.count, count)

    def server_cpu_s(self) -> dict[str, float]:
        """CPU seconds so far, by process."""
        return {name: cpu_s(pid) for name, pid in self.servers.items()}


@contextlib.asynccontextmanager
async def opened(
    options: argparse.Namespace, *, node: Callable[[int], dict[str, Any]] = load.node, grace_s: float = 0,
    twin_flags: Sequence[str] = (),
) -> AsyncIterator[Stand]:  # fmt: skip
    """The server, without nodes and pods of ours; what is left of them at the end is deleted. ``node``: by its number,
    scheduler_perf's where nobody says; ``grace_s``: what pods ask for, and take, to leave; ``twin_flags``: further ones
    of the twin."""
    with tempfile.TemporaryDirectory() as folder:
        twin, kubeconfig, audit = None, options.kubeconfig, Path(folder, "audit.jsonl")
        if kubeconfig is None:
            twin, kubeconfig = start_twin(Path(folder), "--audit", str(audit), *twin_flags)
        servers = {"twin": twin.pid} if twin is not None else {f"pid {pid}": pid for pid in options.server_pid}
        if unknown := [pid for pid in servers.values() if not alive(pid)]:
            sys.exit(f"bench: --server-pid {unknown[0]}: there is no such process on this machine")
        try:
            async with BenchCluster.open(kubeconfig.absolute(), grace_s=grace_s) as cluster:
                writes: WritesCounter = AuditWrites(audit) if twin is not None else MetricsWrites(cluster)
                try:
                    yield Stand(kubeconfig.absolute(), cluster, servers, writes, node)
                finally:
                    if twin is None:  # whoever ends the bench does not want its nodes
                        await cluster.clear()
        finally:
            if twin is not None:
                stop(twin)


@dataclass
class ContestTurn:
    """``async with``: one contestant runs. Its CPU counts from its birth, its memory is the most that was seen."""

    stand: Stand
    contestant: Contestant
    peak_rss_mb: float = 0.0
    load_before: float = 0.0
    calibration_ms: float = 0.0
    failed: bool = False
    """The process has ended with an error."""
    _close: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def __aenter__(self) -> ContestTurn:
        folder = Path(self._close.enter_context(tempfile.TemporaryDirectory()))
        self.load_before, self.calibration_ms = round(os.getloadavg()[0], 2), calibration_ms()
        self._servers = self.stand.server_cpu_s()
        self.scheduler = self.contestant.make(self.stand.kubeconfig, folder)
        self._close.push_async_callback(self.scheduler.close)
        sampling = asyncio.create_task(self._sample())
        self._close.callback(sampling.cancel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close.aclose()

    def cpu_s(self) -> dict[str, float]:
        """Since its birth, by process."""
        return self.scheduler.usage.since_birth()

    def server_cpu_s(self) -> dict[str, float]:
        """Of the API server, since this began."""
        return {name: used - self._servers[name] for name, used in self.stand.server_cpu_s().items()}

    async def _sample(self) -> None:
        while True:
            self.peak_rss_mb = max(self.peak_rss_mb, sum(self.scheduler.usage.rss().values()))
            if self.scheduler.process.poll():
                self.failed = True
                self.stand.cluster.changed.set()
            await asyncio.sleep(SAMPLE_S)


async def turns(
    options: argparse.Namespace, stand: Stand, everybody: Sequence[Contestant]
) -> AsyncIterator[tuple[Contestant, dict[str, Any]]]:
    """Every round with everybody, and what is said of it; who begins changes with the round. The nodes are there."""
    for nodes in options.nodes:
        await stand.nodes(nodes)
        for number in range(options.rounds):
            first = number % len(everybody)
            for contestant in (*everybody[first:], *everybody[:first]):
                yield contestant, {"who": contestant.name, "nodes": nodes, "round": number}


def said_of(one: dict[str, Any]) -> str:
    """Which turn it was, for a line while the bench goes on."""
    return f"{one['nodes']} nodes, round {one['round']}, {one['who']}"


def by_case(
    found: Sequence[dict[str, Any]], *columns: str
) -> Iterator[tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]]:
    """All runs that have the same in ``columns``, and those of each contestant."""
    for case in dict.fromkeys(tuple(one[column] for column in columns) for one in found):
        runs = [one for one in found if tuple(one[column] for column in columns) == case]
        yield (
            runs,
            {name: [one for one in runs if one["who"] == name] for name in dict.fromkeys(r["who"] for r in runs)},
        )


def tell(
    options: argparse.Namespace,
    run: Callable[[argparse.Namespace], Coroutine[Any, Any, list[dict[str, Any]]]],
    report: Callable[[list[dict[str, Any]]], list[str]],
    **asked: Any,
) -> None:
    """Run, print, and write the figures where ``--json`` says, with what was ``asked``."""
    found = run_to_its_end(run(options))
    print("\n".join(report(found)))
    if options.json:
        Path(options.json).write_text(json.dumps({"cpus": os.cpu_count(), **asked, "runs": found}, indent=1) + "\n")


def conditions(runs: Sequence[dict[str, Any]]) -> str:
    """How busy the machine was: without it no figure of CPU or time means much."""
    loads, loops = [one["load_before"] for one in runs], [one["calibration_ms"] for one in runs]
    return f"load before {spread(loads)}, calibration loop {spread(loops)} ms"
