"""What a real kube-scheduler gives to random claims, and why it refuses some, is what our rules say beforehand.

A pod is created behind a gate, the cluster is read and the rules are asked, and the gate is opened. Devices that were
given stay in use for the pods after it. A scheduler that had not seen the claim yet answers by what it saw: then the
pod is made anew, and asked about again.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from services.cli.explain.offline import answers
from shared.model.devices import nanos_of
from tests.real.conftest import RunningPlane
from tests.real.random_claims import CLASSES, some_claim, some_slices
from tests.real.scene import Scene

Json = dict[str, Any]
API = "/apis/resource.k8s.io/v1"
GATE = "example.com/wait"
ROUNDS, PODS = 12, 4
ATTEMPTS = 3


async def question(scene: Scene, pod: Json) -> Json:
    """What the rules say of a pod in the cluster as it is, its gate left out."""
    given: Json = {"pod": {**pod, "spec": {**pod["spec"], "schedulingGates": None}}}
    for key, path in (
        ("nodes", "/api/v1/nodes"), ("pods", "/api/v1/pods"), ("namespaces", "/api/v1/namespaces"),
        ("resourceSlices", f"{API}/resourceslices"), ("deviceClasses", f"{API}/deviceclasses"),
        ("resourceClaims", f"{API}/resourceclaims"),
    ):  # fmt: skip
        given[key] = (await scene.call("GET", path))["items"]
    given["pods"] = [one for one in given["pods"] if one["metadata"]["uid"] != pod["metadata"]["uid"]]
    (answer,) = answers([json.dumps({"id": "", "input": given}).encode()])
    return answer


def plain(allocation: Json) -> Json:
    """Quantities by value, any share as good as another."""
    results = []
    for one in allocation["devices"].get("results") or ():
        one = {key: value for key, value in one.items() if value not in (None, [], {})}
        if "shareID" in one:
            one["shareID"] = "*"
        consumed = one.get("consumedCapacity", {})
        results.append(one | {"consumedCapacity": {name: nanos_of(str(amount)) for name, amount in consumed.items()}})
    return {
        "results": results,
        "config": allocation["devices"].get("config") or [],
        "nodeSelector": allocation.get("nodeSelector"),
    }


async def compared(scene: Scene, name: str, claims: list[str]) -> tuple[str, str]:
    """(what became of the pod, how our answer differs; "" for not at all)."""
    body = {
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scene.scheduler,
            "schedulingGates": [{"name": GATE}],
            "nodeSelector": {"scene": scene.name},
            "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": one} for one in claims]}}],
            "resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims],
        },
    }
    pod = await scene.call("POST", f"{scene.path}/pods", body)
    mine = await question(scene, pod)
    await scene.call("PATCH", f"{scene.path}/pods/{name}", {"spec": {"schedulingGates": None}})

    def told() -> bool:
        why = scene.condition(name, "PodScheduled")
        return bool(scene.node_of(name)) or why.get("reason") in ("Unschedulable", "SchedulerError")

    await scene.until(told)
    node = scene.node_of(name)
    if node:
        path = f"{API}/namespaces/{scene.name}/resourceclaims"
        theirs = {one: plain((await scene.call("GET", f"{path}/{one}"))["status"]["allocation"]) for one in claims}
        ours = {one["claim"].split("/")[1]: plain(one) for one in mine["allocations"].get(node, ())}
        same = node in mine["best"] and ours == theirs
        return "placed", "" if same else f"{node}: {theirs}, ours {mine['best']}: {ours}"
    found = scene.condition(name, "PodScheduled")
    message, here = (
        found["message"],
        {one: why for one, why in mine["infeasible"].items() if why["plugin"] == "DynamicResources"},
    )
    if found["reason"] == "SchedulerError":
        errors = [why["reasons"][0].split(": CEL runtime")[0] for why in here.values() if why["code"] == "Error"]
        same = mine["aborted"] and any(one in message for one in errors)
        return "failed", "" if same else f"{message}, ours {mine}"
    same = not mine["feasible"] and not mine["aborted"] and all(why["reasons"][0] in message for why in here.values())
    return "refused", "" if same else f"{message}, ours {mine}"


@pytest.mark.parametrize("seed", [1, 2])
async def test_random_claims_are_answered_as_kube_scheduler_answers_them(plane: RunningPlane, seed: int) -> None:
    rng, kinds = Random(seed), set()
    async with Scene(plane, f"devices-{seed}", scheduler="default-scheduler") as scene:
        for name, spec in CLASSES.items():
            body = {"metadata": {"name": name}, "spec": spec}
            await scene.call("POST", f"{API}/deviceclasses", body, but=(409,))
        nodes = [await scene.node(f"n{i}", slots=0) for i in range(3)]
        for number in range(ROUNDS):
            slices = some_slices(rng, f"{scene.name}-{number}", nodes)
            for one in slices:
                await scene.call("POST", f"{API}/resourceslices", one)
            for index in range(PODS):
                claims = [f"c{number}-{index}-{i}" for i in range(rng.choice((1, 1, 2)))]
                for name in claims:
                    path = f"{API}/namespaces/{scene.name}/resourceclaims"
                    await scene.call("POST", path, some_claim(rng, name))
                difference = ""
                for attempt in range(ATTEMPTS):
                    await scene.rounds_go_by(1)
                    name = f"p{number}-{index}-{attempt}"
                    kind, difference = await compared(scene, name, claims)
                    if not difference:
                        kinds.add(kind)
                        break
                    await scene.delete(name, grace_s=0)
                assert not difference, (seed, number, index, difference)
                if kind != "placed":
                    await scene.delete(name, grace_s=0)
            for one in slices:
                await scene.call("DELETE", f"{API}/resourceslices/{one['metadata']['name']}")
    assert kinds == {"placed", "refused", "failed"}
