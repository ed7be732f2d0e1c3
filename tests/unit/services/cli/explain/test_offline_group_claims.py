"""``conclave explain --kubeconfig`` about members of a pod group that has claims of devices for all of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from services.cli.explain.offline import answer_from, answers
from services.cli.explain.offline_groups import group_answer
from shared.errors import ConfigError
from shared.kube.resources import ObjectList, Resource
from shared.kube.scheduling_kinds import NATIVE_GROUPS
from tests.builders import make_node
from tests.fake_kube import AsyncKube, FakeKube
from tests.sim.claims import add_class, add_devices, add_group, add_member, control_claims
from tests.unit.services.cli.explain.test_batch_devices import EXAMPLE

NOT_ITS_OWN = "was not created for Pod"


class Served(AsyncKube):
    """Every kind that is there."""

    async def list(self, resource: Resource[Any], *, timeout_s: float = 60.0) -> ObjectList[Any]:
        stored = self.server.objects.get(resource.plural)
        if stored is None:
            return await super().list(resource)
        return ObjectList(tuple(msgspec.convert(item, resource.type) for item in stored.values()), "1")

    async def get(self, resource: Resource[Any], *, namespace: str, name: str, timeout_s: float = 5.0) -> Any:
        found = self.server.objects.get(resource.plural, {}).get(f"{namespace}/{name}")
        if found is not None:
            return msgspec.convert(found, resource.type)
        return await super().get(resource, namespace=namespace, name=name) if resource.plural == "pods" else None


def cluster(*nodes: tuple[str, str], members: int = 3) -> Any:
    server = FakeKube()
    add_class(server)
    for name, cpu in nodes:
        server.add_node(make_node(name).allocatable(cpu=cpu))
        add_devices(server, name, 1)
    add_group(server, "g", minimum=members)
    for number in range(members):
        add_member(server, f"p{number}", "g", cpu="1")
    control_claims(server)
    return Served(server)


async def test_the_claim_of_its_group_is_a_members_own() -> None:
    found = await answer_from(cluster(("n0", "4")), "default", "p0")
    assert NOT_ITS_OWN not in json.dumps(found)
    assert found["nodes"]["feasible"] == 1


async def test_a_group_goes_where_all_that_share_its_claim_have_room() -> None:
    found = await group_answer(cluster(("n0", "1"), ("n1", "4")), "default", "g")
    assert found is not None
    assert NOT_ITS_OWN not in json.dumps(found)
    assert found["now"]["reached"]


def batched(**changes: Any) -> Any:
    asked = {**EXAMPLE["input"], **changes}
    [found] = answers([json.dumps({"id": "x", "input": asked}).encode()])
    return found


def test_a_batch_takes_the_groups_claim_for_its_members_and_says_that_it_judges_no_unit_with_one() -> None:
    ref = {"name": "r", "resourceClaimTemplateName": "t"}
    meta = {"name": "g", "namespace": "default", "uid": "of-g"}
    group = {"metadata": meta, "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": [ref]}}
    [claim], pod = EXAMPLE["input"]["resourceClaims"], EXAMPLE["input"]["pod"]
    owner = {"apiVersion": NATIVE_GROUPS.resource.api_version, "kind": "PodGroup", "name": "g", "uid": "of-g"}
    claims = [{**claim, "metadata": {**claim["metadata"], "ownerReferences": [{**owner, "controller": True}]}}]
    told = {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": claim["metadata"]["name"]}]}
    spec = {**pod["spec"], "resourceClaims": [ref], "schedulingGroup": {"podGroupName": "g"}}
    member = {**pod, "spec": spec, "status": told}
    assert batched(pod=member, podGroups=[group], resourceClaims=claims)["feasible"] == ["n0"]
    assert NOT_ITS_OWN in json.dumps(batched(pod=member, resourceClaims=claims))
    with pytest.raises(ConfigError, match=r"PodGroup default/g.*resourceClaims.*ask about one pod"):
        batched(pod=None, pods=[member], podGroups=[group], resourceClaims=claims)
