"""No figure of a placement suite rests on one decider that sees every node without its page saying so: the mesh decides
by many agents (``conclave evaluate --agents``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "bench/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OF_PLACEMENT = r"conclave evaluate [^`]*--(?:suite (?:thesis|deepsets|openb)|behaviour)|python -m bench\.training_seeds"
COMMAND = re.compile(rf"`(?:{OF_PLACEMENT})\b[^`]*`")
SAID = "one decider"


def silent(text: str) -> Iterator[str]:
    """Commands of one decider in a chapter (``##``) that nowhere says so; what a page shows how to do is no figure."""
    shown = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for chapter in re.split(r"^## ", shown, flags=re.MULTILINE):
        plain = " ".join(chapter.replace("*", "").split())
        for command in COMMAND.findall(plain):
            if "--agents" not in command and SAID not in plain:
                yield command


@pytest.mark.parametrize("page", [page for page in PAGES if "adr" not in page.parts], ids=lambda page: page.name)
def test_figures_of_one_decider_are_said_to_be(page: Path) -> None:
    assert list(silent(page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("## A\n0.5 (`conclave evaluate --suite thesis`)", 1),
        ("## A\n0.5 (`conclave evaluate --suite thesis\n--seeds 1`)\n## B\none decider", 1),
        ("## A\nby one\ndecider 0.5 (`conclave evaluate --suite thesis`)", 0),
        ("## A\n0.5 (`conclave evaluate --suite thesis --agents 4`)", 0),
        ("## A\n```sh\n`conclave evaluate --suite thesis`\n```", 0),
        ("## A\n0.5 (`conclave evaluate --suite jobs`)", 0),
    ],
)
def test_switched_off_a_page_that_does_not_say_so_is_seen(text: str, found: int) -> None:
    assert len(list(silent(text))) == found
