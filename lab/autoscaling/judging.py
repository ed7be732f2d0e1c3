"""Judges a learned twin on hours that it was not trained on, before a policy is trained in it. Pure.

Each stretch that was held back is played again in the twin, half an hour at a time: from its first moment, under its
own traffic, asking for the replicas that were really asked for. Its reward is reckoned from what the twin says, and
from what was recorded, by the same arithmetic. ``accuracy`` is the smaller over the larger of both (percent, the mean
over scenarios), the ``gap`` of a scenario 100 less that. Rewards alone are a weak yard-stick, so a step's error beside
that of "nothing changes" is judged too; and how often the readings without which no policy of ours decides were there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from lab.autoscaling.checks import Check, at_least, at_most
from lab.autoscaling.metrics import resilience
from lab.worlds.learned import encoding as code
from lab.worlds.learned.errors import one_step
from lab.worlds.learned.fitting import SETTLED
from lab.worlds.learned.model import LearnedTwin
from lab.worlds.learned.series import MEASURES, RecordedSeries, RecordedStretch
from lab.worlds.learned.world import LearnedWorld
from lab.worlds.services.topology import ServiceGraph
from shared.autoscaling.observation import RATES
from shared.errors import ConfigError

FILE = "judgement.json"
LONGEST_S = 1800.0
"""A longer stretch is played in parts: what is asked is how an episode goes, not how a day ends."""
DRAWS = 3
"""The twin draws what follows: so many times, and the mean counts."""
Percent = Annotated[float, Meta(ge=0, le=100)]
Floats = NDArray[np.float64]


class TwinGoals(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a twin must reach before a policy that was trained in it may be recommended."""

    accuracy: Percent = 94.9
    """At least, percent."""
    gap: Percent = 10.0
    """At most in each scenario, percent."""
    errors: Annotated[float, Meta(gt=0, le=10)] = 0.9
    """At most: a step's error over that of "nothing changes"."""
    measured: Annotated[float, Meta(ge=0, le=1)] = 0.9
    """At least: share of moments at which arrivals, answers and cpu of a service were read, of the least read one."""


class TwinJudgement(Struct, frozen=True, kw_only=True):
    """What was found. ``twin``, ``series``: sha256 of the files. Rewards by scenario, recorded and said."""

    twin: str
    series: str
    moments: int
    recorded: dict[str, float]
    said: dict[str, float]
    accuracy: float
    gaps: dict[str, float]
    errors: float
    measured: dict[str, float]
    """By service: share of moments at which it was read."""

    def checks(self, wanted: TwinGoals) -> list[Check]:
        """Every goal, met or not."""
        worst = max(self.gaps, key=lambda name: self.gaps[name])
        least = min(self.measured, key=lambda name: self.measured[name])
        return [
            at_least("twin accuracy", wanted.accuracy, self.accuracy, "percent: rewards said and recorded"),
            at_most("twin gap", wanted.gap, self.gaps[worst], f"percent, where it is largest: {worst}"),
            at_most("twin errors", wanted.errors, self.errors, "a step's error over that of nothing changes"),
            at_least("measured", wanted.measured, self.measured[least], f"moments at which {least} was read"),
        ]  # fmt: skip


def not_judged() -> list[Check]:
    """What stands in the place of a judgement that there is none of: no go."""
    return [Check("twin accuracy", TwinGoals().accuracy, None, False, "the twin was not judged: conclave twin judge")]


