"""Reads a job out of a manifest for ``conclave queue simulate``: how many pods, what each requests, which minimum.

Kinds: Pod, Job, Deployment, ReplicaSet, StatefulSet, and a PodGroup of either API beside them. It reads what decides
about quota and order and nothing else; what the manifest leaves to the cluster (a priority class, defaults of a
LimitRange) it cannot know: give ``--priority``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from shared.errors import ConfigError, ObjectError
from shared.kube import objects
from shared.kube.pods.convert_requests import effective_requests
from shared.model.resources import CPU
from shared.model.units.pod_group import GANG_ANNOTATION, GANG_MIN_COUNT_ANNOTATION
from shared.model.units.queue import QUEUE_LABEL

Json = Mapping[str, Any]

STDIN = "-"
REPLICATED = ("Deployment", "ReplicaSet", "StatefulSet")
HAS_PODS = ("Pod", "Job", *REPLICATED)


def job_of(file: Path) -> dict[str, Any]:
    """``members``, ``min_count``, ``requests``, ``priority``, ``namespace``, ``queue``: those that the file tells.
    ``ConfigError``: it holds no such object, or pods that differ."""
    documents = _read(file)
    found = [one for one in documents if one.get("kind") in HAS_PODS]
    if not found:
        raise ConfigError(f"{file}: holds none of {', '.join(HAS_PODS)}; give a manifest with pods, or --members")
    try:
        jobs = [_job(one) for one in found]
    except (msgspec.ValidationError, ObjectError, ValueError) as error:
        raise ConfigError(f"{file}: {error}") from None
    first = jobs[0]
    if any(job["requests"] != first["requests"] for job in jobs):
        raise ConfigError(f"{file}: its pods request different amounts; simulate each kind by itself")
    told = first | {"members": sum(job["members"] for job in jobs)}
    told["min_count"] = 1 if len(jobs) > 1 or first["min_count"] is None else first["min_count"]
    for group in (one for one in documents if one.get("kind") == "PodGroup"):
        told |= _group(group)
    return {name: value for name, value in told.items() if value not in (None, "")}


def _read(file: Path) -> list[Json]:
    import yaml

    try:
        text = sys.stdin.read() if str(file) == STDIN else file.read_text(encoding="utf-8")
        documents = list(yaml.safe_load_all(text))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(f"{file}: {reason}; give a manifest") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: is no YAML: {' '.join(str(error).split())}") from None
    found = [one for one in documents if isinstance(one, Mapping)]
    return [item for one in found for item in (one.get("items") if one.get("kind") == "List" else [one]) or ()]


def _job(document: Json) -> dict[str, Any]:
    """One workload object."""
    kind, spec, meta = document["kind"], _map(document, "spec"), _map(document, "metadata")
    template = document if kind == "Pod" else _map(spec, "template")
    pod = msgspec.convert({"metadata": {}, "spec": {}} | dict(template), objects.KubePod)
    labels = {**(_map(meta, "labels")), **_map(_map(template, "metadata"), "labels")}
    requests = {name: amount for name, amount in sorted(effective_requests(pod).items()) if amount and name != "pods"}
    return {
        "members": _members(kind, spec),
        "min_count": _minimum(kind, spec, _map(meta, "annotations")),
        "requests": ",".join(f"{name}={amount}{'m' if name == CPU else ''}" for name, amount in requests.items()),
        "priority": pod.spec.priority,
        "namespace": meta.get("namespace"),
        "queue": labels.get(QUEUE_LABEL),
    }


def _members(kind: str, spec: Json) -> int:
    if kind == "Pod":
        return 1
    if kind == "Job":
        most, wanted = spec.get("parallelism", 1), spec.get("completions")
        return min(int(most), int(wanted)) if wanted is not None else int(most)
    return int(spec.get("replicas", 1))


def _minimum(kind: str, spec: Json, annotations: Json) -> int | None:
    """Of a Job that asked to be a gang; None: each pod is a unit of its own."""
    if kind != "Job" or annotations.get(GANG_ANNOTATION) != "true":
        return None
    return int(annotations.get(GANG_MIN_COUNT_ANNOTATION, _members(kind, spec)))


def _group(document: Json) -> dict[str, Any]:
    """What a PodGroup of either API says of its members."""
    spec, meta = _map(document, "spec"), _map(document, "metadata")
    gang = _map(_map(spec, "schedulingPolicy"), "gang")
    told = {
        "min_count": gang.get("minCount") or spec.get("minMember"),
        "priority": spec.get("priority"),
        "queue": _map(meta, "labels").get(QUEUE_LABEL),
    }
    return {name: value for name, value in told.items() if value is not None}


def _map(value: Json, name: str) -> Json:
    found = value.get(name)
    return found if isinstance(found, Mapping) else {}
