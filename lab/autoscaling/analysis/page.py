"""The analysis as one HTML page that loads nothing from outside, and as JSON. Every text that comes in is escaped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jinja2 import Environment, StrictUndefined
from msgspec import json

from lab.autoscaling.analysis.analysis import Analysis
from lab.evaluation.seeds import spelled_seeds


def render(found: Analysis) -> str:
    """The page."""
    jinja = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    jinja.filters |= {"share": share, "short": short, "counts": counts, "spread": spread, "seeds": spelled_seeds}
    text = Path(__file__).with_name("page.html.jinja").read_text(encoding="utf-8")
    return f"{jinja.from_string(text).render(found=found).lstrip()}\n"


def encode(found: Analysis) -> bytes:
    """The JSON; the same analysis gives the same bytes."""
    return json.format(json.encode(found, order="deterministic"), indent=1) + b"\n"


def share(value: float | None) -> str:
    """A share as percent; "-" where there is none."""
    return "-" if value is None else f"{100 * value:.1f} %"


def short(value: float | None) -> str:
    """Three digits; "-" where there is no number."""
    return "-" if value is None else f"{value:.3g}"


def counts(values: dict[str, int]) -> str:
    """``name count`` each."""
    return ", ".join(f"{name} {count}" for name, count in values.items())


def spread(values: list[float]) -> str:
    """Mean and sample standard deviation."""
    deviation = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{deviation}"
