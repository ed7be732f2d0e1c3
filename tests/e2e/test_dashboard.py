"""The dashboard on a real mesh in a real Chromium: what an operator does with it, from signing in to a failover."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.e2e.browser import chromium, needs_chromium, opened
from tests.process.mesh import Mesh

pytestmark = [pytest.mark.process, pytest.mark.etcd, needs_chromium]

TOKEN = "operator-token-for-the-browser"
NODES = 12
WINDOW_PODS = 8
GROUPS = "scheduling.k8s.io/v1alpha2"


def flags(folder: Path) -> dict[str, list[str]]:
    """An admin listener; a policy window closes after so many pods, so that none closes while none come."""
    tokens = folder / "admin-tokens"
    tokens.write_text(f"{TOKEN} operator olga\n")
    tokens.chmod(0o600)
    admin = ["--admin-listen", "127.0.0.1:0", "--admin-token-file", str(tokens)]
    return {"coordinator": [*admin, "--rollout-window-s", "0.5", "--rollout-min-samples", str(WINDOW_PODS)]}


async def add_pods(mesh: Mesh, prefix: str, count: int, **amounts: str) -> set[str]:
    names = {f"{prefix}-{number}" for number in range(count)}
    for name in sorted(names):
        await mesh.add_pod(name, **amounts)
    return names


async def confirm(page: Page, opener: str, verb: str, reason: str) -> None:
    await page.get_by_role("button", name=opener, exact=True).click()
    dialog = page.locator("dialog.question")
    await dialog.get_by_label("Reason, for the audit log").fill(reason)
    await dialog.get_by_role("button", name=verb, exact=True).click()
    await expect(dialog).to_have_count(0)


async def pods_are_shown_and_explained(mesh: Mesh, tab: Any) -> None:
    page = tab.page
    await expect(page.locator(".map-under")).to_contain_text(f"{NODES} nodes")
    names = await add_pods(mesh, "web", 6)
    await mesh.wait_bound(names)
    await page.get_by_role("link", name="default/web-3", exact=True).click()
    drawer = page.get_by_role("dialog", name="default/web-3")
    await expect(drawer).to_contain_text(re.compile("bound on node-\\d+"))
    await expect(drawer.get_by_role("row").filter(has_text="chosen")).to_have_count(1)
    await page.keyboard.press("Escape")
    await add_pods(mesh, "huge", 1, cpu="512")
    await tab.goto("#/queue")
    await page.get_by_role("link", name="default/huge-0").click()
    drawer = page.get_by_role("dialog", name="default/huge-0")
    await expect(drawer).to_contain_text("Insufficient cpu")
    await expect(drawer).to_contain_text("Would help:")
    await page.keyboard.press("Escape")


async def a_group_that_waits_is_explained(mesh: Mesh, tab: Any) -> None:
    page, group = tab.page, {"podGroupName": "train"}
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    body = {"apiVersion": GROUPS, "kind": "PodGroup", "metadata": {"name": "train"}, "spec": policy}
    await mesh.create(f"/apis/{GROUPS}/namespaces/default/podgroups", body)
    for number in range(2):
        await mesh.add_pod(f"train-{number}", cpu="512", schedulingGroup=group)
    await tab.goto("#/queues")
    await page.get_by_role("table", name="Units").get_by_role("link", name="default/train").click()
    tried = page.get_by_role("dialog", name="default/train").get_by_role("region", name="Tried now")
    for told in ("2 members without a node", "Insufficient cpu", "Would help the group"):
        await expect(tried).to_contain_text(told)
    await page.keyboard.press("Escape")


async def scheduling_is_paused_and_a_node_drained(mesh: Mesh, tab: Any) -> None:
    page = tab.page
    await confirm(page, "Pause …", "Pause", "firmware")
    await expect(page.locator("[data-banner=paused]")).to_contain_text("firmware")
    waiting = await add_pods(mesh, "later", 1)
    await confirm(page, "Resume …", "Resume", "done")
    await mesh.wait_bound(waiting)
    await expect(page.locator("[data-banner=paused]")).to_have_count(0)
    await tab.goto("#/nodes/node-4")
    await confirm(page, "Drain …", "Drain", "<b>disk</b>")
    await expect(page.get_by_role("dialog", name="node-4")).to_contain_text("<b>disk</b>")
    await page.keyboard.press("Escape")


async def a_policy_is_compared_and_withdrawn(mesh: Mesh, tab: Any) -> None:
    page = tab.page
    await tab.goto("#/policies")
    await page.get_by_role("button", name="Activate least-allocated@1").click()
    await page.get_by_label("Shadow").check()
    await page.get_by_role("button", name="Activate", exact=True).click()
    sides = page.locator(".versus")
    await expect(sides).to_contain_text("least-allocated@1")
    await expect(sides.locator("[aria-current=step]")).to_have_text("shadow")
    # the agents change over by themselves; pods come until both were asked about enough. After each window the page is
    # given the time to show it: on a busy machine a window may be bad (a slow decision), and three of them in a row
    # withdraw the candidate, and the comparison with it
    window = page.get_by_role("table", name="The last closed window")
    for round_number in range(20):
        await mesh.wait_bound(await add_pods(mesh, f"batch{round_number}", WINDOW_PODS))
        for _ in range(2):  # the second answer was asked for after the window
            await page.wait_for_event("response", lambda answer: answer.url.endswith("/v1/policies"))
        if await window.count():
            break
    await expect(window).to_contain_text("Value of its choices")
    await confirm(page, "Roll back …", "Roll back", "seen enough")
    await expect(sides).not_to_contain_text("least-allocated@1")
    await expect(page.get_by_text("seen enough")).not_to_have_count(0)


async def test_an_operator_explains_pauses_drains_switches_a_policy_and_watches_a_failover(tmp_path: Path) -> None:
    async with (
        Mesh(tmp_path, coordinators=2, agents=1, binders=1, flags=flags(tmp_path)) as mesh,
        chromium() as browser,
    ):
        await mesh.add_nodes(NODES)
        leader = await mesh.leader()
        standby = next(name for name in mesh.services if name.startswith("coordinator") and name != leader)
        urls = {name: mesh.services[name].admin_url for name in (leader, standby)}
        async with (
            opened(browser, urls[standby], token=TOKEN) as tab,
            opened(browser, urls[leader], token=TOKEN) as lost,
        ):
            await expect(tab.page.locator("#leading")).to_contain_text(f"{leader} leads")
            await pods_are_shown_and_explained(mesh, tab)
            await a_group_that_waits_is_explained(mesh, tab)
            await scheduling_is_paused_and_a_node_drained(mesh, tab)
            await a_policy_is_compared_and_withdrawn(mesh, tab)
            # how well the leader is, is no matter of this test: on a busy machine it may be late
            await expect(lost.page.locator("#leading")).to_contain_text(f"{leader} leads")

            # the page of a standby goes on and shows who leads next; that of the dead one says where to look
            mesh.services[leader].wanted = False
            mesh.kill(leader)
            await expect(tab.page.locator("#banners")).to_contain_text("No leader.")
            await expect(tab.page.locator("#leading")).to_contain_text(f"{standby} leads")
            await expect(tab.page.locator("#announcer")).to_contain_text(f"{standby} leads now")
            await expect(tab.page.locator("[data-banner=no_leader]")).to_have_count(0)
            await tab.goto("#/mesh")
            terms = tab.page.get_by_role("region", name="Terms and failovers").get_by_role("listitem")
            await expect(terms).to_have_count(2)
            await expect(terms.last).to_contain_text(f"{leader} term")
            await expect(lost.page.locator("#banners")).to_contain_text("This coordinator does not answer.")
            link = lost.page.get_by_role("link", name=f"Open {standby}")
            await expect(link).to_have_attribute("href", f"{urls[standby]}/ui/")
            await asyncio.wait_for(mesh.wait_bound(await add_pods(mesh, "after", 2)), 60)
