"""The drawings of a report as SVG to stand in its page: the values of each policy by seed, and learning curves.

matplotlib draws; text stays text, and colours become the page's CSS variables, which follow the reader's light or dark
setting. Nothing that an SVG could load from elsewhere is in it. matplotlib is in the ``evaluate`` extra.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from html import escape
from math import isfinite
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.evaluation.results import ResultMetric

COLOURS = ("#2563ab", "#c2571a", "#2f7d4f", "#8a4fb0", "#a8862a", "#b53f6b")
"""In the page they are ``var(--s0)`` to ``var(--s5)``."""
TEXT, LINE = "#5c6671", "#d7dce2"
"""In the page ``currentColor`` and ``var(--line)``."""
WIDTH_IN, ROW_IN, AXIS_IN, CURVE_IN = 6.4, 0.28, 0.45, 2.2
MAX_POINTS = 400
"""Points per curve: more than the drawing has pixels would only make the page large."""
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "text.parse_math": False, "font.sans-serif": ["DejaVu Sans"], "font.size": 8.5,
    "text.color": TEXT, "axes.edgecolor": LINE, "axes.grid": True, "axes.axisbelow": True, "grid.color": LINE,
    "axes.formatter.useoffset": False, "axes.spines.top": False, "axes.spines.right": False, "xtick.bottom": False,
    "xtick.labelcolor": TEXT, "ytick.left": False, "ytick.labelcolor": TEXT,
}  # fmt: skip
NAMES_NOBODY_USES = re.compile(r' id="(?![mp][0-9a-f]{10}")[^"]*"')
"""Of groups; what is referred to is called by a letter and a digest."""

Points = Sequence[tuple[float, float]]


def dots(metrics: Mapping[str, ResultMetric], *, name: str) -> str:
    """One row per policy: a dot per seed, a bar from mean - s.d. to mean + s.d., a line at the mean. "": no value."""
    if not any(isfinite(value) for metric in metrics.values() for value in metric.values):
        return ""

    def draw(axes: Axes) -> None:
        for row, metric in enumerate(metrics.values()):
            colour = COLOURS[row % len(COLOURS)]
            shown = [value for value in metric.values if isfinite(value)]
            if isfinite(metric.mean):
                axes.barh(row, 2 * metric.sd, left=metric.mean - metric.sd, height=0.55, color=colour, alpha=0.22)
                axes.vlines(metric.mean, row - 0.35, row + 0.35, color=colour, linewidth=2)
            axes.plot(shown, [row] * len(shown), "o", color=colour, markersize=4, alpha=0.65, markeredgewidth=0)
        axes.set_yticks(range(len(metrics)), [_short(policy) for policy in metrics])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")

    return _svg(draw, AXIS_IN + ROW_IN * len(metrics), label=f"{name} of each policy, one dot per seed")


def curve(points: Points, *, name: str, colour: int = 0) -> str:
    """One curve over steps; "" without any finite point."""
    shown = thinned([(x, y) for x, y in points if isfinite(x) and isfinite(y)])
    if not shown:
        return ""
    return _svg(
        lambda axes: axes.plot(*zip(*shown, strict=True), color=COLOURS[colour % len(COLOURS)], linewidth=1.5),
        CURVE_IN,
        label=f"{name} over training steps",
    )


def distribution(quantiles: Mapping[str, Sequence[float]], *, name: str) -> str:
    """The cumulative distribution of each policy, over a logarithmic axis. ``quantiles``: evenly from 0 to 1; "": none
    that is finite and above 0."""
    shown = {policy: _steps(values) for policy, values in quantiles.items()}
    shown = {policy: points for policy, points in shown.items() if points}
    if not shown:
        return ""

    def draw(axes: Axes) -> None:
        for number, (policy, points) in enumerate(shown.items()):
            colour, style = COLOURS[number % len(COLOURS)], ("-", "--", ":")[number // len(COLOURS) % 3]
            axes.plot(*zip(*points, strict=True), style, color=colour, linewidth=1.5, label=_short(policy))
        axes.set_xscale("log")
        axes.set_ylim(0.0, 1.0)
        axes.legend(frameon=False, fontsize=8, loc="lower right")

    return _svg(draw, CURVE_IN, label=f"share of jobs with no more {name}, by policy")


def day(courses: Mapping[str, Sequence[float]], *, name: str) -> str:
    """The course of each policy over a day, from 0 to 24 h; "": none has a finite value."""
    shown = {
        policy: [(24 * (at + 0.5) / len(values), value) for at, value in enumerate(values) if isfinite(value)]
        for policy, values in courses.items()
    }
    shown = {policy: points for policy, points in shown.items() if points}
    if not shown:
        return ""

    def draw(axes: Axes) -> None:
        for number, (policy, points) in enumerate(shown.items()):
            colour, style = COLOURS[number % len(COLOURS)], ("-", "--", ":")[number // len(COLOURS) % 3]
            axes.plot(*zip(*points, strict=True), style, color=colour, linewidth=1.5, label=_short(policy))
        axes.set_xlim(0, 24)
        axes.set_xticks(range(0, 25, 3))
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=len(shown))

    return _svg(draw, CURVE_IN, label=f"{name}, by hour of the day")


def _steps(values: Sequence[float]) -> list[tuple[float, float]]:
    most = max(1, len(values) - 1)
    return [(value, at / most) for at, value in enumerate(values) if isfinite(value) and value > 0.0]


def thinned(points: Points) -> list[tuple[float, float]]:
    """At most ``MAX_POINTS`` points, each the mean of as many neighbours as fall to it."""
    if len(points) <= MAX_POINTS:
        return list(points)
    return [(float(x), float(y)) for x, y in (part.mean(axis=0) for part in np.array_split(points, MAX_POINTS))]


def _svg(draw: Callable[[Axes], object], height_in: float, *, label: str) -> str:
    """What ``draw`` draws. Identifiers in it begin with a digest of it: a page holds many drawings."""
    file = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": label}):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        draw(figure.subplots())
        figure.savefig(
            file, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    text = file.getvalue()
    text = text[text.index("<svg") :].replace(TEXT, "currentColor").replace(LINE, "var(--line)")
    for number, colour in enumerate(COLOURS):
        text = text.replace(colour, f"var(--s{number})")
    text = re.sub(r"\n *", "\n", NAMES_NOBODY_USES.sub("", text))
    own = sha256(text.encode()).hexdigest()[:8]
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>c{own}-", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


def _short(text: str, most: int = 22) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
