"""What a capture makes of a live service's pods: how many there are of each kind, and what ails those not Ready.

Pods whose deletion has begun, or that have ended, are nobody's replicas any more. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import field

from shared.autoscaling.hpa.convert_seen import requested
from shared.autoscaling.hpa.model import CPU, PodUsage
from shared.autoscaling.hpa.pods import pod_samples
from shared.errors import ObjectError
from shared.kube.objects import ContainerState, Json, ObjectMeta, PodCondition, PodSpec
from shared.kube.scaling.scaled_objects import unix_s

HANGS_AFTER_S = 60.0
"""A container that has run for so long without its pod being Ready hangs."""
RECENT_S = 600.0
"""So long after it was killed for its memory a pod that is not Ready counts as that."""
ENDED = ("Succeeded", "Failed")


class CapturedContainerStatus(Json, frozen=True):
    restart_count: int = 0
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class CapturedPodStatus(Json, frozen=True):
    phase: str | None = None
    conditions: list[PodCondition] | None = None
    container_statuses: list[CapturedContainerStatus] | None = None


class SeenPod(Json, frozen=True):
    """A pod as far as a capture looks."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)
    status: CapturedPodStatus = field(default_factory=CapturedPodStatus)

    @property
    def ready(self) -> bool:
        """Whether its Ready condition holds."""
        return any(one.type == "Ready" and one.status == "True" for one in self.status.conditions or ())

    @property
    def there(self) -> bool:
        """Whether it serves or may come to."""
        return self.metadata.deletion_timestamp is None and self.status.phase not in ENDED


@dataclass(frozen=True, slots=True)
class ServicePods:
    """The pods of one service: ``starting`` are on a node and not Ready. ``crash_loop``, ``oom_killed`` and ``hung``
    are among these; ``cpu`` and ``memory`` the mean over ready pods, None where no ready one was measured."""

    ready: int
    starting: int
    pending: int
    restarts: int
    crash_loop: int
    oom_killed: int
    hung: int
    requests: Mapping[str, float]
    cpu: float | None
    memory: float | None
    measured_s: float | None
    """When the oldest of these measurements was made, seconds since 1970."""


def counted(pods: Sequence[SeenPod], metrics: Mapping[str, PodUsage], *, now_s: float) -> ServicePods:
    """The pods at ``now_s``, seconds since 1970."""
    there = [pod for pod in pods if pod.there]
    ready = [pod for pod in there if pod.ready]
    placed = [pod for pod in there if not pod.ready and pod.spec.node_name]
    used = [metrics[pod.metadata.name] for pod in ready if pod.metadata.name in metrics]
    return ServicePods(
        ready=len(ready),
        starting=len(placed),
        pending=len(there) - len(ready) - len(placed),
        restarts=sum(one.restart_count for pod in there for one in pod.status.container_statuses or ()),
        crash_loop=sum(_crash_loops(pod) for pod in placed),
        oom_killed=sum(_oom_killed(pod, now_s) for pod in placed),
        hung=sum(_hangs(pod, now_s) for pod in placed),
        requests=_requested(there[0].spec) if there else {},
        cpu=_mean([one.value / 1000 for one in pod_samples(used, CPU).values()]),
        memory=_mean([one.value / 1000 for one in pod_samples(used, "memory").values()]),
        measured_s=min((one.at_s for one in used), default=None),
    )


def _requested(spec: PodSpec) -> Mapping[str, float]:
    try:
        return requested(spec)
    except ObjectError:
        return {}  # a quantity that is none: the capture tells what it can


def _crash_loops(pod: SeenPod) -> bool:
    return any(
        one.state is not None and one.state.waiting is not None and one.state.waiting.reason == "CrashLoopBackOff"
        for one in pod.status.container_statuses or ()
    )


def _oom_killed(pod: SeenPod, now_s: float) -> bool:
    for one in pod.status.container_statuses or ():
        for state in (one.state, one.last_state):
            ended = state.terminated if state is not None else None
            if ended is not None and ended.reason == "OOMKilled":
                at_s = unix_s(ended.finished_at)
                if at_s is None or now_s - at_s <= RECENT_S:
                    return True
    return False


def _hangs(pod: SeenPod, now_s: float) -> bool:
    for one in pod.status.container_statuses or ():
        running = one.state.running if one.state is not None else None
        since_s = unix_s(running.started_at) if running is not None else None
        if since_s is not None and now_s - since_s >= HANGS_AFTER_S:
            return True
    return False


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
