"""Between the API's JSON and the cluster model: what the model must know of an object, and the status a kubelet writes.

Pure functions over plain dictionaries, copy-on-write: an object that comes in is never changed. Nothing is refused: an
annotation that cannot be read counts as absent and is named in what ``usage_of`` returns, because one bad pod must not
stop a cluster.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from shared.errors import ObjectError
from shared.model.resources import parse_amount
from twin.model.events import NodeSeen, PodSeen, RunPod
from twin.model.usage import (
    FOREVER,
    LIMITS_ANNOTATION,
    NO_LIMITS,
    TWIN_NODE_ANNOTATION,
    USAGE_ANNOTATION,
    UsageProfile,
    limits_from_json,
    profile_from_json,
)

Json = dict[str, Any]

FAIL_ANNOTATION = "conclave.io/twin-fail"
"""``"true"`` on a managed node: its machine is down until the annotation goes."""

JOB_PROFILE = UsageProfile((), duration_s=10.0)
"""A Job's pod that does not say what it uses: a Job whose pods never end would never end either."""

KUBELET_VERSION = "v1.36.0"
_UNREACHABLE = "node.kubernetes.io/unreachable"


def pod_seen(pod: Json) -> PodSeen:
    """The pod as the model sees it; ``pod`` must have a node."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    grace = meta.get("deletionGracePeriodSeconds", 0) if meta.get("deletionTimestamp") else None
    return PodSeen(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        node=spec["nodeName"],
        phase=status.get("phase") or "Pending",
        grace_s=None if grace is None else float(grace),
        unreachable_s=_unreachable_s(spec.get("tolerations") or ()),
        profile=_profile_of(meta),
    )


def _profile_of(meta: Json) -> UsageProfile:
    """What the annotation says; without one a Job's pod ends by itself, and every other runs for ever."""
    annotation = (meta.get("annotations") or {}).get(USAGE_ANNOTATION, "")
    if not annotation and any(one.get("kind") == "Job" for one in meta.get("ownerReferences") or ()):
        return JOB_PROFILE
    return usage_of(annotation)[0]


@lru_cache(maxsize=4096)
def usage_of(annotation: str) -> tuple[UsageProfile, str]:
    """(profile, what is wrong with the annotation)."""
    if not annotation:
        return FOREVER, ""
    try:
        return profile_from_json(annotation), ""
    except ObjectError as error:
        return FOREVER, str(error)


def _unreachable_s(tolerations: list[Json] | tuple[()]) -> float | None:
    """How long the pod stays on an unreachable node: None for ever, 0 when it tolerates nothing of the kind."""
    longest = 0.0
    for toleration in tolerations:
        if toleration.get("effect") not in (None, "", "NoExecute") or toleration.get("key") not in (
            None,
            "",
            _UNREACHABLE,
        ):
            continue
        seconds = toleration.get("tolerationSeconds")
        if seconds is None:
            return None
        longest = max(longest, float(seconds))
    return longest


def node_seen(node: Json) -> NodeSeen:
    """The node as the model sees it."""
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    annotations = meta.get("annotations") or {}
    if annotations.get(TWIN_NODE_ANNOTATION) != "true":
        return NodeSeen(meta["name"], managed=False)
    ready = next((c.get("status", "") for c in status.get("conditions") or () if c.get("type") == "Ready"), "")
    capacity = status.get("allocatable") or {}
    try:
        limits = limits_from_json(
            annotations.get(LIMITS_ANNOTATION, ""),
            cpu_millis=parse_amount("cpu", capacity.get("cpu", "0")),
            memory_bytes=parse_amount("memory", capacity.get("memory", "0")),
        )
    except (ObjectError, ValueError):
        limits = NO_LIMITS
    return NodeSeen(
        meta["name"],
        managed=True,
        failed=annotations.get(FAIL_ANNOTATION) == "true",
        ready=ready,
        taints=frozenset((taint["key"], taint["effect"]) for taint in spec.get("taints") or ()),
        limits=limits,
    )


def with_conditions(old: Json, now: str, wanted: dict[str, tuple[str, str, str]]) -> list[Json]:
    """Conditions of ``old`` status with those of ``wanted`` (status, reason, message) set."""
    before = {c["type"]: c for c in old.get("conditions") or ()}
    merged = dict(before)
    for kind, (status, reason, message) in wanted.items():
        known = before.get(kind)
        since = known["lastTransitionTime"] if known and known.get("status") == status else now
        condition = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
        if reason:
            condition["reason"] = reason
        if message:
            condition["message"] = message
        merged[kind] = condition
    return list(merged.values())


