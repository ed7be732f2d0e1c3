"""What a Job controller makes of a job and its pods, as the twin plays it.

Pure: API JSON in, the next step out; asked again after every change of the job or of one of its pods. Source:
``pkg/controller/job`` of Kubernetes 1.36. Left out is what nobody asked for: pod failure policies, success policies,
back-off limits per index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twin.model.replicas import FINISHED, is_active, is_ready, pod_of, seconds_of, surplus, with_condition

Json = dict[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
FIRST_DELAY_S, LONGEST_DELAY_S = 10.0, 600.0
"""How long a failed pod is waited for before another is made: doubled by every failure."""


@dataclass(slots=True)
class EndedPods:
    """Pods of one job that have ended, by uid: (succeeded, index or -1). Kept though the pods go."""

    pods: dict[str, tuple[bool, int]] = field(default_factory=dict)
    failures: int = 0
    indexes: set[int] = field(default_factory=set)
    last_failure_s: float = 0.0

    def see(self, pod: Json, now_s: float) -> None:
        """Count a pod once, when it has ended."""
        uid, phase = pod["metadata"]["uid"], pod["status"].get("phase")
        if phase not in FINISHED or uid in self.pods:
            return
        succeeded, index = phase == "Succeeded", index_of(pod)
        self.pods[uid] = (succeeded, index)
        if succeeded:
            self.indexes.add(index)
        else:
            self.failures += 1
            self.last_failure_s = now_s

    def succeeded(self, *, indexed: bool) -> int:
        """How many completions there are."""
        return len(self.indexes) if indexed else len(self.pods) - self.failures

    def delay_s(self, now_s: float) -> float:
        """How long no pod is made any more after the last failure."""
        if not self.failures:
            return 0.0
        delay = min(FIRST_DELAY_S * float(1 << min(self.failures - 1, 10)), LONGEST_DELAY_S)
        return max(0.0, self.last_failure_s + delay - now_s)


@dataclass(frozen=True, slots=True)
class JobStep:
    """What to make and to delete, the status to write, and when to look again (seconds; None: at the next change)."""

    make: list[Json]
    delete: list[Json]
    status: Json
    again_s: float | None = None
    remove: bool = False
    """The job's time to live is over."""


