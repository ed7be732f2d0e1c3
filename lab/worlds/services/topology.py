"""A service graph as a file says it: services, who calls whom, the nodes they run on. Read, checked, put in order.

YAML text in, frozen values out. Nothing is guessed: whatever is unknown, out of range, not finite or goes in a loop is
one ``ConfigError`` that names the field. docs/autoscaling-twin.md describes every field; ``chained.yaml`` beside this
file is the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
import yaml

from shared.autoscaling.observation import Bounds
from shared.errors import ConfigError
from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY, parse_amount

MOST_TEXT = 1 << 20
MOST_SERVICES, MOST_NODES, MOST_REPLICAS = 200, 500, 1_000
REMEDY = "see docs/autoscaling-twin.md"
DEFAULT = Path(__file__).with_name("chained.yaml")


class Replicas(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds, and how many there are when an episode begins; ``start`` None: ``minimum``, at least 1."""

    minimum: int = 1
    maximum: int = 10
    start: int | None = None


class RequestQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requests that wait: at most ``per_replica`` for each replica that works, none longer than ``timeout_s``."""

    per_replica: float = 40.0
    timeout_s: float = 2.0


class GraphService(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One service. Rates are per second, times in seconds, probabilities 0 to 1."""

    throughput: float
    """Requests per second that one sound replica answers."""
    replicas: Replicas = Replicas()
    requests: dict[str, str | int | float] = {}
    """What a pod asks of its node, as Kubernetes writes it: cpu and memory."""
    calls: dict[str, float] = {}
    """Calls to other services for each request that it answers, all side by side."""
    queue: RequestQueue = RequestQueue()
    service_time_s: float = 0.02
    """How long a request takes in it when nothing waits."""
    cpu_when_full: float = 0.9
    """Share of its cpu request that a replica uses at its throughput."""
    start_delay_s: float = 8.0
    """From being on a node with its image to Ready."""
    start_jitter: float = 0.0
    """Each start takes up to this share of it longer, by lot."""
    image_pull_s: float = 12.0
    """Before that, the first time on a node."""
    error_probability: float = 0.0
    """Of a request, to be answered with an error."""
    crash_probability: float = 0.0
    """Of a replica per second, to crash."""
    overload_crashes: float = 5.0
    """How many times more often it crashes, on top, while its queue is full."""


class AlikeNodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``count`` nodes alike; several are called ``name-1`` and so on."""

    name: str
    cpu: str | int | float
    memory: str | int | float
    pods: int = 110
    count: int = 1


class Objectives(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the graph is to keep: latency of a whole request, and the share of requests that are answered well."""

    latency_s: float = 0.5
    success: float = 0.95


