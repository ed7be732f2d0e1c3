"""What an evaluation found, as values: the figures of each policy per seed, paired differences, goals met or not.

Mean and standard deviation are derived from the values of the seeds, never stored beside them, so that they cannot
disagree. The JSON form is stable: fields are only added; a value that is not finite is written as null and read as NaN.
``from_json`` refuses a result it cannot read by naming the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Any, Protocol, TypeVar

from shared.errors import ConfigError
from shared.experiments.evaluation.statistics import mean, paired_t_test, sample_sd

SCHEMA = 1
T = TypeVar("T")


class Progress(Protocol):
    """Told by a suite how far it is: ``done`` of ``total`` runs, and which one comes next."""

    def __call__(self, done: int, total: int, doing: str) -> None: ...


def silent(done: int, total: int, doing: str) -> None:
    """A ``Progress`` that tells nobody."""


@dataclass(frozen=True)
class Metric:
    """One figure of one policy: ``values[i]`` belongs to ``SuiteResult.seeds[i]``."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Metric:
        """From any sequence of numbers, numpy's included."""
        return cls(tuple(float(value) for value in values))

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return mean(self.values)

    @property
    def sd(self) -> float:
        """The sample standard deviation over the seeds."""
        return sample_sd(self.values)

    def to_json(self) -> dict[str, Any]:
        """``mean``, ``sd`` and ``values``."""
        return {"mean": _plain(self.mean), "sd": _plain(self.sd), "values": [_plain(value) for value in self.values]}


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
    def of(cls, metric: str, policies: Mapping[str, Mapping[str, Metric]], *, a: str, b: str) -> Paired:
        """The test of ``policies[a][metric]`` against ``policies[b][metric]``; needs at least two seeds."""
        found = paired_t_test(policies[a][metric].values, policies[b][metric].values)
        return cls(metric, a, b, found.mean_difference, found.sd, found.p)

    def to_json(self) -> dict[str, Any]:
        """One flat object."""
        return {
            "metric": self.metric,
            "a": self.a,
            "b": self.b,
            "mean_difference": _plain(self.mean_difference),
            "sd": _plain(self.sd),
            "p": _plain(self.p),
        }


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

    def to_json(self) -> dict[str, Any]:
        """One flat object."""
        return {"goal": self.goal, "target": self.target, "value": _plain(self.value), "met": self.met}


@dataclass(frozen=True)
class SuiteResult:
    """All a suite found. ``card_digests`` gives the sha256 of the weights behind each learned policy."""

    suite: str
    command: str
    seeds: tuple[int, ...]
    policies: Mapping[str, Mapping[str, Metric]]
    paired: tuple[Paired, ...] = ()
    goals: tuple[Goal, ...] = ()
    card_digests: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a reader must know beside the figures: a trace that was missing, how devices are chosen."""

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
        """The whole result as JSON values."""
        return {
            "schema": SCHEMA,
            "suite": self.suite,
            "command": self.command,
            "seeds": list(self.seeds),
            "policies": {
                policy: {"metrics": {name: metric.to_json() for name, metric in metrics.items()}}
                for policy, metrics in self.policies.items()
            },
            "paired": [paired.to_json() for paired in self.paired],
            "goals": [goal.to_json() for goal in self.goals],
            "card_digests": dict(self.card_digests),
            "notes": list(self.notes),
        }


def from_json(document: Any) -> SuiteResult:
    """The result in a document of ``to_json``. Raises ``ConfigError`` naming what cannot be read."""
    root = _object(document, "result")
    if root.get("schema") != SCHEMA:
        raise ConfigError(f"result.schema: {root.get('schema')!r} is not {SCHEMA}; run the evaluation again")
    policies = {
        policy: {
            name: Metric.of([_number(v, f"policies.{policy}.metrics.{name}.values") for v in _list(metric, "values")])
            for name, metric in _object(_object(entry, f"policies.{policy}").get("metrics"), "metrics").items()
        }
        for policy, entry in _object(root.get("policies"), "policies").items()
    }
    return SuiteResult(
        suite=_text(root, "suite"),
        command=_text(root, "command"),
        seeds=tuple(int(_number(seed, "seeds")) for seed in _list(root, "seeds")),
        policies=policies,
        paired=_each(root, "paired", _paired),
        goals=_each(root, "goals", _goal),
        card_digests={name: str(value) for name, value in _object(root.get("card_digests"), "card_digests").items()},
        notes=tuple(str(note) for note in _list(root, "notes")),
    )


def _paired(entry: Mapping[str, Any]) -> Paired:
    numbers = {key: _number(entry.get(key), f"paired.{key}") for key in ("mean_difference", "sd", "p")}
    return Paired(_text(entry, "metric"), _text(entry, "a"), _text(entry, "b"), **numbers)


def _goal(entry: Mapping[str, Any]) -> Goal:
    met = entry.get("met")
    if not isinstance(met, bool):
        raise ConfigError(f"goals.met: {met!r} is neither true nor false; run the evaluation again")
    return Goal(_text(entry, "goal"), _text(entry, "target"), _number(entry.get("value"), "goals.value"), met)


def _each(root: Mapping[str, Any], key: str, read: Callable[[Mapping[str, Any]], T]) -> tuple[T, ...]:
    return tuple(read(_object(entry, key)) for entry in _list(root, key))


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name}: {value!r:.80} is not an object; run the evaluation again")
    return value


def _list(root: Any, key: str) -> Sequence[Any]:
    value = _object(root, key).get(key)
    if not isinstance(value, list):
        raise ConfigError(f"{key}: {value!r:.80} is not a list; run the evaluation again")
    return value


def _plain(value: float) -> float | None:
    return value if isfinite(value) else None


def _number(value: Any, name: str) -> float:
    if value is None:
        return nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name}: {value!r:.80} is not a number; run the evaluation again")
    return float(value)


def _text(root: Mapping[str, Any], key: str) -> str:
    value = root.get(key)
    if not isinstance(value, str):
        raise ConfigError(f"{key}: {value!r:.80} is not text; run the evaluation again")
    return value
