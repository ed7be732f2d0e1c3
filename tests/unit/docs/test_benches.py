"""Every bench that a page names is there, with the options that it is given; every scene of the table has a command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "bench" / "README.md"]
TABLE = ROOT / "docs" / "performance.md"
CALL = re.compile(r"(?:python3? -m |`)(bench(?:\.[a-z_0-9]+)+)([^`]*)`")


def written(text: str) -> Iterator[tuple[str, list[str]]]:
    """(module, options) of every bench that a page names."""
    for module, words in CALL.findall(re.sub(r"\s*\n\s*", " ", text)):
        yield module, re.findall(r"(?<![\w-])--[a-z][a-z-]*", words)


def files_of(module: str) -> list[Path]:
    """The module's file, or all of its package; none where there is no such module that can be run."""
    path = ROOT / Path(*module.split("."))
    if path.with_suffix(".py").is_file():
        return [path.with_suffix(".py")]
    return sorted(path.glob("*.py")) if (path / "__main__.py").is_file() else []


@cache
def options_of(module: str) -> frozenset[str]:
    """Every option that the module, or what it shares with others, declares."""
    shared = [ROOT / "bench" / "stand" / "contest.py", ROOT / "bench" / "in_process" / "switches.py"]
    texts = (file.read_text(encoding="utf-8") for file in (*files_of(module), *shared))
    return frozenset(re.findall(r'"(--[a-z][a-z-]*)"', " ".join(texts)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_bench_on_the_page_exists_and_has_its_options(page: Path) -> None:
    wrong = []
    for module, options in written(page.read_text(encoding="utf-8")):
        if not files_of(module):
            wrong.append(f"there is no {module}")
        wrong += [f"{module} has no {one}" for one in options if one not in options_of(module)]
    assert wrong == []


def test_every_row_of_the_table_has_a_command_or_continues_one_that_has() -> None:
    lacking, rows = [], 0
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| **"):
            rows += 1
            if not re.search(r"`python -m bench\.|`--scene |pytest -m real", line):
                lacking.append(line[:80])
    assert lacking == []
    assert rows > 20


def test_benches_are_found_at_all() -> None:
    found = [module for page in PAGES for module, _ in written(page.read_text(encoding="utf-8"))]
    assert len(found) > 80
    assert options_of("bench.drain") >= {"--scene", "--nodes", "--single"}
    assert files_of("bench.no_such") == []
