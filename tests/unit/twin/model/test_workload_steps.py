"""What the twin's Deployment, ReplicaSet and Job controllers decide, without a registry."""

from __future__ import annotations

from typing import Any

import pytest

from twin.model import deployments, jobs, replicas
from twin.model.deployments import DropSet, MakeSet, Revise, ScaleSet
from twin.model.jobs import INDEX, EndedPods, job_step

Json = dict[str, Any]
NOW, NOW_S = "2026-01-01T00:01:40Z", replicas.seconds_of("2026-01-01T00:01:40Z")


def template(image: str) -> Json:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}}


def deployment(size: int, image: str = "new", surge: int | str = 1, missing: int | str = 0, **spec: Any) -> Json:
    rolling = {"maxSurge": surge, "maxUnavailable": missing}
    return {
        "metadata": {"name": "web", "uid": "d", "generation": 1, "annotations": {deployments.REVISION: "2"}},
        "spec": {
            "replicas": size,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template(image),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            **spec,
        },
    }


def its_set(image: str, size: int, available: int | None = None, revision: int = 2, age: int = 0) -> Json:
    available = size if available is None else available
    return {
        "metadata": {
            "name": image,
            "creationTimestamp": f"2026-01-01T00:00:{30 - age:02}Z",
            "annotations": {deployments.REVISION: str(revision)},
        },
        "spec": {"replicas": size, "template": template(image)},
        "status": {"replicas": size, "readyReplicas": available, "availableReplicas": available},
    }


@pytest.mark.parametrize(
    ("size", "surge", "missing", "expected"),
    [
        (4, "25%", "25%", (5, 3)),
        (10, "25%", "25%", (13, 8)),
        (1, "25%", "25%", (2, 1)),
        (3, 0, 0, (3, 2)),
        (2, 0, "100%", (2, 0)),
        (0, 1, 1, (1, 0)),
    ],
)
def test_surge_is_rounded_up_and_missing_down(
    size: int, surge: int | str, missing: int | str, expected: tuple[int, int]
) -> None:
    assert deployments.bounds(deployment(size, surge=surge, missing=missing)) == expected


def test_the_first_set_has_all_replicas_and_a_name_by_its_template() -> None:
    (made,) = deployments.steps(deployment(3), [], 0)
    assert isinstance(made, MakeSet)
    labels, selector = made.obj["spec"]["template"]["metadata"]["labels"], made.obj["spec"]["selector"]["matchLabels"]
    assert labels == selector
    assert made.obj["metadata"]["name"] == f"web-{labels['pod-template-hash']}"
    assert made.obj["spec"]["replicas"] == 3
    assert deployments.steps(
        deployment(3), [{**made.obj, "metadata": {**made.obj["metadata"], "creationTimestamp": NOW}}], 0
    ) == [Revise(made.obj["metadata"]["name"], 1)]


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([its_set("new", 0), its_set("old", 3, revision=1)], [ScaleSet("new", 1)]),
        ([its_set("new", 1, 0), its_set("old", 3, revision=1)], []),
        ([its_set("new", 1), its_set("old", 3, revision=1)], [ScaleSet("old", 2)]),
        ([its_set("new", 1, 0), its_set("old", 3, 1, revision=1)], []),
        ([its_set("new", 3), its_set("old", 1, revision=1)], [ScaleSet("old", 0)]),
        ([its_set("new", 5)], [ScaleSet("new", 3)]),
        ([its_set("new", 3, revision=1), its_set("old", 0, revision=2)], [Revise("new", 3)]),
    ],
)
def test_a_roll_out_goes_by_what_is_available(sets: list[Json], expected: list[Any]) -> None:
    assert deployments.steps(deployment(3), sets, 0) == expected


def test_pods_that_are_not_available_go_first_of_the_old() -> None:
    sets = [its_set("new", 1, 1), its_set("old", 4, 2, revision=1)]
    assert deployments.steps(deployment(4, missing=1), sets, 0)[-1] == ScaleSet("old", 2)


def test_a_paused_deployment_follows_its_size_and_nothing_else() -> None:
    paused = deployment(5, image="newer", paused=True)
    assert deployments.steps(paused, [its_set("new", 3)], 0) == [ScaleSet("new", 5)]


def test_recreation_waits_for_old_pods() -> None:
    one = deployment(2, strategy={"type": "Recreate"})
    old = its_set("old", 2, revision=1)
    assert deployments.steps(one, [old], 2) == [ScaleSet("old", 0)]
    gone = its_set("old", 0, revision=1)
    assert deployments.steps(one, [gone], 1) == []
    assert isinstance(deployments.steps(one, [gone], 0)[0], MakeSet)


