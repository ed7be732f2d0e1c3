"""The twin's claims of devices: made from templates, freed when nobody uses them, and what a scheduler may write."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from twin.bootstrap import make_registry
from twin.controllers.device_claims import (
    CLAIMS,
    FINALIZER,
    MADE_FOR,
    TEMPLATES,
    DeviceClaimController,
    generated_claim,
)
from twin.controllers.garbage_collector import GarbageCollector
from twin.controllers.runtime import Controller
from twin.kinds.devices.claim_status import validate_claim_status
from twin.kinds.workload.pod_groups import PODGROUPS
from twin.registry.status import ApiError
from twin.registry.updating import update

Json = dict[str, Any]
SPEC = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
ALLOCATION = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "n", "device": "gpu-0"}]}}


class Cluster:
    """A registry with the claim controller and the garbage collector; pods run when the test says so."""

    def __init__(self) -> None:
        self.registry = make_registry(clock=time.time, rng=Random(1))
        self.players: list[Controller[Any]] = [DeviceClaimController(self.registry), GarbageCollector(self.registry)]
        self.changed = asyncio.Event()
        self.registry.subscribe(lambda _accepted: self.changed.set())

    def create(self, resource: str, name: str, **body: Any) -> Json:
        obj = {"metadata": {"name": name, **body.pop("metadata", {})}, **body}
        return self.registry.create(self.registry.context("create", resource, "default"), resource, "default", obj)

    def template(self, name: str = "t", **metadata: Any) -> None:
        self.create(TEMPLATES, name, spec={"metadata": metadata, "spec": SPEC})

    def pod(self, name: str, *claims: Json) -> Json:
        container = {"name": "c", "image": "i", "resources": {"claims": [{"name": one["name"]} for one in claims]}}
        return self.create("pods", name, spec={"containers": [container], "resourceClaims": list(claims)})

    def get(self, resource: str, name: str) -> Json:
        found = self.registry.get(resource, "default", name)
        assert found is not None
        return found

    def claims(self) -> list[Json]:
        return list(self.registry.list(CLAIMS, "default"))

    def told(self, pod: str) -> dict[str, str]:
        statuses = self.get("pods", pod)["status"].get("resourceClaimStatuses") or ()
        return {one["name"]: one["resourceClaimName"] for one in statuses}

    def write_status(self, claim: str, **status: Any) -> None:
        """A PUT of the status subresource."""
        kind = self.registry.kind(CLAIMS)
        stored = self.registry.stored(kind, "default", claim)
        obj = copy.deepcopy(stored.obj)
        obj["status"] |= status
        ctx = self.registry.context("update", CLAIMS, "default", claim)
        ctx.subresource = "status"
        update(self.registry, ctx, kind, stored, obj, subresource=kind.subresources["status"])

    def allocate(self, claim: str, *pods: str) -> None:
        """What a scheduler writes: finalizer, then allocation and consumers."""
        ctx = self.registry.context("patch", CLAIMS, "default", claim)
        self.registry.patch(ctx, CLAIMS, "default", claim, {"metadata": {"finalizers": [FINALIZER]}})
        consumers = [{"resource": "pods", "name": pod, "uid": self.get("pods", pod)["metadata"]["uid"]} for pod in pods]
        self.write(claim, {"allocation": ALLOCATION, "reservedFor": consumers})

    def write(self, claim: str, status: Json) -> None:
        ctx = self.registry.context("patch", CLAIMS, "default", claim)
        self.registry.guaranteed_update(ctx, CLAIMS, "default", claim, lambda old: {**old, "status": status})

    def run(self, pod: str, phase: str) -> None:
        ctx = self.registry.context("patch", "pods", "default", pod)
        self.registry.guaranteed_update(
            ctx, "pods", "default", pod, lambda old: {**old, "status": {**old["status"], "phase": phase}}
        )

    def delete(self, resource: str, name: str) -> None:
        options = {"gracePeriodSeconds": 0} if resource == "pods" else {}
        self.registry.delete(
            self.registry.context("delete", resource, "default", name), resource, "default", name, options
        )

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not true():
                self.changed.clear()
                await self.changed.wait()

    async def quiet(self) -> None:
        for _ in range(1000):
            if not any(player.busy for player in self.players):
                return
            await asyncio.sleep(0)
        raise AssertionError("the controllers find no rest")


@asynccontextmanager
async def playing() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    for player in cluster.players:
        player.start()
    try:
        yield cluster
    finally:
        for player in cluster.players:
            player.stop()


FROM_TEMPLATE = {"name": "g", "resourceClaimTemplateName": "t"}
BY_NAME = {"name": "g", "resourceClaimName": "shared"}


async def test_a_pod_gets_a_claim_of_its_own_by_its_template_and_is_told_its_name() -> None:
    async with playing() as cluster:
        cluster.template(labels={"app": "x"}, annotations={"note": "y"})
        uid = cluster.pod("p", FROM_TEMPLATE)["metadata"]["uid"]
        await cluster.until(lambda: "g" in cluster.told("p"))
        await cluster.quiet()
        (claim,) = cluster.claims()
        meta = claim["metadata"]
        assert cluster.told("p") == {"g": meta["name"]}
        assert meta["name"].startswith("p-g-")
        assert (meta["labels"], meta["annotations"]) == ({"app": "x"}, {"note": "y", MADE_FOR: "g"})
        assert [(one["kind"], one["uid"], one["controller"]) for one in meta["ownerReferences"]] == [("Pod", uid, True)]
        assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


async def test_a_pod_waits_for_its_template_and_two_pods_do_not_share_what_is_made() -> None:
    async with playing() as cluster:
        for name in ("p", "q"):
            cluster.pod(name, FROM_TEMPLATE)
        await cluster.quiet()
        assert cluster.claims() == []
        cluster.template()
        await cluster.until(lambda: bool(cluster.told("p") and cluster.told("q")))
        assert cluster.told("p")["g"] != cluster.told("q")["g"]


async def test_a_claim_that_is_gone_is_made_again() -> None:
    async with playing() as cluster:
        cluster.template()
        cluster.pod("p", FROM_TEMPLATE)
        await cluster.until(lambda: "g" in cluster.told("p"))
        first = cluster.told("p")["g"]
        cluster.delete(CLAIMS, first)
        await cluster.until(lambda: cluster.told("p").get("g") not in (None, first))
        assert [one["metadata"]["name"] for one in cluster.claims()] == [cluster.told("p")["g"]]


async def test_a_shared_claim_is_freed_when_its_last_consumer_has_ended() -> None:
    async with playing() as cluster:
        cluster.create(CLAIMS, "shared", spec=SPEC)
        for name in ("p", "q", "r"):
            cluster.pod(name, BY_NAME)
        cluster.allocate("shared", "p", "q", "r")
        cluster.run("p", "Succeeded")
        cluster.delete("pods", "q")
        await cluster.until(lambda: len(cluster.get(CLAIMS, "shared")["status"]["reservedFor"]) == 1)
        assert cluster.get(CLAIMS, "shared")["status"]["allocation"] == ALLOCATION
        cluster.run("r", "Failed")
        await cluster.until(lambda: not cluster.get(CLAIMS, "shared")["metadata"].get("finalizers"))
        assert not cluster.get(CLAIMS, "shared")["status"].get("allocation")
        assert not cluster.get(CLAIMS, "shared")["status"].get("reservedFor")


async def test_a_pod_that_was_replaced_by_another_of_its_name_is_no_consumer() -> None:
    async with playing() as cluster:
        cluster.create(CLAIMS, "shared", spec=SPEC)
        cluster.pod("p", BY_NAME)
        cluster.allocate("shared", "p")
        cluster.delete("pods", "p")
        cluster.pod("p", BY_NAME)
        await cluster.until(lambda: not cluster.get(CLAIMS, "shared")["status"].get("allocation"))


async def test_an_allocation_that_was_never_used_stays() -> None:
    """Not to be taken from a scheduler between its writes."""
    async with playing() as cluster:
        cluster.create(CLAIMS, "shared", spec=SPEC)
        cluster.allocate("shared")
        await cluster.quiet()
        assert cluster.get(CLAIMS, "shared")["status"]["allocation"] == ALLOCATION
        assert cluster.get(CLAIMS, "shared")["metadata"]["finalizers"] == [FINALIZER]


async def test_a_claim_that_is_deleted_stays_while_it_is_used_and_then_goes() -> None:
    async with playing() as cluster:
        cluster.create(CLAIMS, "shared", spec=SPEC)
        cluster.pod("p", BY_NAME)
        cluster.allocate("shared", "p")
        cluster.delete(CLAIMS, "shared")
        await cluster.quiet()
        assert cluster.get(CLAIMS, "shared")["status"]["allocation"] == ALLOCATION
        cluster.run("p", "Succeeded")
        await cluster.until(lambda: cluster.registry.get(CLAIMS, "default", "shared") is None)


@pytest.mark.parametrize("end", ["ended", "gone"])
async def test_a_claim_that_was_made_for_a_pod_goes_with_it(end: str) -> None:
    async with playing() as cluster:
        cluster.template()
        cluster.pod("p", FROM_TEMPLATE)
        await cluster.until(lambda: "g" in cluster.told("p"))
        cluster.allocate(cluster.told("p")["g"], "p")
        if end == "ended":
            cluster.run("p", "Succeeded")
        else:
            cluster.delete("pods", "p")
        await cluster.until(lambda: cluster.claims() == [])


async def test_what_a_scheduler_made_for_extended_resources_goes_with_the_pod() -> None:
    async with playing() as cluster:
        uid = cluster.pod("p")["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
        annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
        cluster.create(CLAIMS, "x", spec=SPEC, metadata={"annotations": annotations, "ownerReferences": [owner]})
        cluster.allocate("x", "p")
        told = {"resourceClaimName": "x", "requestMappings": []}
        ctx = cluster.registry.context("patch", "pods", "default", "p")
        cluster.registry.guaranteed_update(
            ctx, "pods", "default", "p",
            lambda old: {**old, "status": {**old["status"], "extendedResourceClaimStatus": told}},
        )  # fmt: skip
        await cluster.quiet()
        assert cluster.claims()[0]["status"]["allocation"] == ALLOCATION
        cluster.run("p", "Succeeded")
        await cluster.until(lambda: cluster.claims() == [])


def test_a_generated_name_loses_neither_part() -> None:
    pod = {"metadata": {"name": "p" * 80, "namespace": "n", "uid": "u"}}
    name = generated_claim(pod, "c" * 40, {"spec": {"spec": SPEC}})["metadata"]["generateName"]
    assert len(name) <= 57
    assert name.startswith("ppp")
    assert "-ccc" in name


def consumer(number: int) -> Json:
    return {"resource": "pods", "name": f"p{number}", "uid": f"u{number}"}


OTHER = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "n", "device": "gpu-1"}]}}


def test_nothing_is_reserved_once_the_claim_is_being_deleted() -> None:
    new = {"allocation": ALLOCATION, "reservedFor": [consumer(i) for i in range(256)]}
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    old = {"metadata": ending, "spec": SPEC, "status": new}
    fewer = {**new, "reservedFor": new["reservedFor"][:3]}
    assert validate_claim_status({**old, "status": fewer}, old) == []
    more = {**fewer, "reservedFor": [consumer(999)]}
    found = validate_claim_status({**old, "status": more}, old)
    assert ["new entries may not be added" in one.message for one in found] == [True]


async def test_the_api_refuses_a_second_allocation() -> None:
    async with playing() as cluster:
        cluster.create(CLAIMS, "shared", spec=SPEC)
        cluster.pod("p", BY_NAME)
        cluster.allocate("shared", "p")
        with pytest.raises(ApiError, match="field is immutable"):
            cluster.write_status("shared", allocation=OTHER)


# --- pod groups -------------------------------------------------------------------------------------------------------


def group(cluster: Cluster, name: str, *claims: Json) -> Json:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": list(claims)}
    return cluster.create(PODGROUPS, name, spec=spec)


def member(cluster: Cluster, name: str, of: str, *claims: Json) -> Json:
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": one["name"]} for one in claims]}}
    spec = {"containers": [container], "resourceClaims": list(claims), "schedulingGroup": {"podGroupName": of}}
    return cluster.create("pods", name, spec=spec)


def told_group(cluster: Cluster, name: str) -> dict[str, str]:
    statuses = (cluster.get(PODGROUPS, name).get("status") or {}).get("resourceClaimStatuses") or ()
    return {one["name"]: one["resourceClaimName"] for one in statuses}


@pytest.mark.parametrize("first", ["group", "pods", "template"])
async def test_a_group_gets_one_claim_by_its_template_and_its_members_are_told_of_it(first: str) -> None:
    async with playing() as cluster:
        parts: dict[str, Callable[[], object]] = {
            "group": lambda: group(cluster, "gang", FROM_TEMPLATE),
            "pods": lambda: [member(cluster, name, "gang", FROM_TEMPLATE) for name in ("p", "q")],
            "template": cluster.template,
        }
        parts.pop(first)()
        await cluster.quiet()
        for make in parts.values():
            make()
            await cluster.quiet()
        await cluster.until(lambda: bool(cluster.told("p") and cluster.told("q")))
        (claim,) = cluster.claims()
        meta, uid = claim["metadata"], cluster.get(PODGROUPS, "gang")["metadata"]["uid"]
        assert meta["name"].startswith("gang-g-")
        assert meta["annotations"] == {MADE_FOR: "g"}
        owners = [(one["kind"], one["name"], one["uid"], one["controller"]) for one in meta["ownerReferences"]]
        assert owners == [("PodGroup", "gang", uid, True)]
        assert cluster.told("p") == cluster.told("q") == told_group(cluster, "gang") == {"g": meta["name"]}


async def test_a_member_that_names_another_template_than_its_group_gets_a_claim_of_its_own() -> None:
    async with playing() as cluster:
        cluster.template()
        cluster.template("u")
        group(cluster, "gang", FROM_TEMPLATE)
        member(cluster, "p", "gang", FROM_TEMPLATE)
        member(cluster, "q", "gang", {**FROM_TEMPLATE, "resourceClaimTemplateName": "u"})
        await cluster.until(lambda: bool(cluster.told("p") and cluster.told("q")))
        assert cluster.told("p") == told_group(cluster, "gang")
        assert cluster.told("q")["g"].startswith("q-g-")


@pytest.mark.parametrize("made", [True, False])
async def test_what_is_reserved_for_a_group_is_free_when_the_group_is_gone_and_not_when_its_pods_are(
    *, made: bool
) -> None:
    async with playing() as cluster:
        cluster.template()
        cluster.create(CLAIMS, "shared", spec=SPEC)
        source = FROM_TEMPLATE if made else BY_NAME
        uid = group(cluster, "gang", source)["metadata"]["uid"]
        member(cluster, "p", "gang", source)
        await cluster.quiet()
        name = cluster.told("p")["g"] if made else "shared"
        cluster.allocate(name)
        reserved = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": uid}
        cluster.write(name, {"allocation": ALLOCATION, "reservedFor": [reserved]})
        cluster.run("p", "Succeeded")
        cluster.delete("pods", "p")
        await cluster.quiet()
        assert cluster.get(CLAIMS, name)["status"] == {"allocation": ALLOCATION, "reservedFor": [reserved]}
        cluster.delete(PODGROUPS, "gang")
        if made:
            await cluster.until(lambda: cluster.registry.get(CLAIMS, "default", name) is None)
        else:
            await cluster.until(lambda: not cluster.get(CLAIMS, "shared")["status"].get("allocation"))
            await cluster.until(lambda: not cluster.get(CLAIMS, "shared")["metadata"].get("finalizers"))


async def test_a_group_of_the_same_name_that_came_after_is_another_consumer() -> None:
    async with playing() as cluster:
        cluster.create(CLAIMS, "shared", spec=SPEC)
        uid = group(cluster, "gang", BY_NAME)["metadata"]["uid"]
        cluster.allocate("shared")
        reserved = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": uid}
        cluster.write("shared", {"allocation": ALLOCATION, "reservedFor": [reserved]})
        await cluster.quiet()
        cluster.delete(PODGROUPS, "gang")
        group(cluster, "gang", BY_NAME)
        await cluster.until(lambda: not cluster.get(CLAIMS, "shared")["status"].get("allocation"))
