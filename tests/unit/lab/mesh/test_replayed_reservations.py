"""A replay keeps the room that Reservations kept when the snapshot was taken, and gives it to whom it is for."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import msgspec
import pytest

from lab.mesh.replayed import DecidingPolicy, Replayed, replay
from services.cli.snapshot.reading import document, read_objects
from shared.errors import KubeRejected
from shared.kube.resources import ObjectList, Resource
from shared.policy.registry import make_policy, ref_of
from shared.wire.snapshot import decode_snapshot, encode_snapshot
from tests.builders import make_node, make_pod

Json = dict[str, Any]
BY = DecidingPolicy(lambda: make_policy("kube-default"), ref_of("kube-default"))


class Listed:
    """An API server that has these objects, and no other kinds."""

    def __init__(self, objects: dict[str, list[Json]]) -> None:
        self._objects = objects

    async def list(self, resource: Resource[Any], *, timeout_s: float = 60.0) -> ObjectList[Any]:
        if resource.plural not in self._objects:
            raise KubeRejected("not served", status=404)
        items = self._objects[resource.plural]
        return ObjectList(tuple(msgspec.convert(copy.deepcopy(one), resource.type) for one in items), "1")

    async def get(self, resource: Resource[Any], **_: Any) -> Any:
        return None


def reservation(name: str, **status: Any) -> Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": "000000aa",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"resources": {"cpu": "3"}, "owners": [{"controller": {"kind": "Deployment", "name": "web"}}]},
        "status": status,
    }


def waiting(name: str, uid: str, owner: str = "") -> Json:
    pod = make_pod(name).cpu("3").json
    pod["metadata"]["uid"] = uid
    pod["spec"]["schedulerName"] = "conclave"
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{owner}-5d9f7", "uid": "000000bb"}
        pod["metadata"] |= {
            "labels": {"pod-template-hash": "5d9f7"}, "ownerReferences": [{**reference, "controller": True}],
        }  # fmt: skip
    return pod


def replayed(kept: Json, *pods: Json, hashed: bool) -> tuple[Replayed, dict[str, str]]:
    node = make_node("n1").allocatable(cpu="4").json
    node["metadata"]["uid"] = "000000cc"
    api = Listed({"nodes": [node], "pods": list(pods), "reservations": [kept]})
    objects, _ = asyncio.run(read_objects(api))
    head, names = document(objects, None, [], hashed=hashed, at="2026-11-29T05:00:00.000+00:00", kubernetes="v1.36.2")
    return replay(decode_snapshot(encode_snapshot(head), "file"), BY), names


@pytest.mark.parametrize("hashed", [True, False])
def test_kept_room_goes_to_its_owner_and_to_nobody_else(hashed: bool) -> None:
    kept = reservation("launch", phase="Available", node="n1")
    found, names = replayed(kept, waiting("other", "000000e1"), waiting("web-1", "000000e2", "web"), hashed=hashed)
    mine, other = (f"default/{names.get(name, name)}" for name in ("web-1", "other"))
    assert found.placed == {mine: names.get("n1", "n1")}
    assert list(found.waiting) == [other]


def test_one_that_waits_is_placed_as_a_pod_is() -> None:
    found, _ = replayed(reservation("launch", phase="Pending"), hashed=False)
    assert found.placed == {"default/reservation:launch": "n1"}
    found, _ = replayed(reservation("launch", phase="Expired"), waiting("other", "000000e1"), hashed=False)
    assert found.placed == {"default/other": "n1"}
