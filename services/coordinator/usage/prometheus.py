"""What nodes use by a Prometheus that scrapes node exporters: for agents that do not run on their nodes.

Queries are settings, one per part; each gives one number per node, by a label that names the node. Rates are over the
last minute, so they tell of half a minute ago, and are told so; an agent on its node, which knows the last seconds, is
fresher wherever there is one. A query that fails, or gives NaN, leaves its part to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import structlog
from msgspec import Struct

from services.coordinator.core.events import Event, NodeSample, NodesMeasured
from shared.errors import ConfigError
from shared.hostport import host_part
from shared.wire.bounds import MAX_COUNT

if TYPE_CHECKING:
    from shared.adapters.prometheus import Series

log = structlog.get_logger()

SOURCE = "prometheus"
RATE_AGE_S, AMOUNT_AGE_S = 30.0, 15.0
"""How old an answer is taken to be: half of the queries' minute; half of the usual scrape interval."""
MOST_NODES = 20_000

QUERIES = {
    "cpu": 'sum by (node) (rate(node_cpu_seconds_total{mode!~"idle|iowait"}[1m]))',
    "memory": "sum by (node) (node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes)",
    "disk": 'max by (node) (rate(node_disk_io_time_seconds_total{device!~"dm-.*|md.*|loop.*|z?ram.*|sr.*"}[1m]))',
    "network": (
        "max by (node) (rate(node_network_receive_bytes_total[1m]) / node_network_speed_bytes"
        " > rate(node_network_transmit_bytes_total[1m]) / node_network_speed_bytes"
        " or rate(node_network_transmit_bytes_total[1m]) / node_network_speed_bytes)"
    ),
}
"""Cores, bytes, and shares of what disks and links can do."""


class Prometheus(Protocol):
    """A server that is asked (``PrometheusClient``)."""

    async def query(self, query: str) -> list[Series]:
        """One sample per series. ``ConfigError``: no usable answer."""
        ...


class UsageQueries(Struct, frozen=True):
    """``queries`` by part, "" for one that is not asked; ``label``: what names the node in their answers."""

    queries: Mapping[str, str]
    label: str = "node"


async def follow(
    client: Prometheus,
    asked: UsageQueries,
    *,
    every_s: Callable[[], float],
    wanted: Callable[[], bool],
    post: Callable[[Event], None],
) -> None:
    """Ask every ``every_s()`` seconds while ``wanted()``; eternal. A part that fails is told once, until it works."""
    failing: set[str] = set()
    while True:
        if wanted():
            found: dict[str, list[Series]] = {}
            for part, query in asked.queries.items():
                if not query:
                    continue
                try:
                    found[part] = await client.query(query)
                    failing.discard(part)
                except ConfigError as error:
                    if part not in failing:
                        log.warning("prometheus_unread", part=part, error=error)
                    failing.add(part)
            if samples := samples_of(found, asked.label):
                post(NodesMeasured(samples))
        await asyncio.sleep(every_s())


def samples_of(found: Mapping[str, Sequence[Series]], label: str) -> tuple[NodeSample, ...]:
    """One sample of amounts and one of rates per node that an answer names. What is no amount is left out."""
    cpu, memory, disk, network = (_by_node(found.get(part, ()), label) for part in ("cpu", "memory", "disk", "network"))
    rates = [
        NodeSample(
            node, RATE_AGE_S, _rounded(cpu.get(node), 1000), None, disk.get(node), network.get(node), source=SOURCE
        )
        for node in {**cpu, **disk, **network}
    ]
    amounts = [NodeSample(node, AMOUNT_AGE_S, None, round(amount), source=SOURCE) for node, amount in memory.items()]
    return (*rates, *amounts)


def _by_node(series: Sequence[Series], label: str) -> dict[str, float]:
    """By node; "host:9100" counts as host. Negative, not finite, or more than anything counts: left out."""
    found: dict[str, float] = {}
    for one in series[:MOST_NODES]:
        name = host_part(one.labels.get(label, ""))
        if name and one.samples and 0 <= (value := one.samples[-1][1]) <= MAX_COUNT:
            found[name] = value
    return found


def _rounded(value: float | None, scale: float) -> int | None:
    return None if value is None else round(value * scale)
