"""The twin's metrics APIs answer what was set, in the real APIs' forms, and nothing that was not."""

from __future__ import annotations

import random
from typing import Any

import pytest

from services.twin.bootstrap import make_registry
from services.twin.metrics_data import CUSTOM, EXTERNAL, PODS, MetricsData
from services.twin.registry.status import ApiError
from shared.autoscaling.hpa.decode import pod_usages
from shared.kube.scaled_objects import decode_metric_values

NOW = 1_800_000_000.0


@pytest.fixture
def data() -> MetricsData:
    registry = make_registry(clock=lambda: NOW, rng=random.Random(1))
    pod = {
        "metadata": {"name": "front-1"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"},
    }
    registry.create(registry.context("create", "pods", "default"), "pods", "default", pod)
    running = registry.context("update", "pods", "default", "front-1")
    registry.guaranteed_update(
        running, "pods", "default", "front-1", lambda old: {**old, "status": {**old["status"], "phase": "Running"}}
    )
    return MetricsData(registry)


def encoded(answer: dict[str, Any]) -> bytes:
    import msgspec

    return msgspec.json.encode(answer)


def code_of(data: MetricsData, path: str) -> int:
    with pytest.raises(ApiError) as refused:
        data.serve(path)
    return int(refused.value.code)


def test_what_was_not_set_is_not_served(data: MetricsData):
    assert code_of(data, f"{PODS}default/pods") == 404
    assert code_of(data, f"{CUSTOM}default/services/front/queue") == 404
    assert code_of(data, f"{EXTERNAL}default/depth") == 404


def test_running_pods_use_what_was_set_for_their_names(data: MetricsData):
    data.replace({"pods": {"default/front-": {"cpu": "300m", "memory": "1Mi", "age_s": 20}}})
    (one,) = pod_usages(encoded(data.serve(f"{PODS}default/pods")))
    assert (one.pod, one.at_s) == ("front-1", NOW - 20)
    assert dict(one.containers) == {"c": {"cpu": 300, "memory": 1048576000}}
    assert pod_usages(encoded(data.serve(f"{PODS}other/pods"))) == []


def test_custom_and_external_values_have_their_ages(data: MetricsData):
    data.replace({"custom": {"default/services/front/queue": [{"value": "3", "age_s": 5}, {"value": "4500m"}]}})
    found = decode_metric_values(encoded(data.serve(f"{CUSTOM}default/services/front/queue")))
    assert found == [(3.0, NOW - 5), (4.5, NOW)]
    data.replace({"external": {"default/depth": [{"value": "-7"}]}})
    assert decode_metric_values(encoded(data.serve(f"{EXTERNAL}default/depth"))) == [(-7.0, NOW)]


def test_down_is_503_and_bad_data_is_refused_and_changes_nothing(data: MetricsData):
    data.replace({"down": True})
    assert code_of(data, f"{EXTERNAL}default/depth") == 503
    for bad in ({"pods": {"x": {"cpu": "much"}}}, {"nonesuch": 1}, {"external": {"x": [{"value": 3}]}}, []):
        with pytest.raises(ApiError, match="metrics cannot be used"):
            data.replace(bad)
    assert data.shown()["down"] is True
