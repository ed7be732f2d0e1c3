"""Definitions of custom resources: the verdicts that the twin is held to are a real server's, and ours are good."""

from __future__ import annotations

import copy
import json
import re
from random import Random
from typing import Any

import pytest
import yaml

from tests.definitions.cases import verdicts
from tests.definitions.record import ask
from tests.manifests.rendering import ROOT
from tests.real.conftest import RunningPlane
from twin.bootstrap import make_registry
from twin.registry import creating
from twin.registry.registry import TwinRegistry

Json = dict[str, Any]

DEFINITIONS = sorted((ROOT / "k8s").rglob("*-crd.yaml"))
ONE_CONTAINER = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
OBJECTS: dict[str, list[Json]] = {
    "Queue": [{}, {"parent": "above", "weight": 2}, {"guaranteed": {"cpu": 1}, "lendingLimit": {"cpu": "500m"}}],
    "LatencyTarget": [{"host": "127.0.0.1", "port": 80}],
    "Reservation": [
        {"resources": {"cpu": 2, "memory": "4Gi"}, "owners": [{"controller": {"kind": "Deployment", "name": "web"}}]},
        {"template": ONE_CONTAINER, "owners": [{"pod": "web-0"}], "ttlSeconds": 60, "nodes": {"names": ["n1"]}},
    ],
    "TrainingJob": [
        {"template": ONE_CONTAINER},
        {"template": ONE_CONTAINER, "workers": {}},
        {"template": ONE_CONTAINER, "workers": {"maximum": 4}, "parameterServers": {}, "batch": {"size": 8}},
        {"template": ONE_CONTAINER, "workers": {"minimum": 2, "maximum": 4, "requested": 3}, "gpuShare": 0.5},
    ],
    "ResilientAutoscaler": [
        {"targets": [{"name": "a", "scaleTargetRef": {"name": "a"}, "maxReplicas": 3}]},
        {
            "policy": {}, "limits": {}, "canary": {},
            "targets": [{"name": "a", "scaleTargetRef": {"name": "a"}, "maxReplicas": 3}],
        },
    ],
}  # fmt: skip
"""Of each kind objects that leave much to the defaults."""


def definition_of(kind: str) -> Json:
    found = [yaml.safe_load(path.read_text()) for path in DEFINITIONS]
    return next(one for one in found if one["spec"]["names"]["kind"] == kind)


def as_told(answer: Json) -> Json:
    """An answer without the number that the server gives its types anew each time."""
    told: Json = json.loads(re.sub(r"selfType\d+", "selfType", json.dumps(answer)))
    return told


async def test_the_verdicts_on_definitions_are_those_of_this_server(plane: RunningPlane) -> None:
    """If this fails after another Kubernetes: ``python -m tests.definitions.record``, then mend the twin."""
    now = await ask(plane.url, plane.token, plane.ca)
    kept = verdicts()
    assert {name: as_told(one) for name, one in now.items()} == {name: as_told(one) for name, one in kept.items()}


@pytest.fixture(scope="module")
def defined(plane: RunningPlane) -> None:
    for path in DEFINITIONS:
        plane.kubectl("apply", "--server-side", "-f", str(path))
    names = [yaml.safe_load(path.read_text())["metadata"]["name"] for path in DEFINITIONS]
    plane.kubectl("wait", "--for=condition=Established", *(f"crd/{name}" for name in names), "--timeout=60s")


@pytest.fixture(scope="module")
def twin() -> TwinRegistry:
    registry = make_registry(clock=lambda: 1_795_000_000.0, rng=Random(7))
    kind = registry.kind("customresourcedefinitions.apiextensions.k8s.io")
    for path in DEFINITIONS:
        made = yaml.safe_load(path.read_text())
        creating.create(registry, registry.context("create", kind, ""), kind, made)
    return registry


def test_every_kind_of_ours_is_tried() -> None:
    assert {definition_of(kind)["spec"]["names"]["kind"] for kind in OBJECTS} == OBJECTS.keys()
    assert len(OBJECTS) == len(DEFINITIONS)


@pytest.mark.parametrize(
    ("kind", "number"), [(kind, number) for kind, specs in OBJECTS.items() for number in range(len(specs))]
)
def test_defaults_are_read_back_as_the_twin_gives_them(
    plane: RunningPlane, defined: None, twin: TwinRegistry, namespace: str, kind: str, number: int
) -> None:
    spec = definition_of(kind)["spec"]
    api = f"{spec['group']}/{spec['versions'][0]['name']}"
    given = {"apiVersion": api, "kind": kind, "metadata": {"name": "tried"}, "spec": OBJECTS[kind][number]}
    resource = f"{spec['names']['plural']}.{spec['group']}"
    where = ("-n", namespace) if spec["scope"] == "Namespaced" else ()
    plane.kubectl("create", *where, "-f", "-", stdin=json.dumps(given))
    try:
        real = plane.get(resource, "tried", *where)
    finally:
        plane.kubectl("delete", resource, "tried", *where)
    served = twin.kind(resource)
    ctx = twin.context("create", served, "default" if served.namespaced else "", dry_run=True)
    ours = creating.create(twin, ctx, served, copy.deepcopy(given)).obj
    assert real["spec"] == ours["spec"]


def test_every_definition_is_held_whole(plane: RunningPlane, defined: None, twin: TwinRegistry) -> None:
    """Nothing in a definition is unknown to the server, and the twin gives it back as the server does."""
    for path in DEFINITIONS:
        name = yaml.safe_load(path.read_text())["metadata"]["name"]
        ours = twin.get("customresourcedefinitions.apiextensions.k8s.io", "", name)
        assert ours is not None
        assert plane.get("crd", name)["spec"] == ours["spec"]
