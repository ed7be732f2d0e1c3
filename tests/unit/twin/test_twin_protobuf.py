"""Protobuf bodies: the wire format, Kubernetes' special types, and what is no protobuf."""

from __future__ import annotations

import base64

import pytest

from twin.api.requests import bodies
from twin.protobuf.decoding import MAGIC, ProtobufError, decode, message, type_name

DEPLOYMENT = base64.b64decode(
    # `kubectl create deployment d --image=nginx --replicas=2 --port=80`, version 1.32, as it was sent
    "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50ErABChsKAWQSABoAIgAqADIAOABCAFoICgNhcHASAWQSggEIAhIKCggKA2FwcBIBZBpq"
    "ChoKABIAGgAiACoAMgA4AEIAWggKA2FwcBIBZBJMEi4KBW5naW54EgVuZ2lueCoAMgoKABAAGFAiACoAQgBqAHIAgAEAiAEAkAEAogEA"
    "GgAyAEIASgBSAFgAYABoAIIBAIoBAJoBAMIBACICCgAoADgAGgwIABAAGAAgACgAOAAaACIA"
)


def varint(number: int) -> bytes:
    out = b""
    while True:
        part, number = number & 0x7F, number >> 7
        if not number:
            return out + bytes([part])
        out += bytes([part | 0x80])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value % (1 << 64))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return MAGIC + field(1, field(1, api_version) + field(2, kind)) + field(2, raw)


def test_body_that_kubectl_sent_is_read() -> None:
    decoded = decode(DEPLOYMENT)
    assert (decoded["kind"], decoded["apiVersion"]) == ("Deployment", "apps/v1")
    assert decoded["metadata"]["name"] == "d"
    assert decoded["metadata"]["labels"] == {"app": "d"}
    assert decoded["spec"]["replicas"] == 2
    assert decoded["spec"]["selector"]["matchLabels"] == {"app": "d"}
    container = decoded["spec"]["template"]["spec"]["containers"][0]
    assert (container["name"], container["image"], container["ports"][0]["containerPort"]) == ("nginx", "nginx", 80)


def test_quantities_maps_times_and_inlined_messages() -> None:
    quantity = field(1, "cpu") + field(2, field(1, "500m"))
    container = field(1, "c") + field(8, field(1, quantity))
    probe = field(10, field(1, field(1, field(1, "true"))))  # livenessProbe.handler.exec.command
    volume = field(1, "v") + field(2, field(2, b""))  # volumeSource.emptyDir
    spec = field(2, container + probe) + field(1, volume) + field(4, -1)
    meta = field(1, "p") + field(11, field(1, "a") + field(2, "b")) + field(8, field(1, 1_700_000_000))
    pod = decode(envelope("v1", "Pod", field(1, meta) + field(2, spec)))
    assert pod["metadata"] == {"name": "p", "labels": {"a": "b"}, "creationTimestamp": "2023-11-14T22:13:20Z"}
    assert pod["spec"]["containers"] == [
        {"name": "c", "resources": {"limits": {"cpu": "500m"}}, "livenessProbe": {"exec": {"command": ["true"]}}}
    ]
    assert pod["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]
    assert pod["spec"]["terminationGracePeriodSeconds"] == -1


def test_secret_data_and_int_or_string() -> None:
    secret = decode(envelope("v1", "Secret", field(2, field(1, "k") + field(2, b"\x00\xff"))))
    assert secret["data"] == {"k": "AP8="}
    assert message("core/v1.ServicePort", field(4, field(1, 0) + field(2, 80)))["targetPort"] == 80
    assert message("core/v1.ServicePort", field(4, field(1, 1) + field(3, "http")))["targetPort"] == "http"


def test_unknown_fields_are_passed_over() -> None:
    assert message("core/v1.LocalObjectReference", field(99, "x") + field(1, "n")) == {"name": "n"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{}", id="no prefix"),
        pytest.param(MAGIC + b"\xff", id="cut off"),
        pytest.param(MAGIC + field(1, b"\x0a\x7f"), id="length beyond the end"),
        pytest.param(MAGIC + b"\x0b", id="group wire type"),
        pytest.param(envelope("v1", "Nothing", b""), id="unknown kind"),
    ],
)
def test_what_is_no_protobuf_is_refused(body: bytes) -> None:
    with pytest.raises(ProtobufError):
        decode(body)
    with pytest.raises(ValueError):
        bodies.parse(body, "application/vnd.kubernetes.protobuf")


@pytest.mark.parametrize(
    ("api_version", "kind", "name"),
    [
        ("v1", "Pod", "core/v1.Pod"),
        ("events.k8s.io/v1", "Event", "events/v1.Event"),
        ("policy/v1", "DeleteOptions", "meta/v1.DeleteOptions"),
    ],
)
def test_type_names(api_version: str, kind: str, name: str) -> None:
    assert type_name(api_version, kind) == name