def running_status(pod: Json, run: RunPod, now: str) -> Json:
    """The pod with phase Running: every container started and ready."""
    old = pod.get("status") or {}
    yes = ("True", "", "")
    conditions = with_conditions(
        old, now, dict.fromkeys(("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"), yes)
    )
    containers = [
        {
            "name": container["name"],
            "state": {"running": {"startedAt": now}},
            "lastState": {},
            "ready": True,
            "restartCount": 0,
            "image": container["image"],
            "imageID": f"twin://{container['image']}",
            "containerID": f"twin://{run.pod.uid}/{container['name']}",
            "started": True,
        }
        for container in pod["spec"]["containers"]
    ]
    status = {
        **old,
        "phase": "Running",
        "conditions": conditions,
        "hostIP": run.host_ip,
        "hostIPs": [{"ip": run.host_ip}],
        "podIP": run.pod_ip,
        "podIPs": [{"ip": run.pod_ip}],
        "startTime": now,
        "containerStatuses": containers,
    }
    return {**pod, "status": status}


def finished_status(pod: Json, exit_code: int, now: str) -> Json:
    """The pod with phase Succeeded or Failed: every container terminated."""
    old = pod.get("status") or {}
    reason = "Completed" if exit_code == 0 else "Error"
    why = "PodCompleted" if exit_code == 0 else "PodFailed"
    no = ("False", why, "")
    conditions = with_conditions(
        old, now, {"PodReadyToStartContainers": ("False", "", ""), "Ready": no, "ContainersReady": no}
    )
    containers = [
        {
            **container,
            "ready": False,
            "started": False,
            "state": {
                "terminated": {
                    "exitCode": exit_code,
                    "reason": reason,
                    "startedAt": ((container.get("state") or {}).get("running") or {}).get("startedAt", now),
                    "finishedAt": now,
                    "containerID": container.get("containerID", ""),
                }
            },
        }
        for container in old.get("containerStatuses") or ()
    ]
    phase = "Succeeded" if exit_code == 0 else "Failed"
    return {**pod, "status": {**old, "phase": phase, "conditions": conditions, "containerStatuses": containers}}


def node_ready_status(node: Json, status: str, now: str, address: str) -> Json:
    """The node with its Ready condition, and with what a kubelet tells of itself."""
    old = node.get("status") or {}
    if status == "True":
        wanted = {
            "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            "Ready": ("True", "KubeletReady", "the twin plays this node's kubelet"),
        }
    else:
        wanted = {"Ready": (status, "NodeStatusUnknown", "Kubelet stopped posting node status.")}
    conditions = with_conditions(old, now, wanted)
    for condition in conditions:
        condition.pop("lastProbeTime", None)
        condition["lastHeartbeatTime"] = now
    name = node["metadata"]["name"]
    told: Json = {
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        "nodeInfo": {
            "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "twin", "osImage": "Conclave twin",
            "containerRuntimeVersion": "twin://1", "kubeletVersion": KUBELET_VERSION, "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": "amd64",
        },
    }  # fmt: skip
    if (old.get("nodeInfo") or {}).get("kubeletVersion"):
        told["nodeInfo"] = old["nodeInfo"]
    if old.get("addresses"):
        told["addresses"] = old["addresses"]
    return {**node, "status": {**old, **told, "conditions": conditions}}


def with_taints(node: Json, remove: frozenset[tuple[str, str]], add: frozenset[tuple[str, str]], now: str) -> Json:
    """The node with these taints (key, effect) taken away and added."""
    spec = node.get("spec") or {}
    before = spec.get("taints") or []
    kept = [taint for taint in before if (taint["key"], taint["effect"]) not in remove]
    there = {(taint["key"], taint["effect"]) for taint in kept}
    for key, effect in sorted(add - there):
        taint = {"key": key, "effect": effect}
        if effect == "NoExecute":
            taint["timeAdded"] = now
        kept.append(taint)
    if kept == before:
        return node
    changed = {key: value for key, value in spec.items() if key != "taints"}
    if kept:
        changed["taints"] = kept
    return {**node, "spec": changed}
