"""Replays placed pods in the cluster model, and says how far what they use is from what was measured.

The model decides nothing: pods stand where they are said to stand. What a pod uses comes as a profile; where it comes
from (annotation, requests, an estimate) is ``usage_fit``'s matter. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twin.model.capture import PARTS, Capture
from twin.model.cluster import ClusterModel, ModelSettings
from twin.model.events import NodeSeen, PodSeen
from twin.model.usage import FOREVER, UsageLimits, UsageNow, UsageProfile

Array = NDArray[np.float64]

EXACT = ModelSettings(start_delay_s=0.0, stop_delay_s=0.0)
"""Recorded times are those of the kubelets: the model must not delay them once more."""


@dataclass(frozen=True, slots=True)
class ReplayedPod:
    """A pod on ``node`` from ``start_s`` on, until ``end_s`` (None: for ever). ``group``: whose usage it shares."""

    uid: str
    node: str
    start_s: float
    end_s: float | None
    profile: UsageProfile = FOREVER
    group: str = ""


@dataclass(frozen=True)
class ReplayError:
    """Mean absolute error in percent of ``reference`` over the steps from ``first_step`` on.

    ``by_node[node][part]``; ``by_part``: the mean over nodes. A part that was not measured on a node is absent.
    """

    by_node: Mapping[str, Mapping[str, float]]
    by_part: Mapping[str, float]
    first_step: int


def usage_over_time(limits: Mapping[str, UsageLimits], pods: Sequence[ReplayedPod], times_s: Sequence[float]) -> Array:
    """What runs on each node at each moment: float64 ``[nodes, times, parts]``, nodes in the order of ``limits``.

    ``times_s`` must ascend. Pods on nodes that are not in ``limits`` are left out.
    """
    model = ClusterModel(EXACT)
    begin_s = min([0.0, *times_s[:1], *(pod.start_s for pod in pods)])
    for name, limit in limits.items():
        model.handle(NodeSeen(name, managed=True, ready="True", limits=limit), begin_s)
    events: list[tuple[float, int, PodSeen]] = []
    for pod in pods:
        if pod.node not in limits:
            continue
        # the recorded end is the truth: the profile's own would end the pod a second time
        seen = PodSeen(pod.uid, "", pod.uid, pod.node, profile=replace(pod.profile, duration_s=None))
        events.append((pod.start_s, 1, seen))
        if pod.end_s is not None:
            events.append((pod.end_s, 0, replace(seen, phase="Succeeded")))
    events.sort(key=lambda event: (event[0], event[1], event[2].uid))
    found = np.zeros((len(limits), len(times_s), len(PARTS)))
    at = 0
    for step, time_s in enumerate(times_s):
        while at < len(events) and events[at][0] <= time_s:
            model.advance(events[at][0])
            model.handle(events[at][2], events[at][0])
            at += 1
        model.advance(time_s)
        for row, name in enumerate(limits):
            found[row, step] = amounts(model.used(name))
    return found


def amounts(usage: UsageNow | UsageLimits) -> tuple[float, float, float, float]:
    """The parts in the order of ``PARTS``."""
    return (usage.cpu_millis, usage.memory_bytes, usage.disk_write_bytes_per_s, usage.network_bits_per_s)


def measured(capture: Capture, nodes: Sequence[str]) -> Array:
    """The series as float64 ``[nodes, steps, parts]``; NaN where nothing was measured."""
    found = np.full((len(nodes), capture.steps, len(PARTS)), np.nan)
    for row, name in enumerate(nodes):
        for column, part in enumerate(PARTS):
            values = capture.series.get(name, {}).get(part)
            if values is not None:
                found[row, :, column] = [np.nan if value is None else value for value in values]
    return found


def references(limits: Mapping[str, UsageLimits], seen: Array) -> Array:
    """What 100 % is, float64 ``[nodes, parts]``: the node's limit; where none is known, the most measured anywhere."""
    known = np.array([amounts(one) for one in limits.values()], np.float64)
    most = np.where(np.isnan(seen), 0.0, seen).max(axis=(0, 1), initial=0.0)
    found: Array = np.where(known > 0, known, most)
    return found


def replay_error(nodes: Sequence[str], expected: Array, seen: Array, reference: Array, first_step: int) -> ReplayError:
    """How far ``expected`` is from ``seen`` (both ``[nodes, steps, parts]``), in percent of ``reference``."""
    by_node: dict[str, dict[str, float]] = {}
    for row, name in enumerate(nodes):
        for column, part in enumerate(PARTS):
            difference = np.abs(expected - seen)[row, first_step:, column]
            counted = difference[~np.isnan(difference)]
            whole = reference[row, column]
            if len(counted) and whole > 0:
                by_node.setdefault(name, {})[part] = float(100.0 * counted.mean() / whole)
    by_part = {
        part: float(np.mean([found[part] for found in by_node.values() if part in found]))
        for part in PARTS
        if any(part in found for found in by_node.values())
    }
    return ReplayError(by_node, by_part, first_step)
