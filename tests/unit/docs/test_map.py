"""The map of docs/architecture.md: its paths are there, each once, in short rows, and no package is left out."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/architecture.md").read_text()
LONGEST = 190
"""Characters of a row that are seen (a link without its address): two lines on a screen."""


def rows(page: str) -> list[tuple[str, str]]:
    """(what is looked for, where it is) of every row under "Where to look"."""
    part = page.partition("### Where to look")[2].partition("### Layers")[0]
    return [(found[1], found[2]) for found in re.finditer(r"^\| ([^|]+) \| (.+) \|$", part, re.MULTILINE)]


def paths(places: str) -> list[str]:
    """The paths that a row names, from the root of the repository; a bare file is beside the path before it."""
    found: list[str] = []
    for word in re.findall(r"`([\w./-]+(?:/|\.py)|Dockerfile)`", places):
        if "/" not in word.rstrip("/") and found and not (ROOT / word).exists():
            last = found[-1]
            word = str(PurePosixPath(last if last.endswith("/") else PurePosixPath(last).parent) / word)
        found.append(word)
    return found


def drawn(page: str) -> set[str]:
    """The files in the picture of a pod's way: each under one of its headings."""
    picture = page.partition("## The map")[2].split("```")[1]
    words = set(re.findall(r"[\w/]+/(?:\w+\.py)?", picture))
    heads = {"", *(word for word in words if re.fullmatch(r"services/\w+/|shared/\w+/", word))}
    return {head + word for head in heads for word in words if word.endswith(".py") and (ROOT / head / word).exists()}


def packages() -> set[str]:
    """Every folder of code at most two levels below shared/ and services/, as a path with a slash at its end."""
    files = [path.relative_to(ROOT) for top in ("shared", "services") for path in (ROOT / top).rglob("*.py")]
    return {f"{PurePosixPath(*file.parts[:-1][:3])}/" for file in files if len(file.parts) > 2}


def left_out(page: str) -> list[str]:
    """Packages that neither a row nor the picture leads to."""
    named = {path for _, places in rows(page) for path in paths(places)} | drawn(page)
    folders = {path for path in named if path.endswith("/")}
    return sorted(
        package
        for package in packages()
        if not any(package.startswith(folder) for folder in folders)
        and not any(path.startswith(package) for path in named)
    )


def twice(page: str) -> list[str]:
    """What is looked for, or led to, by two rows."""
    table = rows(page)
    words = [looked for looked, _ in table if looked != "you look for"] + [
        p for _, places in table for p in paths(places)
    ]
    return sorted({word for word in words if words.count(word) > 1})


def test_every_path_of_the_map_is_there() -> None:
    named = [path for _, places in rows(PAGE) for path in paths(places)]
    assert len(named) > 100
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_each_path_stands_once() -> None:
    assert twice(PAGE) == []


def test_rows_are_short() -> None:
    shown = [re.sub(r"\]\([^)]*\)", "]", looked + places) for looked, places in rows(PAGE)]
    assert [row for row in shown if len(row) > LONGEST] == []


def test_no_package_is_left_out() -> None:
    assert left_out(PAGE) == []


def test_a_row_that_is_lost_or_doubled_is_found() -> None:
    row = next(line for line in PAGE.splitlines() if "`lab/audit/`" in line)
    assert twice(PAGE.replace(row, f"{row}\n{row}")) != []
    lost = "\n".join(line for line in PAGE.splitlines() if "`services/agent/sensors/`" not in line)
    assert left_out(lost) == ["services/agent/sensors/"]
