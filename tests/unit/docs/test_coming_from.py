"""docs/coming-from: what a page says is read as it is, the code reads; its names of ours are there; one screen each."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import click
import pytest

from services.cli.app import conclave

ROOT = Path(__file__).parents[3]
PAGES = {path.stem: path for path in (ROOT / "docs" / "coming-from").glob("*.md") if path.stem != "README"}
PEERS = {"kube-scheduler", "volcano", "kueue", "kai", "yunikorn", "koordinator", "descheduler"}
VERDICTS = ("as it is", "change", "no")
MOST_LINES = 45
OTHERS = {
    "suspend: true": "what a Job's controller reads: there are no pods",
    "kueue.x-k8s.io/admission": "any gate holds a pod, whatever its name",
}
"""Read as it is by no code of ours, and why that is right."""


@cache
def code() -> str:
    """The mesh's code and manifests, where keys and kinds are read, and the page of metrics, which is made of code."""
    files = [*(ROOT / "shared").rglob("*.py"), *(ROOT / "services").rglob("*.py"), *(ROOT / "k8s/base").glob("*.yaml")]
    files.append(ROOT / "docs" / "reference" / "metrics.md")
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def rows(text: str) -> list[tuple[str, str, str]]:
    return re.findall(r"^\| (.+?) \| ((?:as it is|change|no)\b[^|]*?) \| ?(.*?) ?\|$", text, re.MULTILINE)


def unread(text: str) -> list[str]:
    """What stands in backticks in a row that says "as it is" and is in no code."""
    there = [first for first, verdict, _ in rows(text) if verdict.startswith("as it is")]
    named = [word for one in there for word in re.findall(r"`([^`]+)`", one)]
    return [word for word in named if word not in OTHERS and not read(word)]


def read(word: str) -> bool:
    snake = re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1].lower()}", word)
    domain, _, name = word.partition("/")
    as_lent = domain == "kubernetes.io" and f'"{name}"' in code()  # a resource by its name, whatever its domain
    return any(re.search(rf"(?<![\w-]){re.escape(one)}(?![\w-])", code()) for one in (word, snake)) or as_lent


def test_each_peer_has_its_page() -> None:
    assert PAGES.keys() == PEERS
    index = (ROOT / "docs" / "coming-from" / "README.md").read_text()
    assert {name for name in PEERS if f"({name}.md)" in index} == PEERS


@pytest.mark.parametrize("name", sorted(PEERS))
def test_a_page_is_one_screen_with_the_way_over_and_back(name: str) -> None:
    text = PAGES[name].read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert "\n## Over" in text
    assert "\n## Back\n" in text
    table = [line for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows(text)) == len([line for line in table if not line.startswith("|--")]) >= 8


@pytest.mark.parametrize("name", sorted(PEERS))
def test_what_is_read_as_it_is_is_read(name: str) -> None:
    assert unread(PAGES[name].read_text()) == []


@pytest.mark.parametrize("name", sorted(PEERS))
def test_what_a_page_names_of_ours_is_there(name: str) -> None:
    text = PAGES[name].read_text()
    keys = set(re.findall(r"conclave\.io/[a-z-]+", text))
    assert [key for key in keys if f'"{key}' not in code()] == []
    for command in re.findall(r"`conclave ([a-z-]+)", text):
        assert command in conclave.commands, command
    fields = {word for _, _, here in rows(text) for word in re.findall(r"`(\w+)`", here)}
    known = code() + (ROOT / "docs/reference/settings.md").read_text() + (ROOT / "docs/policies/README.md").read_text()
    assert [one for one in sorted(fields) if one not in known and not read(one)] == []


def unknown_flags(text: str) -> list[str]:
    """Flags in the rows' last column, and what stands beside them, that no command of ours takes."""
    taken = [option for command in conclave_commands() for option in command.params if isinstance(option, click.Option)]
    choices = {flag: option.type for option in taken for flag in option.opts}
    wrong = []
    here = "\n".join(row[2] for row in rows(text))
    for flag, value in re.findall(r"`(?:conclave [a-z -]+ )?(--[a-z-]+)(?: ([\w-]+))?`", here):
        kind = choices.get(flag)
        if kind is None or (value and isinstance(kind, click.Choice) and value not in kind.choices):
            wrong.append(f"{flag} {value}".strip())
    return wrong


@cache
def conclave_commands() -> list[click.Command]:
    context = click.Context(conclave)
    return [found for name in ("rebalance", "run", "drain") if (found := conclave.get_command(context, name))]


def test_the_descheduler_s_flags_are_taken_with_what_stands_beside_them() -> None:
    assert unknown_flags(PAGES["descheduler"].read_text()) == []
    row = "| x | as it is | `--unprotect DaemonSetPods`, `--no-such-flag`, `--protect PodsWithPVC` |\n"
    assert unknown_flags(row) == ["--unprotect DaemonSetPods", "--no-such-flag"]


def test_a_key_that_nobody_reads_is_found() -> None:
    row = "| `koordinator.sh/qosClass` | as it is | x |\n| `volcano.sh/nothing`, `podPlace` | as it is | x |\n"
    assert unread(row) == ["volcano.sh/nothing", "podPlace"]
    assert unread("| `volcano.sh/nothing` | change | x |\n") == []
