"""What metrics.k8s.io says of pods: bytes into amounts, and nothing of what cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.errors import KubeUnknown
from shared.kube.nodes.pod_metrics import PodMetric, decode_pod_metrics


def entry(*usages: dict[str, str], **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "shop"}, "timestamp": "1970-01-01T00:01:00Z", "window": "15s",
        "containers": [{"name": "c", "usage": usage} for usage in usages], **fields,
    }  # fmt: skip


def decoded(*entries: Any) -> list[PodMetric | None]:
    return list(decode_pod_metrics(json.dumps({"kind": "PodMetricsList", "items": entries}).encode()))


def test_containers_are_summed() -> None:
    found = decoded(entry({"cpu": "1500m", "memory": "1Gi"}, {"cpu": "250000n", "memory": "5"}))
    assert found == [PodMetric("shop/web", 60.0, 1501, 2**30 + 5)]


def test_a_pod_without_containers_uses_nothing() -> None:
    assert decoded(entry()) == [PodMetric("shop/web", 60.0, 0, 0)]


@pytest.mark.parametrize(
    "bad",
    [
        entry({"cpu": "NaN", "memory": "1"}),
        entry({"cpu": "-5m", "memory": "1"}),
        entry({"cpu": "1"}),
        entry({"cpu": "1", "memory": "1"}, timestamp="yesterday"),
        entry({"cpu": "1", "memory": "1"}, timestamp=""),
        entry({"cpu": "1", "memory": "1"}, metadata={"name": "web"}),
        entry({"cpu": 1, "memory": "1"}),
        "text",
        None,
    ],
)
def test_an_entry_that_cannot_be_read_costs_the_others_nothing(bad: Any) -> None:
    good = entry({"cpu": "1", "memory": "1"})
    assert [metric is not None for metric in decoded(good, bad, good)] == [True, False, True]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"items": 5}', b"\xff"])
def test_no_list_at_all_is_told(body: bytes) -> None:
    with pytest.raises(KubeUnknown):
        decode_pod_metrics(body)
