"""The schemas that the twin publishes: whole, and the same in both forms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.twin.twin_scene import Scene
from twin.registry.discovery import openapi, openapi_v2
from twin.registry.registry import TwinRegistry

MAX_BYTES = 512 * 1024


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for child in value.values():
            yield from references(child)


def fields_of(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a protobuf message."""

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    at = 0
    while at < len(body):
        key = number()
        assert key & 7 == 2
        size = number()
        yield key >> 3, body[at : at + size]
        at += size


def test_every_reference_leads_to_a_definition_and_every_kind_has_one() -> None:
    registry = Scene().registry
    found = openapi_v2.definitions(registry)
    assert {one.removeprefix(openapi_v2.PREFIX) for one in references(found)} <= found.keys()
    kinds = {named["kind"] for one in found.values() for named in one.get("x-kubernetes-group-version-kind", ())}
    assert {"Pod", "Node", "Deployment", "Job", "Lease", "Event", "CustomResourceDefinition"} <= kinds


def test_both_forms_say_the_same() -> None:
    registry = Scene().registry
    body = openapi_v2.protobuf(registry)
    assert len(body) < MAX_BYTES
    top = dict(fields_of(body))
    assert top[1] == b"2.0"
    shown = {}
    for _, pair in fields_of(top[9]):
        named = dict(fields_of(pair))
        schema = dict(fields_of(named[2]))
        properties = [dict(fields_of(one))[1].decode() for _, one in fields_of(schema.get(25, b""))]
        shown[named[1].decode()] = properties
    found = openapi_v2.definitions(registry)
    assert shown == {name: list(schema.get("properties", ())) for name, schema in found.items()}


@pytest.mark.parametrize("path", ["/api/v1", "/apis/apps/v1", "/apis/batch/v1", "/apis/events.k8s.io/v1"])
def test_a_group_version_brings_all_types_it_needs(path: str) -> None:
    document = openapi.document(Scene().registry, path)
    assert document is not None
    found = document["components"]["schemas"]
    assert {one.removeprefix("#/components/schemas/") for one in references(found)} <= found.keys()


def defined() -> Scene:
    """A scene with the definition of Queues."""
    scene = Scene()
    definition = yaml.safe_load(Path("k8s/base/queues-crd.yaml").read_text())
    scene.create(
        "customresourcedefinitions.apiextensions.k8s.io", definition["metadata"]["name"], spec=definition["spec"]
    )
    return scene


def published(registry: TwinRegistry) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The schemas of both versions by kind; every kind that one has, the other has."""
    found: list[dict[tuple[str, str, str], dict[str, Any]]] = [{}, {}]
    for group, version in registry.group_versions():
        document = openapi.document(registry, f"apis/{group}/{version}" if group else f"api/{version}")
        assert document is not None
        schemas = document["components"]["schemas"]
        assert {one.removeprefix("#/components/schemas/") for one in references(schemas)} <= schemas.keys()
        for schema in schemas.values():
            for one in schema.get("x-kubernetes-group-version-kind", ()):
                found[0][one["group"], one["version"], one["kind"]] = schema
    for schema in openapi_v2.definitions(registry).values():
        for one in schema.get("x-kubernetes-group-version-kind", ()):
            found[1][one["group"], one["version"], one["kind"]] = schema
    assert found[0].keys() == found[1].keys()
    return found[1]


def test_every_kind_that_discovery_lists_is_published_custom_ones_too() -> None:
    registry = defined().registry
    served = {
        (group, version, kind.info.kind)
        for group, version in registry.group_versions()
        for kind in registry.kinds_of(group, version)
    }
    found = published(registry)
    assert served == found.keys()
    assert ("conclave.io", "v1alpha1", "Queue") in found
    queue = found["conclave.io", "v1alpha1", "Queue"]["properties"]
    assert queue["metadata"] == {
        **queue["metadata"],
        "$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    }
    assert queue["spec"]["properties"]["guaranteed"]["description"]


def test_a_definition_that_changes_changes_the_digest_that_clients_keep() -> None:
    scene = defined()
    path, name = "apis/conclave.io/v1alpha1", "customresourcedefinitions.apiextensions.k8s.io"
    before = openapi.index(scene.registry)["paths"]
    definition = scene.registry.stored(scene.registry.kind(name), "", "queues.conclave.io").fresh()
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "Another one."
    scene.update(name, "queues.conclave.io", definition)
    after = openapi.index(scene.registry)["paths"]
    assert after[path] != before[path]
    assert after["api/v1"] == before["api/v1"]


def test_lists_that_merge_name_their_key() -> None:
    containers = openapi_v2.definitions(Scene().registry)["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert (containers["x-kubernetes-patch-merge-key"], containers["x-kubernetes-patch-strategy"]) == ("name", "merge")
