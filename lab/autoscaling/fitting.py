"""A twin of the services of one ResilientAutoscaler: what the object says of them, put into a graph's file. Pure.

The graph (throughputs, times, nodes) is given, or made of recorded series (``graph_of``), and what comes after
(training, analysis) knows only its text. Bounds, objectives and the cost limit are the object's.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, nan
from typing import Any

import msgspec
import numpy as np
import yaml

from lab.worlds.learned.series import COUNTS, MEASURES, RecordedSeries
from lab.worlds.services.topology import Objectives, Replicas, ServiceGraph, parse_topology
from shared.errors import ConfigError
from shared.model.controllers.autoscaler import Autoscaler

LEAST = 1e-9
"""The least number that a graph takes."""


class CapturedService(msgspec.Struct, frozen=True):
    """What an object says of one service."""

    minimum: int
    maximum: int
    calls: tuple[str, ...]


class CapturedScaler(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a design depends on of an object; its mode, its go and its canary are not among it."""

    object: str
    services: dict[str, CapturedService]
    latency_s: float | None = None
    success: float | None = None
    cost_limit: float | None = None


def graph_of(found: CapturedScaler, series: RecordedSeries, requests: Mapping[str, float]) -> str:
    """The text of a graph as series tell it, for a learned twin. ``requests``: cores of a pod by service, where known.

    Entries are the services that nobody calls, by their share of what came; calls of one caller are as many as came to
    the callee for each request that its callers answered; a throughput is what a ready replica answered when it
    answered most. A learned twin looks at nothing else: nodes and times are in its networks.
    """
    arrivals, served, ready = _means(series)
    callers: dict[str, list[str]] = {name: [] for name in found.services}
    for name, one in found.services.items():
        for callee in one.calls:
            if callee not in callers:
                raise ConfigError(f"{found.object}: {name} calls {callee!r}, which is not among its targets; add it")
            callers[callee].append(name)
    entries = {name: arrivals[name] for name, calling in callers.items() if not calling}
    if not entries:
        raise ConfigError(f"{found.object}: every service is called by another; take one of these calls out")
    for name, calling in callers.items():
        if isnan(arrivals[name]):
            raise ConfigError(
                f"--series: arrivals of {name} were never read; name a source in its metrics, record again"
            )
        if calling and arrivals[name] > 0 and not any(served[caller] > 0 for caller in calling):
            raise ConfigError(
                f"--series: {' and '.join(calling)} answered nothing, so how often they call {name} is "
                "not known; record their `served`"
            )
    entries = {name: value for name, value in entries.items() if value > 0}
    whole = sum(entries.values())
    if not whole:
        raise ConfigError("--series: no request came to a service that nobody calls; record their arrivals")
    services: dict[str, Any] = {}
    for name, one in found.services.items():
        calls = {
            callee: _digits(arrivals[callee] / (np.nansum([served[caller] for caller in callers[callee]]) or 1.0))
            for callee in one.calls
        }
        cores = requests.get(name, 0.0)
        services[name] = {
            "throughput": _digits(max(np.nan_to_num(ready[name]), 1e-3)),
            "replicas": {"minimum": one.minimum, "maximum": one.maximum},
            "calls": calls, **({"requests": {"cpu": f"{round(1000 * cores)}m"}} if cores else {}),
        }  # fmt: skip
    text = yaml.safe_dump(
        {
            "name": found.object, "nodes": [{"name": "recorded", "cpu": "1000", "memory": "1Ti"}],
            "entries": {name: _digits(value / whole) for name, value in entries.items()}, "services": services,
        }, sort_keys=False,
    )  # fmt: skip
    parse_topology(text, "--series")
    return text


def _digits(value: float) -> float:
    """Four digits; the least that a graph takes instead of 0: who was idle may be called all the same."""
    return max(float(f"{value:.4g}"), LEAST)


def _means(series: RecordedSeries) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """By service: mean arrivals, mean of what was answered, and the most that a ready replica answered (99 of 100).
    NaN: it was never read."""
    measures = np.concatenate([one.measures for one in series.episodes])
    ready = np.concatenate([one.counts for one in series.episodes])[..., COUNTS.index("ready")]
    came, done = (measures[..., MEASURES.index(name)] for name in ("arrivals", "served"))
    found: tuple[dict[str, float], dict[str, float], dict[str, float]] = ({}, {}, {})
    for at, name in enumerate(series.services):
        each = done[:, at] / np.maximum(ready[:, at], 1)
        for into, values in zip(found, (came[:, at], done[:, at], each), strict=True):
            known = values[np.isfinite(values)]
            into[name] = nan if not len(known) else float(np.percentile(known, 99) if values is each else known.mean())
    return found


def captured(scaler: Autoscaler) -> CapturedScaler:
    """What a design depends on. ``ConfigError``: the object cannot be used, and why."""
    if scaler.problems:
        raise ConfigError(f"{scaler.key}: {'; '.join(scaler.problems)}")
    return CapturedScaler(
        object=scaler.key,
        services={one.name: CapturedService(one.minimum, one.maximum, one.calls) for one in scaler.targets},
        latency_s=scaler.latency_objective_s,
        success=scaler.success_objective,
        cost_limit=scaler.cost_limit,
    )


def fitted(found: CapturedScaler, graph: str, source: str = "--topology") -> str:
    """The text of the graph with the object's bounds and objectives. ``ConfigError``: the two are of other services."""
    topology = parse_topology(graph, source)
    _check_same(found, topology, source)
    objectives = topology.objectives
    changed = msgspec.structs.replace(
        topology,
        services={
            name: msgspec.structs.replace(one, replicas=_replicas(found.services[name], one.replicas))
            for name, one in topology.services.items()
        },
        objectives=Objectives(
            objectives.latency_s if found.latency_s is None else found.latency_s,
            objectives.success if found.success is None else found.success,
        ),
        replica_budget=topology.replica_budget if found.cost_limit is None else int(found.cost_limit),
    )
    text = yaml.safe_dump(msgspec.to_builtins(changed), sort_keys=False)
    parse_topology(text, f"{source} with the bounds of {found.object}")
    return text


def _check_same(found: CapturedScaler, topology: ServiceGraph, source: str) -> None:
    missing, extra = found.services.keys() - topology.services.keys(), topology.services.keys() - found.services.keys()
    if missing or extra:
        raise ConfigError(
            f"{source}: its services are not those of {found.object}: missing {', '.join(sorted(missing)) or 'none'}, "
            f"too many {', '.join(sorted(extra)) or 'none'}; name the same ones in both"
        )
    for name, one in found.services.items():
        calls = set(topology.services[name].calls)
        if calls != set(one.calls):
            raise ConfigError(
                f"{source}: services.{name}.calls: {', '.join(sorted(calls)) or 'none'}, in {found.object} "
                f"{', '.join(sorted(one.calls)) or 'none'}; name the same calls in both"
            )


def _replicas(one: CapturedService, given: Replicas) -> Replicas:
    start = None if given.start is None else min(max(given.start, one.minimum), one.maximum)
    return Replicas(one.minimum, one.maximum, start)
