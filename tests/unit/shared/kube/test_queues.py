"""Queue objects: what the CRD refuses, what becomes of the rest, and what is told on the object."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from shared.kube.queues import QueueObject, queue_from_api, status_body
from shared.model.units.queue import Queue, QueueCondition, QueueStatus, QueueStrategy, ReclaimUpTo, UnitOrder
from tests.unit.twin.twin_scene import Scene
from twin.custom.controller import CustomResources
from twin.registry.status import ApiError

CRD = Path(__file__).parents[4] / "k8s" / "base" / "queues-crd.yaml"


def read(spec: dict[str, Any], **more: Any) -> Queue:
    item = {"metadata": {"name": "a", "uid": "u", "generation": 3}, "spec": spec, **more}
    return queue_from_api(msgspec.json.decode(msgspec.json.encode(item), type=QueueObject))


FULL = {
    "parent": "top", "weight": 2.5, "order": "FIFO", "strategy": "WeightedFairShare", "namespaces": ["x", "y"],
    "guaranteed": {"cpu": "1500m", "conclave.io/gpu-milli": 4000, "memory": "1Gi"}, "maximum": {"cpu": 4},
    "borrowingLimit": {"cpu": 1}, "lendingLimit": {"cpu": "500m"},
    "reclaim": {"enabled": True, "delaySeconds": 30, "upTo": "FairShare", "withinQueue": "LowerPriority"},
    "minRuntimeSeconds": 60, "history": {"halfLifeSeconds": 3600},
}  # fmt: skip


def test_every_field_is_read():
    assert read(FULL) == Queue(
        "a", "top", Fraction(5, 2), UnitOrder.FIFO, QueueStrategy.FAIR, ("x", "y"),
        {"cpu": 1500, "conclave.io/gpu-milli": 4000, "memory": 2**30}, {"cpu": 4000}, {"cpu": 1000}, {"cpu": 500},
        reclaim=True, reclaim_after_s=30.0, reclaim_up_to=ReclaimUpTo.FAIR_SHARE, preempts_within=True, min_run_s=60.0,
        half_life_s=3600.0, uid="u", generation=3,
    )  # fmt: skip


def test_an_empty_queue_has_no_limits():
    assert read({}) == Queue("a", uid="u", generation=3)


def test_a_decimal_weight_is_exact():
    assert read({"weight": 0.1}).weight == Fraction(1, 10)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"weight": 0}, "spec.weight: 0 must be above 0 and at most 1000000, such as 2 or 0.5"),
        ({"weight": "NaN"}, "spec.weight: 'NaN' must be above 0 and at most 1000000, such as 2 or 0.5"),
        ({"weight": -1.5}, "spec.weight: -1.5 must be"),
        ({"strategy": "Lottery"}, "spec.strategy: 'Lottery' is not known; write DRF or WeightedFairShare"),
        ({"order": "LIFO"}, "spec.order: 'LIFO' is not known; write Priority or FIFO"),
        ({"guaranteed": {"cpu": "much"}}, "spec.guaranteed[cpu]: 'much' is not a quantity"),
        ({"maximum": {"cpu": -1}}, "spec.maximum[cpu]: -1 is negative; write 0 or more"),
        ({"maximum": "5"}, "spec.maximum: '5' must be amounts by resource, such as {cpu: 40}"),
        (
            {"guaranteed": {"cpu": 5}, "maximum": {"cpu": 4}},
            "spec.guaranteed[cpu]: '5' is more than spec.maximum[cpu], 4",
        ),
        ({"lendingLimit": {"gpu": 1}}, "spec.lendingLimit[gpu]: 'gpu' is not guaranteed"),
        ({"parent": "a"}, "spec.parent: 'a' is the queue itself"),
        ({"parent": 5}, "spec.parent: 5 is no text"),
        ({"namespaces": "x"}, "spec.namespaces: 'x' must be a list of namespaces"),
        ({"reclaim": True}, "spec.reclaim: True must be an object with fields"),
        ({"reclaim": {"enabled": "yes"}}, "spec.reclaim.enabled: 'yes' must be true or false"),
        ({"reclaim": {"withinQueue": "Always"}}, "spec.reclaim.withinQueue: 'Always' is not known"),
        ({"history": {"halfLifeSeconds": 0}}, "spec.history.halfLifeSeconds: 0 must be 1 to 31536000 seconds"),
        ({"minRuntimeSeconds": "soon"}, "spec.minRuntimeSeconds: 'soon' must be 0 to 31536000 seconds"),
    ],
)
def test_a_field_that_cannot_be_used_is_named_with_its_remedy(spec, problem):
    assert problem.replace("must be above 0", "must be a number above 0") in read(spec).problem


def test_all_that_is_wrong_is_told_at_once():
    assert read({"weight": 0, "order": "x"}).problem.count("spec.") == 2


def test_a_status_is_read_as_it_is_written():
    status = QueueStatus((QueueCondition("Ready", "True", "Used", "fine"),), {"cpu": "3"}, 4, 2, 3)
    body = status_body(status, QueueStatus(), "2026-01-01T00:00:00Z")
    assert read({}, **body).written == status


def test_the_time_of_a_condition_changes_with_its_status_only():
    before = QueueStatus((QueueCondition("Ready", "True", "Used", "fine"),), {"cpu": "3", "gpu": "1"})
    times = {"Ready": "then"}
    same = QueueStatus((QueueCondition("Ready", "True", "Used", "better"),), {"cpu": "4"})
    body = status_body(same, before, "now", times=times)["status"]
    assert body["conditions"][0]["lastTransitionTime"] == "then"
    assert body["used"] == {"cpu": "4", "gpu": None}
    other = QueueStatus((QueueCondition("Ready", "False", "x", "y"),))
    assert status_body(other, before, "now", times=times)["status"]["conditions"][0]["lastTransitionTime"] == "now"


def test_what_is_no_status_of_ours_counts_as_another():
    assert read({}, status="x").written == QueueStatus()
    assert read({}, status={"conditions": ["x"], "used": 5, "pendingUnits": "7"}).written == QueueStatus()


# --- the CRD ----------------------------------------------------------------------------------------------------------


def served() -> Scene:
    """A twin to which the CRD was applied."""
    scene = Scene()
    CustomResources(scene.registry).attach()
    crd = yaml.safe_load(CRD.read_text())
    scene.create("customresourcedefinitions.apiextensions.k8s.io", crd["metadata"]["name"], spec=crd["spec"])
    return scene


def test_the_twin_serves_queues_with_their_defaults():
    scene = served()
    made = scene.create("queues.conclave.io", "a", spec={**FULL, "reclaim": {}}).obj
    assert made["spec"]["reclaim"] == {
        "enabled": False,
        "delaySeconds": 0,
        "upTo": "Guaranteed",
        "withinQueue": "Never",
    }
    assert scene.create("queues.conclave.io", "b", spec={}).obj["spec"] == {
        "order": "Priority",
        "strategy": "DRF",
        "weight": 1,
    }


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"weight": 0}, "must be above 0, such as 2 or 0.5"),
        ({"weight": -1}, "must be above 0"),
        ({"strategy": "Lottery"}, "spec.strategy"),
        ({"order": "LIFO"}, "spec.order"),
        ({"parent": "a"}, "cannot be its own parent"),
        ({"guaranteed": {"cpu": "much"}}, "spec.guaranteed.cpu"),
        ({"maximum": {"cpu": "-1"}}, "spec.maximum.cpu"),
        ({"lendingLimit": {"cpu": 1}}, "only what is guaranteed can be lent"),
        ({"history": {}}, "halfLifeSeconds"),
        ({"history": {"halfLifeSeconds": 0}}, "halfLifeSeconds"),
        ({"reclaim": {"delaySeconds": -1}}, "delaySeconds"),
        ({"namespaces": ["x", "x"]}, "spec.namespaces"),
    ],
)
def test_what_a_schema_can_say_is_refused_at_admission(spec, why):
    with pytest.raises(ApiError) as error:
        served().create("queues.conclave.io", "a", spec=spec)
    assert why in str(error.value.status if hasattr(error.value, "status") else error.value)
