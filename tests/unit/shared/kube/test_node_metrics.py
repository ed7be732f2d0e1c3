"""The metrics API's list into amounts; odd entries cost only themselves."""

from __future__ import annotations

import json

import pytest

from shared.errors import KubeUnknown
from shared.kube.nodes.node_metrics import NodeMetric, decode_node_metrics

GOOD = {
    "metadata": {"name": "worker-1", "creationTimestamp": "2026-01-01T00:00:20Z"},
    "timestamp": "2026-01-01T00:00:15Z",
    "window": "15.032s",
    "usage": {"cpu": "1234567890n", "memory": "2048Ki"},
}


def body(*items: object) -> bytes:
    return json.dumps({"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items}).encode()


def test_amounts_are_millis_and_bytes_at_the_windows_end() -> None:
    assert decode_node_metrics(body(GOOD)) == ([NodeMetric("worker-1", 1767225615.0, 1235, 2 * 1024 * 1024)], 0)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"usage": {"cpu": "lots", "memory": "1Ki"}}, id="no quantity"),
        pytest.param({"usage": {"cpu": "-1", "memory": "1Ki"}}, id="negative"),
        pytest.param({"usage": {}}, id="no usage"),
        pytest.param({"timestamp": "yesterday"}, id="no time"),
        pytest.param({"metadata": {}}, id="no name"),
        pytest.param({"metadata": 7}, id="wrong type"),
    ],
)
def test_an_odd_entry_is_counted_and_the_others_stay(change: dict[str, object]) -> None:
    found, odd = decode_node_metrics(body({**GOOD, **change}, GOOD))
    assert ([metric.node for metric in found], odd) == (["worker-1"], 1)


@pytest.mark.parametrize("answer", [b"", b"{}", b"[1]", b"\xff", b'{"items": 3}'])
def test_what_is_no_list_is_refused(answer: bytes) -> None:
    with pytest.raises(KubeUnknown, match=r"metrics\.k8s\.io"):
        decode_node_metrics(answer)
