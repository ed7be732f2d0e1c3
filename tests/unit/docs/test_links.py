"""Every link between our pages leads to a file, and to a heading of it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "bench").glob("*.md")]
PAGES += [ROOT / house / "README.md" for house in ("lab", "services", "shared", "twin")]
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")


def anchor(heading: str) -> str:
    """As GitHub makes it of a heading's text."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Those of a page's headings."""
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        made = anchor(heading)
        found.append(f"{made}-{found.count(made)}" if made in found else made)
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_on_the_page_leads_somewhere(page: Path) -> None:
    broken = []
    prose = re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8"))
    for path, heading in LINK.findall(prose):
        to = (page.parent / path).resolve() if path else page
        if not to.exists() or (heading and to.suffix == ".md" and heading not in anchors(to)):
            broken.append(f"{path}#{heading}")
    assert broken == []


def test_links_are_found_at_all_and_a_wrong_heading_is_none() -> None:
    assert sum(len(LINK.findall(page.read_text(encoding="utf-8"))) for page in PAGES) > 200
    assert anchor("When a leader is killed, or the API server restarts") == (
        "when-a-leader-is-killed-or-the-api-server-restarts"
    )
    assert "no-such-heading" not in anchors(ROOT / "docs" / "performance.md")