def index_of(pod: Json) -> int:
    """Its completion index; -1 where it has none."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdecimal() else -1


def job_step(job: Json, pods: list[Json], ended: EndedPods, now: str, now_s: float) -> JobStep:
    """The next step of a job. ``pods``: those it controls."""
    spec, old = job["spec"], job.get("status") or {}
    for pod in pods:
        ended.see(pod, now_s)
    active = [pod for pod in pods if is_active(pod)]
    done = _finished(old)
    if done:
        left_s = _time_to_live_s(spec, old, now_s)
        return JobStep([], active, _counted(old, job, [], ended), left_s or None, remove=left_s == 0.0)
    if spec.get("suspend"):
        status = _counted({**old, "conditions": _suspended(old, now, suspended=True)}, job, [], ended)
        status.pop("startTime", None)
        return JobStep([], active, status)
    status = {**old, "startTime": old.get("startTime") or now}
    if any(one["type"] == "Suspended" for one in old.get("conditions") or ()):
        status["conditions"] = _suspended(old, now, suspended=False)
    failure = _failure(spec, ended, status["startTime"], now_s)
    if failure is not None:
        conditions = list(status.get("conditions") or ())
        for kind in ("FailureTarget", "Failed"):
            conditions = with_condition(conditions, {"type": kind, "status": "True", **failure}, now)
        return JobStep([], active, _counted({**status, "conditions": conditions}, job, [], ended))
    if _complete(spec, ended, active):
        conditions = list(status.get("conditions") or ())
        reached = {"reason": "CompletionsReached", "message": "Reached expected number of succeeded pods"}
        for kind in ("SuccessCriteriaMet", "Complete"):
            conditions = with_condition(conditions, {"type": kind, "status": "True", **reached}, now)
        status = {**status, "conditions": conditions, "completionTime": now}
        return JobStep([], active, _counted(status, job, [], ended), _time_to_live_s(spec, status, now_s))
    make, delete, wait_s = _pods_wanted(job, active, ended, now_s)
    waits = [wait_s] if wait_s else []
    if "activeDeadlineSeconds" in spec:
        waits.append(max(0.001, seconds_of(status["startTime"]) + spec["activeDeadlineSeconds"] - now_s))
    return JobStep(make, delete, _counted(status, job, active, ended), min(waits, default=None))


def _finished(status: Mapping[str, Any]) -> bool:
    conditions = status.get("conditions") or ()
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions)


def _suspended(old: Json, now: str, *, suspended: bool) -> list[Json]:
    value, verb = ("True", "suspended") if suspended else ("False", "resumed")
    wanted = {"type": "Suspended", "status": value, "reason": f"Job{verb.capitalize()}", "message": f"Job {verb}"}
    return with_condition(old.get("conditions") or (), wanted, now)


def _failure(spec: Json, ended: EndedPods, started: str, now_s: float) -> Json | None:
    if ended.failures > spec["backoffLimit"]:
        return {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
    if "activeDeadlineSeconds" in spec and now_s >= seconds_of(started) + spec["activeDeadlineSeconds"]:
        return {"reason": "DeadlineExceeded", "message": "Job was active longer than specified deadline"}
    return None


def _complete(spec: Json, ended: EndedPods, active: list[Json]) -> bool:
    """All completions, or (without a number) one success and nobody at work any more."""
    done = ended.succeeded(indexed=_indexed(spec))
    if spec.get("completions") is None:
        return done > 0 and not active
    return done >= int(spec["completions"])


def _indexed(spec: Json) -> bool:
    return bool(spec.get("completionMode") == "Indexed")


def _pods_wanted(job: Json, active: list[Json], ended: EndedPods, now_s: float) -> tuple[list[Json], list[Json], float]:
    """(pods to make, pods to delete, seconds to wait before more are made)."""
    spec = job["spec"]
    done = ended.succeeded(indexed=_indexed(spec))
    wanted = spec["parallelism"]
    if spec.get("completions") is not None:
        wanted = min(wanted, spec["completions"] - done)
    elif done:
        wanted = min(wanted, len(active))
    if len(active) >= wanted:
        return [], surplus(active, len(active) - wanted), 0.0
    wait_s = ended.delay_s(now_s)
    if wait_s:
        return [], [], wait_s
    missing = wanted - len(active)
    if not _indexed(spec):
        return [pod_of(job, "batch/v1", "Job") for _ in range(missing)], [], 0.0
    taken = {index_of(pod) for pod in active} | ended.indexes
    free = [index for index in range(min(spec["completions"], len(taken) + missing)) if index not in taken]
    return [_indexed_pod(job, index) for index in free[:missing]], [], 0.0


def _indexed_pod(job: Json, index: int) -> Json:
    pod = pod_of(job, "batch/v1", "Job")
    meta, name = pod["metadata"], job["metadata"]["name"]
    meta["generateName"] = f"{name}-{index}-"
    for field_name in ("annotations", "labels"):
        meta[field_name] = {**(meta.get(field_name) or {}), INDEX: str(index)}
    pod["spec"]["hostname"] = f"{name}-{index}"
    source = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}
    for container in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]):
        variables = container.get("env") or []
        if all(one["name"] != "JOB_COMPLETION_INDEX" for one in variables):
            container["env"] = [*variables, {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]
    return pod


def _counted(status: Json, job: Json, active: list[Json], ended: EndedPods) -> Json:
    indexed = _indexed(job["spec"])
    counted = {
        "active": len(active),
        "succeeded": ended.succeeded(indexed=indexed),
        "failed": ended.failures,
    }
    kept = {key: value for key, value in status.items() if key not in counted}
    shown: Json = {**kept, **{key: value for key, value in counted.items() if value}}
    shown["ready"] = sum(is_ready(pod) for pod in active)
    shown["terminating"] = 0
    shown["uncountedTerminatedPods"] = {}
    if indexed and ended.indexes:
        shown["completedIndexes"] = _ranges(ended.indexes)
    return shown


def _ranges(indexes: set[int]) -> str:
    """``0-2,5``."""
    found: list[list[int]] = []
    for index in sorted(indexes):
        if found and found[-1][1] == index - 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in found)


def _time_to_live_s(spec: Json, status: Json, now_s: float) -> float | None:
    if "ttlSecondsAfterFinished" not in spec:
        return None
    ends = [one["lastTransitionTime"] for one in status["conditions"] if one["type"] in ("Complete", "Failed")]
    return max(0.0, seconds_of(ends[-1]) + float(spec["ttlSecondsAfterFinished"]) - now_s)
