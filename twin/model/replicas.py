"""What a ReplicaSet controller makes of a set and its pods, as the twin plays it; and what every owner of pods needs.

Pure: API JSON in, JSON out. Source: ``pkg/controller/replicaset`` and ``pkg/controller/controller_utils.go`` of
Kubernetes 1.36. It does not adopt pods that it did not make.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from datetime import datetime
from typing import Any

Json = dict[str, Any]

FINISHED = ("Succeeded", "Failed")
_PHASES = ("", "Pending", "Unknown", "Running")


def seconds_of(time: str) -> float:
    """An RFC 3339 time as seconds since 1970."""
    return datetime.fromisoformat(time).timestamp()


def condition_of(obj: Json, kind: str) -> Json | None:
    """The condition of that type."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), None)


def with_condition(conditions: Iterable[Json], wanted: Json, now: str) -> list[Json]:
    """Replaced in place or appended; the transition time moves only when the status does, and no news is no change."""
    kept = list(conditions)
    fresh = {**wanted, "lastTransitionTime": now}
    for index, one in enumerate(kept):
        if one["type"] == wanted["type"]:
            if all(one.get(key) == value for key, value in wanted.items() if key != "lastUpdateTime"):
                return kept
            if one["status"] == wanted["status"]:
                fresh["lastTransitionTime"] = one.get("lastTransitionTime", now)
            kept[index] = fresh
            return kept
    return [*kept, fresh]


def controller_of(obj: Json) -> Json | None:
    """The one owner reference that controls ``obj``."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((one for one in owners if one.get("controller")), None)


def owned_by(owner: Json, api_version: str, kind: str) -> list[Json]:
    """The references of an object that ``owner`` controls."""
    meta = owner["metadata"]
    reference = {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    return [{**reference, "controller": True, "blockOwnerDeletion": True}]


def is_active(pod: Json) -> bool:
    """Neither finished nor being deleted."""
    return pod["status"].get("phase") not in FINISHED and not pod["metadata"].get("deletionTimestamp")


def is_ready(pod: Json) -> bool:
    """Whether its Ready condition is true."""
    ready = condition_of(pod, "Ready")
    return ready is not None and ready["status"] == "True"


def available_in(pod: Json, min_ready_s: float, now_s: float) -> float | None:
    """Seconds until the pod has been ready for so long; 0 when it has, None when it is not ready."""
    ready = condition_of(pod, "Ready")
    if ready is None or ready["status"] != "True":
        return None
    return max(0.0, seconds_of(ready["lastTransitionTime"]) + min_ready_s - now_s) if min_ready_s else 0.0


def pod_of(owner: Json, api_version: str, kind: str) -> Json:
    """A new pod from the owner's template; the server gives it its name."""
    template = copy.deepcopy(owner["spec"]["template"])
    meta = template.get("metadata") or {}
    kept = {key: meta[key] for key in ("labels", "annotations", "finalizers") if meta.get(key)}
    name = owner["metadata"]["name"]
    return {
        "metadata": {**kept, "generateName": f"{name}-", "ownerReferences": owned_by(owner, api_version, kind)},
        "spec": template["spec"],
    }


def surplus(pods: Iterable[Json], count: int) -> list[Json]:
    """The ``count`` pods that go first: without a node, not running, not ready, ready for the shortest, newest."""
    return sorted(pods, key=_keep_rank)[:count]


def _keep_rank(pod: Json) -> tuple[bool, int, bool, float, float, str]:
    phase = pod["status"].get("phase", "")
    ready = condition_of(pod, "Ready")
    is_up = ready is not None and ready["status"] == "True"
    since_s = seconds_of(ready["lastTransitionTime"]) if ready is not None and is_up else 0.0
    created_s = seconds_of(pod["metadata"]["creationTimestamp"])
    rank = _PHASES.index(phase) if phase in _PHASES else 0
    return bool(pod["spec"].get("nodeName")), rank, is_up, -since_s, -created_s, pod["metadata"]["name"]


def replica_status(owner: Json, pods: list[Json], trouble: str, now: str, now_s: float) -> tuple[Json, float | None]:
    """The set's status over its active pods, and in how many seconds another one becomes available.

    ``trouble``: why a pod could not be made, empty when all could.
    """
    spec, old = owner["spec"], owner.get("status") or {}
    labels = ((spec["template"].get("metadata") or {}).get("labels") or {}).items()
    waits = [available_in(pod, spec.get("minReadySeconds", 0), now_s) for pod in pods]
    counts = {
        "fullyLabeledReplicas": sum(labels <= (pod["metadata"].get("labels") or {}).items() for pod in pods),
        "readyReplicas": sum(wait is not None for wait in waits),
        "availableReplicas": sum(wait == 0 for wait in waits),
    }
    status: Json = {"replicas": len(pods), **{key: value for key, value in counts.items() if value}}
    status["observedGeneration"] = owner["metadata"]["generation"]
    conditions = [one for one in old.get("conditions") or () if one["type"] != "ReplicaFailure" or trouble]
    if trouble:
        failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": trouble}
        conditions = with_condition(conditions, failure, now)
    if conditions:
        status["conditions"] = conditions
    return status, min((wait for wait in waits if wait), default=None)