def judge(
    twin: LearnedTwin, held: RecordedSeries, topology: ServiceGraph, *, twin_digest: str = "", series_digest: str = ""
) -> TwinJudgement:
    """Judge ``twin`` on series that it was not trained on. ``ConfigError``: they are the ones that it was, or of
    another graph, scenario or step."""
    if series_digest and series_digest == twin.header.series:
        raise ConfigError("--series: the twin was trained on just these; give hours that were held back")
    if held.step_s != twin.header.step_s:
        raise ConfigError(
            f"--series: its step is {held.step_s:g} s, the twin's {twin.header.step_s:g} s; give series of that step"
        )
    for scenario in held.scenarios:
        twin.scenario(scenario)
    rewards: dict[str, list[tuple[float, float]]] = {}
    for number, part in enumerate(_parts(held)):
        rewards.setdefault(part.scenario, []).append(_rewards(twin, topology, part, held.services, number))
    means = {name: np.mean(pairs, axis=0).tolist() for name, pairs in rewards.items()}
    gaps = {name: 100.0 - _accuracy(*pair) for name, pair in means.items()}
    steps = code.transitions(held.episodes, twin.units, twin.header.scenarios, twin.entries)
    found = one_step(twin, steps)
    known = [name for name, error in found.unchanged.items() if error > 0]
    ratio = float(np.mean([found.twin[name] / found.unchanged[name] for name in known])) if known else 1.0
    return TwinJudgement(
        twin=twin_digest,
        series=series_digest,
        moments=sum(len(one.counts) for one in held.episodes),
        recorded={name: pair[0] for name, pair in means.items()},
        said={name: pair[1] for name, pair in means.items()},
        accuracy=100.0 - float(np.mean(list(gaps.values()))),
        gaps=gaps,
        errors=ratio,
        measured=measured(held),
    )


def measured(series: RecordedSeries) -> dict[str, float]:
    """By service: share of moments at which the readings were there without which no policy of ours decides. Of whom no
    replica is there, nobody can read cpu."""
    rates, cpu = [MEASURES.index(name) for name in sorted(RATES)], MEASURES.index("cpu_cores")
    parts = []
    for one in series.episodes:
        there = np.isfinite(one.measures[SETTLED:])
        nobody = one.counts[SETTLED:, :, code.REPLICAS] == 0
        parts.append(there[..., rates].all(axis=-1) & (there[..., cpu] | nobody))
    read = np.concatenate(parts)
    shares = read.mean(axis=0) if len(read) else np.zeros(len(series.services))
    return dict(zip(series.services, shares.tolist(), strict=True))


def rates_of(part: RecordedStretch, services: Sequence[str], topology: ServiceGraph) -> Floats:
    """Requests per second that came to the entries at each moment; what was not read is as it was before, else 0."""
    column = MEASURES.index("arrivals")
    entries = [at for at, name in enumerate(services) if name in topology.entries]
    filled = code.filled_forward(part.measures[:, entries, column])
    found: Floats = np.nan_to_num(filled).sum(axis=1)
    return found


def _accuracy(recorded: float, said: float) -> float:
    low, high = sorted((recorded, said))
    return 100.0 * low / high if high > 0 else 100.0


def _parts(series: RecordedSeries) -> Iterator[RecordedStretch]:
    """Stretches of half an hour at most, each of two moments and more."""
    longest = max(round(LONGEST_S / series.step_s), 2)
    for one in series.episodes:
        for first in range(0, len(one.counts) - 1, longest):
            until = first + longest + 1
            yield replace(
                one, counts=one.counts[first:until], measures=one.measures[first:until], age_s=one.age_s[first:until]
            )


def _rewards(
    twin: LearnedTwin, topology: ServiceGraph, part: RecordedStretch, services: Sequence[str], seed: int
) -> tuple[float, float]:
    """(as recorded, as the twin says), 0 to 100."""
    step_s = max(round(twin.header.step_s), 1)
    rates = np.repeat(rates_of(part, services, topology)[1:], step_s)

    def world(draw: int) -> LearnedWorld:
        own = LearnedWorld(twin, topology, rates, (), scenario=part.scenario, seed=seed * DRAWS + draw)
        own.begin(part.counts[0], part.measures[0])
        return own

    truth, said = world(0), [world(draw) for draw in range(DRAWS)]
    for counts, measures in zip(part.counts[1:], part.measures[1:], strict=True):
        truth.follow(counts, measures)
        asked: Mapping[str, int] = dict(zip(services, counts[:, code.REPLICAS].tolist(), strict=True))
        for one in said:
            one.apply(asked)
            one.run(step_s)
    length = truth.now_s
    return (
        100.0 * float(np.mean(resilience(truth.seconds, topology, 0, length))),
        100.0 * float(np.mean([np.mean(resilience(one.seconds, topology, 0, length)) for one in said])),
    )
