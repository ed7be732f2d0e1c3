"""The live service's HPA rule is the controller's: the same cases through its watches, reads and core, and by batch.

The corpus of the real controller's answers lies beside the project where it is; the cases that are drawn here need it
not.
"""

from __future__ import annotations

import copy
import json
import os
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.autoscaling.hpa.batch import play as batch_play
from shared.autoscaling.hpa.batch import step_json
from shared.autoscaling.hpa.objects import CaseInput
from tests.hpa_live import play

Json = dict[str, Any]
CORPUS = Path(os.environ.get("CONCLAVE_SHARED", "../shared")) / "oracle-hpa" / "cases.jsonl"
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}
COMPARED = ("desired", "reason", "replicas", "proposals")


async def both(given: Json) -> tuple[list[Json], list[Json]]:
    """(live, batch), as far as they are compared."""
    live = await play(copy.deepcopy(given))
    batch = [step_json(one) for one in batch_play(msgspec.convert(given, CaseInput))]

    def cut(steps: list[Json]) -> list[Json]:
        return [{name: one[name] for name in COMPARED if name in one} for one in steps]

    return cut(live), cut(batch)


def pod(name: str, *containers: Json, spec: Json | None = None, **status: Any) -> Json:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T11:00:10Z"}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": list(containers) or [container()], **(spec or {})},
        "status": {"phase": "Running", "startTime": "2026-03-01T11:00:00Z", "conditions": [ready], **status},
    }


def container(name: str = "main", *, cpu: str | None = "100m", **more: Any) -> Json:
    requests = {} if cpu is None else {"cpu": cpu}
    return {"name": name, "resources": {"requests": requests}, **more}


def sample(pod: str, **usage: str) -> Json:
    return {
        "metadata": {"name": pod, "namespace": "default", "labels": {"app": "web"}},
        "timestamp": "2026-03-01T11:59:50Z",
        "window": "30s",
        "containers": [{"name": name, "usage": {"cpu": cpu}} for name, cpu in usage.items()],
    }


def case(pods: list[Json], samples: list[Json], *, metrics: list[Json] | None = None, replicas: int = 0) -> Json:
    """One step at twelve; a window of 0, so that a shrinking shows."""
    many = replicas or len(pods)
    step = {
        "at": "2026-03-01T12:00:00Z",
        "scale": {"replicas": many, "statusReplicas": many, "selector": "app=web"},
        "pods": pods,
        "metrics": {"resource": samples},
    }
    spec = {"minReplicas": 1, "maxReplicas": 40, "metrics": metrics or [CPU]}
    hpa = {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}
    return {"hpa": hpa, "controller": {"downscaleStabilizationWindow": "0s"}, "steps": [step]}


@pytest.mark.parametrize(
    ("pods", "samples", "desired"),
    [
        # 90 % of what is requested, target 60 %: 4 pods are to be 6
        ([pod(f"p{n}") for n in range(4)], [sample(f"p{n}", main="90m") for n in range(4)], 6),
        # a native sidecar's request counts, and so does its use: 180m of 200m
        (
            [pod(f"p{n}", spec={"initContainers": [container("proxy", restartPolicy="Always")]}) for n in range(4)],
            [sample(f"p{n}", main="90m", proxy="90m") for n in range(4)],
            6,
        ),
        # an ordinary init container is over
        (
            [pod(f"p{n}", spec={"initContainers": [container("migrate", cpu="4")]}) for n in range(4)],
            [sample(f"p{n}", main="90m") for n in range(4)],
            6,
        ),
        # requests of the pod itself, beside a container that has none
        (
            [pod(f"p{n}", container(cpu=None), spec={"resources": {"requests": {"cpu": "100m"}}}) for n in range(4)],
            [sample(f"p{n}", main="90m") for n in range(4)],
            6,
        ),
        # a RuntimeClass's overhead is no request of a container
        (
            [pod(f"p{n}", spec={"overhead": {"cpu": "100m"}}) for n in range(4)],
            [sample(f"p{n}", main="90m") for n in range(4)],
            6,
        ),
        # resized in place, two of four: 90m of 100m and 180m of 200m
        (
            [pod(f"p{n}", container(cpu="200m" if n % 2 else "100m")) for n in range(4)],
            [sample(f"p{n}", main="180m" if n % 2 else "90m") for n in range(4)],
            6,
        ),
    ],
    ids=["plain", "sidecar", "init", "pod-level", "overhead", "resized"],
)
async def test_pods_at_90_percent_with_a_target_of_60_are_made_more(
    pods: list[Json], samples: list[Json], desired: int
):
    live, batch = await both(case(pods, samples))
    assert [one["desired"] for one in live] == [desired]
    assert live == batch


