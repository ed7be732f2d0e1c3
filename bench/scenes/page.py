"""Opcodes on docs/performance.md: wherever a table names a scene before a figure, the figure is what is recorded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_FIGURE = re.compile(r"`(?P<scene>[a-z][a-z0-9-]*)` \d[\d,]*(?P<agents> of agents)?")
"""The scene in backticks, then opcodes of all cores or, ``of agents``, of theirs."""


def named(text: str) -> set[str]:
    """The scenes that tables of the page give opcodes of."""
    return {match["scene"] for row in _ROW.findall(text) for match in _FIGURE.finditer(row)}


def rewritten(text: str, counts: Mapping[str, Mapping[str, float]]) -> str:
    """The page with the figures of ``counts``; scenes that are not in them keep theirs."""

    def figure(match: re.Match[str]) -> str:
        scene, agents = match["scene"], match["agents"] or ""
        if scene not in counts:
            return match[0]
        of = counts[scene]
        return f"`{scene}` {of.get('agents', 0.0) if agents else sum(of.values()):,.0f}{agents}"

    return _ROW.sub(lambda row: _FIGURE.sub(figure, row[0]), text)
