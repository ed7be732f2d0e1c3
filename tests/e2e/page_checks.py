"""Checks of a page as it is rendered, after WCAG 2.1 AA: each gives what is wrong, as text; an empty list is good."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Page

CHECKS = Path(__file__).with_suffix(".js").read_text()


async def low_contrast(page: Page) -> list[str]:
    """Text below 4.5 : 1 (3 : 1 where it is large), with its ratio."""
    return await _run(page, "lowContrast")


async def structure_faults(page: Page) -> list[str]:
    """Missing names, labels, captions and landmarks; skipped headings; ids used twice."""
    return await _run(page, "structureFaults")


async def letter_wrapping(page: Page) -> list[str]:
    """Words cut into lines of a few letters."""
    return await _run(page, "letterWrapping")


async def overflow(page: Page) -> list[str]:
    """What reaches beyond the right edge of the window."""
    return await _run(page, "overflow")


async def _run(page: Page, check: str) -> list[str]:
    found: list[str] = await page.evaluate(f"() => ({CHECKS.rstrip()}).{check}()")
    return found
