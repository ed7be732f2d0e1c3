"""Pictures of the dashboard for the documentation: a real mesh on the twin whose cluster is full, with GPUs, queues and
gangs, pending pods and nodes that are unwell; a real Chromium, a real failover.

    .venv/bin/python -m bench.screenshots --out docs/images

Takes some minutes, so that the charts have something to show. Fonts are the machine's; the published ones have Inter.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.async_api import Page, expect

from bench.dashboard.tenants import LATE, TREE, add_gangs, add_tenants
from bench.dashboard.world import TOKEN, DashboardWorld, world
from tests.e2e.browser import chromium

WIDE = {"width": 1360, "height": 940}
WINDOWS_S = 45.0
"""Until two windows of the comparison have closed."""
PHONE = {"width": 390, "height": 844}


async def post(page: Page, path: str, body: dict[str, Any]) -> None:
    """A change, as the page itself would ask for it."""
    answer = await page.evaluate(
        """async ([path, body, token]) => (await fetch(path, { method: 'POST', body: JSON.stringify(body),
            headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' } })).status""",
        [path, body, TOKEN],
    )
    assert answer == 200, (path, answer)


async def take(page: Page, out: Path, name: str) -> None:
    """One picture of what the window shows, in 256 colours: it has hardly more."""
    file = out / f"dashboard-{name}.png"
    shown = Image.open(io.BytesIO(await page.screenshot(animations="disabled"))).convert("RGB")
    shown.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file.name} {file.stat().st_size // 1000} kB", flush=True)


async def view(page: Page, route: str) -> None:
    """Go there; the pointer marks nothing and nothing is focused."""
    await page.mouse.move(2, 2)
    await page.evaluate("route => { location.hash = route; document.activeElement.blur(); scrollTo(0, 0) }", route)


async def pictures(running: DashboardWorld, page: Page, out: Path, leader: str, seconds: float) -> None:
    """In the order in which things happen."""
    await post(page, "/v1/policies/activate", {"name": "marl-dqn", "stage": "active", "reason": "balance"})
    await post(page, "/v1/nodes/node-0042/drain", {"reason": "disk errors"})
    await asyncio.sleep(seconds)
    await post(page, "/v1/policies/activate", {"name": "least-allocated", "stage": "shadow", "reason": "trial"})
    await asyncio.sleep(WINDOWS_S)
    await take(page, out, "light")
    await page.emulate_media(color_scheme="dark")
    await take(page, out, "dark")
    await page.emulate_media(color_scheme="light")
    await view(page, "#/?group=zone&colour=nvidia.com%2Fgpu&range=1h")
    await expect(page.get_by_label("Group")).to_have_value("zone")
    await asyncio.sleep(4)
    await take(page, out, "map")
    await view(page, "#/pending")
    await expect(page.get_by_role("table", name="Groups of pending pods").locator("tbody tr").nth(2)).to_be_visible()
    await take(page, out, "pending")
    await view(page, "#/queues")
    await expect(page.get_by_role("table", name="Queues").locator("tbody tr")).to_have_count(len(TREE))
    await take(page, out, "queues")
    await page.get_by_role("table", name="Units").get_by_role("link", name="default/tts-voices").click()
    await expect(
        page.locator("dialog.drawer").get_by_role("region", name="Tried now").locator(".group")
    ).to_be_visible()
    await take(page, out, "unit")
    await page.keyboard.press("Escape")
    await view(page, "#/nodes?sort=-extended")
    await expect(page.get_by_role("table", name="Nodes").locator("tbody tr").nth(20)).to_be_visible()
    await take(page, out, "nodes")
    await view(page, "#/health")
    await expect(page.get_by_text("Longest turn", exact=True)).to_be_visible()
    await take(page, out, "health")
    await view(page, "#/policies")
    await expect(page.get_by_role("table", name="The last closed window")).to_be_visible()
    await take(page, out, "policies")
    await view(page, "#/queue?q=train&sort=-pending")
    await page.get_by_role("table", name="Pods in the queue").locator("tbody a").first.click()
    await expect(page.locator("dialog.drawer .group").first).to_be_visible()
    await take(page, out, "pending-pod")
    await page.keyboard.press("Escape")
    await view(page, "#/")
    await page.get_by_role("table", name="Newest decisions").locator("tbody a").nth(3).click()
    await expect(page.locator("dialog.drawer tbody tr").first).to_be_visible()
    await take(page, out, "explain")
    await page.keyboard.press("Escape")
    await page.set_viewport_size(PHONE)
    await page.emulate_media(color_scheme="dark")
    await asyncio.sleep(4)
    await take(page, out, "phone")
    await page.set_viewport_size(WIDE)
    await page.evaluate("() => { document.activeElement.blur(); scrollTo(0, 0) }")
    await page.mouse.move(2, 2)
    await page.emulate_media(color_scheme="light")
    running.mesh.services[leader].wanted = False
    running.mesh.kill(leader)
    await expect(page.locator("[data-banner=no_leader]")).to_be_visible()
    await take(page, out, "failover")


async def run(options: argparse.Namespace, folder: Path) -> None:
    """Fill a cluster, look at it through a standby, kill the leader."""
    async with world(folder, nodes=options.nodes) as running, chromium() as browser:
        leader = await running.mesh.leader()
        url = running.coordinators(leader)[1]
        context = await browser.new_context(viewport=WIDE, color_scheme="light")
        await context.add_init_script(f"sessionStorage.setItem('conclave-token', '{TOKEN}')")
        page = await context.new_page()
        await add_tenants(running.mesh)
        await running.add_pods(options.nodes * options.pods_per_node)
        await running.add_misfits(options.misfits)
        await add_gangs(running.mesh, LATE)
        async with running.traffic(options.pods_per_s, batch=60):
            await page.goto(f"{url}/ui/")
            await pictures(running, page, options.out, leader, options.seconds)
        await context.close()


def main() -> None:
    """Take them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--nodes", type=int, default=400)
    parser.add_argument("--pods-per-node", type=int, default=16)
    parser.add_argument("--misfits", type=int, default=60, help="of each kind that finds no room")
    parser.add_argument("--pods-per-s", type=float, default=12.0)
    parser.add_argument("--seconds", type=float, default=150.0, help="of looking before the first picture")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(options, Path(folder)))


if __name__ == "__main__":
    main()
