"""A balancer before a real API server loses its servers and goes on acknowledging: noticed, told and mended in 30 s."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.adapters.kube.signs import LENGTH_S, Sign, WatchSigns, told
from shared.kube.resources import NODES, PODS, Resource, Upserted
from shared.kube.scheduling_kinds import SCHEDULING_KINDS, STORAGE_KINDS
from shared.runtime.kube.reflector import Reflector
from tests.faults.tcp_proxy import TcpProxy
from tests.real.conftest import RunningPlane

FOUND_WITHIN_S = 30.0
LATE_S = 10.0
"""What a loaded machine may add."""
HEALTHY_S = 45.0
MANY = 30
"""Watches of a coordinator, an autoscaler and a jobs service in all."""
QUIET: tuple[Resource[Any], ...] = (NODES, *(kind.resource for kind in STORAGE_KINDS))
KINDS: tuple[Resource[Any], ...] = (PODS, NODES, *(kind.resource for kind in SCHEDULING_KINDS))


class Noting(WatchSigns):
    """``found``: a watch gave no sign when one was due."""

    def __init__(self) -> None:
        super().__init__()
        self.found = asyncio.Event()

    def missed(self, sign: Sign, now: float) -> None:
        super().missed(sign, now)
        self.found.set()


def through(plane: RunningPlane, port: int, folder: Path) -> Path:
    """A kubeconfig that goes by way of the proxy."""
    file = folder / "through-a-balancer"
    file.write_text(plane.kubeconfig.read_text().replace(plane.url, f"https://127.0.0.1:{port}"))
    return file


async def test_one_flow_of_thirty_watches_that_was_lost_alone_is_found_and_a_quiet_watch_lists_nothing(
    plane: RunningPlane, tmp_path: Path
) -> None:
    server = urlsplit(plane.url)
    loop, signs = asyncio.get_running_loop(), Noting()
    async with TcpProxy(server.port or 443) as proxy, contextlib.AsyncExitStack() as stack:
        client = KubeClient(await KubeConfig.load(through(plane, proxy.port, tmp_path)), signs=signs)
        stack.push_async_callback(client.close)
        watches = [Reflector(client, kind) for kind in islice(cycle(QUIET), MANY)]
        tasks = [asyncio.create_task(one.run(lambda batch: None)) for one in watches]
        for one in watches:
            await asyncio.wait_for(one.synced.wait(), 60.0)
        before = asked_in(plane.audit_log)
        await asyncio.sleep(HEALTHY_S)  # connections of the lists are closed meanwhile: what stands is a watch's
        asked = asked_in(plane.audit_log) - before
        assert client.signs.blind == 0
        proxy.lose_one_server()
        began = loop.time()
        await asyncio.wait_for(signs.found.wait(), FOUND_WITHIN_S + LATE_S)
        took_s = loop.time() - began
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    print(f"found after {took_s:.1f} s; {asked['watch'] / HEALTHY_S:.2f} watches, {asked['list']} lists before")
    assert client.signs.blind == 1
    assert asked["watch"] / HEALTHY_S <= MANY / 15  # first streams are cut short; then one in 25 s
    assert asked["list"] == 0


async def test_a_leaders_watches_that_lost_their_server_hear_of_a_new_pod_within_30_s(
    plane: RunningPlane, namespace: str, tmp_path: Path
) -> None:
    server = urlsplit(plane.url)
    seen = asyncio.Event()

    async def follow_pods(client: KubeClient) -> None:
        async for batch in Reflector(client, PODS).batches():
            for event in batch:
                if isinstance(event, Upserted) and event.object.metadata.name == "while-blind":
                    seen.set()

    async with TcpProxy(server.port or 443) as proxy, contextlib.AsyncExitStack() as stack:
        client = KubeClient(await KubeConfig.load(through(plane, proxy.port, tmp_path)))
        stack.push_async_callback(client.close)
        # no server has them all: one without zones of nodes, say, has nothing to watch of them
        others = [Reflector(client, kind, optional=True) for kind in KINDS if kind is not PODS]
        tasks = [asyncio.create_task(follow_pods(client))]
        tasks += [asyncio.create_task(one.run(lambda batch: None)) for one in others]
        for one in others:
            await asyncio.wait_for(one.synced.wait(), 60.0)
        opened = asked_in(plane.audit_log)["watch"]
        await asyncio.sleep(HEALTHY_S)
        asked = asked_in(plane.audit_log)["watch"] - opened
        assert client.signs.blind == 0
        proxy.lose_servers()
        began = time.monotonic()
        manifest = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "while-blind", "namespace": namespace},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}]},
        }  # fmt: skip
        await asyncio.to_thread(plane.kubectl, "create", "--validate=false", "-f", "-", stdin=json.dumps(manifest))
        await asyncio.wait_for(seen.wait(), FOUND_WITHIN_S + LATE_S)
        took_s = time.monotonic() - began
        lost = client.signs.lost(asyncio.get_running_loop().time())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    # the first streams are cut short, later there is one in 25 s, and a slow machine ends some early
    assert asked <= 3 * len(KINDS) * HEALTHY_S / LENGTH_S
    assert took_s <= FOUND_WITHIN_S + LATE_S
    assert client.signs.blind >= 1
    assert "pods" in {one.plural for one in lost}
    assert told(lost)


def asked_in(audit_log: Path) -> Counter[str]:
    """How often each verb of ours was begun (watch) or answered."""
    lines = (json.loads(line) for line in audit_log.read_text().splitlines() if line.endswith("}"))
    return Counter(
        line["verb"]
        for line in lines
        if "conclave" in line.get("userAgent", "")
        and line["stage"] == ("ResponseStarted" if line["verb"] == "watch" else "ResponseComplete")
    )
