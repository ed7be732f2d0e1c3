"""The autoscaling page in a real Chromium: who acted and why, what holds it back, what it costs, how old it is."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.e2e.admin_stub import Stub
from tests.e2e.browser import needs_chromium
from tests.e2e.test_dashboard_page import page_of, show

pytestmark = [pytest.mark.process, needs_chromium]


async def test_each_service_says_who_acted_why_and_what_hpa_would_have() -> None:
    async with page_of(Stub()) as tab:
        await show(tab, "#/autoscaling")
        objects = tab.page.get_by_role("table", name="Autoscalers").locator("tbody tr")
        await expect(objects).to_have_count(2)
        await expect(objects.nth(0)).to_contain_text("counts")
        await expect(objects.nth(1)).to_contain_text("void: something has changed since")
        await expect(objects.nth(1)).to_contain_text("front is set by keda")
        services = tab.page.get_by_role("table", name="Services").locator("tbody tr")
        await expect(services).to_have_count(4)
        for told in ("183/s", "3 of 4", "failure-manager", "rate-up", "Canary: not in the 10 %", "cpu: it is 90 s old"):
            await expect(services.nth(1)).to_contain_text(told)
        await tab.page.get_by_label("State of the service").select_option("held")
        await expect(services).to_have_count(4)
        await objects.nth(0).get_by_role("link", name="shop/graph").click()
        drawer = tab.page.locator("dialog.drawer")
        await expect(drawer).to_contain_text("1.40 replica hours in 10 min")
        await expect(drawer).to_contain_text("rule would have asked for 1.70")
        await expect(drawer.get_by_role("table", name="Decisions, newest first")).to_contain_text("4 → 5")
        await expect(drawer.get_by_role("img", name="Requests per second")).to_be_visible()
        await expect(drawer).to_contain_text("60 recorded decisions")


async def test_while_the_leader_is_away_the_last_figures_stay_with_their_age() -> None:
    stub = Stub()
    async with page_of(stub) as tab:
        await show(tab, "#/autoscaling")
        services = tab.page.get_by_role("table", name="Services").locator("tbody tr")
        await expect(services).to_have_count(4)
        stub.busy["*"] = 1
        await expect(tab.page.locator("main .as-of").first).to_contain_text("Shown as of", timeout=20_000)
        await expect(services).to_have_count(4)
