"""What users read says things in the field's words: no word of our own stands on a page or in a message."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OURS = re.compile(
    r"\brous(?:e|es|ed|ing)\b|\b(?:stands?|standing) by\b|\bsays go\b|\b(?:a|the|new) (?-i:go)\b"
    r"|\banew\b|\bin vain\b|\bin (?:its|whose|their) stead\b|\bmend(?:s|ed|ing)?\b",
    re.IGNORECASE,
)
"""Instead: tried again, standby, approve, again, in place of, fix."""
PAGES = sorted(
    page for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "k8s").rglob("*.yaml")]
    if "adr" not in page.parts
)  # fmt: skip
ALLOWED = ("must be met for a go",)
"""The answer of the analysis is go or no go."""


def prose(text: str) -> str:
    """The text without what stands in backquotes: names of fields."""
    return re.sub(r"`[^`\n]*`", "", text)


def found_in(text: str) -> bool:
    """Whether a word of ours is in it."""
    for phrase in ALLOWED:
        text = text.replace(phrase, "")
    return OURS.search(text) is not None


def messages(tree: ast.AST) -> Iterator[str]:
    """The string literals that are sentences, and no docstrings."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in bare
            and " " in node.value
        ):
            yield node.value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_the_fields_words(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if found_in(prose(line))] == []


@pytest.mark.parametrize("package", ["lab", "services", "shared", "twin"])
def test_messages_use_the_fields_words(package: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {text}"
        for path in (ROOT / package).rglob("*.py")
        for text in messages(ast.parse(path.read_text(encoding="utf-8")))
        if found_in(text)
    }
    assert found == set()


def test_the_readme_fits_two_screens_and_says_what_is_proven_where() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    proven = text.partition("## What is proven, and where\n")[2].partition("\n## ")[0]
    points = re.findall(r"^- \*\*(.*?)\*\*", proven, re.MULTILINE)
    assert len(points) == 5
    assert any("real control plane" in point for point in points)
    assert any("twin" in point for point in points)
