"""Reservations in a world of meshes: making them, and what of them must hold at every moment, by its own reading of
the objects."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.kube.reservations import ReservationObject, reserve_pod_from_api
from shared.kube.scheduling_kinds import RESERVATION_KIND
from shared.model.pod import Pod
from shared.model.resources import Resources
from tests.builders import PodBuilder
from tests.fake_kube import FakeKube
from tests.sim.test_mesh_random_walk import Walk
from tests.unit.services.binder.binder_checks import named, offered
from tests.unit.services.binder.binder_world import World

MADE = "2000-01-01T05:00:00Z"
"""Before any time that a test writes as it runs."""


def reserve(kube: FakeKube, name: str, owner: str, cpu: str = "2", **spec: Any) -> str:
    """A Reservation for pods of the Deployment ``owner``; its uid."""
    owners = [{"controller": {"kind": "Deployment", "name": owner}}]
    body = {
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": MADE},
        "spec": {"resources": {"cpu": cpu}, "owners": owners, **spec},
    }  # fmt: skip
    return kube.put_object(RESERVATION_KIND, body)


def of_deployment(builder: PodBuilder, owner: str) -> PodBuilder:
    """The pod as a Deployment's ReplicaSet makes it."""
    labels = {"pod-template-hash": "5d9f", "app": owner}
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"{owner}-5d9f",
        "uid": "rs",
        "controller": True,
    }
    return builder.set(labels=labels, ownerReferences=[reference])


def shown(kube: FakeKube) -> dict[str, Pod]:
    """The reserve pods there are, by name."""
    found = kube.objects.get(RESERVATION_KIND.name, {}).values()
    return {item["metadata"]["name"]: reserve_pod_from_api(msgspec.convert(item, ReservationObject)) for item in found}


def takers(kube: FakeKube, uid: str) -> list[str]:
    """Uids of pods whose Binding said that they take it, gone ones too."""
    return [one.uid for one in kube.bound if one.annotations.get("conclave.io/reservation") == uid]


def check_reserved(world: World) -> list[str]:
    """No node is over-committed with what is kept on it counted, nobody takes another's room, and none for once is
    taken twice. What an intent lets a pod have is not counted beside it."""
    kube, wanted = world.kube, named(world.intents())
    used: dict[str, Resources] = {}
    found: list[str] = []
    coming = {one[0].reservation for one in wanted.values() if one[0].reservation}
    for key, pod in kube.pods.items():
        uid = pod["metadata"]["uid"]
        node = pod["spec"].get("nodeName") or (wanted[uid][0].node if uid in wanted else "")
        model = kube.get_pod(*key.split("/"))
        assert model is not None
        if node:
            used[node] = used.get(node, Resources()).plus({**_amounts(pod), "pods": 1})
    for name, reserve_pod in shown(kube).items():
        taken_by = takers(kube, reserve_pod.uid)
        took = [pod for pod in kube.pods.values() if pod["metadata"]["uid"] in taken_by]
        terms = reserve_pod.reserves
        assert terms is not None
        if terms.once and len(taken_by) > 1:
            found.append(f"reserved: {name} is for once, and {len(taken_by)} pods took it")
        for pod in took:
            owner = pod["metadata"].get("ownerReferences", [{}])[0].get("name", "").removesuffix("-5d9f")
            if all(one.name != owner for one in terms.owners):
                found.append(f"reserved: {pod['metadata']['name']} took {name}, which is kept for others")
        intent = wanted.get(reserve_pod.uid)
        node = reserve_pod.node_name if not reserve_pod.finished else ""
        node = node or (intent[0].node if intent is not None else "")
        if node and not (terms.once and (taken_by or reserve_pod.uid in coming)):
            on_the_way = [pod for pod in kube.pods.values() if _takes(wanted, pod) == reserve_pod.uid]
            left = dict(reserve_pod.pod_class.requests)["cpu"] - sum(
                _amounts(pod)["cpu"] for pod in (*took, *on_the_way)
            )
            used[node] = used.get(node, Resources()).plus({"cpu": max(0, left), "pods": 1})
    for node, amounts in used.items():
        if node in kube.nodes and not amounts.fits_into(offered(kube, node)):
            found.append(f"reserved: {node} holds {dict(amounts)} of {offered(kube, node)}")
    return found


def _takes(wanted: dict[str, Any], pod: dict[str, Any]) -> str:
    """Whose room an intent lets a pending pod have."""
    found = wanted.get(pod["metadata"]["uid"])
    return found[0].reservation if found and not pod["spec"].get("nodeName") else ""


def _amounts(pod: dict[str, Any]) -> dict[str, int]:
    cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return {"cpu": int(cpu.removesuffix("m")) if cpu.endswith("m") else int(cpu) * 1000}


__all__ = ["Walk", "check_reserved", "of_deployment", "reserve", "shown", "takers"]
