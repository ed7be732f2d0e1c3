"""Table cells are what kubectl get shows."""

from __future__ import annotations

from typing import Any

import pytest

from twin.kinds.node import NodeStrategy
from twin.kinds.pod.table import pod_cells
from twin.kinds.rules.printing import human_duration

Json = dict[str, Any]
NOW_S = 1_767_225_600.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (800 * 86400, "2y70d"),
        (3000 * 86400, "8y"),
        (-5, "<invalid>"),
    ],
)
def test_ages_have_two_units_at_most(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def pod(status: Json, spec: Json | None = None, meta: Json | None = None) -> list[Any]:
    metadata = {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z", **(meta or {})}
    obj = {"metadata": metadata, "spec": {"containers": [{"name": "c"}], **(spec or {})}, "status": status}
    return pod_cells(obj, NOW_S + 60)


def state(restarts: int = 0, *, ready: bool = False, **state: Any) -> Json:
    return {"name": "c", "ready": ready, "restartCount": restarts, "state": state, "lastState": {}}


@pytest.mark.parametrize(
    ("status", "cells"),
    [
        ({"phase": "Pending"}, ["0/1", "Pending", "0"]),
        ({"phase": "Running", "containerStatuses": [state(2, ready=True, running={})]}, ["1/1", "Running", "2"]),
        (
            {"phase": "Pending", "containerStatuses": [state(waiting={"reason": "ImagePullBackOff"})]},
            ["0/1", "ImagePullBackOff", "0"],
        ),
        (
            {"phase": "Succeeded", "containerStatuses": [state(terminated={"reason": "Completed"})]},
            ["0/1", "Completed", "0"],
        ),
        ({"phase": "Failed", "containerStatuses": [state(terminated={"exitCode": 3})]}, ["0/1", "ExitCode:3", "0"]),
        ({"phase": "Failed", "reason": "Evicted"}, ["0/1", "Evicted", "0"]),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
            },
            ["0/1", "SchedulingGated", "0"],
        ),
    ],
)
def test_a_pods_status_is_its_most_telling_reason(status: Json, cells: list[str]) -> None:
    row = pod(status)
    assert row[:5] == ["a", *cells, "60s"]


def test_a_restart_tells_when_it_was() -> None:
    last = {**state(3, ready=True, running={}), "lastState": {"terminated": {"finishedAt": "2026-01-01T00:00:30Z"}}}
    assert pod({"phase": "Running", "containerStatuses": [last]})[3] == "3 (30s ago)"


def test_a_pod_being_deleted_is_terminating() -> None:
    assert pod({"phase": "Running"}, meta={"deletionTimestamp": "2026-01-01T00:00:30Z"})[2] == "Terminating"
    assert pod({"phase": "Succeeded"}, meta={"deletionTimestamp": "2026-01-01T00:00:30Z"})[2] == "Succeeded"


def test_init_containers_show_their_progress() -> None:
    spec = {"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]}
    waiting = {**state(waiting={"reason": "PodInitializing"}), "name": "i"}
    row = pod({"phase": "Pending", "initContainerStatuses": [waiting]}, spec)
    assert row[1:3] == ["0/2", "Init:0/2"]


def test_a_nodes_line() -> None:
    info = {"kubeletVersion": "v1.36.0", "kernelVersion": "6.1", "architecture": "amd64"}
    node = {
        "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": ""}},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": info},
    }
    assert NodeStrategy().table_cells(node, NOW_S) == [
        "n", "Ready,SchedulingDisabled", "worker", "<unknown>", "v1.36.0", "<none>", "<none>", "<unknown>",
        "6.1 (amd64)", "<unknown>",
    ]  # fmt: skip
