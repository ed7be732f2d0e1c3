"""A real Chromium for tests of the dashboard: the distribution's, driven by playwright, which downloads nothing.

Where there is none the tests say so; ``make test-e2e`` installs it.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), "")
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed; 'make test-e2e' installs one")

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE_MS = 60_000
"""A bound for a loaded machine, nothing that a test is about."""

LOADS = 5

expect.set_options(timeout=PATIENCE_MS)


@asynccontextmanager
async def chromium(*more_flags: str) -> AsyncIterator[Browser]:
    """A browser with an empty profile."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *more_flags])
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Tab:
    """One page, with what went wrong in it."""

    page: Page
    problems: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Requests that got no answer, and why: told where a test fails."""

    async def goto(self, route: str) -> None:
        """Another view, by its address."""
        await self.page.evaluate("route => { location.hash = route }", route)

    async def sign_in(self, token: str) -> None:
        await self.page.get_by_label("Admin token").fill(token)
        await self.page.get_by_role("button", name="Sign in").click()
        await expect(self.page.get_by_role("navigation", name="Views")).to_be_visible()


async def load(page: Page, url: str) -> None:
    """Open the dashboard of ``url``. Chromium drops what it is loading when an interface of the machine comes or goes,
    as with every container that starts; then it is opened again, as a reader would."""
    dropped: list[str] = []
    page.on("requestfailed", lambda request: dropped.append(request.failure or ""))
    for _ in range(LOADS):
        dropped.clear()
        await page.goto(f"{url}/ui/")
        if not any("ERR_NETWORK_CHANGED" in reason for reason in dropped):
            return


@asynccontextmanager
async def opened(browser: Browser, url: str, *, token: str = "", **context: Any) -> AsyncIterator[Tab]:
    """The dashboard of ``url``, signed in where a token is given. A script error or a breach of the page's own
    content policy is one of its ``problems``, and none may be left at the end."""
    held = await browser.new_context(**context)
    page = await held.new_page()
    page.set_default_timeout(PATIENCE_MS)
    tab = Tab(page)
    page.on("requestfailed", lambda request: tab.broken.append(f"{request.url}: {request.failure}"))
    page.on("pageerror", lambda error: tab.problems.append(str(error)))
    page.on("console", lambda said: tab.problems.append(said.text) if "Content Security Policy" in said.text else None)
    try:
        await load(page, url)
        if token:
            await tab.sign_in(token)
        yield tab
        assert tab.problems == []
    except AssertionError:
        print("requests without an answer:", *tab.broken, sep="\n  ")
        raise
    finally:
        await held.close()
