"""What the dashboard costs in a browser: time to its first paint, and CPU while it is looked at.

    .venv/bin/python -m bench.dashboard --nodes 1000 --pods-per-s 50 --seconds 30

A real mesh on the twin, a real Chromium without a GPU (a GPU would take work off it). CPU is that of all the browser's
processes, from /proc, as a share of one core; the page's own work beside it comes from the browser's Performance
domain. Paint times are wall times: the machine's load stands beside them. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
from pathlib import Path

from playwright.async_api import Browser, CDPSession, Page

from bench.dashboard.world import TOKEN, world
from bench.stand.ending import run_to_its_end
from bench.stand.proc import cpu_s, descendants
from tests.e2e.browser import chromium

SETTLE_S = 5.0
PAINTS = """() => Object.fromEntries([
    ...performance.getEntriesByType('paint').map((entry) => [entry.name, entry.startTime]),
    ['nodes drawn', performance.getEntriesByName('nodes-drawn')[0]?.startTime ?? NaN],
])"""


def browser_pids() -> list[int]:
    """Processes of the browser that this process started through the driver."""
    return [pid for pid in descendants(os.getpid()) if "chrom" in Path(f"/proc/{pid}/comm").read_text()]


async def first_paints(browser: Browser, url: str) -> dict[str, float]:
    """Milliseconds after the address was opened, with an empty cache: something is seen, the nodes are seen."""
    context = await browser.new_context(viewport={"width": 1360, "height": 900})
    await context.add_init_script(f"sessionStorage.setItem('conclave-token', '{TOKEN}')")
    page = await context.new_page()
    await page.goto(f"{url}/ui/")
    await page.wait_for_function("() => performance.getEntriesByName('nodes-drawn').length > 0")
    paints: dict[str, float] = await page.evaluate(PAINTS)
    await context.close()
    return paints


async def task_s(session: CDPSession) -> float:
    """Seconds that the page's main thread has worked."""
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


async def watched(page: Page, route: str, seconds: float) -> tuple[float, float]:
    """(CPU of the browser, work of the page's main thread), both as a share of one core."""
    await page.evaluate("route => { location.hash = route }", route)
    await asyncio.sleep(SETTLE_S)
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    pids = browser_pids()
    before, worked = sum(cpu_s(pid) for pid in pids), await task_s(session)
    await asyncio.sleep(seconds)
    cpu, work = sum(cpu_s(pid) for pid in pids) - before, await task_s(session) - worked
    await session.detach()
    return cpu / seconds, work / seconds


async def measure(options: argparse.Namespace, folder: Path) -> None:
    """Print the figures."""
    async with world(folder, nodes=options.nodes) as running, chromium() as browser:
        leader = await running.mesh.leader()
        url = running.coordinators(leader)[0]
        load = os.getloadavg()[0]
        paints = [await first_paints(browser, url) for _ in range(options.runs)]
        print(f"{options.nodes} nodes, load {load:.1f}, {options.runs} openings with an empty cache")
        for name in paints[0]:
            values = [paint[name] for paint in paints]
            print(f"  {name:<24} {statistics.median(values):.0f} ms ({min(values):.0f}..{max(values):.0f})")
        context = await browser.new_context(viewport={"width": 1360, "height": 900})
        await context.add_init_script(f"sessionStorage.setItem('conclave-token', '{TOKEN}')")
        page = await context.new_page()
        await page.goto(f"{url}/ui/")
        async with running.traffic(options.pods_per_s):
            print(f"watched for {options.seconds:g} s at {options.pods_per_s:g} pods/s, load {os.getloadavg()[0]:.1f}")
            for route in ("#/", "#/decisions", "#/nodes"):
                cpu, work = await watched(page, route, options.seconds)
                print(f"  {route:<14} browser {cpu:.1%} of a core, the page's main thread {work:.1%}")
        print(f"  placed per second meanwhile: {await page.evaluate(PLACED)}")
        await context.close()


PLACED = f"""async () => (await (await fetch('/v1/overview', {{ headers: {{ Authorization: 'Bearer {TOKEN}' }} }}))
    .json()).rates.pods_per_s_10s"""


def main() -> None:
    """Start, measure, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods-per-s", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--runs", type=int, default=5, help="openings")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run_to_its_end(measure(options, Path(folder)))


if __name__ == "__main__":
    main()
