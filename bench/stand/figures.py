"""Quantiles, medians with their spread, and tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from shared.quantiles import nearest_rank


def quantile(values: Iterable[float], percent: int) -> float:
    """By nearest rank; 0 of nothing."""
    return round(nearest_rank(values, percent / 100)[0], 3)


def spread(values: Sequence[float], digits: int = 1) -> str:
    """``median (min..max)``; the one value where there is one."""
    if not values:
        return "no runs"
    middle = f"{statistics.median(values):,.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):,.{digits}f}..{max(values):,.{digits}f})"


def lines(found: dict[str, Any], indent: str = "") -> list[str]:
    """Figures as indented lines, small groups on one."""
    out = []
    for name, value in found.items():
        if isinstance(value, dict) and any(isinstance(inner, dict | list) for inner in value.values()):
            out += [f"{indent}{name}:", *lines(value, indent + "  ")]
        elif isinstance(value, dict):
            out.append(f"{indent}{name:<24} " + ", ".join(f"{key} {inner}" for key, inner in value.items()))
        elif isinstance(value, list):
            out += [f"{indent}{name}:", *(f"{indent}  {inner}" for inner in value)]
        else:
            out.append(f"{indent}{name:<24} {value}")
    return out


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows in columns, as Markdown reads them too."""
    whole = [list(head), *map(list, rows)]
    widths = [max(len(row[column]) for row in whole) for column in range(len(head))]
    shown = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in whole
    ]
    return [shown[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *shown[1:]]
