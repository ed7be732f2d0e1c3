"""How long nothing is bound when who leads ends: told to (SIGTERM) or killed, beside so many pods that stand.

    .venv/bin/python -m bench.handover --times 10
    .venv/bin/python -m bench.handover --signal KILL --victim coordinator,binder,both --nodes 1000 --running 20000

A mesh of real processes (two coordinators, agents, two binders, one etcd, the twin), pods that run already, and new
ones at a steady rate. Of each hand-over it prints the seconds from the signal to the successor's term and to the first
Binding of a pod that was created after the signal; the longest time without a Binding; what the successors asked the
API server for and read of lists meanwhile, and their CPU; and how many of the keys went to who had stood by, not to who
was started again. ``--standby cold,warm`` takes turns. Who was killed is started again and
stands by, warm before the next turn. Exits 1 when a pod was lost or bound twice.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.stand.ending import run_to_its_end
from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.kube.resources import PODS, Upserted
from shared.ports import Store
from shared.wire.keys import Keys
from tests.process.mesh import Mesh, bindings_per_uid

PATIENCE_S = 300.0
AT_ONCE = 16
VICTIMS = {"coordinator": ("coordinator",), "binder": ("binder",), "both": ("coordinator", "binder")}
LEADER_KEYS = {"coordinator": Keys().coordinator_leader, "binder": Keys().binder_leader("0")}
Figures = dict[str, Any]


@dataclass
class PodLoad:
    """Pods that keep coming: when each was accepted, and when it was seen on a node (monotonic seconds)."""

    mesh: Mesh
    every_s: float
    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Until ``enough``; one that is late is not caught up with."""
        while not self.enough.is_set():
            name = f"p{len(self.created)}"
            await self.mesh.add_pod(name, cpu="10m", memory="1Mi")
            self.created[name] = time.monotonic()
            await asyncio.sleep(self.every_s)

    async def watch(self, client: KubeClient, revision: str) -> None:
        """Eternal."""
        async with contextlib.aclosing(client.watch(PODS, resource_version=revision)) as events:
            async for event in events:
                if isinstance(event, Upserted) and event.object.spec.node_name:
                    self.bound.setdefault(event.object.metadata.name, time.monotonic())
                    self.changed.set()

    async def until(self, holds: Any) -> None:
        """Until ``holds()``, asked after every Binding."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    async def first_bound_after(self, at: float) -> float:
        """Seconds from ``at`` to the first Binding of a pod that was created after it."""
        await self.until(lambda: any(self.created.get(name, 0.0) > at for name in reversed(self.bound)))
        young = (seen for name, seen in self.bound.items() if self.created.get(name, 0.0) > at)
        return min(young) - at

    def longest_gap_s(self, since: float) -> float:
        """Between two Bindings, of those that were seen from the last one before ``since`` on."""
        times = sorted(self.bound.values())
        first = max((place for place, seen in enumerate(times) if seen <= since), default=0)
        return max((later - seen for seen, later in zip(times[first:], times[first + 1 :], strict=False)), default=0.0)


async def successor_after(store: Store, key: str, term: int, at: float) -> float:
    """Seconds from ``at`` to another term for ``key`` than ``term``."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            kv = await store.get(key)
            if kv is not None and kv.create_revision != term:
                return time.monotonic() - at
            await asyncio.sleep(0.005)


