"""What a learned twin makes of a graph's state: the networks' inputs, and the levels in which the next one is told.

A state holds what was seen at one moment and a little memory of before. Of a service six signals are kept, each beside
what is usual for it: arrivals, what it finished (answered well or not), the share of that which went well, its queue
(all relative to its mean arrivals), its latency over the objective, and cpu over the request. Everything is for a
batch: the leading axis is [batch], then [services].

The next state is told in levels, not as a mean: a signal is nearly always well or badly off and seldom between, and a
twin that says the mean of both is in neither. Levels of a signal are cut where its recorded values are dense, and again
evenly over their range; each stands for the mean of the recorded values in it, so that expectations are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lab.worlds.learned.series import RecordedStretch

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
SIGNALS = ("arrivals", "finished", "well", "queue", "latency", "cpu")
ARRIVALS, FINISHED, WELL, QUEUE, LATENCY, CPU = range(6)
REPLICAS, READY, STARTING, PENDING = range(4)
MOST_CHANGE = 6
"""Ready replicas that may come or go in one step."""
MOST_PENDING = 6
CHANGES, PENDINGS, LEVELS = 2 * MOST_CHANGE + 1, MOST_PENDING + 1, 24
OUTPUTS = CHANGES + PENDINGS + len(SIGNALS) * LEVELS
"""Of one service: logits of the change of ready replicas, of pending ones, and of each signal's levels."""
STUCK = 4
"""So many of the replicas that are not Ready are told apart by how long they have not been."""
OF_SERVICE = 28 + STUCK
"""Inputs that a service has."""
KEEP = 0.9
"""Share of its memory that a running mean keeps in one step."""
LONGEST_STEPS = 100
YOUTH = 0.7
HIGHEST = 6.0
"""Inputs are cut here."""
COARSE = 20.0
"""The look-up tells signals apart in steps of a twentieth of what is usual."""


