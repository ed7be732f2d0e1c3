"""What an evaluation found, as values: the figures of each policy per seed, paired differences, goals met or not.

Mean and standard deviation are derived from the values of the seeds, never stored beside them, so that they cannot
disagree. The JSON form is stable: fields are only added; a value that is not finite is written as null and read as NaN.
``from_json`` names the field that it cannot read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite, nan
from statistics import fmean
from typing import Any, Protocol

import msgspec

from lab.evaluation.statistics import paired_t_test, sample_sd
from shared.errors import ConfigError

SCHEMA = 1


class Progress(Protocol):
    """Told by a suite how far it is: ``done`` of ``total`` runs, and which one comes next."""

    def __call__(self, done: int, total: int, doing: str) -> None: ...


def silent(done: int, total: int, doing: str) -> None:
    """A ``Progress`` that tells nobody."""


@dataclass(frozen=True)
class ResultMetric:
    """One figure of one policy: ``values[i]`` belongs to ``SuiteResult.seeds[i]``."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> ResultMetric:
        """From any sequence of numbers, numpy's included."""
        return cls(tuple(float(value) for value in values))

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return fmean(self.values)

    @property
    def sd(self) -> float:
        """The sample standard deviation over the seeds."""
        return sample_sd(self.values)


@dataclass(frozen=True)
class Paired:
    """Policy ``a`` less policy ``b`` on the same seeds, and the p value of the paired t test."""

    metric: str
    a: str
    b: str
    mean_difference: float
    sd: float
    p: float

    @classmethod
    def of(cls, metric: str, policies: Mapping[str, Mapping[str, ResultMetric]], *, a: str, b: str) -> Paired:
        """The test of ``policies[a][metric]`` against ``policies[b][metric]``; needs at least two seeds."""
        return cls(metric, a, b, *paired_t_test(policies[a][metric].values, policies[b][metric].values))


@dataclass(frozen=True)
class Goal:
    """A figure that was promised. ``target`` is for people (``>= 95.8``); ``met`` follows from it and the value."""

    goal: str
    target: str
    value: float
    met: bool

    @classmethod
    def at_least(cls, goal: str, value: float, bound: float) -> Goal:
        """Met when ``value >= bound``; never by a NaN."""
        return cls(goal, f">= {bound:g}", float(value), bool(value >= bound))

    @classmethod
    def at_most(cls, goal: str, value: float, bound: float) -> Goal:
        """Met when ``value <= bound``; never by a NaN."""
        return cls(goal, f"<= {bound:g}", float(value), bool(value <= bound))

    @classmethod
    def exactly(cls, goal: str, value: float, wanted: float) -> Goal:
        """Met when ``value == wanted``: for counts."""
        return cls(goal, f"= {wanted:g}", float(value), bool(value == wanted))


@dataclass(frozen=True)
class SuiteResult:
    """All a suite found. ``card_digests`` gives the sha256 of the weights behind each learned policy."""

    suite: str
    command: str
    seeds: tuple[int, ...]
    policies: Mapping[str, Mapping[str, ResultMetric]]
    paired: tuple[Paired, ...] = ()
    goals: tuple[Goal, ...] = ()
    card_digests: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a reader must know beside the figures: a trace that was missing, how devices are chosen."""
    distributions: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    """By what it is of ("completion, hours, load 1.0"), then by policy: the quantiles, evenly from 0 to 1."""
    over_day: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    """By what it is of ("CPU used, percent"), then by policy: the mean over the seeds at equal parts of a day."""

    def __post_init__(self) -> None:
        for policy, metrics in self.policies.items():
            for name, metric in metrics.items():
                if len(metric.values) != len(self.seeds):
                    raise ConfigError(
                        f"policies.{policy}.metrics.{name}: {len(metric.values)} values for {len(self.seeds)} seeds;"
                        " give one value per seed, in the order of the seeds"
                    )

    @property
    def unmet(self) -> tuple[Goal, ...]:
        """The goals that were not reached."""
        return tuple(goal for goal in self.goals if not goal.met)

    def to_json(self) -> dict[str, Any]:
        """The whole result as JSON values, with the mean and deviation of every figure."""
        policies = {
            policy: {
                "metrics": {
                    name: {"mean": metric.mean, "sd": metric.sd, "values": metric.values}
                    for name, metric in metrics.items()
                }
            }
            for policy, metrics in self.policies.items()
        }
        document: dict[str, Any] = _plain({"schema": SCHEMA, **asdict(self), "policies": policies})
        return document


class _Policy(msgspec.Struct):
    metrics: dict[str, ResultMetric]


class _Document(msgspec.Struct):
    """What ``from_json`` reads; other fields are passed over."""

    schema: int
    suite: str
    command: str
    seeds: tuple[int, ...]
    policies: dict[str, _Policy]
    paired: tuple[Paired, ...]
    goals: tuple[Goal, ...]
    card_digests: dict[str, str]
    notes: tuple[str, ...]
    distributions: dict[str, dict[str, tuple[float, ...]]] = {}
    over_day: dict[str, dict[str, tuple[float, ...]]] = {}


def from_json(document: Any) -> SuiteResult:
    """The result in a document of ``to_json``. Raises ``ConfigError`` naming what cannot be read."""
    try:
        found = msgspec.convert(_numbered(document), _Document)
    except msgspec.ValidationError as error:
        raise ConfigError(f"result: {error}; run the evaluation again") from None
    if found.schema != SCHEMA:
        raise ConfigError(f"result: $.schema is {found.schema}, this version reads {SCHEMA}; run the evaluation again")
    policies = {name: policy.metrics for name, policy in found.policies.items()}
    return SuiteResult(
        found.suite, found.command, found.seeds, policies, found.paired, found.goals, found.card_digests, found.notes,
        found.distributions, found.over_day,
    )  # fmt: skip


def _plain(value: Any) -> Any:
    """JSON values: lists for tuples, null for a number that is not finite."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _numbered(value: Any) -> Any:
    """The document with NaN for null again: nothing else in it is ever null."""
    if isinstance(value, dict):
        return {key: _numbered(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbered(item) for item in value]
    return nan if value is None else value
