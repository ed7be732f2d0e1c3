"""Each learned policy goes from shadow to active in a real mesh by what it is for, and a spoiled copy is withdrawn.

One mesh plays all of them, one after the other, on nodes that differ in their latency to users and in their GPUs: with
four agents that share the nodes, and with one agent on each node, whose sensors read a /proc in which the node's pods
use what they ask for, and of whom the few most promising are asked about a pod. Of ``marl-dqn`` what is spoiled are the
networks of classes of nodes, beside a shared one that is sound; with an agent on each node what is sound has such too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.decide.stages import Stage
from shared.model.pod import POLICY_ANNOTATION
from shared.model.resources import GPU_MILLI
from shared.policy.networks import layer_count
from shared.policy.registry import goal_of, reference
from shared.policy.rollout.rollout import BUILT_IN, PointerChange, publish, to_stage
from shared.policy.weights import WeightsFile, decode, encode, shipped
from shared.runtime.records.policies import follow_pointer, read_pointer, write_change
from shared.wire.keys import Keys
from shared.wire.records import PolicyPointer, PolicyRef
from tests.marl_weights import with_networks
from tests.patience import PATIENCE_S
from tests.process.changing_proc import ChangingProc
from tests.process.mesh import Mesh, bindings_per_uid

pytestmark = [pytest.mark.process, pytest.mark.etcd]

PER_NODE = pytest.mark.skipif(not os.environ.get("ROLLOUTS"), reason="a minute or two: make test-rollouts")
KEYS = Keys()
NODES, CPUS, MEMORY_GIB = 6, 32, 128
LATENCY_MS, GPUS, POOLS = (5, 25, 60), (8, 4), ("large", "small")
"""Of the nodes, in turn."""
ROLLOUT = [
    "--rollout-window-s", "0.4", "--rollout-min-samples", "8", "--rollout-good-windows", "1",
    "--rollout-promotion", "auto", "--rehearse-every-s", "0", "--metrics-every-s", "3600",
]  # fmt: skip
FEW = ["--asked-agents", "2"]
LIMITS = {"latencySoftConstraint": "10", "latencyHardConstraint": "30"}
Json = dict[str, Any]


class Demand(msgspec.Struct, frozen=True):
    """Pods that come in turn, one each ``every_s``, and how many of them stay. ``kinds``: CPUs, thousandths of GPUs."""

    kinds: Sequence[tuple[float, int]]
    stay: int
    every_s: float = 0.04
    annotations: dict[str, str] = {}

    def pod(self, name: str, kind: tuple[float, int]) -> Json:
        """Four times as many GiB as CPUs; pods of a kind are one workload, of which is learned what it uses."""
        cpus, gpu_milli = kind
        requests = {"cpu": f"{cpus * 1000:.0f}m", "memory": f"{cpus * 4096:.0f}Mi"}
        gpus = {GPU_MILLI: str(gpu_milli)} if gpu_milli else {}
        container = {"name": "c", "image": "i", "resources": {"requests": requests | gpus, "limits": gpus}}
        return {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "default", "annotations": self.annotations,
                "labels": {"app": f"w{cpus:g}-{gpu_milli}"},
            },
            "spec": {"schedulerName": "conclave", "containers": [container]},
        }  # fmt: skip


DEMANDS = {
    "frag": Demand([(2, 1000), (2, 500), (2, 1000), (2, 250), (2, 2000), (2, 4000)], stay=16),
    "ee": Demand([(1, 0), (3, 0), (1, 0)], stay=30),
    "lb": Demand([(1, 0)], stay=40),
    "el": Demand([(1, 0)], stay=40, annotations=LIMITS),
    "marl-dqn": Demand([(1, 0), (3, 0)], stay=40, every_s=0.15),  # it goes by readings
}


def spoiled(file: WeightsFile) -> WeightsFile:
    """As of weights whose sign was lost on the way: the network's last layer the other way round."""
    last = f"l{layer_count(file.arrays) - 1}."
    arrays = {name: -array if name.startswith(last) else array for name, array in file.arrays.items()}
    card = msgspec.structs.replace(file.card, version=file.card.version + 1)
    return decode(encode(WeightsFile(arrays, card)), policy=file.card.policy)


def with_pools(shared: WeightsFile, own: WeightsFile) -> WeightsFile:
    """``shared``, and for the nodes of each pool, which are all there are, a network as that of ``own``."""
    file = with_networks(shared, {pool: number for number, pool in enumerate(POOLS, 1)}, {1: own, 2: own})
    card = msgspec.structs.replace(file.card, version=own.card.version + 1)
    return decode(encode(WeightsFile(file.arrays, card)), policy=shared.card.policy)


