"""What ``metrics.k8s.io/v1beta1`` says nodes use: the list's bytes into amounts, for the store that policies read.

The metrics API tells cpu and memory; disk and network it does not know. An entry that cannot be read is left out and
counted, so that one odd node costs the others nothing. Pure; it asks nobody.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from shared.errors import KubeUnknown
from shared.model.resources import parse_quantity

PATH = "/apis/metrics.k8s.io/v1beta1/nodes"


class NodeMetric(Struct, frozen=True):
    """One node's use, averaged over the ``window`` that ended ``at_s`` (seconds since 1970)."""

    node: str
    at_s: float
    cpu_millis: int
    memory_bytes: int


class _Meta(msgspec.Struct):
    name: str = ""


class _Usage(msgspec.Struct):
    cpu: str = ""
    memory: str = ""


class _Item(msgspec.Struct):
    metadata: _Meta
    usage: _Usage
    timestamp: str = ""


class _List(msgspec.Struct):
    items: list[msgspec.Raw]


def decode_node_metrics(body: bytes) -> tuple[list[NodeMetric], int]:
    """The readable entries of a NodeMetricsList and how many were not. No list at all: ``KubeUnknown``."""
    try:
        raw = msgspec.json.decode(body, type=_List).items
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KubeUnknown(f"{PATH}: not a NodeMetricsList ({error!s:.120})") from None
    found: list[NodeMetric] = []
    for entry in raw:
        metric = _metric(entry)
        if metric is not None:
            found.append(metric)
    return found, len(raw) - len(found)


def _metric(entry: msgspec.Raw) -> NodeMetric | None:
    try:
        item = msgspec.json.decode(entry, type=_Item)
        at_s = datetime.fromisoformat(item.timestamp).timestamp()
        cpu = parse_quantity(item.usage.cpu, milli=True)
        memory = parse_quantity(item.usage.memory)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, OverflowError):
        return None
    if not item.metadata.name or cpu < 0 or memory < 0:
        return None
    return NodeMetric(item.metadata.name, at_s, cpu, memory)
