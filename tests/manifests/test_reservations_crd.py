"""The definition of Reservations: what was judged and bound with it cannot be changed, whose it is and how long can."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pytest
import yaml

from tests.manifests.rendering import ROOT
from twin.bootstrap import make_registry
from twin.registry import creating
from twin.registry.status import ApiError

RESOURCE = "reservations.conclave.io"
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
OTHER = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}}]}}


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"template": OTHER}, False),
        ({"nodes": {"names": ["n2"]}}, False),
        ({"nodes": None}, False),
        ({"priority": 7}, False),
        ({"allocateOnce": False}, False),
        ({"ttlSeconds": 90}, True),
        ({"owners": [{"pod": "web-1"}]}, True),
    ],
)
def test_what_a_reservation_was_bound_with_cannot_be_changed(change: dict[str, Any], allowed: bool) -> None:
    registry = make_registry(clock=lambda: 1_795_000_000.0, rng=Random(7))
    kind = registry.kind("customresourcedefinitions.apiextensions.k8s.io")
    made = yaml.safe_load((ROOT / "k8s/base/reservations-crd.yaml").read_text())
    creating.create(registry, registry.context("create", kind, ""), kind, made)
    served = registry.kind(RESOURCE)
    spec = {"template": TEMPLATE, "owners": [{"pod": "web-0"}], "nodes": {"names": ["n1"]}, "priority": 1}
    body = {"apiVersion": "conclave.io/v1alpha1", "kind": "Reservation", "metadata": {"name": "a"}, "spec": spec}
    kept = registry.create(registry.context("create", served, "default"), RESOURCE, "default", body)
    edited = copy.deepcopy(kept)
    edited["spec"] = {key: value for key, value in {**kept["spec"], **change}.items() if value is not None}
    ctx = registry.context("update", served, "default")
    if allowed:
        registry.update(ctx, RESOURCE, "default", "a", edited)
        return
    with pytest.raises(ApiError, match="cannot be changed"):
        registry.update(ctx, RESOURCE, "default", "a", edited)