async def many(count: int, create: Any) -> None:
    """``create(number)`` of so many, some at a time."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await create(number)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def warm(mesh: Mesh) -> None:
    """Return once whoever does not lead knows what a leader lists."""
    async with asyncio.timeout(PATIENCE_S):
        for name in mesh.services:
            while name.startswith(("coordinator", "binder")):
                told: Figures = {}
                with contextlib.suppress(OSError, asyncio.TimeoutError):
                    told = await mesh.get(name, "/v1/stats")
                if told and (told[name.partition("-")[0]]["leading"] or told["mirror"]["warm"]):
                    break
                await asyncio.sleep(0.1)


def read_of(told: Figures) -> Figures:
    """What a process has asked of lists, and read of them."""
    lists = {route: count for route, count in told["kube"]["requests"].items() if route.startswith("list ")}
    return {"lists": sum(lists.values()), "objects": sum(told["kube"]["read"].values())}


@asynccontextmanager
async def world(options: argparse.Namespace, standby: str, folder: Path) -> AsyncIterator[tuple[Mesh, PodLoad]]:
    """A mesh that has placed something, and a load on it."""
    flags = {service: [f"--standby={standby}"] for service in ("coordinator", "binder")}
    if not options.agents:
        flags["coordinator"].append("--embedded-agent")
    async with Mesh(folder, coordinators=0, agents=0, binders=0, flags=flags) as mesh:
        await mesh.add_nodes(options.nodes, cpu="64", memory="256Gi", pods="500")
        await many(
            options.running,
            lambda number: mesh.add_pod(
                f"runs-{number}", cpu="10m", memory="1Mi", nodeName=f"node-{number % options.nodes}"
            ),
        )
        client = KubeClient(await KubeConfig.load(mesh.kubeconfig))
        revision = await client.revision(PODS)  # before a mesh keeps the server busy with its lists
        counts = {"coordinator": 2, "agent": options.agents, "binder": 2}
        for service, count in counts.items():
            for number in range(count):
                await mesh.add(service, number)
        load = PodLoad(mesh, 1 / options.rate)
        watching = asyncio.create_task(load.watch(client, revision))
        coming = asyncio.create_task(load.run())
        try:
            await load.until(lambda: load.bound)
            yield mesh, load
            load.enough.set()
            await coming
            await load.until(lambda: load.created.keys() <= load.bound.keys())
        finally:
            for task in (watching, coming):
                task.cancel()
            await asyncio.gather(watching, coming, return_exceptions=True)
            await client.close()


async def hand_over(mesh: Mesh, load: PodLoad, store: Store, services: tuple[str, ...], number: int) -> Figures:
    """One."""
    victims = {service: await mesh.leader(service) for service in services}
    terms = {service: await store.get(LEADER_KEYS[service]) for service in services}
    heirs = [f"{service}-{1 - int(name[-1])}" for service, name in victims.items()]
    before = {heir: read_of(await mesh.get(heir, "/v1/stats")) for heir in heirs}
    memory = {name: rss_mb(mesh, name) for name in mesh.services if name != "twin"}
    cpu_s = {heir: cpu_of(mesh, heir) for heir in heirs}
    at = time.monotonic()
    for name in victims.values():
        mesh.services[name].ready.clear()
        mesh.kill(name, signal.Signals(number))
    *elected, first = await asyncio.gather(
        *(successor_after(store, LEADER_KEYS[one], kv.create_revision, at) for one, kv in terms.items() if kv),
        load.first_bound_after(at),
    )
    cpu = sum(cpu_of(mesh, heir) - before_s for heir, before_s in cpu_s.items())
    gap = load.longest_gap_s(at)
    leaders = [await mesh.leader(service) for service in services]
    after = [(read_of(await mesh.get(heir, "/v1/stats")), before[heir]) for heir in heirs]
    for name in victims.values():
        await mesh.services[name].ready.wait()
    read = {what: sum(one[what] - other[what] for one, other in after) for what in ("lists", "objects")}
    known = {"stood_by": len(set(leaders) & set(heirs)), "cpu": cpu, "rss_mb": sum(memory.values())}
    return {"term": max(elected), "bound": first, "gap": gap, **known, **read}


def cpu_of(mesh: Mesh, name: str) -> float:
    """Seconds of CPU that a process has used."""
    used = psutil.Process(mesh.services[name].pid).cpu_times()
    return float(used.user + used.system)


def rss_mb(mesh: Mesh, name: str) -> float:
    """Of one process now; 0 where it has just ended."""
    try:
        return float(psutil.Process(mesh.services[name].pid).memory_info().rss / 1e6)
    except psutil.NoSuchProcess:
        return 0.0


async def measure(options: argparse.Namespace, standby: str) -> int:
    """Hand over ``times`` times for each kind of victim; how many pods were lost or bound twice."""
    found: dict[str, list[Figures]] = {victim: [] for victim in options.victim}
    with tempfile.TemporaryDirectory() as folder:
        async with world(options, standby, Path(folder)) as (mesh, load):
            store = EtcdStore(EtcdSettings(endpoints=(mesh.etcd.endpoint,)))
            for turn in range(options.times):
                for victim in options.victim:
                    if standby == "warm":
                        await warm(mesh)
                    for service in ("coordinator", "binder"):
                        await mesh.leader(service)
                    await asyncio.sleep(2.0)  # the queue is short
                    one = await hand_over(mesh, load, store, VICTIMS[victim], getattr(signal, f"SIG{options.signal}"))
                    found[victim].append(one)
                    print(f"{standby}, {victim} {turn + 1}: " + told_of([one]), flush=True)
            await store.close()
        given = bindings_per_uid(mesh.audit_entries())
    lost = len(load.created) + options.running - len(given)
    twice = sum(len(placed) > 1 for placed in given.values())
    for victim, runs in found.items():
        print(f"{standby}, {victim}, {len(runs)} of SIG{options.signal}, median (worst): {told_of(runs)}")
    print(f"{standby}: pods {len(load.created)}, lost {lost}, bound twice {twice}, load {os.getloadavg()[0]:.1f}")
    return lost + twice


def told_of(runs: list[Figures]) -> str:
    """In words."""

    def spread(what: str, digits: int = 2) -> str:
        values = [run[what] for run in runs]
        middle = f"{statistics.median(values):.{digits}f}"
        return middle if len(values) == 1 else f"{middle} ({max(values):.{digits}f})"

    return (
        f"term after {spread('term')} s, bound after {spread('bound')} s, no Binding for {spread('gap')} s; successors "
        f"made {spread('lists', 0)} lists, read {spread('objects', 0)} objects, used {spread('cpu')} s of CPU; "
        f"{spread('stood_by', 0)} of them had stood by; mesh and load {spread('rss_mb', 0)} MB"
    )


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--running", type=int, default=0, help="pods that run already (0)")
    parser.add_argument("--rate", type=float, default=50, help="new pods a second (50)")
    parser.add_argument("--agents", type=int, default=2, help="(2); 0: the leader decides")
    parser.add_argument("--signal", choices=["TERM", "KILL"], default="TERM")
    parser.add_argument("--victim", type=names_of(VICTIMS), default=["coordinator"], help=", ".join(VICTIMS))
    parser.add_argument("--standby", type=names_of(("warm", "cold")), default=["warm"], help="warm, cold")
    options = parser.parse_args()
    wrong = sum(run_to_its_end(measure(options, standby)) for standby in options.standby)
    return 1 if wrong else 0


def names_of(known: Any) -> Any:
    """``a,b`` of these names."""

    def read(text: str) -> list[str]:
        given = text.split(",")
        if not set(given) <= set(known):
            raise argparse.ArgumentTypeError(f"{text}: give some of {', '.join(known)}")
        return given

    return read


if __name__ == "__main__":
    sys.exit(main())
