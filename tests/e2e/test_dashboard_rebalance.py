"""The page of rebalancing, in a real Chromium: the plan by batches, where its moves are, and what rounds won."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.e2e.admin_stub import Stub
from tests.e2e.browser import needs_chromium
from tests.e2e.test_dashboard_page import page_of, show

pytestmark = [pytest.mark.process, needs_chromium]


async def test_a_plan_its_batches_and_what_rounds_won_are_shown() -> None:
    async with page_of(Stub()) as tab:
        await show(tab, "#/rebalance")
        page = tab.page
        moves = page.get_by_role("table", name="Moves of the plan")
        await expect(moves.locator("tbody tr")).to_have_count(2)
        await expect(moves).to_contain_text("no room")
        await expect(page.locator("main")).to_contain_text("2 moves in 2 batches")
        await expect(page.locator("main")).to_contain_text("5 → 4 nodes in use")
        await expect(page.get_by_role("table", name="Rounds")).to_contain_text("2 of 3")
