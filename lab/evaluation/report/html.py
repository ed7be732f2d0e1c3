"""The report of an evaluation: one HTML file that loads no script, font or picture from outside.

Results in, text out; what the page looks like is in ``page.html.jinja``. Every text that comes in is escaped. jinja2 is
in the ``evaluate`` extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from lab.evaluation.behaviour import SITUATION, Behaviour
from lab.evaluation.report import charts
from lab.evaluation.report.curves import Curves
from lab.evaluation.results import ResultMetric, SuiteResult
from lab.evaluation.seeds import spelled_seeds

SIGNIFICANT_P = 0.01
"""What the targets ask of a paired difference."""
FEW_FIGURES = 12
"""Up to so many figures are all drawn, and so many groups all shown; of more, those that goals speak of."""
EMPTIER_BELOW, FULLER_ABOVE = 0.35, 0.65
"""Fullness ranks below and above which a node is called emptier or fuller than most."""


@dataclass(frozen=True, slots=True)
class FigureGroup:
    """Figures of one experiment: drawings of what was promised, and a table with a column per policy."""

    name: str
    open: bool
    policies: list[str]
    drawings: list[tuple[str, str]]
    rows: list[tuple[str, list[str]]]


def render(result: SuiteResult, *, curves: Sequence[Curves] = (), behaviours: Sequence[Behaviour] = ()) -> str:
    """The page."""
    jinja = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    jinja.filters |= {"number": number, "fullness": fullness, "p": _p}
    page = jinja.from_string(Path(__file__).with_name("page.html.jinja").read_text(encoding="utf-8")).render(
        result=result,
        seeds=spelled_seeds(result.seeds).replace(",", ", "),
        groups=figure_groups(result),
        significant_p=SIGNIFICANT_P,
        curves=curves,
        draw_curve=charts.curve,
        draw_distribution=charts.distribution,
        draw_day=charts.day,
        behaviours=behaviours,
        situation=SITUATION,
    )
    return f"{page.lstrip()}\n"


def figure_groups(result: SuiteResult) -> list[FigureGroup]:
    """The figures by what their names have before the last slash."""
    groups: dict[str, dict[str, dict[str, ResultMetric]]] = {}
    for policy, metrics in result.policies.items():
        for name, metric in metrics.items():
            groups.setdefault(name.rpartition("/")[0], {}).setdefault(name, {})[policy] = metric
    promised = " ".join((*(goal.goal for goal in result.goals), *(one.metric for one in result.paired)))
    count = sum(map(len, groups.values()))
    found = []
    for prefix, figures in groups.items():
        drawn = {name for name in figures if count <= FEW_FIGURES or name in promised}
        columns = list(dict.fromkeys(policy for policies in figures.values() for policy in policies))
        drawings = [
            (name, charts.dots(by_policy, name=name))
            for name, by_policy in figures.items()
            if name in drawn and len(by_policy) > 1
        ]
        rows = [
            (name.rpartition("/")[2], [_mean(by_policy.get(policy)) for policy in columns])
            for name, by_policy in figures.items()
        ]
        found.append(FigureGroup(prefix, bool(drawn) and len(groups) <= FEW_FIGURES, columns, drawings, rows))
    return found


def number(value: float) -> str:
    """A number as people write it in a table: at most four digits behind the point."""
    if not isfinite(value):
        return "none"
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.2e}"
    return f"{value:.4f}" if abs(value) < 1 else f"{value:.2f}"


def fullness(rank: float) -> str:
    """A fullness rank in words."""
    if rank < EMPTIER_BELOW:
        return "emptier nodes"
    return "fuller nodes" if rank > FULLER_ABOVE else "nodes of middling fullness"


def _p(p: float) -> str:
    return number(p) if p >= 1e-4 else f"{p:.1e}"


def _mean(metric: ResultMetric | None) -> str:
    return "" if metric is None else f"{number(metric.mean)} ± {number(metric.sd)}"
