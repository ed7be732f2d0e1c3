"""Devices that claims are given, in a real Chromium: the map by driver, the list of nodes, a node's page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.e2e.browser import chromium, needs_chromium, opened
from tests.e2e.test_dashboard import TOKEN, flags
from tests.process.mesh import Mesh

pytestmark = [pytest.mark.process, pytest.mark.etcd, needs_chromium]

DRIVER = "gpu.example.com"
API = "resource.k8s.io/v1"
Json = dict[str, Any]


async def test_devices_are_shown_by_driver_on_the_map_in_the_list_and_on_the_nodes_page(tmp_path: Path) -> None:
    twin = ["--simulate", "--nodes", "2", "--devices", "4"]
    async with (
        Mesh(tmp_path, coordinators=1, agents=1, binders=1, flags=flags(tmp_path), twin_flags=twin) as mesh,
        chromium() as browser,
    ):
        request = {"name": "r", "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 3}}
        spec: Json = {"spec": {"devices": {"requests": [request]}}}
        body = {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": "three"}, "spec": spec}
        await mesh.create(f"/apis/{API}/namespaces/default/resourceclaimtemplates", body)
        await mesh.add_pod("p", resourceClaims=[{"name": "g", "resourceClaimTemplateName": "three"}])
        await mesh.wait_bound({"p"})
        (node,) = [pod["spec"]["nodeName"] for pod in await mesh.pods()]
        other = f"node-{1 - int(node[-1])}"
        async with opened(browser, mesh.services[await mesh.leader()].admin_url, token=TOKEN) as tab:
            page = tab.page
            await tab.goto("#/nodes")
            rows = page.get_by_role("table", name="Nodes").get_by_role("row")
            await expect(rows.filter(has_text=node)).to_contain_text(f"{DRIVER} 3 of 4")
            await expect(rows.filter(has_text=other)).to_contain_text(f"{DRIVER} 0 of 4")
            await tab.goto(f"#/nodes/{node}")
            drawer = page.get_by_role("dialog", name=node)
            devices = drawer.get_by_role("table", name="Devices").locator("tbody tr > *")
            await expect(devices).to_have_text([DRIVER, "its own", re.compile(r"^75\s%$"), "1", "3", "0", "0"])
            given = drawer.get_by_role("table", name="Pods here").get_by_role("row").filter(has_text="default/p")
            await expect(given).to_contain_text(f"{DRIVER}/{node}/gpu-2")
            await page.keyboard.press("Escape")
            await tab.goto("#/")
            await expect(page.locator("#map-metric option", has_text=DRIVER)).to_have_count(1)
