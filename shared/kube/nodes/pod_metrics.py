"""What ``metrics.k8s.io/v1beta1`` says pods use: the list's bytes into amounts. Pure; it asks nobody.

An entry that cannot be read is left out: that pod is not measured, and the others are.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec
from msgspec import Struct

from shared.kube.decoding import UNREADABLE, raw_items
from shared.model.resources import parse_quantity

PATH = "/apis/metrics.k8s.io/v1beta1/pods"


class PodMetric(Struct, frozen=True, gc=False):
    """One pod's use, ``key`` namespace/name, averaged over a window that ended ``at_s`` (seconds since 1970)."""

    key: str
    at_s: float
    cpu_millis: int
    memory_bytes: int


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Usage(msgspec.Struct):
    cpu: str = ""
    memory: str = ""


class _Container(msgspec.Struct):
    usage: _Usage


class _Item(msgspec.Struct):
    metadata: _Meta
    containers: list[_Container]
    timestamp: str = ""


_item = msgspec.json.Decoder(_Item)


def decode_pod_metrics(body: bytes) -> Iterator[PodMetric | None]:
    """The entries of a PodMetricsList one by one, None for one that cannot be read: a large cluster's are taken in with
    pauses. No list at all: ``KubeUnknown``."""
    return map(_metric, raw_items(body, "PodMetricsList"))


def _metric(entry: msgspec.Raw) -> PodMetric | None:
    try:
        item = _item.decode(entry)
        at_s = datetime.fromisoformat(item.timestamp).timestamp()
        cpu = [parse_quantity(one.usage.cpu, milli=True) for one in item.containers]
        memory = [parse_quantity(one.usage.memory) for one in item.containers]
    except (*UNREADABLE, ValueError, OverflowError):
        return None
    meta = item.metadata
    if not meta.name or not meta.namespace or min([*cpu, *memory, 0]) < 0:
        return None
    return PodMetric(f"{meta.namespace}/{meta.name}", at_s, sum(cpu), sum(memory))
