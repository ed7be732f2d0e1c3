"""Pods of a live service: who counts as what, and what ails those that are not Ready."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from lab.worlds.learned.captured import SeenPod, counted
from shared.autoscaling.hpa.model import PodUsage

NOW_S = 1_800_000_000.0


def stamp(ago_s: float) -> str:
    return datetime.fromtimestamp(NOW_S - ago_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(name: str, *, ready: bool = False, node: str | None = "n1", phase: str = "Running", **more) -> SeenPod:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    containers = [{"name": "main", "resources": {"requests": {"cpu": "500m"}}}]
    return msgspec.convert(
        {
            "metadata": {"name": name, **more.pop("metadata", {})},
            "spec": {"nodeName": node, "containers": containers},
            "status": {"phase": phase, "conditions": conditions, "containerStatuses": [more] if more else None},
        },
        SeenPod,
    )


def test_pods_are_ready_starting_or_pending_and_those_that_go_are_none():
    pods = [
        pod("a", ready=True), pod("b"), pod("c", node=None, phase="Pending"), pod("d", phase="Failed"),
        pod("e", ready=True, metadata={"deletionTimestamp": stamp(1)}),
    ]  # fmt: skip
    found = counted(pods, {}, now_s=NOW_S)
    assert (found.ready, found.starting, found.pending) == (1, 1, 1)
    assert found.requests == {"cpu": 0.5}
    assert found.cpu is None


@pytest.mark.parametrize(
    ("container", "what"),
    [
        ({"state": {"waiting": {"reason": "CrashLoopBackOff"}}}, (1, 0, 0)),
        ({"lastState": {"terminated": {"reason": "OOMKilled", "finishedAt": stamp(60)}}}, (0, 1, 0)),
        ({"lastState": {"terminated": {"reason": "OOMKilled", "finishedAt": stamp(6000)}}}, (0, 0, 0)),
        ({"state": {"running": {"startedAt": stamp(90)}}}, (0, 0, 1)),
        ({"state": {"running": {"startedAt": stamp(20)}}}, (0, 0, 0)),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, (0, 0, 0)),
    ],
    ids=["crash loop", "oom", "oom long ago", "hang", "young", "being made"],
)
def test_what_ails_a_pod_that_is_not_ready(container, what):
    found = counted([pod("a", restartCount=4, **container)], {}, now_s=NOW_S)
    assert (found.crash_loop, found.oom_killed, found.hung) == what
    assert found.restarts == 4


def test_a_ready_pod_ails_of_nothing():
    found = counted([pod("a", ready=True, state={"running": {"startedAt": stamp(900)}})], {}, now_s=NOW_S)
    assert (found.crash_loop, found.oom_killed, found.hung) == (0, 0, 0)


def test_use_is_the_mean_over_ready_pods_that_were_measured():
    metrics = {
        "a": PodUsage("a", {}, NOW_S - 30, 30.0, (("main", {"cpu": 200, "memory": 100_000}),)),
        "b": PodUsage("b", {}, NOW_S, 30.0, (("main", {"cpu": 400}),)),
        "c": PodUsage("c", {}, NOW_S, 30.0, (("main", {"cpu": 9000}),)),
    }  # fmt: skip
    found = counted([pod("a", ready=True), pod("b", ready=True), pod("c")], metrics, now_s=NOW_S)
    assert found.cpu == pytest.approx(0.3)
    assert (found.memory, found.measured_s) == (100.0, NOW_S - 30)