class ServiceGraph(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A checked service graph. ``entries``: the share of all requests that comes to each entry service."""

    name: str = "unnamed"
    nodes: tuple[AlikeNodes, ...]
    services: dict[str, GraphService]
    entries: dict[str, float]
    objectives: Objectives = Objectives()
    replica_budget: int | None = None
    """Replicas that all services may have together; what would go beyond is not made. None: unlimited."""

    @property
    def order(self) -> tuple[str, ...]:
        """The services' names, callers before those they call; the file's order where that leaves a choice."""
        return _ordered(self.services)

    @property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """Who calls whom, in the order of the callers."""
        return tuple((name, callee) for name in self.order for callee in self.services[name].calls)

    def bounds(self, name: str) -> Bounds:
        """A service's bounds."""
        replicas = self.services[name].replicas
        return Bounds(replicas.minimum, replicas.maximum)

    def visits(self) -> dict[str, float]:
        """Calls that come to each service for one request to the graph."""
        found = {name: self.entries.get(name, 0.0) for name in self.order}
        for name in self.order:
            for callee, calls in self.services[name].calls.items():
                found[callee] += found[name] * calls
        return found

    def capacity(self) -> float:
        """Requests per second that the graph answers with every service at its maximum, and nothing else in the way."""
        visits = self.visits()
        return min(
            one.replicas.maximum * one.throughput / visits[name]
            for name, one in self.services.items()
            if visits[name] > 0
        )


def pod_class_of(service: GraphService, field: str = "requests") -> PodClass:
    """What a scheduler sees of a service's pods. ``ConfigError``: an amount that cannot be read."""
    amounts: dict[str, int] = {}
    for name in (CPU, MEMORY):
        amounts[name] = _amount(name, service.requests.get(name, 0), f"{field}.{name}")
    for name in service.requests:
        if name not in amounts:
            raise ConfigError(f"{field}.{name}: the twin counts cpu and memory; leave it out")
    return PodClass(
        requests=tuple(sorted((name, amount) for name, amount in amounts.items() if amount)),
        score_cpu_millis=amounts[CPU] or 100,
        score_memory_bytes=amounts[MEMORY] or 200 << 20,
    )


def allocatable_of(node: AlikeNodes, field: str = "nodes") -> dict[str, int]:
    """A node's room. ``ConfigError``: an amount that cannot be read."""
    return {
        CPU: _amount(CPU, node.cpu, f"{field}.cpu"),
        MEMORY: _amount(MEMORY, node.memory, f"{field}.memory"),
        "pods": node.pods,
    }


def parse_topology(text: str, source: str = "topology") -> ServiceGraph:
    """The graph of a YAML (or JSON) text; ``source`` names it in errors. Raises ``ConfigError`` naming the field."""
    if len(text) > MOST_TEXT:
        raise ConfigError(f"{source}: more than {MOST_TEXT} characters; give a service graph")
    try:
        document = yaml.load(text, Loader=_Strict)  # noqa: S506  a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "no YAML"
        raise ConfigError(f"{source}{where}: {problem}; {REMEDY}") from None
    except RecursionError:
        raise ConfigError(f"{source}: nested too deep; {REMEDY}") from None
    try:
        found = msgspec.convert(document, ServiceGraph)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {error}; {REMEDY}") from None
    _check(found, source)
    return found


@lru_cache(maxsize=1)
def default_topology() -> ServiceGraph:
    """KARMA's chain, as it is shipped."""
    return parse_topology(DEFAULT.read_text(encoding="utf-8"), DEFAULT.name)


class _Strict(yaml.SafeLoader):
    """Refuses a key that is given twice, which YAML forbids and the library lets pass, and aliases (small texts that
    grow without bound)."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases are not read; write it out", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # the library refuses it
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _amount(name: str, value: str | float, field: str) -> int:
    try:
        amount = parse_amount(name, value)
    except ValueError as error:
        raise ConfigError(f"{field}: {error}; {REMEDY}") from None
    if amount < 0:
        raise ConfigError(f"{field}: {value} is below 0; {REMEDY}")
    return amount


def _check(topology: ServiceGraph, source: str) -> None:
    if not topology.services:
        raise ConfigError(f"{source}: services: there is none; name at least one")
    if len(topology.services) > MOST_SERVICES:
        raise ConfigError(f"{source}: services: {len(topology.services)} is more than {MOST_SERVICES}; give fewer")
    _check_nodes(topology, source)
    for name, service in topology.services.items():
        _check_service(topology, service, f"{source}: services.{name}")
    if not topology.entries:
        raise ConfigError(f"{source}: entries: there is none; say where requests come in")
    for name, share in topology.entries.items():
        if name not in topology.services:
            raise ConfigError(f"{source}: entries.{name}: no such service; name one of {_names(topology.services)}")
        _within(share, 1e-9, 1e9, f"{source}: entries.{name}")
    _within(topology.objectives.latency_s, 1e-3, 3600, f"{source}: objectives.latency_s")
    _within(topology.objectives.success, 0, 1, f"{source}: objectives.success")
    budget, least = topology.replica_budget, sum(one.replicas.minimum for one in topology.services.values())
    if budget is not None and budget < least:
        raise ConfigError(f"{source}: replica_budget: {budget} is below the sum of all minimums, {least}; give more")
    _ordered(topology.services, source)


def _check_nodes(topology: ServiceGraph, source: str) -> None:
    names: set[str] = set()
    if not topology.nodes:
        raise ConfigError(f"{source}: nodes: there is none; give at least one")
    if sum(max(node.count, 0) for node in topology.nodes) > MOST_NODES:
        raise ConfigError(f"{source}: nodes: more than {MOST_NODES}; give fewer")
    for number, node in enumerate(topology.nodes):
        field = f"{source}: nodes[{number}]"
        if node.name in names:
            raise ConfigError(f"{field}.name: {node.name!r} is there twice; use count, or another name")
        names.add(node.name)
        _within(node.count, 1, MOST_NODES, f"{field}.count")
        _within(node.pods, 1, 10_000, f"{field}.pods")
        allocatable_of(node, field)


def _check_service(topology: ServiceGraph, service: GraphService, field: str) -> None:
    for number, low, high, part in (
        (service.throughput, 1e-3, 1e7, "throughput"),
        (service.service_time_s, 1e-6, 600, "service_time_s"),
        (service.cpu_when_full, 0.01, 10, "cpu_when_full"),
        (service.start_delay_s, 0, 3600, "start_delay_s"),
        (service.start_jitter, 0, 10, "start_jitter"),
        (service.image_pull_s, 0, 3600, "image_pull_s"),
        (service.error_probability, 0, 1, "error_probability"),
        (service.crash_probability, 0, 1, "crash_probability"),
        (service.overload_crashes, 0, 1e6, "overload_crashes"),
        (service.queue.per_replica, 0, 1e9, "queue.per_replica"),
        (service.queue.timeout_s, 1e-3, 3600, "queue.timeout_s"),
    ):
        _within(number, low, high, f"{field}.{part}")
    bounds = service.replicas
    _within(bounds.minimum, 0, MOST_REPLICAS, f"{field}.replicas.minimum")
    _within(bounds.maximum, 1, MOST_REPLICAS, f"{field}.replicas.maximum")
    if bounds.minimum > bounds.maximum:
        raise ConfigError(
            f"{field}.replicas: minimum {bounds.minimum} is above maximum {bounds.maximum}; exchange them"
        )
    if bounds.start is not None and not bounds.minimum <= bounds.start <= bounds.maximum:
        raise ConfigError(
            f"{field}.replicas.start: {bounds.start} is not within {bounds.minimum} to {bounds.maximum}; fix it"
        )
    for callee, calls in service.calls.items():
        if callee not in topology.services:
            known = _names(topology.services)
            raise ConfigError(f"{field}.calls.{callee}: no such service; name one of {known}")
        _within(calls, 1e-6, 1e4, f"{field}.calls.{callee}")
    asked = dict(pod_class_of(service, f"{field}.requests").requests)
    rooms = [allocatable_of(node) for node in topology.nodes]
    if not any(all(room.get(part, 0) >= amount for part, amount in asked.items()) for room in rooms):
        raise ConfigError(f"{field}.requests: no node is that large; ask for less, or give a larger node")


def _within(number: float, low: float, high: float, field: str) -> None:
    if not isfinite(number) or not low <= number <= high:
        raise ConfigError(f"{field}: {number} is out of range; give {low:g} to {high:g}")


def _ordered(services: Mapping[str, GraphService], source: str = "topology") -> tuple[str, ...]:
    """Callers first (Kahn's algorithm). ``ConfigError``: a loop, with the services on it."""
    callers = dict.fromkeys(services, 0)
    for service in services.values():
        for callee in service.calls:
            callers[callee] += 1
    ready = [name for name, count in callers.items() if not count]
    order: list[str] = []
    while ready:
        name = ready.pop(0)
        order.append(name)
        for callee in services[name].calls:
            callers[callee] -= 1
            if not callers[callee]:
                ready.append(callee)
    if len(order) < len(services):
        left = [name for name in services if name not in order]
        raise ConfigError(f"{source}: services.{left[0]}.calls: a loop among {', '.join(left)}; take one call out")
    return tuple(order)


def _names(services: Mapping[str, GraphService]) -> str:
    return ", ".join(sorted(services)[:10])
