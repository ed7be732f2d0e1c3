"""Every file, folder and snake_case name on a page is there, and tests lie where what they test lies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path, PurePath

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [page for page in (ROOT / "docs").rglob("*.md") if "reference" not in page.parts]
PAGES += [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / house / "README.md" for house in ("lab", "services", "shared", "twin")),
    *(ROOT / "bench").glob("*.md"),
]
TOP = ("bench", "compose", "docs", "images", "k8s", "lab", "services", "shared", "tests", "twin")
CODE = tuple(
    PurePath(file.relative_to(ROOT)) for top in TOP for file in (ROOT / top).rglob("*.py") if ".venv" not in file.parts
)
OF_LIBRARIES = frozenset({"watch.py", "channel.py"})
"""Of the Python client and of etcd3, which ADRs speak of."""

OF_OTHERS = frozenset({"etcd_disk_backend_commit_duration_seconds", "last_call_timeout", "keep_alive_interval"})
"""Metrics of etcd's, options of torchrun's."""


def named(page: Path) -> Iterator[tuple[int, str]]:
    """(line, path) of every Python file, and of all in backticks that begins as a path of ours; CAPITALS stand for any
    name."""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        quoted = " ".join(re.findall(r"`([^`]+)`", line))
        ours = re.findall(rf"(?<![\w./-])(?:{'|'.join(TOP)})/[\w.{{}},*/-]*", quoted)
        for path in {*ours, *re.findall(r"(?<![\w./{},*-])[\w{},*/-]+\.py\b", line)}:
            yield number, re.sub(r"(?<=/)[A-Z]+\b", "*", path.strip(",.;"))


@cache
def names() -> frozenset[str]:
    """Every word of the code and of the reference, which is made from it."""
    kinds = (".py", ".yaml", ".json", ".js", ".toml", ".sh")
    files = [file for top in TOP if top != "tests" for file in (ROOT / top).rglob("*") if file.suffix in kinds]
    files += [*(ROOT / "docs" / "reference").glob("*.md"), ROOT / "pyproject.toml"]
    return frozenset(chain.from_iterable(re.findall(r"\w+", file.read_text()) for file in files))


def spelled_out(path: str) -> list[str]:
    """``a/{b,c}.py`` as ``a/b.py`` and ``a/c.py``."""
    found = re.search(r"\{([^{}]*)\}", path)
    if found is None:
        return [path]
    ends = (spelled_out(path[: found.start()] + part + path[found.end() :]) for part in found[1].split(","))
    return list(chain.from_iterable(ends))


def exists(path: str) -> bool:
    """From the root (a module may lack its ``.py``), or a Python file by the end of its path, as prose names it."""
    if any(ROOT.glob(path.rstrip("/"))) or (ROOT / f"{path}.py").is_file():
        return True
    return path.endswith(".py") and (path in OF_LIBRARIES or any(file.match(path) for file in CODE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_on_the_page_exists(page: Path) -> None:
    missing = [f"line {n}: {one}" for n, path in named(page) for one in spelled_out(path) if not exists(one)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_snake_case_name_on_the_page_exists(page: Path) -> None:
    """Log lines, metrics, fields and functions: runbooks sent people to look for two log lines that nobody wrote."""
    missing = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        quoted = " ".join(re.findall(r"`([^`]+)`", line))
        found = re.findall(r"(?<![\w./*-])(?!test_)[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w/*]|\.py)", quoted)
        missing += [f"line {number}: {name}" for name in found if name not in names() | OF_OTHERS]
    assert missing == []


def test_paths_are_found_at_all() -> None:
    """Pages that nothing is read from would pass whatever they say."""
    found = [path for page in PAGES for _, path in named(page)]
    assert len(found) > 200
    assert spelled_out("shared/{kube,wire}/x.py") == ["shared/kube/x.py", "shared/wire/x.py"]
    assert exists("shared/wire/keys.py")
    assert exists("filters/static.py")
    assert not exists("shared/wire/locks.py")
    assert not exists("filters/locks.py")


def test_folders_of_unit_tests_mirror_the_code() -> None:
    unit = ROOT / "tests" / "unit"
    folders = {file.parent.relative_to(unit) for file in unit.rglob("test_*.py")}
    assert len(folders) > 20
    assert sorted(str(folder) for folder in folders if not (ROOT / folder).is_dir()) == []
