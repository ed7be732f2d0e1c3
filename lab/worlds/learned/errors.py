"""How far a learned twin is from what was recorded: one step ahead, and rolled out over twenty without looking again.

Errors are root mean squares over moments and services, as a share of the same of "nothing is known but the mean" (the
recorded standard deviation): 0 is exact, 1 is no better than the mean. Beside each stands the error of saying that
nothing changes. A roll-out takes the recorded actions and loads, and the mean of some draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lab.worlds.learned import encoding as code
from lab.worlds.learned.encoding import Floats, RecordedSteps
from lab.worlds.learned.model import LearnedTwin

STEPS = 20
DRAWS = 8
NAMES = ("ready", "pending", *code.SIGNALS)
ROLL_STREAM = 61


@dataclass(frozen=True, slots=True)
class Errors:
    """By ``NAMES``: the twin's errors, and those of "nothing changes". ``looked_up``: share of steps that the table
    answered."""

    twin: Mapping[str, float]
    unchanged: Mapping[str, float]
    looked_up: float


def one_step(twin: LearnedTwin, recorded: RecordedSteps) -> Errors:
    """Errors of what is expected a step ahead."""
    state = recorded.state
    found = twin.predict(state, recorded.replicas, recorded.loads, recorded.scenario)
    counts, signals = twin.expected(found, state, recorded.replicas)
    low, high = twin.recorded(state, recorded.replicas, recorded.loads, recorded.scenario)
    after_counts, after_signals = twin.arrays["after_counts"], twin.arrays["after_signals"]
    for at in np.flatnonzero(high > low).tolist():
        counts[at] = after_counts[low[at] : high[at]].mean(axis=0)
        said = after_signals[low[at] : high[at]].astype(float)
        signals[at] = np.where(np.isnan(said).all(axis=0), signals[at], np.nan_to_num(said).sum(axis=0)
                               / np.maximum((~np.isnan(said)).sum(axis=0), 1))  # fmt: skip
    truth = _values(recorded.counts, recorded.signals)
    return Errors(
        _relative(_values(counts, signals), truth), _relative(_values(state.counts, state.signals), truth),
        float((high > low).mean()),
    )  # fmt: skip


def rolled_out(
    twin: LearnedTwin, recorded: RecordedSteps, seed: int, *, steps: int = STEPS, draws: int = DRAWS
) -> Errors:
    """Errors ``steps`` ahead, from every ``steps``-th moment of each stretch."""
    starts: list[int] = []
    for stretch in np.unique(recorded.stretch).tolist():
        rows = np.flatnonzero(recorded.stretch == stretch)
        starts += rows[: len(rows) - steps + 1 : steps].tolist()
    begin = np.array(starts, np.int64)
    tiled = np.repeat(begin, draws)
    rng = np.random.default_rng([seed, ROLL_STREAM])
    state = recorded.state.at(tiled)
    looked_up = 0.0
    for step in range(steps):
        rows = tiled + step
        state, _, hits = twin.step(state, recorded.replicas[rows], recorded.loads[rows], recorded.scenario[rows], rng)
        looked_up += float(hits.mean()) / steps
    last = begin + steps - 1
    said = _values(state.counts, state.signals).reshape(len(begin), draws, *state.counts.shape[1:2], -1).mean(axis=1)
    truth = _values(recorded.counts[last], recorded.signals[last])
    before = recorded.state.at(begin)
    return Errors(_relative(said, truth), _relative(_values(before.counts, before.signals), truth), looked_up)


def spread_tells(twin: LearnedTwin, recorded: RecordedSteps) -> float:
    """Error one step ahead in the tenth of moments with the largest spread, over that in all others: above 1 where the
    twin knows what it does not know."""
    found = twin.predict(recorded.state, recorded.replicas, recorded.loads, recorded.scenario)
    _, signals = twin.expected(found, recorded.state, recorded.replicas)
    wrong = np.square(signals - recorded.signals)
    unsure = found.spread >= np.quantile(found.spread, 0.9)
    return float(np.sqrt(_known_mean(wrong[unsure]) / max(float(_known_mean(wrong[~unsure])), 1e-12)))


def _values(counts: np.ndarray, signals: Floats) -> Floats:
    """[rows, services, NAMES]."""
    return np.concatenate([counts[..., [code.READY, code.PENDING]].astype(float), signals], axis=-1)


def _relative(said: Floats, truth: Floats) -> dict[str, float]:
    """By name; a signal that never varies has no error that could be told, and is left out."""
    wrong = _known_mean(np.square(said - truth), axis=0)
    usual = _known_mean(np.square(truth - _known_mean(truth, axis=0)), axis=0)
    found: dict[str, float] = {}
    for at, name in enumerate(NAMES):
        varies = usual[:, at] > 1e-9
        if varies.any():
            found[name] = float(np.sqrt(wrong[varies, at].mean() / usual[varies, at].mean()))
    return found


def _known_mean(values: Floats, axis: int | None = None) -> Floats:
    """The mean of what is not missing, 0 where all is."""
    known = ~np.isnan(values)
    found: Floats = values.sum(axis=axis, where=known) / np.maximum(known.sum(axis=axis), 1)
    return found
