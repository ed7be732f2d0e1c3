"""Every `conclave ...` that a page writes is a command there is, with options it has, and names etcd where it must."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from services.cli.app import conclave

ROOT = Path(__file__).parents[3]
PAGES = [page for page in (ROOT / "docs").rglob("*.md") if "reference" not in page.parts]
PAGES += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
CALL = r"(?:\.venv/bin/)?(?:kubectl )?conclave "
IN_BLOCK = re.compile(rf"(?:^|[|;($&] ?){CALL}(.*)")
IN_TEXT = re.compile(rf"`{CALL}([a-z][^`]*)`")


def written(page: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, words behind ``conclave``) of every command in the page."""
    in_block = False
    for number, line in enumerate(page.read_text().replace("\\\n", " ").splitlines(), 1):
        if line.startswith("```"):
            in_block = not in_block
        for found in (IN_BLOCK if in_block else IN_TEXT).findall(line):
            command = re.split(r" #| > | 2>| & |; |\)", found)[0].rstrip("&")
            yield number, [word.rstrip(",") for word in shlex.split(command)]


def of(words: list[str]) -> tuple[click.Command | None, str, list[str]]:
    """The command, its name, and what is left for it; None where there is no such command."""
    command: click.Command = conclave
    for place, word in enumerate(words):
        if not isinstance(command, click.Group):
            return command, " ".join(words[:place]), words[place:]
        below = command.commands.get(word)
        if below is None and (default := getattr(command, "default", "")):
            return command.commands[default], " ".join(words[:place]), words[place:]
        if below is None:  # a placeholder or option stands for what follows
            return None if word.isalpha() else command, " ".join(words[:place]), words[place:]
        command = below
    return command, " ".join(words), []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_and_option_on_the_page_exists(page: Path) -> None:
    wrong = []
    for number, words in written(page):
        command, name, rest = of(words)
        if command is None:
            wrong.append(f"line {number}: there is no conclave {' '.join(words)}")
            continue
        if command.context_settings.get("ignore_unknown_options"):
            continue  # what a service takes: docs/reference/settings.md
        params = [param for param in command.params if not getattr(param, "hidden", False)]
        options = {name for param in params for name in (*param.opts, *param.secondary_opts)}
        asked = (word.strip("[]().").split("=")[0] for word in rest)
        wrong += [
            f"line {number}: conclave {name} has no {option}"
            for option in asked
            if option.startswith("--") and option not in options | {"--help"}
        ]
    assert wrong == []


def test_commands_are_found_at_all() -> None:
    """A page that nothing is read from would pass whatever it says."""
    assert sum(1 for page in PAGES for _ in written(page)) >= 120
