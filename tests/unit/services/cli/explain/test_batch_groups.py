"""``conclave explain --batch`` on pod groups: who is not queued, by the rule that the mesh goes by."""

from __future__ import annotations

import json
from typing import Any

from services.cli.explain import offline
from shared.scheduling.groups.quorum import MIXED, TOO_FEW

Json = dict[str, Any]


def waiting(names: str, **spec: object) -> list[Json]:
    """Members of the scheduler plug-ins' group g."""
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    metadata = [{"name": name, "namespace": "default", "uid": name, "labels": labels} for name in names]
    return [{"metadata": meta, "spec": {"containers": [{"name": "c"}], **spec}} for meta in metadata]


def gated(pods: list[Json], **group: object) -> dict[str, str]:
    """Who waits for what, of a group of at least two on one node of 3 CPU."""
    asked = {
        "nodes": [{"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "3", "pods": "9"}}}],
        "pluginsPodGroups": [{"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2, **group}}],
        "pods": pods,
    }
    [found] = offline.answers([json.dumps({"id": "x", "input": asked}).encode()])
    return {name: why["reasons"][0] for name, why in found.get("preEnqueue", {}).items()}


def test_what_the_mesh_does_not_queue_is_not_queued_offline_either() -> None:
    """One rule for both: other schedulers' members, and what the group demands of the cluster."""
    assert gated(waiting("ab")) == {}
    mixed = [*waiting("ab"), *waiting("c", schedulerName="other")]
    assert gated(mixed) == dict.fromkeys("abc", MIXED)
    short = "spec.minResources[cpu]: 4 is more than the cluster has, 3; add nodes or ask for less"
    assert gated(waiting("ab"), minResources={"cpu": "4"}) == dict.fromkeys("ab", short)
    assert gated(waiting("a")) == {"a": TOO_FEW}
