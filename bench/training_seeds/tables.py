"""The spread of a policy's figures over training seeds as a Markdown table, and which seed misses which goal. Pure.

A figure is one number per set of weights: the mean over the test seeds, or the worst over experiments where the table
says so. The shipped weights stand beside the others and are not counted among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from lab.evaluation.results import Goal, ResultMetric, SuiteResult
from lab.evaluation.statistics import sample_sd

SHIPPED = "shipped"
STRETCH = "stretch"
"""In the name of a goal that is told and not promised."""
GOAL = "goal"


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One figure. ``at_most``, ``at_least``: its goal; neither: it has none. ``digits`` after the point."""

    name: str
    value: Callable[[SuiteResult], float]
    at_most: float | None = None
    at_least: float | None = None
    digits: int = 3

    @property
    def goal(self) -> str:
        """For people."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return f"≥ {self.at_least:g}" if self.at_least is not None else ""

    def met(self, value: float) -> bool:
        """Whether the goal is kept; a figure without one keeps it."""
        return (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)

    def told(self, value: float) -> str:
        """Rounded, without the minus of a rounded zero."""
        return f"{round(value, self.digits) + 0.0:.{self.digits}f}"


def over(
    policy: str,
    metric: str,
    of: Callable[[ResultMetric], float],
    take: Callable[[Iterator[float]], float] = max,
) -> Callable[[SuiteResult], float]:
    """``take`` of a figure over all experiments that end in ``metric``."""

    def value(found: SuiteResult) -> float:
        metrics = found.policies[policy]
        return take(of(metrics[name]) for name in metrics if name.endswith(metric))

    return value


def share(metric: str, policy: str, other: str) -> Callable[[SuiteResult], float]:
    """A policy's mean over another's."""
    return lambda found: found.policies[policy][metric].mean / found.policies[other][metric].mean


def _mean(metric: ResultMetric) -> float:
    return metric.mean


def _worst(metric: ResultMetric) -> float:
    return max(metric.values)


def _average(values: Iterator[float]) -> float:
    return fmean(values)


def _regret(policy: str) -> FigureRow:
    return FigureRow("regret to the oracle, worst experiment", over(policy, "/regret", _mean), at_most=0.02, digits=4)


def _imbalance(policy: str) -> tuple[FigureRow, ...]:
    return tuple(
        FigureRow(f"imbalance, {workload}", over(policy, f"{workload}/imbalance", _mean), digits=4)
        for workload in ("uniform", "random")
    )


def _ratios() -> tuple[FigureRow, ...]:
    return tuple(
        FigureRow(
            f"over {other}'s, {workload}", share(f"{workload}/imbalance", "marl-dqn", other), at_most=bound, digits=2
        )
        for other, bound in (("kube-default", 0.8), ("single-dqn", 0.9), ("greedy", 1.1))
        for workload in ("uniform", "random")
    )


TABLES: Mapping[str, tuple[FigureRow, ...]] = {
    "ee": (
        FigureRow("active nodes of 3, tests 1 and 2, the worse", over("ee", "-3/active_nodes", _mean), at_most=1.05),
        FigureRow("active ratio, worst experiment", over("ee", "/active_ratio", _mean), at_most=1.05),
        _regret("ee"),
    ),
    "lb": (
        FigureRow("share of steps max - min ≤ 1, worst experiment", over("lb", "/balanced", _mean, min), at_least=0.99),
        FigureRow("greatest max - min", over("lb", "/worst_spread", _worst), digits=0),
        _regret("lb"),
    ),
    "el": (
        FigureRow("within soft when offered, worst experiment", over("el", "/within_soft", _mean, min), at_least=0.99),
        FigureRow(
            "avoidable breaks of the hard limit, worst test seed", over("el", "/hard_avoidable", _worst), 0, digits=0
        ),
        FigureRow("decisions until it moved, worst test seed", over("el", "/decisions_to_move", _worst), 1, digits=0),
        FigureRow("active nodes of 3", over("el", "test2-3/active_nodes", _mean)),
        FigureRow("active nodes of 100", over("el", "test2-100/active_nodes", _mean), digits=2),
        _regret("el"),
    ),
    "marl-dqn": (*_imbalance("marl-dqn"), *_ratios()),
    "single-dqn": _imbalance("single-dqn"),
    "frag": (
        FigureRow("default, percent allocated at 130 %", over("frag", "allocated_130", _mean), at_least=95.8, digits=2),
        FigureRow("default, percent allocated at 100 %", over("frag", "allocated_100", _mean), digits=2),
        FigureRow(
            "points over FGD, worst of ten traces", over("frag", "/gain_130", _mean, min), at_least=-0.1, digits=2
        ),
        FigureRow("points over FGD, mean of ten traces", over("frag", "/gain_130", _mean, _average), digits=2),
    ),
}


def lines_of(policy: str, found: Mapping[str, SuiteResult]) -> list[str]:
    """The table, one column for the shipped weights and one for each other seed's, and the goals missed."""
    others = [name for name in found if name != SHIPPED]
    head = ("figure", GOAL, SHIPPED, *others, "mean ± s.d.", "least to greatest", "seeds that meet it")
    lines = ["", f"**{policy}**, training seeds {', '.join(others)}", "", _line(head), _line(("---",) * len(head))]
    lines += [_line(_cells(row, found, others)) for row in TABLES[policy]]
    missed = [(name, goal) for name in found for goal in promised(found[name]) if not goal.met]
    lines += ["", f"goals of the suite: {_counted(found)}"]
    return lines + [f"- {name} misses {goal.goal}: {goal.value:.5g}, wanted {goal.target}" for name, goal in missed]


def promised(found: SuiteResult) -> list[Goal]:
    """The suite's goals without the stretches."""
    return [goal for goal in found.goals if STRETCH not in goal.goal]


def _cells(row: FigureRow, found: Mapping[str, SuiteResult], others: list[str]) -> tuple[str, ...]:
    values = [row.value(found[name]) for name in others]
    met = f"{sum(map(row.met, values))} of {len(values)}" if row.goal else ""
    spread = (
        f"{row.told(fmean(values))} ± {row.told(sample_sd(values))}",
        f"{row.told(min(values))} to {row.told(max(values))}",
    )
    return (row.name, row.goal, row.told(row.value(found[SHIPPED])), *map(row.told, values), *spread, met)


def _counted(found: Mapping[str, SuiteResult]) -> str:
    parts = []
    for name, result in found.items():
        goals = promised(result)
        parts.append(f"{name} {sum(goal.met for goal in goals)} of {len(goals)}")
    return ", ".join(parts)


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