def test_history_keeps_the_newest_of_the_empty_sets() -> None:
    sets = [its_set("new", 1, revision=9), *(its_set(f"old{n}", 0, revision=n) for n in range(1, 5))]
    one = deployment(1, revisionHistoryLimit=2)
    one["metadata"]["annotations"][deployments.REVISION] = "9"
    assert deployments.steps(one, sets, 0) == [DropSet("old1"), DropSet("old2")]


def pod(
    name: str, phase: str = "Running", *, ready: str = "", node: str = "n", created: int = 0, index: str = ""
) -> Json:
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": ready}] if ready else []
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
            "annotations": {INDEX: index} if index else {},
        },
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, "conditions": conditions},
    }


def test_who_is_worth_least_goes_first() -> None:
    ready = "2026-01-01T00:00:50Z"
    order = [
        pod("no-node", "Pending", node=""),
        pod("pending", "Pending"),
        pod("not-ready"),
        pod("ready-since-late", ready="2026-01-01T00:01:00Z"),
        pod("newest", ready=ready, created=9),
        pod("oldest", ready=ready),
    ]
    assert replicas.surplus(reversed(order), 5) == order[:5]


def test_a_pod_is_available_when_it_has_been_ready_for_long_enough() -> None:
    owner = {"metadata": {"generation": 4}, "spec": {"template": template("i"), "minReadySeconds": 60}}
    pods = [pod("long", ready="2026-01-01T00:00:00Z"), pod("just", ready="2026-01-01T00:01:30Z"), pod("not")]
    status, again_s = replicas.replica_status(owner, pods, "", NOW, NOW_S)
    assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (3, 2, 1)
    assert (status["observedGeneration"], again_s) == (4, 50.0)


def job(**spec: Any) -> Json:
    spec = {"parallelism": 2, "completions": 2, "backoffLimit": 1, "template": template("i"), **spec}
    return {"metadata": {"name": "job", "uid": "j"}, "spec": spec}


def step(one: Json, pods: list[Json], ended: EndedPods, at_s: float = NOW_S) -> jobs.JobStep:
    found = job_step(one, pods, ended, NOW, at_s)
    one["status"] = found.status
    return found


def test_a_job_waits_longer_after_every_failure_and_then_gives_up() -> None:
    one, ended = job(backoffLimit=2), EndedPods()
    assert step(one, [pod("a", "Failed")], ended).again_s == 10
    assert len(step(one, [], ended, NOW_S + 10).make) == 2
    assert step(one, [pod("b", "Failed")], ended, NOW_S + 11).again_s == 20
    last = step(one, [pod("c", "Failed"), pod("d")], ended, NOW_S + 40)
    assert [c["reason"] for c in last.status["conditions"]] == ["BackoffLimitExceeded"] * 2
    assert [c["metadata"]["name"] for c in last.delete] == ["d"]
    assert last.status["failed"] == 3


def test_an_indexed_job_makes_the_indexes_that_are_missing() -> None:
    one, ended = job(completionMode="Indexed", completions=5, parallelism=2), EndedPods()
    found = step(one, [pod("a", "Succeeded", index="0"), pod("b", index="1")], ended)
    (made,) = found.make
    assert made["metadata"]["annotations"][INDEX] == made["metadata"]["labels"][INDEX] == "2"
    assert (made["metadata"]["generateName"], made["spec"]["hostname"]) == ("job-2-", "job-2")
    assert made["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    assert found.status["completedIndexes"] == "0"
    step(one, [pod(f"p{n}", "Succeeded", index=str(n)) for n in (1, 2, 4)], ended)
    assert one["status"]["completedIndexes"] == "0-2,4"


def test_a_work_queue_is_done_when_one_succeeded_and_nobody_works() -> None:
    one, ended = job(), EndedPods()
    del one["spec"]["completions"]
    assert len(step(one, [], ended).make) == 2
    assert step(one, [pod("a", "Succeeded"), pod("b")], ended).make == []
    assert step(one, [pod("b", "Succeeded")], ended).status["completionTime"] == NOW


def test_a_suspended_job_has_no_pods_and_goes_on_when_it_is_resumed() -> None:
    one, ended = job(suspend=True), EndedPods()
    found = step(one, [pod("a")], ended)
    assert [one["metadata"]["name"] for one in found.delete] == ["a"]
    assert "startTime" not in found.status
    one["spec"]["suspend"] = False
    found = step(one, [], ended)
    assert (len(found.make), found.status["startTime"], found.status["conditions"][0]["status"]) == (2, NOW, "False")


def test_deadline_and_time_to_live_are_kept() -> None:
    one, ended = job(activeDeadlineSeconds=30, ttlSecondsAfterFinished=60), EndedPods()
    assert step(one, [], ended).again_s == 30
    assert step(one, [pod("a")], ended, NOW_S + 30).status["conditions"][-1]["reason"] == "DeadlineExceeded"
    assert step(one, [], ended, NOW_S + 30).again_s == 30
    assert step(one, [], ended, NOW_S + 60).remove
