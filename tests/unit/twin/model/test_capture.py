"""The twin file: what comes back is what was written, and what cannot be read is refused by name."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from shared.errors import ConfigError
from shared.kube import objects as api
from tests.captures import make_capture
from twin.model.capture import SCHEMA, decode, encode, require_metrics, steps_of, trimmed


def changed(**fields: Any) -> bytes:
    document = json.loads(gzip.decompress(encode(make_capture(steps=4, pods=2))))
    document.update(fields)
    return gzip.compress(json.dumps(document).encode())


def test_a_capture_survives_its_file_and_the_bytes_are_the_same_each_time() -> None:
    capture = make_capture()
    assert decode(encode(capture), "f") == capture
    assert encode(make_capture()) == encode(capture)


def test_another_schema_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=rf"f: schema {SCHEMA + 1} is not {SCHEMA}"):
        decode(changed(schema=SCHEMA + 1), "f")
    with pytest.raises(ConfigError, match="schema None"):
        decode(changed(schema=None), "f")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"plain text", "no gzip file"),
        (gzip.compress(b"no json", mtime=0), "malformed"),
        (encode(make_capture())[:-20], "the file is cut"),
        (changed(length_s=-1), "length_s"),
        (changed(nodes=[]), "nodes: none"),
        (changed(nodes=7), "Expected `array`"),
        (changed(series={"n9": {}}), "series.n9: no such node"),
        (changed(series={"n1": {"cpu": [1.0]}}), r"series.n1.cpu: 1 values for 4 steps"),
        (changed(series={"n1": {"cpu": [1, 2, -3, 4]}}), "series.n1.cpu: a value is negative"),
        (changed(series={"n1": {"heat": [1, 2, 3, 4]}}), "'heat' is not one of cpu"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_field(data: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        decode(data, "f")


def test_times_that_do_not_ascend_are_refused_by_pod() -> None:
    document = json.loads(gzip.decompress(encode(make_capture(steps=4, pods=2))))
    document["pods"][1]["ended_s"] = document["pods"][1]["started_s"] - 1
    with pytest.raises(ConfigError, match=r"pod default/job-1: its times do not ascend"):
        decode(gzip.compress(json.dumps(document).encode()), "f")


def test_a_pod_that_is_there_twice_is_refused_by_name() -> None:
    document = json.loads(gzip.decompress(encode(make_capture(steps=4, pods=2))))
    document["pods"].append(document["pods"][0])
    name = document["pods"][0]["pod"]["metadata"]["name"]
    with pytest.raises(ConfigError, match=f"f: pod default/{name}: its uid .* is there twice"):
        decode(gzip.compress(json.dumps(document).encode()), "f")


def test_a_file_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.wire.packed.MAX_BYTES", 1000)
    with pytest.raises(ConfigError, match="unpacks to more than 1000"):
        decode(gzip.compress(b" " * 2000), "f")


def test_a_capture_without_metrics_is_refused_where_they_are_needed() -> None:
    require_metrics(make_capture(), "f", "why")
    with pytest.raises(ConfigError, match=r"f: the capture holds no metrics, and replay .*--prometheus"):
        require_metrics(make_capture(metrics=False), "f", "replay compares with them")


def test_of_annotations_our_own_are_kept_and_others_may_be_secrets() -> None:
    meta = api.ObjectMeta(name="p", annotations={"conclave.io/usage": "{}", "token": "secret"}, resource_version="7")
    assert trimmed(meta) == api.ObjectMeta(name="p", annotations={"conclave.io/usage": "{}"})
    assert trimmed(api.ObjectMeta(name="p", annotations={"token": "secret"})).annotations is None


def test_limits_of_latency_are_kept_which_el_goes_by() -> None:
    limits = {"latencySoftConstraint": "20", "latencyHardConstraint": "30"}
    meta = api.ObjectMeta(name="p", annotations={**limits, "latency": "secret"})
    assert trimmed(meta).annotations == limits


def test_series_stay_below_what_prometheus_answers() -> None:
    assert steps_of(3600, 15) == 15
    assert 86400 * 30 / steps_of(86400 * 30, 15) <= 10_000