class Kubelets:
    """A /proc for each node, in which its pods use what they ask for, and the node itself a little that is never the
    same: a /proc that stands still is taken for a copy."""

    def __init__(self, folder: Path, nodes: Sequence[str]) -> None:
        self._procs = {node: ChangingProc(folder / f"proc-{node}") for node in nodes}
        self._ticks = dict.fromkeys(nodes, 0.0)
        self._idle_ticks = dict.fromkeys(nodes, 0.0)
        self._looks = 0
        self._worked_ms = dict.fromkeys(nodes, 0.0)
        self._at_s = self._began_s = time.monotonic()
        self.pass_time({})

    def pass_time(self, cpus: dict[str, float]) -> None:
        """Until now so many of each node's CPUs were used, and of its one disk's time as large a share."""
        now = time.monotonic()
        passed_s = now - self._at_s
        self._looks += 1
        for node, proc in self._procs.items():
            used = min(CPUS, cpus.get(node, 0.0) + 0.02)
            self._ticks[node] += 100 * used * passed_s
            self._idle_ticks[node] += 100 * (CPUS - used) * passed_s
            self._worked_ms[node] += 1000 * cpus.get(node, 0.0) / CPUS * passed_s
            ticks, worked_ms = f"{self._ticks[node]:.0f} 0 0 {self._idle_ticks[node]:.0f}", round(self._worked_ms[node])
            each = "".join(f"cpu{number} 0 0 0 0 0 0 0 0 0 0\n" for number in range(CPUS))
            free_kib = int((MEMORY_GIB - 4 * cpus.get(node, 0.0)) * 2**20) - self._looks % 1024
            texts = {
                "stat": f"cpu  {ticks} 0 0 0 0 0 0\n{each}",
                "meminfo": f"MemTotal: {MEMORY_GIB * 2**20} kB\nMemAvailable: {free_kib} kB\n",
                "diskstats": f"   8 0 sda 1 0 1 1 1 0 1 1 0 {worked_ms} {worked_ms}\n",
            }
            proc.change(now - self._began_s, texts)
        self._at_s = now


class Live:
    """A mesh, its pointer, and pods that come and go."""

    def __init__(self, mesh: Mesh, store: EtcdStore) -> None:
        self.mesh = mesh
        self.store = store
        self.made = 0
        self._here: deque[str] = deque()

    async def until(self, holds: Callable[[PolicyPointer], bool]) -> PolicyPointer:
        """The first pointer from now on for which it holds."""
        last: PolicyPointer | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S), aclosing(follow_pointer(self.store, KEYS)) as pointers:
                async for stored in pointers:
                    last = stored.pointer if stored is not None else None
                    if last is not None and holds(last):
                        return last
        windows = [line for line in self._windows() if "rollout" in line]
        pytest.fail(f"not within {PATIENCE_S:g} s: {last}; {windows[-5:]}")

    def _windows(self) -> list[str]:
        return (self.mesh.folder / "coordinator-0.log").read_text().splitlines()

    async def put(self, ref: PolicyRef, stage: Stage, file: WeightsFile | None = None) -> None:
        """As ``conclave policy try`` does it."""
        stored = await read_pointer(self.store, KEYS)
        assert stored.pointer is not None
        made_for = goal_of(ref.name, file.card) if file is not None else ""
        published = publish(stored.pointer, ref, by="test", made_for=made_for).after
        after = to_stage(published, stage, 0, reason="test", by="test").after
        data = None if file is None else encode(file)
        assert await write_change(
            self.store, KEYS, PointerChange(stored.pointer, after), stored.mod_revision, weights=data
        )

    @asynccontextmanager
    async def pods(self, demand: Demand) -> AsyncIterator[None]:
        """They come while the block runs, the oldest go; then all go."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._come(demand, over))
            try:
                yield
            finally:
                over.set()
        while self._here:
            await self._remove(self._here.popleft())

    async def offers_and_cycles(self) -> tuple[int, int]:
        """That agents were sent, and that there were."""
        agents = [name for name in self.mesh.services if name.startswith("agent")]
        offers = sum([(await self.mesh.get(name, "/v1/stats"))["agent"]["offers"] for name in agents])
        return offers, (await self.mesh.get("coordinator-0", "/v1/stats"))["coordinator"]["rounds"]

    async def until_measured(self, holds: Callable[[list[float]], bool]) -> None:
        """Until what is known of all nodes' disks is so: shares of their time, -1 where nothing is."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                told = (await self.mesh.get("coordinator-0", "/v1/stats"))["coordinator"].get("measured", {})
                if holds([told.get(f"agent-{number}", {}).get("disk", -1.0) for number in range(NODES)]):
                    return
                await asyncio.sleep(0.1)

    async def _come(self, demand: Demand, over: asyncio.Event) -> None:
        for kind in cycle(demand.kinds):
            name = f"p{self.made}"
            self.made += 1
            await self.mesh.create("/api/v1/namespaces/default/pods", demand.pod(name, kind))
            self._here.append(name)
            while len(self._here) > demand.stay:
                await self._remove(self._here.popleft())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(demand.every_s):
                    await over.wait()
                    return

    async def time_passes(self, kubelets: Kubelets) -> None:
        """Until cancelled."""
        while True:
            used = await self._used()
            for _ in range(3):
                kubelets.pass_time(used)
                await asyncio.sleep(0.1)

    async def _remove(self, name: str) -> None:
        url = f"{self.mesh.api_url}/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0"
        async with self.mesh.session.delete(url) as response:
            assert response.status == 200, await response.text()

    async def _used(self) -> dict[str, float]:
        """CPUs that pods ask for, by node."""
        used: dict[str, float] = {}
        for pod in await self.mesh.pods():
            node = pod["spec"].get("nodeName", "")
            cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            used[node] = used.get(node, 0.0) + float(cpu.removesuffix("m")) / (1000 if cpu.endswith("m") else 1)
        return used


