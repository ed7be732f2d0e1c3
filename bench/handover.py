"""How long a leader's hand-over takes when it is told to end: SIGTERM to the first pod that its successor has bound.

    .venv/bin/python -m bench.handover --times 10

A mesh of real processes (two coordinators, two agents, two binders, one etcd, the twin with 200 nodes), one pod every
20 ms. Of each hand-over it prints the seconds from the signal to the successor's term and to the first Binding of a pod
that was created after the signal. Exits 1 when a pod was lost or bound twice.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.stand.ending import run_to_its_end
from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.ports import Store
from shared.wire.keys import Keys
from tests.process.mesh import Mesh, bindings_per_uid

POD_EVERY_S = 0.02
PATIENCE_S = 120.0


class Load:
    """Pods that keep coming; ``created``: when each was accepted (monotonic seconds)."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self.created: dict[str, float] = {}
        self.enough = asyncio.Event()

    async def run(self) -> None:
        """Until ``enough``."""
        while not self.enough.is_set():
            name = f"p{len(self.created)}"
            await self._mesh.add_pod(name, cpu="10m", memory="1Mi")
            self.created[name] = time.monotonic()
            await asyncio.sleep(POD_EVERY_S)

    async def first_bound_after(self, at: float) -> float:
        """Seconds from ``at`` to the first Binding of a pod that was created after it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                young = {name for name, created in self.created.items() if created > at}
                pods = await self._mesh.pods() if young else []
                if any(pod["metadata"]["name"] in young and pod["spec"].get("nodeName") for pod in pods):
                    return time.monotonic() - at
                await asyncio.sleep(0.01)


async def successor_after(store: Store, key: str, term: int, at: float) -> float:
    """Seconds from ``at`` to another term of the coordinator than ``term``."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            kv = await store.get(key)
            if kv is not None and kv.create_revision != term:
                return time.monotonic() - at
            await asyncio.sleep(0.005)


async def measure(times: int, nodes: int) -> int:
    """Hand over ``times`` times; the exit code."""
    key, elected, bound = Keys().coordinator_leader, list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        async with Mesh(Path(folder)) as mesh:
            await mesh.add_nodes(nodes, cpu="64", memory="256Gi", pods="500")
            store, load = EtcdStore(EtcdSettings(endpoints=(mesh.etcd.endpoint,))), Load(mesh)
            await mesh.leader()
            coming = asyncio.create_task(load.run())
            for number in range(times):
                await asyncio.sleep(2.0)  # the standby is ready, the queue is short
                leader = await mesh.leader()
                kv = await store.get(key)
                assert kv is not None
                running, at = mesh.services[leader], time.monotonic()
                running.ready.clear()
                mesh.kill(leader, signal.SIGTERM)
                found = await asyncio.gather(
                    successor_after(store, key, kv.create_revision, at), load.first_bound_after(at)
                )
                elected.append(found[0])
                bound.append(found[1])
                print(f"{number + 1}: term after {found[0]:.3f} s, bound after {found[1]:.3f} s", flush=True)
                await running.ready.wait()
            load.enough.set()
            await coming
            await mesh.wait_bound(set(load.created), timeout_s=PATIENCE_S)
            await store.close()
        given = bindings_per_uid(mesh.audit_entries())
    lost, twice = len(load.created) - len(given), sum(len(placed) > 1 for placed in given.values())
    for what, values in (("term", elected), ("bound", bound)):
        print(f"{what}: median {statistics.median(values):.2f} s, worst {max(values):.2f} s")
    print(f"pods {len(load.created)}, lost {lost}, bound twice {twice}")
    return 1 if lost or twice else 0


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=200)
    options = parser.parse_args()
    return run_to_its_end(measure(options.times, options.nodes))


if __name__ == "__main__":
    sys.exit(main())
