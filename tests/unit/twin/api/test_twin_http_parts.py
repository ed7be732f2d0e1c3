"""Paths, Accept headers and bodies, without a socket."""

from __future__ import annotations

import pytest

from tests.unit.twin.twin_scene import Scene
from twin.api.requests import bodies
from twin.api.requests.negotiation import choose_form, wants_aggregated_discovery
from twin.api.requests.paths import ResourcePath, parse_path
from twin.registry.served import ServedKind
from twin.registry.status import ApiError


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1", ResourcePath("", "v1")),
        ("/api/v1/nodes/n", ResourcePath("", "v1", "nodes", name="n")),
        ("/api/v1/namespaces/a", ResourcePath("", "v1", "namespaces", name="a")),
        ("/api/v1/namespaces/a/finalize", ResourcePath("", "v1", "namespaces", name="a", subresource="finalize")),
        ("/api/v1/namespaces/a/pods", ResourcePath("", "v1", "pods", namespace="a", in_namespace=True)),
        (
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            ResourcePath("apps", "v1", "deployments", "a", "d", "scale", in_namespace=True),
        ),
        ("/api/v1/watch/nodes", ResourcePath("", "v1", "nodes", watch=True)),
        ("/api/v1/nodes/a/b/c", ResourcePath("", "v1", "nodes", name="a", subresource="b", extra=True)),
        ("/healthz", None),
        ("/apis/apps", None),
        ("/", None),
    ],
)
def test_paths(path: str, expected: ResourcePath | None) -> None:
    assert parse_path(path) == expected


@pytest.mark.parametrize(
    ("accept", "media", "transform"),
    [
        ("", "json", ""),
        ("*/*", "json", ""),
        ("text/html, */*", "json", ""),
        ("application/vnd.kubernetes.protobuf,application/json", "json", ""),
        ("application/yaml", "yaml", ""),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "json", "Table"),
        ("application/json;as=Nothing;v=v1;g=meta.k8s.io,application/json", "json", ""),
        ("application/json;q=0.1,application/yaml", "yaml", ""),
    ],
)
def test_accept_headers(accept: str, media: str, transform: str) -> None:
    form = choose_form(accept)
    assert (form.media, form.transform) == (media, transform)


@pytest.mark.parametrize(
    "accept", ["text/html", "application/vnd.kubernetes.protobuf", "application/json;as=X;v=v1;g=g"]
)
def test_accept_that_nothing_meets_is_406(accept: str) -> None:
    with pytest.raises(ApiError) as refused:
        choose_form(accept)
    assert refused.value.code == 406


def test_aggregated_discovery_is_given_to_who_asks_first_for_it() -> None:
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    assert wants_aggregated_discovery(aggregated) == "v2"
    assert wants_aggregated_discovery("application/json") == ""


@pytest.fixture(scope="module")
def pods() -> ServedKind:
    return Scene().registry.kind("pods")


def test_kind_and_version_are_optional_and_taken_off(pods: ServedKind) -> None:
    assert bodies.decode_object(b'{"kind":"Pod","apiVersion":"v1","spec":{}}', "application/json", pods) == {"spec": {}}
    assert bodies.decode_object(b'{"spec":{}}', "", pods) == {"spec": {}}


def test_yaml_follows_go(pods: ServedKind) -> None:
    body = b"metadata: {name: y, annotations: {at: 2026-01-01T00:00:00Z}}"
    metadata = bodies.decode_object(body, "application/yaml", pods)["metadata"]
    assert metadata == {"name": True, "annotations": {"at": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("body", "content", "code"),
    [
        (b"", "application/json", 400),
        (b"{x", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"kind":"Node","apiVersion":"v1"}', "application/json", 400),
        (b'{"kind":"Pod","apiVersion":"v2"}', "application/json", 400),
        (b"{}", "text/plain", 415),
        (b"a: [", "application/yaml", 400),
    ],
)
def test_bodies_that_are_refused(pods: ServedKind, body: bytes, content: str, code: int) -> None:
    with pytest.raises(ApiError) as refused:
        bodies.decode_object(body, content, pods)
    assert refused.value.code == code
