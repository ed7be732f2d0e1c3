"""A twin file: one cluster as it was over a stretch of time, so that it can be replayed and learned from.

It holds the nodes, the pods with the moments at which they came, started and ended, and, where a Prometheus was asked,
what each node really used. Times are seconds since the capture's start; what was there before has negative ones. The
file is gzipped JSON with a schema number; one of another schema is refused by name, never guessed at. Kept of an object
is what a scheduler reads; of annotations only those of ``conclave.io/`` and limits of latency, since others may hold
secrets.

Pure: bytes in, values out. Who asks a cluster is ``lab/cli/twin/capture.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import msgspec
from msgspec import Struct

from shared.errors import ConfigError
from shared.kube import objects as api
from shared.model.pod import LATENCY_HARD_ANNOTATION, LATENCY_SOFT_ANNOTATION
from shared.wire.packed import packed, unpacked

SCHEMA = 1
PARTS = ("cpu", "memory", "disk", "network")
"""Milli-cores, bytes, bytes written per second, bits per second in both directions; as in ``twin.usage.Usage``."""

OWN_ANNOTATIONS = "conclave.io/"
LATENCY_LIMITS = (LATENCY_SOFT_ANNOTATION, LATENCY_HARD_ANNOTATION)
"""What ``el`` goes by, under the names of its thesis."""

Series = dict[str, list[float | None]]
"""By part: one number per step, None where nothing was measured."""


class CapturedPod(Struct, frozen=True):
    """``arrived_s``: created. ``started_s``: its kubelet took it, None before. ``ended_s``: finished or deleted.

    ``pod.spec.nodeName`` says where it stood; its status is dropped.
    """

    pod: api.KubePod
    arrived_s: float
    started_s: float | None = None
    ended_s: float | None = None


class Capture(Struct, frozen=True):
    """``started_at``: RFC 3339. ``series``: by node; step ``i`` is the moment ``i * step_s``."""

    schema: int
    started_at: str
    length_s: float
    nodes: list[api.KubeNode]
    pods: list[CapturedPod]
    step_s: float = 0.0
    series: dict[str, Series] = {}
    notes: list[str] = []

    @property
    def steps(self) -> int:
        """How many moments the series hold."""
        return int(self.length_s // self.step_s) + 1 if self.step_s > 0 else 0

    @property
    def has_metrics(self) -> bool:
        """Whether anything was measured."""
        return any(value is not None for one in self.series.values() for values in one.values() for value in values)


class _Schema(Struct):
    schema: int | None = None


_encoder = msgspec.json.Encoder(order="deterministic")


def trimmed(meta: api.ObjectMeta) -> api.ObjectMeta:
    """Metadata without foreign annotations."""
    own = {
        key: value
        for key, value in (meta.annotations or {}).items()
        if key.startswith(OWN_ANNOTATIONS) or key in LATENCY_LIMITS
    }
    return msgspec.structs.replace(meta, annotations=own or None, resource_version="")


def encode(capture: Capture) -> bytes:
    """The file. The same capture gives the same bytes. Raises ``ConfigError`` for one that ``decode`` would refuse."""
    _check(capture, "capture")
    return packed(_encoder.encode(capture))


def decode(data: bytes, name: str) -> Capture:
    """The capture in a file called ``name``. Raises ``ConfigError`` naming what is wrong with it."""
    text = unpacked(data, name, writer="conclave twin capture", again="capture the cluster again")
    try:
        schema = msgspec.json.decode(text, type=_Schema).schema
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{name}: {error}; give a file of 'conclave twin capture'") from None
    if schema != SCHEMA:
        raise ConfigError(
            f"{name}: schema {schema} is not {SCHEMA}, which this version reads; capture the cluster again, or use the"
            " version of conclave that wrote the file"
        )
    try:
        capture = msgspec.json.decode(text, type=Capture)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{name}: {error}; the file is damaged, capture the cluster again") from None
    _check(capture, name)
    return capture


def require_metrics(capture: Capture, name: str, why: str) -> None:
    """Refuse a capture in which nothing was measured; ``why`` says what for."""
    if not capture.has_metrics:
        raise ConfigError(
            f"{name}: the capture holds no metrics, and {why}; capture again with --prometheus URL of a Prometheus that"
            " scrapes the nodes' node-exporter"
        )


def _check(capture: Capture, name: str) -> None:
    names = {node.metadata.name for node in capture.nodes}
    if not names or len(names) != len(capture.nodes):
        raise ConfigError(f"{name}: nodes: none, or two of one name; capture the cluster again")
    if not 0 <= capture.length_s < 1e9 or not 0 <= capture.step_s < 1e9:
        raise ConfigError(f"{name}: length_s or step_s is out of range; capture the cluster again")
    uids: set[str] = set()
    for pod in capture.pods:
        meta, ended, started = pod.pod.metadata, pod.ended_s, pod.started_s
        if meta.uid in uids:
            raise ConfigError(f"{name}: pod {meta.namespace}/{meta.name}: its uid {meta.uid} is there twice; drop one")
        if meta.uid:
            uids.add(meta.uid)
        if started is not None and (started < pod.arrived_s or (ended is not None and ended < started)):
            raise ConfigError(f"{name}: pod {meta.namespace}/{meta.name}: its times do not ascend; correct or drop it")
    for node, series in capture.series.items():
        _check_series(f"{name}: series.{node}", series, capture, known=node in names)


def _check_series(name: str, series: Mapping[str, list[float | None]], capture: Capture, *, known: bool) -> None:
    if not known:
        raise ConfigError(f"{name}: no such node among nodes; capture the cluster again")
    for part, values in series.items():
        if part not in PARTS:
            raise ConfigError(f"{name}: {part!r} is not one of {', '.join(PARTS)}; capture the cluster again")
        if len(values) != capture.steps:
            raise ConfigError(f"{name}.{part}: {len(values)} values for {capture.steps} steps; capture again")
        if any(value is not None and not 0 <= value < 1e18 for value in values):
            raise ConfigError(f"{name}.{part}: a value is negative, above 1e18 or not finite; correct it or write null")


def steps_of(length_s: float, step_s: float) -> float:
    """``step_s``, or more, so that a series has no more than 10,000 values: Prometheus answers no more than 11,000."""
    return max(step_s, ceil(length_s / 10_000))
