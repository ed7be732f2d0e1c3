"""The audit's view of one pod at one moment, as far as groups, queues and evictions ask for it. Plain JSON in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lab.audit.judges.groups import AuditedGroup, Groups
from lab.audit.rules import GPU_MILLI, Amounts, Json, lends, pod_requests, status_on_node

FINISHED = ("Succeeded", "Failed")
FOREIGN_SCHEDULER = "default-scheduler"
LABELS = {"koordinator.sh/qosClass": "BE", "conclave.io/qos": "offline"}
ANNOTATIONS = {
    "katalyst.kubewharf.io/qos_level": "reclaimed_cores", "volcano.sh/qos-level": "BE", "conclave.io/qos": "offline",
}  # fmt: skip
PREEMPTIBLE = "conclave.io/preemptible"
"""Annotation "false": never a victim."""


@dataclass(frozen=True, slots=True)
class AuditedPod:
    """``mine``: of the scheduler that is judged. ``evicted``: (reason, message) of its DisruptionTarget, or None.
    ``refused``: it says that it waits since the API server did not take its Binding. ``plain``: its amounts alone say
    what room it takes, or leaves, and it may be evicted."""

    uid: str
    key: str
    namespace: str
    node: str
    nominated: str
    mine: bool
    finished: bool
    terminating: bool
    priority: int
    never_preempts: bool
    labels: tuple[tuple[str, str], ...]
    requests: tuple[tuple[str, int], ...]
    group: AuditedGroup | None
    evicted: tuple[str, str] | None
    refused: bool = False
    plain: bool = True
    succeeded: bool = False
    offline: bool = False

    @property
    def amounts(self) -> Amounts:
        """What it counts on a node and in a queue."""
        return dict(self.requests)


def pod_view(pod: Json, groups: Groups, scheduler_name: str | None) -> AuditedPod:
    """Read a Pod object. ``scheduler_name`` None: every scheduler's is judged but ``default-scheduler``'s."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    namespace = meta.get("namespace") or ""
    scheduler = spec.get("schedulerName") or FOREIGN_SCHEDULER
    try:
        requests = tuple(sorted(pod_requests(spec, status_on_node(pod)).items()))
    except ValueError:
        requests = ()
    evicted, refused = None, False
    for condition in status.get("conditions") or ():
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            evicted = (str(condition.get("reason") or ""), str(condition.get("message") or ""))
        elif condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            refused = condition.get("reason") == "SchedulerError"
    return AuditedPod(
        uid=meta.get("uid") or "",
        key=f"{namespace}/{meta['name']}",
        namespace=namespace,
        node=spec.get("nodeName") or "",
        nominated=status.get("nominatedNodeName") or "",
        mine=scheduler == scheduler_name if scheduler_name else scheduler != FOREIGN_SCHEDULER,
        finished=status.get("phase") in FINISHED,
        terminating=bool(meta.get("deletionTimestamp")),
        priority=int(spec.get("priority") or 0),
        never_preempts=spec.get("preemptionPolicy") == "Never",
        labels=tuple(sorted((meta.get("labels") or {}).items())),
        requests=requests,
        group=groups.of(pod),
        evicted=evicted,
        refused=refused,
        plain=_plain(spec, meta.get("annotations") or {}, requests),
        succeeded=status.get("phase") == "Succeeded",
        offline=is_offline(meta, requests),
    )


def is_offline(meta: Json, requests: Iterable[tuple[str, int]]) -> bool:
    """Whether a pod is offline: it requests a lent resource, or each of its marks in four vocabularies says so."""
    if any(lends(name) for name, _ in requests):
        return True
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    said = [labels[key] == value for key, value in LABELS.items() if key in labels]
    said += [annotations[key] == value for key, value in ANNOTATIONS.items() if key in annotations]
    return bool(said) and all(said)


def _plain(spec: Json, annotations: Json, requests: tuple[tuple[str, int], ...]) -> bool:
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    ports = any(port.get("hostPort") for container in containers for port in container.get("ports") or ())
    claims = any("persistentVolumeClaim" in volume or "ephemeral" in volume for volume in spec.get("volumes") or ())
    chooses = spec.get("affinity") or spec.get("topologySpreadConstraints") or spec.get("nodeSelector")
    shares = any(name == GPU_MILLI for name, _ in requests)
    return not (ports or claims or chooses or shares or annotations.get(PREEMPTIBLE) == "false")
