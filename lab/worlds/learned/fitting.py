"""What recorded series become before and after networks are trained on them: a lesson, and a twin. numpy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.worlds.learned import encoding as code
from lab.worlds.learned.encoding import Graph, RecordedSteps, SignalLevels, UsualUnits, targets, transitions
from lab.worlds.learned.model import Header, LearnedTwin, table
from lab.worlds.learned.series import MEASURES, RecordedSeries
from lab.worlds.services.topology import ServiceGraph, pod_class_of
from shared.errors import ConfigError
from shared.model.resources import CPU

ARRIVALS = MEASURES.index("arrivals")
LEAST_SCALE = 0.05
"""An input that hardly varies is not blown up beyond this."""
SETTLED = 3
"""Moments at the beginning of a stretch in which nothing was scraped yet."""
SPLIT_STREAM = 3


@dataclass(frozen=True, slots=True)
class FittingSteps:
    """``inputs`` float32 [steps, services, inputs], brought to their scale by ``shift`` and ``scale`` [inputs];
    ``classes`` int [steps, services, 8] (``encoding.targets``); ``held_out`` bool [steps]: not to be learned from."""

    series: RecordedSeries
    topology: ServiceGraph
    units: UsualUnits
    graph: Graph
    levels: SignalLevels
    recorded: RecordedSteps
    inputs: NDArray[np.float32]
    classes: code.Ints
    held_out: NDArray[np.bool_]
    shift: code.Floats
    scale: code.Floats

    def twin(
        self, networks: Mapping[str, NDArray[np.float32]], *, series_digest: str = "", trained: Mapping[str, Any]
    ) -> LearnedTwin:
        """The twin with these networks: ``l0.w`` [members, in, out], ``l0.b`` [members, out], and so on."""
        series = self.series
        ages = np.concatenate([one.age_s.ravel() for one in series.episodes])
        header = Header(
            graph=self.topology.name,
            services=series.services,
            entries=tuple(series.services[at] for at in self.graph.entries),
            scenarios=series.scenarios,
            step_s=series.step_s,
            latency_s=self.units.latency_s,
            members=len(networks["l0.b"]),
            layers=len(networks) // 2,
            missing={name: missing_share(series, name) for name in series.scenarios},
            age_s=float(np.nanmean(ages)) if np.isfinite(ages).any() else 0.0,
            series=series_digest,
            trained=dict(trained),
        )
        begin = [self.units.signals(one.measures[:1]) for one in series.episodes]
        arrays = {
            "usual": self.units.arrivals, "cores": self.units.cores, "most": self.graph.most,
            "calls": self.graph.calls, "edges": self.levels.edges, "values": self.levels.values,
            "shift": self.shift, "scale": self.scale, **table(self.recorded),
            "start_counts": np.concatenate([one.counts[:1] for one in series.episodes]).astype(np.int32),
            "start_signals": np.concatenate(begin).astype(np.float32),
            "start_scenario": np.array([series.scenarios.index(one.scenario) for one in series.episodes], np.int32),
            **networks,
        }  # fmt: skip
        return LearnedTwin(header, arrays)


def lesson_of(series: RecordedSeries, topology: ServiceGraph, *, held_out: float, seed: int) -> FittingSteps:
    """``held_out``: the share of stretches that is kept for judging, drawn by the seed; of one stretch alone its end.

    Raises ``ConfigError`` for a service of which nothing was ever read.
    """
    units = units_of(series, topology)
    entries = tuple(at for at, name in enumerate(series.services) if name in topology.entries)
    most = np.array([topology.bounds(name).maximum for name in series.services])
    graph = Graph(_calls(series, topology), entries, most, len(series.scenarios))
    recorded = transitions(series.episodes, units, series.scenarios, entries)
    held = _held_out(recorded.stretch, held_out, seed)
    levels = SignalLevels.of(recorded.signals[~held])
    seen = code.inputs(recorded.state, recorded.replicas, recorded.loads, recorded.scenario, graph, levels)
    shift = seen[~held].mean(axis=(0, 1))
    scale = np.maximum(seen[~held].std(axis=(0, 1)), LEAST_SCALE)
    classes = targets(recorded.state, recorded.replicas, recorded.counts, recorded.signals, levels)
    scaled = ((seen - shift) / scale).astype(np.float32)
    return FittingSteps(series, topology, units, graph, levels, recorded, scaled, classes, held, shift, scale)


def units_of(series: RecordedSeries, topology: ServiceGraph) -> UsualUnits:
    """What is usual in the series. ``ConfigError``: a service of which no arrivals were ever read."""
    arrivals = np.concatenate([one.measures[:, :, ARRIVALS] for one in series.episodes])
    known = np.isfinite(arrivals)
    mean = arrivals.sum(axis=0, where=known) / np.maximum(known.sum(axis=0), 1)
    silent = [name for name, value in zip(series.services, mean, strict=True) if value <= 0]
    if silent:
        raise ConfigError(f"--series: no arrivals of service {silent[0]!r} were read; record them, or leave it out")
    return UsualUnits(
        mean, topology.objectives.latency_s, np.array([_cores(topology, name) for name in series.services])
    )


def missing_share(series: RecordedSeries, scenario: str) -> float:
    """Share of readings that were missing where there was a ready pod, once there had been any."""
    lost = total = 0
    for one in series.episodes:
        if one.scenario == scenario:
            ready = one.counts[SETTLED:, :, code.READY] > 0
            lost += int((np.isnan(one.measures[SETTLED:, :, ARRIVALS]) & ready).sum())
            total += int(ready.sum())
    return lost / max(total, 1)


def _held_out(stretch: code.Ints, share: float, seed: int) -> NDArray[np.bool_]:
    stretches = np.unique(stretch)
    if len(stretches) == 1:
        return np.arange(len(stretch)) >= (1.0 - share) * len(stretch)
    count = max(round(share * len(stretches)), 1)
    return np.isin(stretch, np.random.default_rng([seed, SPLIT_STREAM]).permutation(stretches)[:count])


def _calls(series: RecordedSeries, topology: ServiceGraph) -> code.Floats:
    found = np.zeros((len(series.services), len(series.services)))
    for caller, callee in topology.calls:
        found[series.services.index(caller), series.services.index(callee)] = 1.0
    return found


def _cores(topology: ServiceGraph, name: str) -> float:
    """Of one pod's request; 1 where it requests none."""
    return dict(pod_class_of(topology.services[name]).requests).get(CPU, 1000) / 1000
