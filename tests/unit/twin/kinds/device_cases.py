"""Writes of classes, claims, templates, slices and taint rules of devices, most of them wrong in one thing.

``device_answers.json`` has what a kube-apiserver 1.36.2 answers; ``tests/real/test_device_kinds.py`` asks one again
(and writes the file anew where ``RECORD_DEVICE_ANSWERS=1``), the unit test asks the twin. Each case is a list of
writes, of which the last is judged.
"""

from __future__ import annotations

import copy
from typing import Any

from tests.unit.twin.kinds.device_bodies import (
    POD,
    RESULT,
    SHARE,
    allocation,
    cel,
    claim,
    claim_bodies,
    class_bodies,
    device,
    opaque,
    request,
    rule_bodies,
    slice_bodies,
    slices,
    status,
)

Json = dict[str, Any]
Write = tuple[str, str, str, Json]
"""Verb, resource, name, body. ``update`` and ``status`` merge the body into what is stored."""

CLASS, CLAIM, TEMPLATE = "deviceclasses", "resourceclaims", "resourceclaimtemplates"
SLICE, RULE, POD_KIND = "resourceslices", "devicetaintrules", "pods"
TOLD = {"driver": "gpu.example.com", "pool": "n", "device": "d0"}


def _updates() -> dict[str, list[Write]]:
    changed = claim(request(count=2))
    new: Json = {"metadata": {"labels": {"a": "b"}}}
    template: Json = {"spec": claim()}
    stored = opaque(parameters={"a": 1})
    return {
        "change of claim: label": [("create", CLAIM, "x", claim()), ("update", CLAIM, "x", new)],
        "change of claim: spec": [("create", CLAIM, "x", claim()), ("update", CLAIM, "x", changed)],
        "change of claim: status by the object": [("create", CLAIM, "x", claim()), ("update", CLAIM, "x", status())],
        "change of claim: no name": [("create", CLAIM, "", claim())],
        "change of claim: name": [("create", CLAIM, "Bad_Name", claim())],
        "change of template: label": [("create", TEMPLATE, "x", template), ("update", TEMPLATE, "x", new)],
        "change of template: spec": [("create", TEMPLATE, "x", template), ("update", TEMPLATE, "x", {"spec": changed})],
        "change of template: labels of claims": [
            ("create", TEMPLATE, "x", {"spec": {"metadata": {"labels": {"-": "a"}}, **claim()}})
        ],
        "change of class: selectors": [
            ("create", CLASS, "x", {"spec": {}}), ("update", CLASS, "x", {"spec": {"selectors": cel("x")}})],
        "change of class: configuration": [
            ("create", CLASS, "x", {"spec": {"config": [stored]}}),
            ("update", CLASS, "x", {"spec": {"config": [opaque(parameters={"a": "b" * 10300})]}})],
        "change of slice: driver": [
            ("create", SLICE, "x", slices()), ("update", SLICE, "x", {"spec": {"driver": "other.example.com"}})],
        "change of slice: pool": [
            ("create", SLICE, "x", slices()), ("update", SLICE, "x", {"spec": {"pool": {"name": "m"}}})],
        "change of slice: node": [
            ("create", SLICE, "x", slices()), ("update", SLICE, "x", {"spec": {"nodeName": "m"}})],
        "change of slice: generation": [
            ("create", SLICE, "x", slices(device())),
            ("update", SLICE, "x", {"spec": {"pool": {"generation": 0}, "devices": [device("d1")]}})],
        "change of slice: place": [
            ("create", SLICE, "x", slices()), ("update", SLICE, "x", {"spec": {"nodeName": None, "allNodes": True}})],
        "change of rule: effect": [
            ("create", RULE, "x", {"spec": {"taint": {"key": "a", "effect": "None"}}}),
            ("update", RULE, "x", {"spec": {"taint": {"effect": "NoExecute"}}})],
        "change of rule: bad effect": [
            ("create", RULE, "x", {"spec": {"taint": {"key": "a", "effect": "None"}}}),
            ("update", RULE, "x", {"spec": {"taint": {"effect": "Some"}}})],
        "change of rule: conditions": [
            ("create", RULE, "x", {"spec": {"taint": {"key": "a", "effect": "None"}}}),
            ("status", RULE, "x", {"status": {"conditions": [{"type": "-", "status": "Some"}]}})],
    }  # fmt: skip


