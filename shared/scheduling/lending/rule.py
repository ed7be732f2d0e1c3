"""How much of one resource of one node is lent: Koordinator's formula, with what is not known on the safe side. Pure.

    lent = max(0, capacity - capacity x (1 - threshold) - max(system used, reserved) - sum of what pods that are not
           offline use), then less the margin

Source: Koordinator v1.8.0 (``pkg/slo-controller/noderesource/plugins/batchresource/plugin.go``, ``Calculate``), its
defaults too: 60 % of CPU, 65 % of memory, nothing after 15 minutes without metrics. As there a pod without a metric
counts with its request, an exclusive one with its request of CPU, and pods that the metrics name but that are gone
count by what they used. Beyond it an offline pod counts with what it holds by plain requests (there the webhook leaves
it none): that room is its own, and not lent a second time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import Struct

from shared.model.qos import Qos
from shared.model.resources import CPU, MAX_INT64, MEMORY

TRADED = (CPU, MEMORY)
"""What is lent, in the order of every pair here: milli-cores, bytes."""


@dataclass(frozen=True, slots=True)
class LendingRule:
    """``cpu_percent``, ``memory_percent``: so much of the node is used at most, by all pods together.
    ``margin_percent``: so much of what could be lent is kept back. ``percentile``: of what was taken over the last
    ``window_s``, or what is taken now where that is more. ``degrade_s``: nothing is lent of a node of which no metric
    is younger. Written when it differs by more than ``change_percent``, or at all after ``rewrite_s``."""

    cpu_percent: float = 60.0
    memory_percent: float = 65.0
    margin_percent: float = 0.0
    percentile: float = 95.0
    window_s: float = 300.0
    degrade_s: float = 900.0
    change_percent: float = 10.0
    rewrite_s: float = 300.0

    def threshold(self, resource: str) -> float:
        """As a share of capacity."""
        return (self.cpu_percent if resource == CPU else self.memory_percent) / 100


LENDING_DEFAULTS = LendingRule()


class PodUse(Struct, frozen=True, gc=False):
    """One pod on the node, one resource. ``used``: None where nobody measures it."""

    qos: Qos
    request: int
    used: float | None = None


def counted(pod: PodUse, resource: str) -> float:
    """How much of the node the pod takes from what can be lent."""
    used = amount_or_none(pod.used)
    if used is None or pod.qos is Qos.OFFLINE:
        return pod.request
    if pod.qos is Qos.EXCLUSIVE and resource == CPU:
        return max(used, pod.request)
    return used


def taken(
    resource: str,
    pods: Iterable[PodUse],
    *,
    system_used: float,
    reserved: int = 0,
    gone_used: float = 0.0,
) -> float:
    """What is not to be lent of a node: the system's part, and that of pods. ``gone_used``: of pods that the metrics
    name and that are no longer there."""
    system = amount_or_none(system_used)
    gone = amount_or_none(gone_used)
    if system is None or gone is None:
        return math.inf
    return max(system, reserved) + gone + sum(counted(pod, resource) for pod in pods)


def lent(resource: str, capacity: int, taken_of_it: float, rule: LendingRule, *, age_s: float) -> int:
    """What may be lent, in the resource's own unit (milli-cores, bytes), rounded down. ``age_s``: how old the newest
    metrics are; a clock that is apart makes them of the future, and they count as new."""
    if not age_s < rule.degrade_s or not math.isfinite(taken_of_it):  # also for a NaN
        return 0
    free = capacity * rule.threshold(resource) - taken_of_it
    kept = math.floor(free * (1 - rule.margin_percent / 100))
    return min(max(0, kept), MAX_INT64)


def amount_or_none(amount: float | None) -> float | None:
    """A measured amount that can be one: finite, and not below 0."""
    return amount if amount is not None and math.isfinite(amount) and amount >= 0 else None
