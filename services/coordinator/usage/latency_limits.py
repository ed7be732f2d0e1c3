"""Tells when the node of a placed pod lies beyond its hard latency limit, and when it is back within it. Pure.

Latency changes after placement, and a policy may place a pod there that does not look at limits that are no more than
preferred; a scheduler does not move a pod for it by itself. Who runs the pod is told, once per change, by an event on
the pod and by its target's condition, with the policy in use where it does not look (which placed the pod, or not);
``explain`` says it at any time. Only pods that name a target and a hard limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from services.coordinator.core.instructions import EmitEvent
from services.coordinator.core.state import CoordinatorState
from shared.model.pod import LATENCY_LIMIT_ANNOTATION, Pod
from shared.scheduling.state.latencies import STEP, STEP_US

MOST_KEPT = 4096
"""Pods remembered before those that left are looked for."""
MOST_PER_LOOK = 64
"""Events of one look at one node: a node that goes far away may hold a hundred pods that mind."""


def unheeded(policy: str) -> str:
    """Of a limit that is no more than preferred, by a policy that does not look at it."""
    return f"{policy} does not look at it: el does, and {LATENCY_LIMIT_ANNOTATION}: strict holds the hard limit always"


def margin(limit_us: int) -> int:
    """A broken limit is kept again so much below it: a median that wavers about the limit is told of once."""
    return min(limit_us // 10, max(STEP_US, round(STEP * limit_us)))


@dataclass(frozen=True, slots=True)
class BrokenLimit:
    """A placed pod (``namespace/name``) whose node is beyond its hard limit. ``ignored_by``: the policy in use
    when that was seen, where it does not look at such limits; "": it does, the limit is strict, or the pod another
    scheduler's."""

    pod: str
    node: str
    target: str
    ignored_by: str = ""


class LatencyLimits:
    """One term's. ``ignored_by``: the title of the policy in use, where it does not look at preferred limits."""

    def __init__(self, state: CoordinatorState, ignored_by: Callable[[], str]) -> None:
        self._state = state
        self._ignored_by = ignored_by
        self._broken: dict[str, BrokenLimit] = {}
        """By pod uid, of pods whose limit is broken and told."""

    @property
    def broken(self) -> int:
        """How many placed pods are beyond their hard limit, as far as told; those that left are none."""
        return len(list(self.broken_now()))

    def broken_now(self) -> Iterable[BrokenLimit]:
        """Those pods."""
        self._forget_gone()
        return self._broken.values()

    def look(self, node: str) -> None:
        """The node's latencies have changed."""
        table = self._state.cache.table
        row = table.row_of.get(node)
        if row is None:
            return
        if len(self._broken) >= MOST_KEPT:
            self._forget_gone()
        told = 0
        for pod in self._state.cluster.index.pods_on(node):
            told += told < MOST_PER_LOOK and self._told(pod, node, row)

    def placed(self, pod: Pod) -> None:
        """A pod was seen on its node, which may be beyond its limit already."""
        row = self._state.cache.table.row_of.get(pod.node_name)
        if row is not None and not pod.finished:
            self._told(pod, pod.node_name, row)

    def _told(self, pod: Pod, node: str, row: int) -> bool:
        """Whether there was anything to tell of the pod."""
        limit, target = pod.pod_class.latency_hard_us, pod.pod_class.latency_target
        if not limit or not target:
            return False
        now = int(self._state.cache.table.newest_latency(target, np.array([row]))[0])
        known = pod.uid in self._broken
        breaks = now > (limit - margin(limit) if known else limit)
        if now < 0 or breaks is known:
            return False
        if breaks:
            ours = pod.scheduler_name in self._state.ours
            ignored_by = self._ignored_by() if ours and not pod.pod_class.latency_strict else ""
            self._broken[pod.uid] = BrokenLimit(f"{pod.namespace}/{pod.name}", node, target, ignored_by)
            note = f"{node} is now {now / 1000:g} ms from {target}, beyond the hard limit of {limit / 1000:g} ms"
            if ignored_by:
                note += f"; {unheeded(ignored_by)}"
        else:
            del self._broken[pod.uid]
            note = f"{node} is within the hard limit of {limit / 1000:g} ms of {target} again ({now / 1000:g} ms)"
        kind, reason = ("Warning", "LatencyLimitBroken") if breaks else ("Normal", "LatencyLimitKept")
        self._state.out.append(EmitEvent(pod.uid, pod.namespace, pod.name, "", kind, reason, "Measuring", note))
        return True

    def _forget_gone(self) -> None:
        index = self._state.cluster.index
        self._broken = {uid: one for uid, one in self._broken.items() if uid in index.uids_on(one.node)}
