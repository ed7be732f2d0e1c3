"""Quantiles and tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shared.quantiles import nearest_rank


def quantile(values: Iterable[float], percent: int) -> float:
    """By nearest rank; 0 of nothing."""
    return round(nearest_rank(values, percent / 100)[0], 3)


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
