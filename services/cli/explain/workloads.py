"""Objects that make pods: what kubectl calls them, and which pods are theirs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_WORDS = {
    "job": ("job", "jobs", "job.batch"),
    "deployment": ("deploy", "deployment", "deployments", "deployment.apps"),
    "statefulset": ("sts", "statefulset", "statefulsets", "statefulset.apps"),
    "replicaset": ("rs", "replicaset", "replicasets", "replicaset.apps"),
    "daemonset": ("ds", "daemonset", "daemonsets", "daemonset.apps"),
}
_NAMED = {
    "job": r"-[a-z0-9]{5}|-\d+(-[a-z0-9]{5})?", "deployment": r"-[a-z0-9]{1,10}-[a-z0-9]{5}", "statefulset": r"-\d+",
    "replicaset": r"-[a-z0-9]{5}", "daemonset": r"-[a-z0-9]{5}",
}  # fmt: skip
"""What Kubernetes puts behind a workload's name to name its pods."""
_OWNED = {"deployment": ("replicaset", r"-[a-z0-9]{1,10}")}
"""Who is between a workload and its pods, by its name; of all others nobody is."""


def workload_kind(word: str) -> str:
    """The kind that kubectl means by the word; "" for none."""
    return next((kind for kind, words in _WORDS.items() if word in words), "")


def pods_of(pods: Iterable[Mapping[str, Any]], kind: str, name: str) -> list[Mapping[str, Any]]:
    """Those of the pods whose names Kubernetes made of the workload's."""
    pattern = re.compile(re.escape(name) + f"({_NAMED[kind]})")
    return [pod for pod in pods if pattern.fullmatch(str(pod.get("name")))]


def owns(kind: str, name: str, owner_kind: str, owner_name: str) -> bool:
    """Whether a pod whose controller this is belongs to the workload."""
    between, suffix = _OWNED.get(kind, (kind, ""))
    return owner_kind.lower() == between and re.fullmatch(re.escape(name) + suffix, owner_name) is not None
