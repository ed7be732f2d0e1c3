"""CPU of the Kubernetes client per watch event, per Binding and per listed object, against a server of its own process.

    python bench/parts/kube_client.py [--runs 5] [--events 20000] [--binds 4000]

Prints one JSON object: medians over the runs, and the machine's load beside them. Only this process' CPU is counted;
the server (plain aiohttp, canned answers) burns the other core. Targets: 10 us per event, 150 us per Binding.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import psutil
import uvloop
from aiohttp import web

from shared.adapters.kube.api import KubeClient
from shared.kube.resources import PODS
from shared.ports import BindRequest


def typical_pod(number: int) -> dict[str, Any]:
    """A pod as a Deployment makes it after admission, with managed fields: 3.4 KB, as in ADR 0003."""
    labels = {"app": "web", "pod-template-hash": "5d4f8c7b9", "tier": "front"}
    environment = [{"name": f"VARIABLE_{i}", "value": f"value-{i}" * 3} for i in range(20)]
    container = {
        "name": "web",
        "image": "registry.example.org/team/web:1.2.3",
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
        "env": environment,
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
    }
    managed = {f"f:field{i}": {"f:inner": {}, ".": {}} for i in range(25)}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"web-5d4f8c7b9-{number:05}",
            "namespace": "team",
            "uid": f"5c1f2b6e-0000-4000-8000-{number:012}",
            "resourceVersion": str(number + 1),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": labels,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}],
            "managedFields": [{"manager": "kube", "operation": "Update", "fieldsV1": managed}],
        },
        "spec": {
            "schedulerName": "conclave",
            "containers": [container],
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }


async def serve(events: int) -> None:
    """Canned answers; the port is printed."""
    lines = [json.dumps({"type": "ADDED", "object": typical_pod(i)}).encode() + b"\n" for i in range(events)]
    chunks = [b"".join(lines[i : i + 20]) for i in range(0, events, 20)]
    items = json.dumps([typical_pod(i) for i in range(500)]).encode()
    listing = b'{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":' + items + b"}"

    async def pods(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=listing, content_type="application/json")
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        return response

    async def bind(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=201, body=b'{"kind":"Status","status":"Success","code":201}')

    app = web.Application()
    app.add_routes([web.get("/api/v1/pods", pods), web.post("/api/v1/namespaces/team/pods/{name}/binding", bind)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], len(lines[0]), flush=True)
    await asyncio.Event().wait()


class TokenAccess:
    """``KubeAccess`` with a token and no TLS."""

    proxy: str | None = None
    server_hostname: str | None = None

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def tls(self) -> None:
        return None

    async def headers(self) -> Mapping[str, str]:
        return {"Authorization": "Bearer " + "t" * 40}

    async def renew(self) -> bool:
        return False


async def measure(port: int, events: int, binds: int) -> dict[str, float]:
    """One run of everything, in microseconds of this process' CPU."""
    client = KubeClient(TokenAccess(f"http://127.0.0.1:{port}"))
    figures: dict[str, float] = {}
    request = BindRequest("team", "web-1", "5c1f2b6e-0000-4000-8000-000000000001", "7", "node-1")
    await client.bind(request)

    seen, batches, started = 0, 0, time.process_time()
    watch = client.watch_batches(PODS, resource_version="0")
    async for batch in watch:
        seen += len(batch)
        batches += 1
        if seen >= events:
            break
    figures["watch_event_us"] = (time.process_time() - started) / seen * 1e6
    figures["events_per_batch"] = seen / batches
    await watch.aclose()

    for concurrency in (1, 16, 64):
        gate = asyncio.Semaphore(concurrency)

        async def one(gate: asyncio.Semaphore = gate) -> None:
            async with gate:
                await client.bind(request)

        started, wall = time.process_time(), time.monotonic()
        await asyncio.gather(*(one() for _ in range(binds)))
        figures[f"bind_c{concurrency}_us"] = (time.process_time() - started) / binds * 1e6
        figures[f"bind_c{concurrency}_per_s"] = binds / (time.monotonic() - wall)

    await client.list(PODS)  # the first one grows the heap
    started = time.process_time()
    for _ in range(10):
        await client.list(PODS)
    figures["list_object_us"] = (time.process_time() - started) / 5000 * 1e6
    await client.close()
    return figures


def main() -> None:
    """Start the server, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--binds", type=int, default=4_000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve(options.events))
        return
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", "--events", str(options.events)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port, line_bytes = map(int, server.stdout.readline().split())
        runs = [uvloop.run(measure(port, options.events, options.binds)) for _ in range(options.runs)]
    finally:
        server.terminate()
        server.wait()
    result: dict[str, Any] = {name: round(statistics.median(run[name] for run in runs), 1) for name in runs[0]}
    result |= {
        "line_bytes": line_bytes,
        "rss_mb": round(psutil.Process().memory_info().rss / 1e6, 1),
        "runs": options.runs,
        "load_1m": os.getloadavg()[0],
        "cpus": os.cpu_count(),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
