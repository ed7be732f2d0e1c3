"""What one pod costs the twin's API server: create, bind, status, with watchers of all pods looking on.

    .venv/bin/python -m bench.parts.twin_server [--pods 8152] [--watchers 3] [--concurrency 32]

The server runs as a process of its own; its CPU time is read from /proc before and after each phase, so the load
generator is not counted. Prints one JSON object: per phase CPU microseconds and requests per second, RSS at the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import click
import uvloop

from bench.stand.proc import cpu_s, rss_mb

TOKEN = "bench"
ROOT = Path(__file__).resolve().parents[2]
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"labels": {"app": "bench", "conclave.io/qos": "LS"}},
    "spec": {
        "schedulerName": "conclave",
        "containers": [
            {
                "name": "main",
                "image": "registry.k8s.io/pause:3.10",
                "resources": {
                    "requests": {"cpu": "4", "memory": "16Gi", "conclave.io/gpu-milli": "500"},
                    "limits": {"conclave.io/gpu-milli": "500"},
                },
            }
        ],
    },
}
RUNNING = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}


async def watch(session: aiohttp.ClientSession, url: str, seen: asyncio.Event, expected: int) -> None:
    """Count event lines until ``expected`` came."""
    count = 0
    query = {"watch": "true", "allowWatchBookmarks": "true"}
    async with session.get(f"{url}/api/v1/pods", params=query, timeout=aiohttp.ClientTimeout(total=None)) as answer:
        async for chunk in answer.content.iter_any():
            count += chunk.count(b"\n")
            if count >= expected:
                seen.set()
                return


async def phase(
    name: str, count: int, concurrency: int, pid: int, one: Callable[[int], Awaitable[int]]
) -> dict[str, float | str]:
    """Run ``count`` requests; CPU of the server per request."""
    numbers = iter(range(count))
    started, before = time.perf_counter(), cpu_s(pid)

    async def worker() -> None:
        for number in numbers:
            status = await one(number)
            if status >= 300:
                raise click.ClickException(f"{name} {number} was answered with {status}")

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    wall = time.perf_counter() - started
    used = cpu_s(pid) - before
    return {"phase": name, "cpu_us": round(used / count * 1e6, 1), "per_s": round(count / wall, 1)}


async def measure(url: str, pid: int, pods: int, watchers: int, concurrency: int) -> dict[str, object]:
    """Create, bind and run every pod."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    base = f"{url}/api/v1/namespaces/default/pods"
    events = [asyncio.Event() for _ in range(watchers)]
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=0)) as session:
        tasks = [asyncio.create_task(watch(session, url, event, pods * 3)) for event in events]

        async def create(number: int) -> int:
            pod = {**POD, "metadata": {**POD["metadata"], "name": f"p{number}"}}
            async with session.post(base, data=json.dumps(pod)) as answer:
                await answer.read()
                return answer.status

        async def bind(number: int) -> int:
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": f"p{number}", "annotations": {"conclave.io/gpu-devices": "0"}},
                "target": {"apiVersion": "v1", "kind": "Node", "name": f"n{number % 1213}"},
            }
            async with session.post(f"{base}/p{number}/binding", data=json.dumps(body)) as answer:
                await answer.read()
                return answer.status

        async def run(number: int) -> int:
            patch = {"Content-Type": "application/strategic-merge-patch+json"}
            async with session.patch(f"{base}/p{number}/status", data=json.dumps(RUNNING), headers=patch) as answer:
                await answer.read()
                return answer.status

        steps = (("create", create), ("bind", bind), ("status", run))
        phases = [await phase(name, pods, concurrency, pid, one) for name, one in steps]
        await asyncio.wait_for(asyncio.gather(*(event.wait() for event in events)), 60)
        await asyncio.gather(*tasks)
        return {"pods": pods, "watchers": watchers, "phases": phases, "rss_mb": round(rss_mb(pid), 1)}


@click.command()
@click.option("--pods", default=8152, show_default=True)
@click.option("--watchers", default=3, show_default=True)
@click.option("--concurrency", default=32, show_default=True)
@click.option("--audit", type=click.Path(path_type=Path), default=None, help="Let the server write its audit here.")
def main(pods: int, watchers: int, concurrency: int, audit: Path | None) -> None:
    """Measure and print JSON."""
    command = [sys.executable, "-m", "twin", "--token", TOKEN]
    if audit is not None:
        command += ["--audit", str(audit)]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        result = uvloop.run(measure(url, server.pid, pods, watchers, concurrency))
        result["load_average"] = os.getloadavg()[0]
        click.echo(json.dumps(result))
    finally:
        server.terminate()
        server.wait(10)


if __name__ == "__main__":
    main()
