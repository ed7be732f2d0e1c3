"""CPU and memory of a process at rest that holds leadership and a registration and follows two prefixes on etcd.

    .venv/bin/python bench/parts/idle_leases.py [seconds]

Prints one JSON line: percent of a core used by each part (each in a process of its own), RSS, and the machine's load.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import structlog
import uvloop

from shared.adapters.etcd.channel import EtcdSettings
from shared.adapters.etcd.store import EtcdStore
from shared.election.record import LeaderRecord
from shared.ports import Store
from shared.runtime.lease.leadership import Leadership
from shared.runtime.lease.membership import Membership
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings
from shared.runtime.records.prefix_watch import follow_prefix

PARTS = ("nothing", "leadership", "membership", "two_watches", "all")


def rss_mb() -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024, 1)


async def follow(store: Store, prefix: str) -> None:
    async with aclosing(follow_prefix(store, prefix)) as views:
        async for _ in views:
            pass


async def hold(part: str, endpoint: str, seconds: float) -> None:
    settings = EtcdSettings(endpoints=(endpoint,))
    async with AsyncExitStack() as stack:
        if part in {"leadership", "membership", "all"}:
            thread = await stack.enter_async_context(LeaseThread(lambda: EtcdStore(settings)))
        if part in {"leadership", "all"}:
            record = LeaderRecord(identity=part, incarnation=uuid.uuid4().hex)
            await stack.enter_async_context(Leadership(thread, key=f"/idle/{part}/leader", record=record))
        if part in {"membership", "all"}:
            await stack.enter_async_context(Membership(thread, key=f"/idle/{part}/member", value=b"{}"))
        tasks: list[asyncio.Task[None]] = []
        if part in {"two_watches", "all"}:
            store = EtcdStore(settings)
            stack.push_async_callback(store.close)
            tasks = [asyncio.create_task(follow(store, f"/idle/{part}/{which}/")) for which in "ab"]
        await asyncio.sleep(2)
        began, cpu = time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        used = (time.process_time() - cpu) / (time.monotonic() - began)
        print(json.dumps({"cpu_percent": round(100 * used, 3), "rss_mb": rss_mb()}))
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def measure(seconds: float) -> None:
    results: dict[str, object] = {"seconds": seconds, "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as folder:
        async with EmbeddedEtcd(EmbeddedEtcdSettings(data_dir=Path(folder))) as etcd:
            for part in PARTS:
                command = [sys.executable, __file__, str(seconds), part, etcd.endpoint]
                output = await asyncio.to_thread(
                    subprocess.run, command, check=True, stdout=subprocess.PIPE, text=True, timeout=seconds + 30
                )
                results[part] = json.loads(output.stdout.splitlines()[-1])
    print(json.dumps(results))


if __name__ == "__main__":
    duration = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    if len(sys.argv) > 3:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
        uvloop.run(hold(sys.argv[2], sys.argv[3], duration))
    else:
        asyncio.run(measure(duration))