async def add_nodes(mesh: Mesh, names: Sequence[str]) -> None:
    await mesh.add_nodes(NODES, cpu=str(CPUS), memory=f"{MEMORY_GIB}Gi", pods="250", named=names[0].rpartition("-")[0])
    headers = {"Content-Type": "application/merge-patch+json"}
    for number, name in enumerate(names):
        latency = str(LATENCY_MS[number % len(LATENCY_MS)])
        gpus = {GPU_MILLI: str(1000 * GPUS[number % len(GPUS)])}
        patches = {
            "": {
                "metadata": {
                    "annotations": {"conclave.io/latency-ms": latency},
                    "labels": {"pool": POOLS[number % len(POOLS)]},
                }
            },
            "/status": {"status": {"allocatable": gpus, "capacity": gpus}},
        }
        for part, patch in patches.items():
            url = f"{mesh.api_url}/api/v1/nodes/{name}{part}"
            async with mesh.session.patch(url, json=patch, headers=headers) as response:
                assert response.status == 200, await response.text()


@asynccontextmanager
async def live(folder: Path, *, per_node: bool) -> AsyncIterator[Live]:
    names = [f"{'agent' if per_node else 'node'}-{number}" for number in range(NODES)]
    kubelets = Kubelets(folder, names) if per_node else None
    sensors = ["--node", "{name}", "--sensor-every-s", "1", "--host-proc", f"{folder}/proc-{{name}}"]
    flags = {"coordinator": ROLLOUT + (FEW if per_node else []), "agent": sensors if per_node else []}
    async with Mesh(folder, coordinators=1, agents=NODES if per_node else 4, binders=1, flags=flags) as mesh:
        await add_nodes(mesh, names)
        await mesh.leader()
        store = EtcdStore(EtcdSettings(endpoints=(mesh.etcd.endpoint,)))
        running = Live(mesh, store)
        try:
            async with asyncio.TaskGroup() as tasks:
                passing = tasks.create_task(running.time_passes(kubelets)) if kubelets is not None else None
                try:
                    yield running
                finally:
                    if passing is not None:
                        passing.cancel()
        finally:
            await store.close()


@pytest.mark.parametrize(
    "per_node",
    [
        pytest.param(False, id="four agents"),
        pytest.param(True, id="one agent a node, with sensors", marks=PER_NODE),
    ],
)
async def test_each_policy_is_rolled_out_live_and_a_spoiled_copy_withdrawn(tmp_path: Path, per_node: bool) -> None:
    async with live(tmp_path, per_node=per_node) as mesh:
        await mesh.until(lambda pointer: pointer.active == BUILT_IN)
        for name, demand in DEMANDS.items():
            sound, other = shipped(name), spoiled(shipped(name))
            if name == "marl-dqn":
                sound, other = with_pools(sound, sound) if per_node else sound, with_pools(sound, other)
            async with mesh.pods(demand):
                await mesh.put(reference(sound), Stage.SHADOW, sound)
                promoted = await mesh.until(lambda pointer: pointer.candidate is None)
                assert (promoted.active, promoted.previous) == (reference(sound), BUILT_IN), promoted.reason

                await mesh.put(reference(other), Stage.SHADOW, other)
                back = await mesh.until(lambda pointer: pointer.candidate is None)
                assert back.active == reference(sound)
                assert "worse in 3 windows in a row" in back.reason
                assert f"by the goal {goal_of(name, sound.card)}" in back.reason

                if per_node and name == "marl-dqn":
                    await mesh.until_measured(lambda disks: min(disks) >= 0.0 and max(disks) > 0.05)
                await mesh.put(BUILT_IN, Stage.ACTIVE)
                await mesh.until(lambda pointer: pointer.active == BUILT_IN)
        if per_node:
            offers, cycles = await mesh.offers_and_cycles()
            assert offers < NODES * cycles
            await mesh.until_measured(lambda disks: 0.0 <= min(disks) <= max(disks) < 0.01)  # no pod is left
        nodes = bindings_per_uid(await mesh.mesh.audit_until_now())
        assert all(len(given) == 1 for given in nodes.values())
        placed = {
            entry["object"]["metadata"].get("annotations", {}).get(POLICY_ANNOTATION, "").partition("@")[0]
            for entry in await mesh.mesh.audit_until_now()
            if entry["kind"] == "Pod" and entry["object"].get("spec", {}).get("nodeName")
        }
        assert {*DEMANDS, "kube-default"} <= placed
