"""The page on pending pods explains every message that a rule or the coordinator gives."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "faq-pending.md").read_text()


def test_every_reason_of_a_rule_is_explained() -> None:
    texts = "\n".join(path.read_text() for path in (ROOT / "shared" / "scheduling").rglob("*.py"))
    reasons = set(re.findall(r'"(node\(s\) (?:had|didn\'t|were|unavailable|exceed)[^"{]*)"', texts))
    assert len(reasons) >= 12, "the rules say nothing any more?"
    unexplained = [r for r in reasons if r not in PAGE and r.replace(" (missing required label)", "") not in PAGE]
    assert unexplained == []
    assert "drained from scheduling by" in texts
    assert "drained from scheduling by" in PAGE


def test_what_the_page_quotes_of_the_mesh_is_said_by_it() -> None:
    files = [*(ROOT / "services").rglob("*.py"), *(ROOT / "shared/scheduling").rglob("*.py")]
    said = "\n".join(path.read_text() for path in files)
    rows = PAGE.split("## What the mesh says about itself")[1].split("## ")[0]
    quoted = re.findall(
        r"`([^`]+)`", "\n".join(line.split("|")[1] for line in rows.splitlines() if line.startswith("| `"))
    )
    assert len(quoted) >= 8
    for text in quoted:
        words = max(re.split(r"\b[NM]\b|NODE|CODE|\(s\)|\.\.\.", text), key=len).strip(" :(),")
        assert words in said, text


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
