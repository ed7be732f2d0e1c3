"""Bodies of the metrics APIs: what cannot be read is passed over, or spoils the answer; it never stands for 0."""

from __future__ import annotations

import pytest

from shared.autoscaling.hpa.decode import custom_series, external_series, pod_usages
from shared.autoscaling.hpa.model import ExternalSeries, ObjectRef
from shared.errors import KubeUnknown

AT = "2026-11-23T12:00:00Z"


def test_samples_are_kept_by_container_and_what_cannot_be_read_is_passed_over():
    body = b"""{"items": [
      {"metadata": {"name": "a", "labels": {"app": "web"}}, "timestamp": "2026-11-23T12:00:00Z", "window": "30s",
       "containers": [{"name": "m", "usage": {"cpu": "250m", "memory": "1Mi"}}, {"name": "s", "usage": {"cpu": "1"}}]},
      {"metadata": {"name": "b"}, "timestamp": "never", "containers": []},
      {"metadata": {"name": "c"}, "timestamp": "2026-11-23T12:00:00Z", "containers": [{"usage": {"cpu": "much"}}]},
      {"metadata": {"name": "d"}, "timestamp": "2026-11-23T12:00:00Z", "containers": [{"usage": {"cpu": "-1"}}]}]}"""
    (one,) = pod_usages(body)
    assert (one.pod, one.window_s, one.labels) == ("a", 30.0, {"app": "web"})
    assert one.containers == (("m", {"cpu": 250, "memory": 1_048_576_000}), ("s", {"cpu": 1000}))
    with pytest.raises(KubeUnknown):
        pod_usages(b"[]")


def test_one_value_that_cannot_be_read_spoils_the_answer():
    good = f'{{"describedObject": {{"kind": "Pod", "name": "a"}}, "timestamp": "{AT}", "value": "1500m"}}'
    (found,) = custom_series(f'{{"items": [{good}]}}'.encode())
    assert (found.described, found.value) == (ObjectRef("", "Pod", "a"), 1500)
    bad = good.replace("1500m", "NaN")
    with pytest.raises(KubeUnknown):
        custom_series(f'{{"items": [{good}, {bad}]}}'.encode())
    told = f'{{"metricName": "depth", "metricLabels": {{"q": "a"}}, "timestamp": "{AT}", "value": "7"}}'
    assert external_series(f'{{"items": [{told}]}}'.encode()) == (ExternalSeries("depth", {"q": "a"}, 7000),)
    with pytest.raises(KubeUnknown):
        external_series(b"{}")
