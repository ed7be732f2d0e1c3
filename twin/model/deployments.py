"""What a Deployment controller makes of a deployment and its ReplicaSets, as the twin plays it.

Pure: API JSON in, the next steps out. Steps are levels: they are asked for again after every change, and there are none
when all is as it should be. Source: ``pkg/controller/deployment`` of Kubernetes 1.36. It does not spread a change of
size over several sets in proportion, nor give up after ``progressDeadlineSeconds``.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

from twin.model.replicas import owned_by, with_condition

Json = dict[str, Any]

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
_DESIRED, _MOST = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_HASH_LENGTH = 10


@dataclass(frozen=True, slots=True)
class MakeSet:
    """Create this ReplicaSet."""

    obj: Json


@dataclass(frozen=True, slots=True)
class ScaleSet:
    """Give the ReplicaSet of this name so many replicas."""

    name: str
    replicas: int


@dataclass(frozen=True, slots=True)
class Revise:
    """Write the revision on the deployment and on the ReplicaSet of this name."""

    name: str
    revision: int


@dataclass(frozen=True, slots=True)
class DropSet:
    """Delete the ReplicaSet of this name: it is empty, and older than the history that is kept."""

    name: str


Step = MakeSet | ScaleSet | Revise | DropSet


def template_hash(template: Json) -> str:
    """A name for a pod template, the same for equal templates."""
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:_HASH_LENGTH])


def _without_hash(template: Json) -> Json:
    meta = dict(template.get("metadata") or {})
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key != HASH_LABEL}
    return {**template, "metadata": {**meta, "labels": labels}}


def new_set_of(deployment: Json, sets: list[Json]) -> Json | None:
    """The set with the deployment's template; of several the oldest."""
    wanted = _without_hash(deployment["spec"]["template"])
    same = [one for one in sets if _without_hash(one["spec"]["template"]) == wanted]
    return min(same, key=_age, default=None)


def _age(one: Json) -> tuple[str, str]:
    return one["metadata"]["creationTimestamp"], one["metadata"]["name"]


def _revision(obj: Json) -> int:
    text = (obj["metadata"].get("annotations") or {}).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def _amount(value: int | str, total: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    share = int(value.rstrip("%")) * total / 100
    return math.ceil(share) if up else math.floor(share)


def bounds(deployment: Json) -> tuple[int, int]:
    """(most pods at once, fewest available) during a roll-out."""
    spec = deployment["spec"]
    replicas = spec["replicas"]
    if spec["strategy"]["type"] == "Recreate":
        return replicas, 0
    rolling = spec["strategy"].get("rollingUpdate") or {}
    surge = _amount(rolling.get("maxSurge", 1), replicas, up=True)
    missing = _amount(rolling.get("maxUnavailable", 0), replicas, up=False)
    if not surge and not missing:
        missing = 1
    return replicas + surge, replicas - min(missing, replicas)


def steps(deployment: Json, sets: list[Json], pods_of_old: int) -> list[Step]:
    """What is to be done now. ``sets``: those it controls; ``pods_of_old``: pods there still are of other templates."""
    spec = deployment["spec"]
    new = new_set_of(deployment, sets)
    old = sorted((one for one in sets if one is not new), key=_age)
    newest = max((_revision(one) for one in old), default=0)
    found: list[Step] = []
    if new is not None and _revision(new) <= newest:
        found.append(Revise(new["metadata"]["name"], newest + 1))
    elif new is not None and _revision(deployment) != _revision(new):
        found.append(Revise(new["metadata"]["name"], _revision(new)))
    if spec.get("paused"):
        return found + _resize_paused(new, old, spec["replicas"])
    if spec["strategy"]["type"] == "Recreate":
        shrink: list[Step] = [ScaleSet(one["metadata"]["name"], 0) for one in old if one["spec"]["replicas"]]
        if shrink or pods_of_old:
            return found + shrink
    if new is None:
        return [*found, MakeSet(_made(deployment, old, newest + 1))]
    grown = _new_replicas(deployment, new, old)
    if grown != new["spec"]["replicas"]:
        found.append(ScaleSet(new["metadata"]["name"], grown))
        return found
    found += _shrunk(deployment, new, old)
    found += _history(deployment, old)
    return found


def _resize_paused(new: Json | None, old: list[Json], replicas: int) -> list[Step]:
    """A paused deployment follows its size and nothing else."""
    active = [one for one in (*old, new) if one is not None and one["spec"]["replicas"]]
    target = active[0] if len(active) == 1 else new if not active else None
    if target is None or target["spec"]["replicas"] == replicas:
        return []
    return [ScaleSet(target["metadata"]["name"], replicas)]


def _made(deployment: Json, old: list[Json], revision: int) -> Json:
    spec, meta = deployment["spec"], deployment["metadata"]
    hashed = template_hash(_without_hash(spec["template"]))
    template = copy.deepcopy(spec["template"])
    labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: hashed}
    template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
    selector = copy.deepcopy(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: hashed}
    most, _ = bounds(deployment)
    annotations = {REVISION: str(revision), _DESIRED: str(spec["replicas"]), _MOST: str(most)}
    return {
        "metadata": {
            "name": f"{meta['name']}-{hashed}",
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": owned_by(deployment, "apps/v1", "Deployment"),
        },
        "spec": {
            "replicas": min(spec["replicas"], max(0, most - _sum(old))),
            "minReadySeconds": spec.get("minReadySeconds", 0),
            "selector": selector,
            "template": template,
        },
    }


