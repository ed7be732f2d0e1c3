"""Every bench that a page, the Makefile or a docstring names is there, with its options and scenes; every scene of
docs/performance.md has a command, and the opcodes that are recorded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from bench import arrival
from bench.drain.scenes import SCENES as DRAINED
from bench.preemption.load import SCENES as PREEMPTED
from bench.quality.scenes import SCENES as BURSTS
from bench.rebalance.__main__ import SCENES as PLANNED
from bench.scenes.counts import COUNTED, read
from bench.scenes.page import PAGE, named, rewritten

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "bench" / "README.md",
    ROOT / "CHANGELOG.md", ROOT / "Makefile", *sorted((ROOT / "bench").rglob("*.py")),
]  # fmt: skip
SCENES_OF = {
    "bench.arrival": {arrival.ARRIVAL, arrival.STATUS}, "bench.drain": {*DRAINED}, "bench.preemption": {*PREEMPTED},
    "bench.few_agents": {*BURSTS}, "bench.quality": {"openb", *BURSTS}, "bench.scenes": {*COUNTED},
    "bench.rebalance": {*PLANNED},
}  # fmt: skip
"""What ``--scene`` or ``--scenes`` of a bench takes."""
CALL = re.compile(r"(python3? -m |`)(bench(?:\.[a-z_0-9]+)+)(.*?)(?=`|\n\n|\bpython3? -m |\Z)", re.DOTALL)
FILE = re.compile(r"(?<![\w/])bench/[a-z_0-9/]+\.py\b")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
SCENE = re.compile(r"--scenes? ([a-z][a-z0-9,-]*)")


def told(page: Path) -> str:
    """The page; of code its docstrings, of the changelog what is not released, but for what is gone."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".py":
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = (ast.get_docstring(node) for node in ast.walk(ast.parse(text)) if isinstance(node, documented))
        return "\n\n".join(one for one in found if one)
    if page.name == "Makefile":
        return text.replace("\\\n", " ").replace("\n", "\n\n")
    if page.name == "CHANGELOG.md":
        unreleased = text.partition("\n## Unreleased\n")[2].partition("\n## ")[0]
        return re.sub(r"^- Gone: .*(?:\n  .*)*", "", unreleased, flags=re.MULTILINE)
    return text


def written(text: str) -> Iterator[tuple[str, str, str]]:
    """(what precedes, module, what follows) of every bench that a text names."""
    yield from CALL.findall(re.sub(r"[ \t]*\n[ \t]*(?=\S)", " ", re.sub(r"\n\s*\n", "\n\n\n", text)))


def files_of(module: str) -> list[Path]:
    """The module's file, or all of its package; none where there is no such module that can be run."""
    path = ROOT / Path(*module.split("."))
    if path.with_suffix(".py").is_file():
        return [path.with_suffix(".py")]
    return sorted(path.glob("*.py")) if (path / "__main__.py").is_file() else []


@cache
def options_of(module: str) -> frozenset[str]:
    """Every option that the module declares, or a function of another one that it imports to have them declared."""
    texts = []
    for file in files_of(module):
        texts.append(file.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(texts[-1])):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("bench."):
                texts += [body_of(node.module, one.name) for one in node.names if one.name.startswith("add_argument")]
    return frozenset(re.findall(r'"(--[a-z][a-z-]*)"', " ".join(texts)))


def body_of(module: str, function: str) -> str:
    """A function's text."""
    text = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    (found,) = (one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef) and one.name == function)
    return ast.get_source_segment(text, found) or ""


def wrong(text: str) -> list[str]:
    """What benches of the text are not there, or have no such option or scene."""
    found = [f"there is no {file}" for file in FILE.findall(text) if not (ROOT / file).is_file()]
    for before, module, words in written(text):
        if before == "`" and words in ("", ".NAME") and ROOT.joinpath(*module.split("."), "__init__.py").is_file():
            continue  # a package is named, and not run
        if not files_of(module):
            found.append(f"there is no {module}")
            continue
        found += [f"{module} has no {one}" for one in OPTION.findall(words) if one not in options_of(module)]
        scenes = {one for names in SCENE.findall(words) for one in names.split(",")}
        found += [f"{module} has no scene {one}" for one in sorted(scenes - SCENES_OF.get(module, set()))]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_bench_that_is_named_exists_and_has_its_options_and_scenes(page: Path) -> None:
    assert wrong(told(page)) == []


def test_every_row_of_the_table_has_a_command_or_continues_one_that_has() -> None:
    lacking, rows = [], 0
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| **"):
            rows += 1
            if not re.search(r"`python -m bench\.|pytest -m real", line):
                lacking.append(line[:80])
    assert lacking == []
    assert rows > 20


def test_the_page_gives_every_scene_the_opcodes_that_are_recorded() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert named(text) == COUNTED.keys()
    assert rewritten(text, read()["counts"]) == text, "python -m bench.scenes --record writes both"


@pytest.mark.parametrize(
    ("text", "told_of_it"),
    [
        ("`python -m bench.no_such --nodes 1`", "there is no bench.no_such"),
        ("`python -m bench.parts`, a package", "there is no bench.parts"),
        ("See bench/no_such.py.", "there is no bench/no_such.py"),
        ("`python -m bench.drain --nodes 1\n  --no-such`", "bench.drain has no --no-such"),
        ("    python -m bench.drain [--no-such]\n    python -m bench.arrival\n\nText", "bench.drain has no --no-such"),
        ("`python -m bench.handover --shapes 4`", "bench.handover has no --shapes"),
        ("`python -m bench.in_process --kube-scheduler X`", "bench.in_process has no --kube-scheduler"),
        ("`python -m bench.arrival --namespace X`", "bench.arrival has no --namespace"),
        ("`python -m bench.drain --scene like,likes`", "bench.drain has no scene likes"),
        ("`python -m bench.quality --scene join`", "bench.quality has no scene join"),
    ],
)
def test_ablation_a_bench_option_or_scene_that_is_gone_is_found(text: str, told_of_it: str) -> None:
    assert wrong(text) == [told_of_it]


def test_a_package_may_be_named_where_it_is_not_run() -> None:
    assert (
        wrong("Benches are in `bench.parts`, called `bench.parts.NAME`, such as `python -m bench.parts.kernel`.") == []
    )


def test_benches_are_found_at_all() -> None:
    assert len([module for page in PAGES for _, module, _ in written(told(page))]) > 150
    for name in ("CHANGELOG.md", "Makefile", "bench/arrival.py"):
        assert list(written(told(ROOT / name)))
    assert options_of("bench.drain") >= {"--scene", "--nodes", "--single"}
    assert files_of("bench.no_such") == []