async def test_a_container_without_a_request_makes_the_rule_refuse_to_guess():
    pods = [pod(f"p{n}", container(), container("log", cpu=None)) for n in range(4)]
    live, batch = await both(case(pods, [sample(f"p{n}", main="9m", log="1m") for n in range(4)]))
    assert live[0]["replicas"] == 4
    assert live[0]["reason"] == "FailedGetResourceMetric"
    assert live == batch


async def test_the_cpu_of_a_pods_start_does_not_count():
    """Ten seconds old and at ten times its share: five pods stay five."""
    young = {"startTime": "2026-03-01T11:59:50Z"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T11:59:55Z"}
    pods = [pod(f"p{n}") for n in range(4)] + [pod("p4", conditions=[ready], **young)]
    live, batch = await both(case(pods, [*(sample(f"p{n}", main="60m") for n in range(4)), sample("p4", main="900m")]))
    assert live[0]["desired"] == 5
    assert live == batch


async def test_a_metric_of_one_container_looks_at_that_container_alone():
    target = {"type": "Utilization", "averageUtilization": 60}
    metric = {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "main", "target": target}}
    pods = [pod(f"p{n}", container(), container("log", cpu=None)) for n in range(4)]
    live, batch = await both(case(pods, [sample(f"p{n}", main="90m", log="1") for n in range(4)], metrics=[metric]))
    assert live[0]["desired"] == 6
    assert live == batch


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_pods_look_like_live_and_batch_say_the_same(seed: int):
    rng = random.Random(seed)
    steps = []
    replicas = rng.randint(1, 8)
    for minute in range(3):
        pods, samples = [], []
        for number in range(rng.randint(1, 9)):
            made = [
                container(f"c{n}", cpu=rng.choice(["100m", "250m", "1", None, "100m"]))
                for n in range(rng.randint(1, 3))
            ]
            more: Json = {}
            if rng.random() < 0.3:
                restart = rng.choice([{"restartPolicy": "Always"}, {}])
                more["initContainers"] = [container("init", cpu=rng.choice(["50m", "2", None]), **restart)]
            if rng.random() < 0.2:
                more["resources"] = {"requests": {"cpu": rng.choice(["300m", "2"])}}
            if rng.random() < 0.2:
                more["overhead"] = {"cpu": "100m"}
            ready = {
                "type": "Ready", "status": rng.choice(["True", "True", "False", "Unknown"]),
                "lastTransitionTime": f"2026-03-01T11:{rng.randint(50, 59)}:{rng.randint(0, 59):02d}Z",
            }  # fmt: skip
            one = pod(
                f"p{number}", *made, spec=more, startTime=f"2026-03-01T11:{rng.randint(50, 59)}:00Z",
                phase=rng.choice(["Running"] * 5 + ["Pending", "Failed", "Succeeded"]),
                conditions=rng.choice([[ready]] * 5 + [[]]),
            )  # fmt: skip
            if rng.random() < 0.1:
                one["metadata"]["deletionTimestamp"] = "2026-03-01T11:59:00Z"
            pods.append(one)
            if rng.random() < 0.85:
                names = [each["name"] for each in made][: rng.choice([3, 3, 3, 1])]
                samples.append(sample(f"p{number}", **{name: f"{rng.randint(0, 400)}m" for name in names}))
        if rng.random() < 0.3:
            samples.append(sample("gone", c0="300m"))
        step = case(pods, samples, replicas=replicas)["steps"][0]
        steps.append({**step, "at": f"2026-03-01T12:{minute:02d}:00Z", "scaledByHand": True})
        replicas = max(1, replicas + rng.choice([-1, 0, 1]))
    target = rng.choice(
        [{"type": "Utilization", "averageUtilization": 60}, {"type": "AverageValue", "averageValue": "120m"}]
    )
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    given = {**case([], [], metrics=[metric], replicas=1), "steps": steps}
    live, batch = await both(given)
    assert [one.get("proposals") for one in live] == [one.get("proposals") for one in batch]
    assert live[0] == batch[0]


@pytest.mark.skipif(not CORPUS.exists(), reason=f"{CORPUS} is not here; CONCLAVE_SHARED names its folder")
async def test_the_real_controllers_answers_are_the_live_services():
    """Every case of the corpus: desired, reason, replicas, proposals and metrics, as its checker compares them."""
    wrong = []
    for line in CORPUS.read_text().splitlines():
        given = json.loads(line)
        found = await play(given["input"])
        for number, (one, expected) in enumerate(zip(found, given["expect"]["steps"], strict=True)):
            names = ("desired", "reason", *(name for name in ("replicas", "proposals") if name in one))
            wrong += [
                f"{given['id']} step {number}: {name} is {one[name]}, not {expected.get(name)}"
                for name in names
                if one[name] != expected.get(name, one[name])
            ]
    assert wrong == []
