"""Bodies are decoded as Go decodes and prints them."""

from __future__ import annotations

from typing import Any

import pytest

from twin.kinds.rules.codec import TYPES, DecodeError
from twin.kinds.rules.typed import TypedStrategy
from twin.kinds.table import all_strategies
from twin.kinds.workload.pod_groups import pod_group_strategies


def decode(kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    return TYPES.decode(kind, obj)[0]


def test_unknown_fields_vanish_and_are_named_with_their_path() -> None:
    body = {"spec": {"foo": 1, "containers": [{"name": "c", "bar": 2}, {"name": "d"}]}, "baz": {}}
    obj, unknown = TYPES.decode("core/v1.Pod", body)
    assert unknown == ['unknown field "spec.foo"', 'unknown field "spec.containers[0].bar"', 'unknown field "baz"']
    assert "foo" not in obj["spec"]


def test_fields_without_omitempty_are_printed_with_their_zero_value() -> None:
    pod = decode("core/v1.Pod", {"status": {"conditions": [{"type": "Ready"}], "containerStatuses": [{"name": "c"}]}})
    assert pod["status"]["conditions"] == [
        {"type": "Ready", "status": "", "lastProbeTime": None, "lastTransitionTime": None}
    ]
    status = pod["status"]["containerStatuses"][0]
    assert (status["restartCount"], status["ready"], status["state"], status["lastState"]) == (0, False, {}, {})


def test_empty_optional_fields_vanish_but_empty_pointers_stay() -> None:
    spec = decode("core/v1.Pod", {"spec": {"nodeSelector": {}, "hostname": "", "priority": 0, "volumes": []}})["spec"]
    assert spec == {"priority": 0, "containers": None}


def test_null_is_the_zero_value() -> None:
    assert decode("core/v1.Pod", {"spec": {"nodeName": None, "containers": None}})["spec"] == {"containers": None}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"hostNetwork": "yes"}, "cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool"),
        (
            {"priority": 2**31},
            "cannot unmarshal number 2147483648 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            {"nodeSelector": ["x"]},
            "cannot unmarshal array into Go struct field PodSpec.spec.nodeSelector of type map[string]string",
        ),
        (
            {"containers": [{"env": [{"value": 1}]}]},
            "cannot unmarshal number into Go struct field EnvVar.spec.containers.env.value",
        ),
        ({"containers": [{"resources": {"limits": {"cpu": "1x"}}}]}, "quantities must match the regular expression"),
    ],
)
def test_wrong_types_are_refused_with_the_field(spec: dict[str, Any], text: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode("core/v1.Pod", {"spec": spec})
    assert text in str(caught.value)


def test_times_are_brought_to_utc_and_micro_times_need_six_decimals() -> None:
    lease = {
        "metadata": {"creationTimestamp": "2026-01-01T02:00:00.9+02:00"},
        "spec": {"renewTime": "2026-01-01T02:00:00.123456+02:00"},
    }
    decoded = decode("coordination/v1.Lease", lease)
    assert decoded["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert decoded["spec"]["renewTime"] == "2026-01-01T00:00:00.123456Z"
    with pytest.raises(DecodeError, match=r'cannot parse "Z" as ".000000"'):
        decode("coordination/v1.Lease", {"spec": {"renewTime": "2026-01-01T00:00:00Z"}})


def test_bytes_must_be_base64() -> None:
    assert decode("core/v1.Secret", {"data": {"a": "Yg=="}})["data"] == {"a": "Yg=="}
    with pytest.raises(DecodeError, match="illegal base64"):
        decode("core/v1.Secret", {"data": {"a": "not base64!"}})


def test_line_breaks_in_base64_are_passed_over() -> None:
    assert decode("core/v1.Secret", {"data": {"a": "Y\ng=\r\n=\n"}})["data"] == {"a": "Yg=="}


def test_the_decoded_object_shares_nothing_with_the_body() -> None:
    body: dict[str, Any] = {"spec": {"containers": [{"name": "c", "args": ["x"]}], "nodeSelector": {"a": "b"}}}
    pod = decode("core/v1.Pod", body)
    pod["spec"]["containers"][0]["args"].append("y")
    pod["spec"]["nodeSelector"]["c"] = "d"
    assert body["spec"]["containers"][0]["args"] == ["x"]
    assert body["spec"]["nodeSelector"] == {"a": "b"}


def test_merge_keys_come_from_the_same_table() -> None:
    keys = TYPES.merge_keys("core/v1.Pod")
    assert keys["spec.containers"] == "name"
    assert keys["spec.containers.ports"] == "containerPort"
    assert keys["metadata.finalizers"] == ""
    assert "spec.tolerations" not in keys


@pytest.mark.parametrize(
    "strategy",
    [s for s in (*all_strategies(), *pod_group_strategies("1.37")) if isinstance(s, TypedStrategy)],
    ids=lambda s: s.info.api_version + s.info.kind,
)
def test_decoding_again_changes_nothing(strategy: TypedStrategy) -> None:
    once, unknown = TYPES.decode(strategy.go_type, {"metadata": {"name": "x"}})
    assert not unknown
    assert TYPES.decode(strategy.go_type, once) == (once, [])