@dataclass(frozen=True, slots=True)
class UsualUnits:
    """What is usual. ``arrivals`` [services], requests per second; ``latency_s`` the objective; ``cores`` [services] of
    a pod's request."""

    arrivals: Floats
    latency_s: float
    cores: Floats

    def signals(self, measures: Floats) -> Floats:
        """[..., services, 6] of a series' measures (``series.MEASURES``); NaN where one is missing."""
        arrivals, served, failed, queue, latency, cpu = np.moveaxis(measures, -1, 0)
        finished = served + failed
        well = np.where(finished > 0, served / np.maximum(finished, 1e-9), np.where(np.isnan(finished), np.nan, 1.0))
        usual = self.arrivals
        return np.stack(
            [arrivals / usual, finished / usual, well, queue / usual, latency / self.latency_s, cpu / self.cores],
            axis=-1,
        )

    def measures(self, signals: Floats) -> Floats:
        """The way back."""
        arrivals, finished, well, queue, latency, cpu = np.moveaxis(signals, -1, 0)
        done = finished * self.arrivals
        return np.stack(
            [
                arrivals * self.arrivals, done * well, done * (1.0 - well), queue * self.arrivals,
                latency * self.latency_s, cpu * self.cores,
            ],
            axis=-1,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class LearnedState:
    """A moment. ``counts`` int [batch, services, 4] (``series.COUNTS``), ``signals`` [batch, services, 6], where a
    missing one keeps its last value; ``missing`` bool [batch, services]: no reading came. Memory: ``before`` int
    [batch, services, 2] ready and pending a step ago, ``means`` [batch, services, 4], ``waited`` [batch, services,
    STUCK] steps for which pods have been on a node and not Ready, the longest first (which of them are Ready again is
    not seen: the latest are taken to be), ``young`` [batch, services] replicas asked for lately, those of a step ago
    counted ``YOUTH``."""

    counts: Ints
    signals: Floats
    missing: Bools
    before: Ints
    means: Floats
    waited: Floats
    young: Floats

    def at(self, rows: NDArray[np.int64] | slice) -> LearnedState:
        """Some of the batch."""
        return LearnedState(
            self.counts[rows], self.signals[rows], self.missing[rows], self.before[rows], self.means[rows],
            self.waited[rows], self.young[rows],
        )  # fmt: skip


EMPTY = np.array([1.0, 1.0, 1.0, 0.0, 0.1, 0.5])
"""Signals of a service of which nothing was read yet."""


def first(counts: Ints, signals: Floats) -> LearnedState:
    """The state at the beginning of a stretch."""
    missing = np.isnan(signals[..., ARRIVALS])
    filled = np.where(np.isnan(signals), EMPTY, signals)
    return LearnedState(
        counts, filled, missing, counts[..., [READY, PENDING]], _trends(counts, filled),
        _waited(counts, counts, np.zeros((*counts.shape[:-1], STUCK))), np.zeros(counts.shape[:-1]),
    )  # fmt: skip


def follow(state: LearnedState, counts: Ints, signals: Floats) -> LearnedState:
    """The state a step later."""
    filled = np.where(np.isnan(signals), state.signals, signals)
    return LearnedState(
        counts,
        filled,
        np.isnan(signals[..., ARRIVALS]),
        state.counts[..., [READY, PENDING]],
        KEEP * state.means + (1.0 - KEEP) * _trends(counts, filled),
        _waited(state.counts, counts, state.waited),
        YOUTH * state.young + np.maximum(counts[..., REPLICAS] - state.counts[..., REPLICAS], 0),
    )


def _waited(before: Ints, counts: Ints, waited: Floats) -> Floats:
    """``LearnedState.waited`` a step later."""
    number = np.arange(STUCK)
    went_on = np.where(number < before[..., [STARTING]], np.minimum(waited + 1.0, LONGEST_STEPS), 1.0)
    return np.where(number < counts[..., [STARTING]], went_on, 0.0)


def _trends(counts: Ints, signals: Floats) -> Floats:
    ready = counts[..., READY] / np.maximum(counts[..., REPLICAS], 1)
    return np.stack([ready, signals[..., WELL], signals[..., CPU], np.minimum(counts[..., PENDING], 3) / 3.0], axis=-1)


@dataclass(frozen=True, slots=True)
class Graph:
    """What stays: ``calls`` [services, services], 1 where the row's service calls the column's; ``entries``: positions
    of the services that requests come to; ``most`` [services] replicas; ``scenarios``: how many there are."""

    calls: Floats
    entries: tuple[int, ...]
    most: Ints
    scenarios: int

    @property
    def inputs(self) -> int:
        """How many a network has."""
        return 4 * OF_SERVICE + len(self.entries) + len(self.calls) + self.scenarios


def inputs(
    state: LearnedState, replicas: Ints, loads: Floats, scenario: Ints, graph: Graph, levels: SignalLevels
) -> Floats:
    """What the networks see of each service: [batch, services, inputs]: itself, the means of its callers, of those it
    calls and of the whole graph, the loads to come, which service it is, and the scenario. ``replicas`` [batch,
    services]: asked for now; ``loads`` [batch, entries]: arrivals at the entries in the step to come, over what is
    usual; ``scenario`` [batch]."""
    own = _own_inputs(state, replicas, graph.most, levels)
    callers, callees = graph.calls.T, graph.calls
    batch, services = replicas.shape
    rest = np.zeros((batch, graph.scenarios))
    rest[np.arange(batch), scenario] = 1.0
    rest = np.concatenate([np.minimum(loads, HIGHEST), rest], axis=1)
    parts = [
        own,
        (callers / np.maximum(callers.sum(axis=1, keepdims=True), 1.0)) @ own,
        (callees / np.maximum(callees.sum(axis=1, keepdims=True), 1.0)) @ own,
        np.broadcast_to(own.mean(axis=1, keepdims=True), own.shape),
        np.broadcast_to(rest[:, None, :], (batch, services, rest.shape[1])),
        np.broadcast_to(np.eye(services)[None], (batch, services, services)),
    ]
    return np.concatenate(parts, axis=-1)


def _own_inputs(state: LearnedState, replicas: Ints, most: Ints, levels: SignalLevels) -> Floats:
    """[batch, services, OF_SERVICE]"""
    scaled = 1.0 / np.maximum(most, 1)[None, :, None]
    counts, asked = state.counts * scaled, replicas[..., None] * scaled
    ready = state.counts[..., [READY]]
    return np.concatenate(
        [
            counts,
            asked,
            asked - counts[..., :1],
            state.before * scaled,
            np.minimum(state.signals, HIGHEST),
            levels.of_signals(state.signals) / LEVELS,  # tells apart where values lie close together
            state.missing[..., None].astype(np.float64),
            state.means,
            np.sqrt(state.waited / LONGEST_STEPS),
            state.young[..., None],
            (ready == 0).astype(np.float64),
            np.minimum(state.signals[..., [FINISHED]] / np.maximum(ready, 1), HIGHEST),
        ],
        axis=-1,
    )


def key_parts(state: LearnedState, replicas: Ints, loads: Floats, scenario: Ints) -> NDArray[np.int16]:
    """What the look-up goes by, [batch, parts]: counts and the action as they are, signals and loads in steps."""
    batch = len(replicas)
    parts = [
        scenario[:, None], state.counts.reshape(batch, -1), replicas,
        np.round(np.minimum(state.signals, 100.0) * COARSE).reshape(batch, -1),
        np.round(np.minimum(loads, 100.0) * COARSE),
    ]  # fmt: skip
    return np.concatenate(parts, axis=1).astype(np.int16)


@dataclass(frozen=True, slots=True)
class SignalLevels:
    """``edges`` [services, 6, LEVELS - 1] between levels; ``values`` [services, 6, LEVELS] what each stands for."""

    edges: Floats
    values: Floats

    @classmethod
    def of(cls, signals: Floats) -> SignalLevels:
        """Cut for recorded values [rows, services, 6]; missing ones are left out."""
        services = signals.shape[1]
        edges = np.zeros((services, len(SIGNALS), LEVELS - 1))
        values = np.zeros((services, len(SIGNALS), LEVELS))
        for service in range(services):
            for signal in range(len(SIGNALS)):
                found = signals[:, service, signal]
                found = found[np.isfinite(found)]
                if not len(found):
                    found = EMPTY[signal : signal + 1]
                half = (LEVELS - 1) // 2
                dense = np.quantile(found, np.linspace(0.0, 1.0, half + 2)[1:-1])
                even = np.linspace(found.min(), found.max(), LEVELS - half + 1)[1:-1]
                cut = np.sort(np.concatenate([dense, even]))
                edges[service, signal] = cut
                level = np.searchsorted(cut, found, side="right")
                sums = np.bincount(level, found, LEVELS)
                number = np.bincount(level, minlength=LEVELS)
                middle = np.concatenate([cut[:1], (cut[1:] + cut[:-1]) / 2.0, cut[-1:]])
                values[service, signal] = np.where(number > 0, sums / np.maximum(number, 1), middle)
        return cls(edges, values)

    def of_signals(self, signals: Floats) -> Ints:
        """The level of each, [batch, services, 6]; -1: it is missing."""
        found = (signals[..., None] >= self.edges).sum(axis=-1)
        return np.where(np.isnan(signals), -1, found).astype(np.int64)


def targets(state: LearnedState, replicas: Ints, after: Ints, signals: Floats, levels: SignalLevels) -> Ints:
    """What came, in classes: [batch, services, 8] (change of ready, pending, the signals' levels); -1: unknown.

    The change is that of those who could stay: ready ones, as far as they are still asked for.
    """
    change = after[..., READY] - staying(state, replicas)
    pending = np.minimum(after[..., PENDING], MOST_PENDING)
    return np.concatenate(
        [
            (np.clip(change, -MOST_CHANGE, MOST_CHANGE) + MOST_CHANGE)[..., None],
            pending[..., None],
            levels.of_signals(signals),
        ],
        axis=-1,
    )


def staying(state: LearnedState, replicas: Ints) -> Ints:
    """Ready replicas that are still asked for, [batch, services]."""
    found: Ints = np.minimum(state.counts[..., READY], replicas)
    return found


def counted(state: LearnedState, replicas: Ints, change: Ints, pending: Ints) -> Ints:
    """Counts that fit each other, from classes that were drawn one by one: [batch, services, 4]."""
    ready = np.clip(staying(state, replicas) + change - MOST_CHANGE, 0, replicas)
    waiting = np.minimum(pending, replicas - ready)
    return np.stack([replicas, ready, replicas - ready - waiting, waiting], axis=-1)


@dataclass(frozen=True, slots=True)
class RecordedSteps:
    """Recorded steps of many stretches, one below the other. ``state`` a batch; ``replicas``, ``loads``, ``scenario``
    as ``inputs`` takes them; ``counts`` and ``signals`` of the moment after; ``stretch``: which each comes from."""

    state: LearnedState
    replicas: Ints
    loads: Floats
    scenario: Ints
    counts: Ints
    signals: Floats
    stretch: Ints


def transitions(
    episodes: Sequence[RecordedStretch], units: UsualUnits, scenarios: Sequence[str], entries: Sequence[int]
) -> RecordedSteps:
    """Every step of the episodes. ``entries``: positions of the services that requests come to."""
    numbers = {name: at for at, name in enumerate(scenarios)}
    states: list[LearnedState] = []
    rest: list[tuple[Ints, Floats, Ints, Ints, Floats, Ints]] = []
    for number, episode in enumerate(episodes):
        signals = units.signals(episode.measures)
        state = first(episode.counts[:1], signals[:1])
        for at in range(1, len(signals)):
            states.append(state)
            state = follow(state, episode.counts[at : at + 1], signals[at : at + 1])
        steps = len(signals) - 1
        loads = filled_forward(signals[:, entries, ARRIVALS])[1:]
        rest.append(
            (
                episode.counts[1:, :, REPLICAS], loads, np.full(steps, numbers[episode.scenario]),
                episode.counts[1:], signals[1:], np.full(steps, number),
            )
        )  # fmt: skip
    joined = [np.concatenate(parts) for parts in zip(*rest, strict=True)]
    return RecordedSteps(stacked(states), *joined)


def stacked(states: Sequence[LearnedState]) -> LearnedState:
    """One batch of several."""
    fields = LearnedState.__dataclass_fields__
    return LearnedState(*(np.concatenate([getattr(one, name) for one in states]) for name in fields))


def filled_forward(values: Floats) -> Floats:
    """Missing values take the last one before them, the first ones 1: [moments, ...]."""
    found = values.copy()
    found[0] = np.where(np.isnan(found[0]), 1.0, found[0])
    for at in range(1, len(found)):
        found[at] = np.where(np.isnan(found[at]), found[at - 1], found[at])
    return found


def with_loads(state: LearnedState, loads: Floats, entries: Sequence[int]) -> LearnedState:
    """The state with these arrivals at the entries."""
    signals = state.signals.copy()
    signals[:, list(entries), ARRIVALS] = loads
    return replace(state, signals=signals)