def _statuses() -> dict[str, list[Write]]:
    told = TOLD
    bodies: dict[str, Json] = {
        "allocated": status(),
        "allocated and reserved": status(reservedFor=[POD]),
        "reserved only": {"status": {"reservedFor": [POD]}},
        "consumer of nothing": status(reservedFor=[{}]),
        "consumer twice": status(reservedFor=[POD, POD]),
        "many consumers": status(reservedFor=[{**POD, "uid": f"u{i}"} for i in range(257)]),
        "most consumers": status(reservedFor=[{**POD, "uid": f"u{i}"} for i in range(256)]),
        "unknown request": status({**RESULT, "request": "s"}),
        "result of nothing": status({}),
        "result's names": status({**RESULT, "driver": "_", "pool": "_", "device": "_"}),
        "many results": status(*[RESULT] * 33),
        "device twice": status(RESULT, RESULT),
        "share": status({**RESULT, "shareID": SHARE, "consumedCapacity": {"memory": "1Gi"}}),
        "share's id": status({**RESULT, "shareID": "x"}),
        "share's id in capitals": status({**RESULT, "shareID": SHARE.replace("1", "A")}),
        "conditions": status({**RESULT, "bindingConditions": ["a"]}),
        "toleration": status({**RESULT, "tolerations": [{"key": "a"}]}),
        "admin access": status({**RESULT, "adminAccess": True}),
        "selector": {"status": {"allocation": allocation(nodeSelector={"nodeSelectorTerms": []})}},
        "source": {"status": {"allocation": {"devices": {"config": [{"source": "Mine", **opaque()}]}}}},
        "no source": {"status": {"allocation": {"devices": {"config": [opaque()]}}}},
        "configuration": {
            "status": {"allocation": {"devices": {"config": [{"source": "FromClass", "requests": ["s"], **opaque()}]}}}
        },
        "many configurations": {
            "status": {"allocation": {"devices": {"config": [{"source": "FromClass", **opaque()}] * 65}}}
        },
        "device told": status(devices=[told]),
        "device told twice": status(devices=[told, told]),
        "other device told": status(devices=[{**told, "device": "d1"}]),
        "device told of no allocation": {"status": {"devices": [told]}},
        "data": status(devices=[{**told, "data": [1]}]),
        "network": status(devices=[{**told, "networkData": {
            "interfaceName": "a" * 257, "hardwareAddress": "b" * 129,
            "ips": ["10.0.0.1", "10.0.0.2/24", "10.0.0.2/24"]}}]),
        "bad condition told": status(devices=[{**told, "conditions": [{"type": "a"}]}]),
        "spec by the status": {**status(), **claim(request(count=2))},
    }  # fmt: skip
    found: dict[str, list[Write]] = {
        name: [("create", CLAIM, "x", claim()), ("status", CLAIM, "x", body)] for name, body in bodies.items()
    }
    start: list[Write] = [("create", CLAIM, "x", claim()), ("status", CLAIM, "x", status(reservedFor=[POD]))]
    found["changed allocation"] = [*start, ("status", CLAIM, "x", status({**RESULT, "device": "d1"}))]
    both = {"status": {"reservedFor": [POD, {**POD, "uid": "v"}]}}
    found["further consumer"] = [*start, ("status", CLAIM, "x", both)]
    found["deallocated while reserved"] = [*start, ("status", CLAIM, "x", {"status": {"allocation": None}})]
    found["deallocated"] = [*start, ("status", CLAIM, "x", {"status": {"allocation": None, "reservedFor": None}})]
    found["deallocated with what was told"] = [
        *start,
        ("status", CLAIM, "x", {"status": {"devices": [told]}}),
        ("status", CLAIM, "x", {"status": {"allocation": None, "reservedFor": None}}),
    ]
    return found


