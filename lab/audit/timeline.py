"""Utilisation per node over time, from the audit's entries alone: what the picture at the end of a demo shows.

Pure. A pod with a usage profile counts by what it really uses from the moment it runs; a pod without one counts by its
requests from the moment it is bound, so that a trace without usage (openb) still has a picture. Times are those of the
entries; ``speed`` scales a profile's virtual seconds to them. It judges nothing; the audit does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.audit.log import LogEntry
from lab.audit.rules import GPU_MILLI, Json, NodeFacts, node_facts, pod_facts
from shared.errors import ObjectError
from twin.model.usage import (
    LIMITS_ANNOTATION,
    NO_LIMITS,
    NO_USAGE,
    USAGE_ANNOTATION,
    UsageLimits,
    UsageNow,
    UsageProfile,
    Utilisation,
    imbalance,
    limits_from_json,
    profile_from_json,
)

PARTS = ("cpu", "memory", "disk", "network", "gpu")


@dataclass(frozen=True, slots=True)
class UtilisationPicture:
    """``values[node][i]`` is the node's highest utilisation at ``times_s[i]`` (seconds since the first pod).

    ``parts[name][i]``: mean over nodes of one part. ``imbalance``: time mean of the deviation over nodes (targets T3).
    """

    nodes: tuple[str, ...]
    times_s: tuple[float, ...]
    values: dict[str, list[float]]
    parts: dict[str, list[float]]
    imbalance: float


@dataclass(slots=True)
class _Span:
    """A pod's time on a node; ``end_s`` None while it is still there."""

    node: str
    start_s: float
    profile: UsageProfile
    """What it uses from ``start_s`` on; its requests where nothing tells."""
    gpu_milli: int
    end_s: float | None = None


class UtilisationTimeline:
    """Feed every entry in order, then take a ``picture``."""

    def __init__(self, *, speed: float = 1.0) -> None:
        self._speed = speed
        self._nodes: dict[str, tuple[NodeFacts, UsageLimits]] = {}
        self._spans: dict[str, _Span] = {}
        self._first_s: float | None = None
        self._last_s = 0.0

    def feed(self, entry: LogEntry) -> None:
        """Take one accepted change into account."""
        if entry.kind == "Node":
            if not entry.gone:
                facts = node_facts(entry.object)
                self._nodes[entry.name] = (facts, _limits(entry.object, facts))
        elif entry.kind == "Pod":
            if self._first_s is None:
                self._first_s = entry.time_s
            self._last_s = max(self._last_s, entry.time_s)
            self._pod(entry)

    def _pod(self, entry: LogEntry) -> None:
        span = self._spans.get(entry.uid)
        phase = (entry.object.get("status") or {}).get("phase")
        node = entry.object["spec"].get("nodeName")
        if span is None:
            if not node or phase in ("Succeeded", "Failed"):
                return
            profile = _profile(entry.object)
            if profile is None or phase == "Running":
                facts = pod_facts(entry.object)
                asked = UsageNow(facts.requests.get("cpu", 0), facts.requests.get("memory", 0))
                believed = profile or UsageProfile(((0.0, asked),))
                self._spans[entry.uid] = _Span(node, entry.time_s, believed, facts.gpu_milli)
        elif span.end_s is None and (entry.gone or phase in ("Succeeded", "Failed")):
            span.end_s = entry.time_s

    def picture(self, columns: int = 120) -> UtilisationPicture | None:
        """The picture in ``columns`` equal steps; None where no pod was ever seen."""
        if self._first_s is None or not self._nodes:
            return None
        length_s = max(self._last_s - self._first_s, 1e-3)
        times = tuple(length_s * (i + 0.5) / columns for i in range(columns))
        names = tuple(sorted(self._nodes))
        values: dict[str, list[float]] = {name: [] for name in names}
        parts: dict[str, list[float]] = {name: [] for name in PARTS}
        deviations = []
        by_node: dict[str, list[_Span]] = {name: [] for name in names}
        for span in self._spans.values():
            if span.node in by_node:
                by_node[span.node].append(span)
        for time_s in times:
            now: list[tuple[Utilisation, float]] = [self._at(n, by_node[n], self._first_s + time_s) for n in names]
            for name, (used, gpu) in zip(names, now, strict=True):
                values[name].append(max(used.highest, gpu))
            for part in PARTS[:-1]:
                parts[part].append(sum(getattr(used, part) for used, _ in now) / len(now))
            parts["gpu"].append(sum(gpu for _, gpu in now) / len(now))
            deviations.append(imbalance(used for used, _ in now))
        return UtilisationPicture(names, times, values, parts, sum(deviations) / len(deviations))

    def _at(self, node: str, spans: Sequence[_Span], at_s: float) -> tuple[Utilisation, float]:
        facts, limits = self._nodes[node]
        used, gpu = NO_USAGE, 0
        for span in spans:
            if span.start_s <= at_s and (span.end_s is None or at_s < span.end_s):
                used = used.plus(span.profile.at((at_s - span.start_s) * self._speed))
                gpu += span.gpu_milli
        gpus = facts.allocatable.get(GPU_MILLI, 0)
        return limits.utilisation(used), gpu / gpus if gpus else 0.0


def _limits(node: Json, facts: NodeFacts) -> UsageLimits:
    text = (node["metadata"].get("annotations") or {}).get(LIMITS_ANNOTATION, "")
    try:
        return limits_from_json(
            text, cpu_millis=facts.allocatable.get("cpu", 0), memory_bytes=facts.allocatable.get("memory", 0)
        )
    except ObjectError:
        return NO_LIMITS


def _profile(pod: Json) -> UsageProfile | None:
    text = (pod["metadata"].get("annotations") or {}).get(USAGE_ANNOTATION, "")
    if not text:
        return None
    try:
        return profile_from_json(text)
    except ObjectError:
        return None
