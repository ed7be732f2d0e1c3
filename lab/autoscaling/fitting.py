"""A twin of the services of one ResilientAutoscaler: what the object says of them, put into a graph's file. Pure.

The graph (throughputs, times, nodes) is given, and what comes after (training, analysis) knows only its text. Bounds,
objectives and the cost limit are the object's.
"""

from __future__ import annotations

import msgspec
import yaml

from lab.worlds.services.topology import Objectives, Replicas, ServiceGraph, parse_topology
from shared.errors import ConfigError
from shared.model.autoscaler import Autoscaler


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
