"""The maps of the three houses: their paths are there, each once in all three, in short rows; none is left out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[3]
HOUSES = {"docs/architecture.md": ("services", "shared"), "docs/lab.md": ("lab",), "docs/twin.md": ("twin",)}
"""The page with the map of a house, and the folders that the house is."""
PAGES = {name: (ROOT / name).read_text() for name in HOUSES}
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
    picture = page.partition("## The map")[2].partition("### Where")[0].partition("```")[2].partition("```")[0]
    words = set(re.findall(r"[\w/]+/(?:\w+\.py)?", picture))
    heads = {"", *(word for word in words if re.fullmatch(r"services/\w+/|shared/\w+/", word))}
    return {head + word for head in heads for word in words if word.endswith(".py") and (ROOT / head / word).exists()}


def packages(tops: Iterable[str]) -> set[str]:
    """Every folder of code at most two levels below the tops, as a path with a slash at its end."""
    files = [path.relative_to(ROOT) for top in tops for path in (ROOT / top).rglob("*.py")]
    return {f"{PurePosixPath(*file.parts[:-1][:3])}/" for file in files if len(file.parts) > 2}


def left_out(page: str, tops: Iterable[str]) -> list[str]:
    """Packages that neither a row nor the picture leads to."""
    named = {path for _, places in rows(page) for path in paths(places)} | drawn(page)
    folders = {path for path in named if path.endswith("/")}
    return sorted(
        package
        for package in packages(tops)
        if not any(package.startswith(folder) for folder in folders)
        and not any(path.startswith(package) for path in named)
    )


def twice(*pages: str) -> list[str]:
    """What is looked for, or led to, by two rows of all the pages."""
    table = [row for page in pages for row in rows(page)]
    words = [looked for looked, _ in table if looked != "you look for"] + [
        p for _, places in table for p in paths(places)
    ]
    return sorted({word for word in words if words.count(word) > 1})


def strangers(page: str, tops: Iterable[str]) -> list[str]:
    """Paths into another house than the page's own; its folder alone may be named."""
    others = {top for houses in HOUSES.values() for top in houses} - set(tops)
    named = [path for _, places in rows(page) for path in paths(places)]
    return [path for path in named if path.partition("/")[0] in others and path.rstrip("/") not in others]


@pytest.mark.parametrize(("name", "least"), [("docs/architecture.md", 100), ("docs/lab.md", 30), ("docs/twin.md", 25)])
def test_every_path_of_the_map_is_there(name: str, least: int) -> None:
    named = [path for _, places in rows(PAGES[name]) for path in paths(places)]
    assert len(named) > least
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_each_path_stands_once() -> None:
    assert twice(*PAGES.values()) == []


@pytest.mark.parametrize("name", HOUSES)
def test_rows_are_short(name: str) -> None:
    shown = [re.sub(r"\]\([^)]*\)", "]", looked + places) for looked, places in rows(PAGES[name])]
    assert [row for row in shown if len(row) > LONGEST] == []


@pytest.mark.parametrize("name", HOUSES)
def test_no_package_is_left_out(name: str) -> None:
    assert left_out(PAGES[name], HOUSES[name]) == []


@pytest.mark.parametrize("name", HOUSES)
def test_a_map_is_of_its_own_house(name: str) -> None:
    assert strangers(PAGES[name], HOUSES[name]) == []


@pytest.mark.parametrize("house", ["lab", "twin"])
def test_a_house_says_on_one_screen_what_it_is(house: str) -> None:
    text = (ROOT / house / "README.md").read_text()
    assert len(text.splitlines()) <= 40
    assert f"(../docs/{house}.md)" in text
    named = {path.split("/")[0] for path in re.findall(r"`([\w/]+)/`", text)}
    folders = {path.parent.name for path in (ROOT / house).glob("*/*.py")}
    assert folders - named == set()


def test_a_row_that_is_lost_doubled_or_in_another_map_is_found() -> None:
    mesh, lab = PAGES["docs/architecture.md"], PAGES["docs/lab.md"]
    row = next(line for line in lab.splitlines() if "`lab/audit/`" in line)
    assert twice(lab.replace(row, f"{row}\n{row}")) != []
    moved = mesh.replace("### Layers", f"{row}\n### Layers")
    assert "lab/audit/" in twice(moved, lab)
    assert strangers(moved, HOUSES["docs/architecture.md"]) == [
        "lab/audit/",
        "lab/audit/audit.py",
        "lab/audit/rules.py",
    ]
    lost = "\n".join(line for line in mesh.splitlines() if "`services/agent/sensors/`" not in line)
    assert left_out(lost, HOUSES["docs/architecture.md"]) == ["services/agent/sensors/"]
