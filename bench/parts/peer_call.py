"""One call between services: CPU on both sides, round-trip time, memory of a bare service.

    python -m bench.parts.peer_call [--runs 5] [--calls 5000] [--bytes 1024] [--aiohttp]

``--aiohttp``: the called side reads every call by aiohttp, and none as ``shared/runtime/http/calls.py`` does. Prints
one JSON object: medians over the runs, and the machine's load beside them. The server is a process of its own with
everything a service has (token, limits, counting); it tells its CPU and memory at ``/v1/stats``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import uvloop

from shared.adapters.peers.client import PeerClient
from shared.adapters.peers.credentials import TokenFile
from shared.runtime.http.callers import Authenticator, Caller
from shared.runtime.http.listener import CALLS, listen
from shared.runtime.http.peers import PeerRoute, build_app
from shared.runtime.observe.metrics import Metrics, ReservoirQuantiles


async def serve(token_file: Path, *, by_aiohttp: bool) -> None:
    """Echo on ``/v1/echo``; the URL is printed."""

    async def echo(body: bytes, _: Caller) -> bytes:
        return body

    route = PeerRoute("/v1/echo", echo)
    app = build_app(Metrics("bench"), routes=[route], authenticator=Authenticator(TokenFile(token_file)))
    if by_aiohttp:
        del app[CALLS]
    listener = await listen(app)
    print(listener.url, flush=True)
    await asyncio.Event().wait()


async def measure(url: str, tokens: TokenFile, calls: int, size: int) -> dict[str, float]:
    """One run at three concurrencies; microseconds and milliseconds."""
    client = PeerClient(credentials=tokens, connections_per_peer=64)
    headers = {"Authorization": tokens.authorization()}
    figures: dict[str, float] = {}
    body = b"x" * size
    async with aiohttp.ClientSession(headers=headers) as raw:

        async def server_stats() -> dict[str, Any]:
            async with raw.get(f"{url}/v1/stats") as response:
                found: dict[str, Any] = await response.json()
                return found

        for concurrency in (1, 16, 64):
            times = ReservoirQuantiles()

            async def caller(share: int, times: ReservoirQuantiles = times) -> None:
                for _ in range(share):
                    started = time.perf_counter()
                    await client.call(url, "/v1/echo", body, timeout_s=10)
                    times.record((time.perf_counter() - started) * 1e3)

            await asyncio.gather(*(caller(3) for _ in range(concurrency)))
            before, started, wall = await server_stats(), time.process_time(), time.monotonic()
            await asyncio.gather(*(caller(calls // concurrency) for _ in range(concurrency)))
            number = calls // concurrency * concurrency
            figures[f"client_c{concurrency}_us"] = (time.process_time() - started) / number * 1e6
            figures[f"calls_c{concurrency}_per_s"] = number / (time.monotonic() - wall)
            after = await server_stats()
            figures[f"server_c{concurrency}_us"] = (after["cpu_s"] - before["cpu_s"]) / number * 1e6
            figures[f"p50_c{concurrency}_ms"], figures[f"p99_c{concurrency}_ms"] = (
                times.quantile(0.5),
                times.quantile(0.99),
            )
        figures["server_rss_mb"] = after["rss_bytes"] / 1e6
    await client.close()
    return figures


def main() -> None:
    """Start the server, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--bytes", type=int, default=1_024)
    parser.add_argument("--aiohttp", action="store_true")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        uvloop.run(serve(options.serve, by_aiohttp=options.aiohttp))
        return
    with tempfile.TemporaryDirectory() as folder:
        token_file = Path(folder) / "token"
        token_file.write_text("t" * 32)
        command = [sys.executable, __file__, "--serve", str(token_file), *(["--aiohttp"] if options.aiohttp else [])]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            url, tokens = server.stdout.readline().strip(), TokenFile(token_file)
            runs = [uvloop.run(measure(url, tokens, options.calls, options.bytes)) for _ in range(options.runs)]
        finally:
            server.terminate()
            server.wait()
    result: dict[str, Any] = {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}
    result |= {"bytes": options.bytes, "runs": options.runs, "load_1m": os.getloadavg()[0], "cpus": os.cpu_count()}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