def _pods() -> dict[str, list[Write]]:
    """What a pod's status tells of its claims."""
    resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}, "claims": [{"name": "g"}]}
    container = {"name": "c", "image": "i", "resources": resources}
    pod = {"spec": {"containers": [container], "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}]}}
    mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}

    def extended(*mappings: Json, name: str = "x") -> Json:
        told = {"requestMappings": list(mappings), "resourceClaimName": name}
        return {"status": {"extendedResourceClaimStatus": told}}

    def generated(*statuses: Json) -> Json:
        return {"status": {"resourceClaimStatuses": list(statuses)}}

    bodies = {
        "generated": generated({"name": "g", "resourceClaimName": "p-g-1"}),
        "none needed": generated({"name": "g"}),
        "unknown claim": generated({"name": "h", "resourceClaimName": "x"}),
        "claim twice": generated({"name": "g"}, {"name": "g"}),
        "claim's name": generated({"name": "g", "resourceClaimName": "Bad_Name"}),
        "extended": extended(mapping),
        "extended without a request": extended(),
        "extended of no container": extended({**mapping, "containerName": "d"}),
        "extended of no request": extended({**mapping, "resourceName": "example.com/tpu"}),
        "extended request's name": extended({**mapping, "requestName": "Bad_Name"}),
        "extended twice": extended(mapping, mapping),
        "extended without a claim": extended(mapping, name=""),
        "extended claim's name": extended(mapping, name="Bad_Name"),
    }
    return {
        f"pod: {name}": [("create", POD_KIND, "x", pod), ("status", POD_KIND, "x", body)]
        for name, body in bodies.items()
    }


def cases() -> dict[str, list[Write]]:
    """All cases by name."""
    found: dict[str, list[Write]] = {}
    kinds: list[tuple[str, str, dict[str, Json]]] = [
        ("claim", CLAIM, claim_bodies()), ("class", CLASS, class_bodies()), ("slice", SLICE, slice_bodies()),
        ("rule", RULE, rule_bodies()),
        ("template", TEMPLATE, {name: {"spec": body} for name, body in claim_bodies().items()}),
    ]  # fmt: skip
    for kind, resource, bodies in kinds:
        found |= {f"{kind}: {name}": [("create", resource, "x", copy.deepcopy(body))] for name, body in bodies.items()}
    found |= {f"status: {name}": writes for name, writes in _statuses().items()}
    return found | _updates() | _pods()


def merged(old: Any, new: Any) -> Any:
    """A merge patch."""
    if not isinstance(new, dict) or not isinstance(old, dict):
        return copy.deepcopy(new)
    return {
        key: merged(old.get(key), new[key]) if key in new else copy.deepcopy(old[key])
        for key in {**old, **new}
        if new.get(key, "") is not None
    }


def told(code: int, body: Json) -> Json:
    """What is compared of an answer: the causes of a refusal, or the object without what no client said."""
    if code >= 300:
        causes = (body.get("details") or {}).get("causes") or []
        listed = [[one.get("field", ""), one.get("reason", ""), _plain(one.get("message", ""))] for one in causes]
        return {"code": code} | ({"causes": sorted(listed)} if listed else {"message": body.get("message", "")})
    meta = body["metadata"]
    if "containers" in body["spec"]:
        return {"code": code, "status": {name: one for name, one in body["status"].items() if "laimStatus" in name}}
    return {
        "code": code,
        "generation": meta.get("generation"),
        "spec": _without_times(body.get("spec")),
        "status": _without_times(body.get("status")),
    }


def _plain(message: str) -> str:
    """Of a selector that does not compile and of whole objects, what is said of them is each language's own."""
    if "compilation failed" in message:
        return "compilation failed"
    if message.startswith(("Invalid value: {", "Invalid value: [", "Duplicate value: {", 'Invalid value: "{')):
        return message.rpartition(": ")[2]
    return message


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "*" if key == "timeAdded" else _without_times(one) for key, one in value.items()}
    return [_without_times(one) for one in value] if isinstance(value, list) else value
