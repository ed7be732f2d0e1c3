"""Classes, claims, templates, slices and taint rules of devices: the twin answers as a kube-apiserver 1.36.2 did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.twin.kinds.conftest import Cluster
from tests.unit.twin.kinds.device_bodies import POD, claim, status
from tests.unit.twin.kinds.device_cases import CLAIM, POD_KIND, TOLD, Write, cases, merged, told
from tests.unit.twin.kinds.device_writers import PERMISSIONS, REFUSED, WRITER, causes_of, roles
from twin.registry.status import ApiError
from twin.registry.updating import update

Json = dict[str, Any]
ANSWERS: dict[str, Json] = json.loads((Path(__file__).parent / "device_answers.json").read_text())
CASES = cases()


def answer(cluster: Cluster, writes: list[Write]) -> Json:
    """What becomes of the last of them."""
    last: Json = {}
    for verb, plural, name, body in writes:
        resource = plural if plural == POD_KIND else f"{plural}.resource.k8s.io"
        try:
            if verb == "create":
                last = cluster.create(resource, merged({"metadata": {"name": name}}, body))
            else:
                change = cluster.change if verb == "update" else cluster.change_status

                def edit(obj: Json, body: Json = body) -> None:
                    new = merged(obj, body)
                    obj.clear()
                    obj.update(new)

                last = change(resource, name, edit)
        except ApiError as error:
            return told(error.code, error.body)
    return told(201 if writes[-1][0] == "create" else 200, last)


def test_every_case_was_put_to_a_real_server() -> None:
    assert CASES.keys() == ANSWERS.keys()


@pytest.mark.parametrize("name", list(CASES))
def test_a_write_is_answered_as_a_real_server_answers_it(cluster: Cluster, name: str) -> None:
    assert json.loads(json.dumps(answer(cluster, CASES[name]))) == ANSWERS[name]


@pytest.mark.parametrize("name", list(PERMISSIONS))
def test_a_status_is_written_by_who_may_write_that_part_of_it(cluster: Cluster, name: str) -> None:
    rules, refused = PERMISSIONS[name]
    for plural, obj in zip(("clusterroles", "clusterrolebindings"), roles(rules), strict=True):
        cluster.create(f"{plural}.rbac.authorization.k8s.io", obj)
    resource = f"{CLAIM}.resource.k8s.io"
    cluster.create(resource, {"metadata": {"name": "x"}, **claim()})
    kind = cluster.registry.kind(resource)
    stored = cluster.registry.stored(kind, "ns", "x")
    ctx = cluster.registry.context("update", kind, "ns", "x", user=WRITER)
    ctx.subresource, ctx.groups = "status", ("system:authenticated",)
    body: Json = {}
    try:
        obj = merged(stored.fresh(), status(reservedFor=[POD], devices=[TOLD]))
        update(cluster.registry, ctx, kind, stored, obj, subresource=kind.subresources["status"])
    except ApiError as error:
        body = error.body
    assert causes_of(body, "ns") == [REFUSED[one] for one in refused]


def test_a_status_that_keeps_what_is_there_needs_no_further_permission(cluster: Cluster) -> None:
    resource = f"{CLAIM}.resource.k8s.io"
    cluster.create(resource, {"metadata": {"name": "x"}, **claim()})
    cluster.change_status(resource, "x", lambda obj: obj.update(merged(obj, status(devices=[TOLD]))))
    kind = cluster.registry.kind(resource)
    stored = cluster.registry.stored(kind, "ns", "x")
    ctx = cluster.registry.context("update", kind, "ns", "x", user=WRITER)
    ctx.subresource, ctx.groups = "status", ("system:authenticated",)
    assert (
        update(cluster.registry, ctx, kind, stored, stored.fresh(), subresource=kind.subresources["status"]) is stored
    )
