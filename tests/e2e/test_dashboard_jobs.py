"""The page of training jobs, in a real Chromium: bars over GPUs, growth, predicted ends, and who is tried."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.e2e.admin_stub import Stub
from tests.e2e.browser import needs_chromium
from tests.e2e.test_dashboard_page import page_of, show

pytestmark = [pytest.mark.process, needs_chromium]


async def test_jobs_stand_over_their_gpus_with_growth_and_predicted_end() -> None:
    async with page_of(Stub()) as tab:
        await show(tab, "#/jobs")
        page = tab.page
        # a row per job, those that have GPUs now first; a job grows in one row
        await expect(page.locator(".gantt-row")).to_have_count(2)
        await expect(page.locator(".gantt-name")).to_have_text(["team/resnet", "team/bert"])
        await expect(page.locator(".gantt-gpus")).to_have_text(["2 GPUs", ""])
        await expect(page.locator(".gantt-row >> nth=0").locator(".gantt-bar:not(.is-expected)")).to_have_count(2)
        await expect(page.locator(".gantt-bars .is-expected")).to_have_count(1)
        await expect(page.get_by_text("1 job waits: the table says why.")).to_be_visible()
        # or a row per node that is in use, the most used first, with a legend
        await page.get_by_role("button", name="By node").click()
        await expect(page.locator(".gantt-name")).to_have_text(["gpu-1", "gpu-2"])
        await expect(page.locator(".gantt-bars .gantt-bar:not(.is-expected)")).to_have_count(3)
        await expect(page.locator(".keys").first).to_contain_text("team/resnet")
        await expect(page.get_by_text("1 node with 8 GPUs had no job in this time.")).to_be_visible()
        tops = (
            await page.locator(".gantt-row >> nth=0")
            .locator(".gantt-bar:not(.is-expected)")
            .evaluate_all("bars => bars.map((bar) => bar.style.top)")
        )
        assert sorted(tops) == ["0px", "9px"], "each worker has a lane of its own"
        jobs = page.get_by_role("table", name="Jobs")
        await expect(jobs.locator("tbody tr")).to_have_count(3)
        await expect(jobs).to_contain_text("by the candidate")
        await expect(page.get_by_role("table", name="Changes")).to_contain_text("1 → 2")
        await expect(page.get_by_role("region", name="Policy")).to_contain_text("1.04 ± 0.02")


async def test_a_bar_leads_to_its_job_and_the_range_is_chosen() -> None:
    async with page_of(Stub()) as tab:
        await show(tab, "#/jobs")
        page = tab.page
        await page.get_by_role("button", name="30 min").click()
        await expect(page.locator(".gantt-bar[title^='team/bert']")).to_have_count(1)
        await page.locator(".gantt-bar[title^='team/resnet']").first.click()
        await expect(page.get_by_role("table", name="Jobs").locator("tbody tr")).to_have_count(1)
        assert "jobs.q=team" in page.url
