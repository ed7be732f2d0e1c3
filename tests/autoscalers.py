"""For which pending pods cluster-autoscaler and Karpenter add nodes, by the rules that they publish: a model for tests.

Sources: cluster-autoscaler 1.36 (``utils/kubernetes/listers.go``, ``core/utils/expendable.go``, ``filterOutYoungPods``
and ``filterOutDaemonSetPods``, the filter of pods that consume a ProvisioningRequest), Karpenter 1.14
(``pkg/utils/pod/scheduling.go``). Both then simulate with the rules of kube-scheduler whether a further node would
take the pod; that is not modelled: what is asked here is whether they look at it at all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

Json = Mapping[str, Any]

UNSCHEDULABLE = "Unschedulable"
DELAY = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
CONSUMES = (
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
)
EXPENDABLE_BELOW = -10
"""``--expendable-pods-priority-cutoff``."""

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def condition(pod: Json) -> Json:
    """PodScheduled, as the API server shows it; empty: it is not there."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == "PodScheduled"), {})


def _owned_by(pod: Json, *kinds: str) -> bool:
    return any(owner["kind"] in kinds for owner in pod["metadata"].get("ownerReferences") or ())


def go_duration_s(text: str) -> float | None:
    """What Go's time.ParseDuration makes of it; None: an error."""
    if text in ("0", "+0", "-0"):
        return 0.0
    parts = re.findall(r"([0-9]*\.?[0-9]+)(ns|us|ms|h|m|s)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text.lstrip("+-"):
        return None
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return -seconds if text.startswith("-") else seconds


def cluster_autoscaler_acts(
    pod: Json, *, nodes: Collection[str] = (), age_s: float = 60.0, new_pod_delay_s: float = 0.0,
    bypassed: Collection[str] = (),
) -> bool:  # fmt: skip
    """Whether it looks for a node for the pod. ``nodes``: names of those that are there; ``bypassed``: schedulers whose
    pods it does not wait to be told about (``--bypassed-scheduler-names``)."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    if spec.get("nodeName") or meta.get("deletionTimestamp") or _owned_by(pod, "DaemonSet"):
        return False
    told = condition(pod)
    unschedulable = told.get("status") == "False" and told.get("reason") == UNSCHEDULABLE
    unprocessed = not told or (told.get("status") == "False" and not told.get("reason"))
    if not unschedulable and not (spec.get("schedulerName") in bypassed and unprocessed):
        return False
    if spec.get("priority") is not None and spec["priority"] < EXPENDABLE_BELOW:
        return False
    if (status.get("nominatedNodeName") or "") in {name for name in nodes if name}:
        return False  # it is counted there
    annotations = meta.get("annotations") or {}
    if any(key in annotations for key in CONSUMES):
        return False
    asked = go_duration_s(annotations.get(DELAY, ""))
    delay_s = asked if asked is not None and asked >= new_pod_delay_s else new_pod_delay_s
    return age_s > delay_s


def karpenter_acts(pod: Json) -> bool:
    """Whether it looks for a node for the pod. Whether the condition is true it does not ask, its reason alone."""
    if condition(pod).get("reason") != UNSCHEDULABLE or pod["spec"].get("nodeName"):
        return False
    if (pod.get("status") or {}).get("nominatedNodeName"):
        return False
    return not _owned_by(pod, "DaemonSet", "Node")