def _sum(sets: list[Json]) -> int:
    return sum(one["spec"]["replicas"] for one in sets)


def _available(one: Json) -> int:
    return int((one.get("status") or {}).get("availableReplicas", 0))


def _new_replicas(deployment: Json, new: Json, old: list[Json]) -> int:
    wanted, now = deployment["spec"]["replicas"], new["spec"]["replicas"]
    if now >= wanted:
        return int(wanted)
    most, _ = bounds(deployment)
    return int(now + min(max(0, most - now - _sum(old)), wanted - now))


def _shrunk(deployment: Json, new: Json, old: list[Json]) -> list[Step]:
    """Old sets lose first what is not available, then what the new one makes up for."""
    active = [one for one in old if one["spec"]["replicas"]]
    if not active:
        return []
    _, fewest = bounds(deployment)
    may_go = _sum([new, *old]) - fewest - (new["spec"]["replicas"] - _available(new))
    if may_go <= 0:
        return []
    left = {one["metadata"]["name"]: one["spec"]["replicas"] for one in active}
    for one in active:
        unhealthy = min(may_go, max(0, one["spec"]["replicas"] - _available(one)))
        left[one["metadata"]["name"]] -= unhealthy
        may_go -= unhealthy
    spare = max(0, _available(new) + sum(_available(one) for one in old) - fewest)
    for one in active:
        name = one["metadata"]["name"]
        gone = min(left[name], spare, may_go)
        left[name] -= gone
        spare -= gone
        may_go -= gone
    return [ScaleSet(one["metadata"]["name"], left[one["metadata"]["name"]]) for one in active
            if left[one["metadata"]["name"]] != one["spec"]["replicas"]]  # fmt: skip


def _history(deployment: Json, old: list[Json]) -> list[Step]:
    empty = [one for one in old if not one["spec"]["replicas"] and not (one.get("status") or {}).get("replicas")]
    spare = len(empty) - deployment["spec"].get("revisionHistoryLimit", 10)
    return [DropSet(one["metadata"]["name"]) for one in sorted(empty, key=_revision)[: max(0, spare)]]


def deployment_status(deployment: Json, sets: list[Json], now: str) -> Json:
    """The status over all its sets."""
    new = new_set_of(deployment, sets)
    statuses = [one.get("status") or {} for one in sets]
    replicas = deployment["spec"]["replicas"]
    total, ready, available = (
        sum(one.get(key, 0) for one in statuses) for key in ("replicas", "readyReplicas", "availableReplicas")
    )
    updated = ((new or {}).get("status") or {}).get("replicas", 0)
    counts = {
        "replicas": total,
        "updatedReplicas": updated,
        "readyReplicas": ready,
        "availableReplicas": available,
        "unavailableReplicas": max(0, _sum(sets) - available),
    }
    status: Json = {"observedGeneration": deployment["metadata"]["generation"]}
    status |= {key: value for key, value in counts.items() if value}
    conditions = (deployment.get("status") or {}).get("conditions") or ()
    _, fewest = bounds(deployment)
    enough = available >= fewest
    text = "Deployment has minimum availability." if enough else "Deployment does not have minimum availability."
    reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
    found = with_condition(conditions, _condition("Available", enough, reason, text, now), now)
    if not deployment["spec"].get("paused") and new is not None:
        name = new["metadata"]["name"]
        done = updated == replicas and total == replicas and available == replicas
        reason, verb = ("NewReplicaSetAvailable", "has successfully progressed") if done else (
            "ReplicaSetUpdated", "is progressing"
        )  # fmt: skip
        text = f'ReplicaSet "{name}" {verb}.'
        found = with_condition(found, _condition("Progressing", True, reason, text, now), now)
    status["conditions"] = found
    return status


def _condition(kind: str, holds: bool, reason: str, text: str, now: str) -> Json:
    value = "True" if holds else "False"
    return {"type": kind, "status": value, "lastUpdateTime": now, "reason": reason, "message": text}
