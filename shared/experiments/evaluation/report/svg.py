"""Small drawings as SVG text: curves over steps, and the values of each policy with mean and deviation.

Colours are CSS classes (``s0`` to ``s5``) and ``currentColor``, so that the page decides for light and dark. All text
is escaped. It refuses to lay out more than that: no legends beside, no interaction, no script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, isfinite, log10

from shared.experiments.evaluation.report.markup import number
from shared.experiments.evaluation.results import Metric

WIDTH, ROW = 640, 26
LEFT, RIGHT, TOP, BOTTOM = 150, 18, 8, 30
CURVE_HEIGHT, CURVE_LEFT = 220, 62
COLOURS = 6
MAX_POINTS = 400
"""Points per curve: more than the drawing has pixels would only make the page large."""

Points = Sequence[tuple[float, float]]


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from at or below ``low`` to at or above ``high``: steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    if not (isfinite(span) and span > 0):
        # one value only: room of a tenth around it
        pad = abs(low) * 0.1 or 1.0
        return ticks(low - pad, low + pad, count) if isfinite(low) else [0.0, 1.0]
    rough = span / count
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def dots(metrics: Mapping[str, Metric], *, name: str) -> str:
    """One row per policy: a dot per seed, a bar from mean - s.d. to mean + s.d., a line at the mean."""
    values = [value for metric in metrics.values() for value in metric.values if isfinite(value)]
    if not values:
        return ""
    marks = ticks(min(values), max(values))
    height = TOP + ROW * len(metrics) + BOTTOM
    scale = _scale(marks[0], marks[-1], LEFT, WIDTH - RIGHT)
    parts = [_open(WIDTH, height, f"{name} of each policy, one dot per seed")]
    for mark in marks:
        x = scale(mark)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{height - BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 12}" text-anchor="middle">{number(mark)}</text>')
    for row, (policy, metric) in enumerate(metrics.items()):
        y = TOP + ROW * (row + 0.5)
        colour = f"s{row % COLOURS}"
        parts.append(f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(_short(policy))}</text>')
        if isfinite(metric.mean):
            low, high = scale(metric.mean - metric.sd), scale(metric.mean + metric.sd)
            parts.append(
                f'<rect class="{colour} band" x="{low:.1f}" y="{y - 7:.1f}" width="{high - low:.1f}" height="14"/>'
            )
            x = scale(metric.mean)
            parts.append(f'<line class="{colour} mean" x1="{x:.1f}" y1="{y - 9:.1f}" x2="{x:.1f}" y2="{y + 9:.1f}"/>')
        parts += [
            f'<circle class="{colour} dot" cx="{scale(value):.1f}" cy="{y:.1f}" r="3"/>'
            for value in metric.values
            if isfinite(value)
        ]
    return "".join([*parts, "</svg>"])


def curve(points: Points, *, name: str, colour: int = 0) -> str:
    """One curve over steps, thinned to ``MAX_POINTS`` by the mean of each stretch."""
    shown = thinned([(x, y) for x, y in points if isfinite(x) and isfinite(y)])
    if not shown:
        return ""
    rows = ticks(min(y for _, y in shown), max(y for _, y in shown), 4)
    columns = ticks(shown[0][0], shown[-1][0])
    height = CURVE_HEIGHT
    across = _scale(min(columns[0], shown[0][0]), columns[-1], CURVE_LEFT, WIDTH - RIGHT)
    up = _scale(rows[0], rows[-1], height - BOTTOM, TOP)
    parts = [_open(WIDTH, height, f"{name} over training steps")]
    for mark in rows:
        y = up(mark)
        parts.append(f'<line class="grid" x1="{CURVE_LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{CURVE_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number(mark)}</text>')
    parts += [
        f'<text x="{across(mark):.1f}" y="{height - 10}" text-anchor="middle">{number(mark)}</text>' for mark in columns
    ]
    line = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in shown)
    parts.append(f'<polyline class="s{colour % COLOURS} curve" points="{line}"/>')
    return "".join([*parts, "</svg>"])


def thinned(points: Points, most: int = MAX_POINTS) -> list[tuple[float, float]]:
    """At most ``most`` points, each the mean of as many neighbours as fall to it."""
    if len(points) <= most:
        return list(points)
    found = []
    for part in range(most):
        stretch = points[part * len(points) // most : (part + 1) * len(points) // most]
        found.append((sum(x for x, _ in stretch) / len(stretch), sum(y for _, y in stretch) / len(stretch)))
    return found


class _scale:  # noqa: N801  used like a function
    """A linear map of numbers to pixels."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._start = low, start
        self._by = (end - start) / (high - low) if high > low else 0.0

    def __call__(self, value: float) -> float:
        return self._start + (value - self._low) * self._by


def _open(width: int, height: int, label: str) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label, quote=True)}">'


def _short(text: str, most: int = 22) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
