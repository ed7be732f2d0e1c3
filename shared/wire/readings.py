"""What agents on their nodes measure, as messages carry it: their readings, their latencies, what they are to probe.

The rules of ``messages.py`` hold here too. Readings are hints: a lost one is replaced by the next, and what is not told
is masked. -1 is "could not be told", never an amount.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from shared.wire.bounds import MAX_COUNT, Count, Feature, LongText, Text

MAX_TARGETS = 64
"""Latency targets of one mesh."""
MAX_PEERS = 8
"""Peers named at once to an agent that is to probe."""

LATENCY_STALE_S = 120.0
"""An older latency is none: one that its agent has not told again, and one of a target that has not answered since."""

MaybeCount = Annotated[int, Meta(ge=-1, le=MAX_COUNT)]
Share = Annotated[float, Meta(ge=-1, le=1e6)]
Micros = Annotated[int, Meta(ge=0, le=3_600_000_000)]
Milliseconds = Annotated[float, Meta(ge=-1e4, le=1e4)]


class NodeUse(Struct, frozen=True, array_like=True, gc=False):
    """What the node of a slot used ``age_ms`` ago: ``shares`` of its allocatable cpu, memory, disk and network.

    ``unmeasured``: bit i says that share i was not measured (it is 0 here). ``delay_us``: round trip to other
    nodes, -1: not measured. ``latencies``: medians by target, in microseconds; one that is not named is not known.
    ``requested``: milli-cores and bytes that the pods request which the shares show; empty: the shares are too old to
    be a node's load, or there is none.
    """

    slot: Count
    age_ms: Count
    shares: Annotated[list[Feature], Meta(max_length=16)]
    unmeasured: Annotated[int, Meta(ge=0, le=0xFFFF)] = 0
    delay_us: Annotated[int, Meta(ge=-1, le=3_600_000_000)] = -1
    latencies: Annotated[dict[Text, Micros], Meta(max_length=MAX_TARGETS)] = {}
    requested: Annotated[list[Count], Meta(max_length=16)] = []


class NodeReading(Struct, frozen=True, array_like=True, gc=False):
    """One reading of a node's sensors, ``age_ms`` old. ``disk`` and ``network``: shares of what the node can do.
    ``pressure``: shares of time in which tasks waited for cpu, memory and io. ``missing``: what could not be told."""

    node: Text
    age_ms: Count
    cpu_millis: MaybeCount = -1
    memory_bytes: MaybeCount = -1
    disk: Share = -1.0
    network: Share = -1.0
    disk_bytes_s: MaybeCount = -1
    network_bytes_s: MaybeCount = -1
    pressure: Annotated[list[Share], Meta(max_length=8)] = []
    oom_kills: MaybeCount = -1
    missing: Annotated[list[LongText], Meta(max_length=16)] = []


class TargetLatency(Struct, frozen=True, array_like=True, gc=False):
    """Round trips of the agent's node to a target: their median and spread (median distance from it) over ``samples``
    of them; ``failed``: how many of the last attempts got no answer."""

    target: Text
    median_us: Micros
    spread_us: Micros
    samples: Annotated[int, Meta(ge=0, le=4096)]
    failed: Annotated[int, Meta(ge=0, le=4096)] = 0


class Standing(Struct, frozen=True, array_like=True, gc=False):
    """A node's network coordinate (``shared/agent/vivaldi.py``), in ms."""

    at: Annotated[list[Milliseconds], Meta(min_length=1, max_length=8)]
    height: Annotated[float, Meta(ge=0, le=1e4)]
    error: Annotated[float, Meta(ge=0, le=10)]


class ProbePeer(Struct, frozen=True, array_like=True, gc=False):
    """Where an agent answers probes: an IP address and a UDP port."""

    address: Annotated[str, Meta(max_length=64)]
    port: Annotated[int, Meta(ge=1, le=65535)]


class ProbeTarget(Struct, frozen=True, array_like=True, gc=False):
    """What users name: a TCP port whose latency matters to pods, tried every ``every_ms``."""

    name: Text
    host: Text
    port: Annotated[int, Meta(ge=1, le=65535)]
    every_ms: Annotated[int, Meta(ge=100, le=3_600_000)] = 10_000


class Boot(Struct, frozen=True, array_like=True, gc=False):
    """Which boot of its node a sensor reads, by the kernel's own name for it, and how long after it the sensor began:
    of two that speak of one node the later counts, whatever their clocks say."""

    boot_id: Annotated[str, Meta(min_length=1, max_length=64)]
    began_ms: Count
