"""Seconds from a cold ``docker compose up`` to everything healthy and to the first pod bound, once the images exist.

    python -m bench.compose_up [--runs N] [--tag TAG]

Cold: no container, network or volume of the stack exists; secrets are made and etcd starts empty. The pod and its node
are created as soon as the twin answers, so that the pod waits for the mesh and not the other way round. Needs a Docker
engine with the images of ``make images``, and docker compose.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time


async def measure(tool: tuple[str, ...]) -> tuple[float, float]:
    """Seconds until a pod is bound, and until every container is healthy."""
    from tests.e2e.stack import Stack

    started = time.monotonic()
    async with Stack(tool) as stack:
        await stack.healthy("twin")
        async with stack.joined() as cluster:
            await cluster.add_node("n0")
            await cluster.add_pod("p0")
            await cluster.until(lambda c: c.bound("p0"), within_s=300, what="the first pod is bound")
            bound_s = time.monotonic() - started
        await stack.healthy()
        return bound_s, time.monotonic() - started


async def run(runs: int) -> None:
    """Print a line per run, and the medians."""
    from tests.e2e.engine import composes, missing

    if missing() or not composes():
        raise SystemExit(missing() or "docker compose is not installed")
    found = []
    for number in range(runs):
        load = os.getloadavg()[0]
        bound_s, healthy_s = await measure(composes()[0])
        found.append((bound_s, healthy_s))
        print(
            f"run {number + 1}: first pod bound {bound_s:.1f} s, all healthy {healthy_s:.1f} s, load {load:.1f}",
            flush=True,
        )
    for what, values in zip(("first pod bound", "all healthy"), zip(*found, strict=True), strict=True):
        print(f"{what}: median {statistics.median(values):.1f} s ({min(values):.1f}-{max(values):.1f})")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tag", default="0.1.0", help="of the images")
    arguments = parser.parse_args()
    os.environ["E2E_TAG"] = arguments.tag
    asyncio.run(run(arguments.runs))


if __name__ == "__main__":
    main()
