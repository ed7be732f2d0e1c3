"""Random slices and claims as a driver and a user would write them, all of which an API server takes."""

from __future__ import annotations

from random import Random
from typing import Any

Json = dict[str, Any]

DRIVERS = ("gpu.example.com", "nic.example.com")
_OWN, _CAPACITY = f'device.attributes["{DRIVERS[0]}"]', f'device.capacity["{DRIVERS[0]}"]'
CLASSES = {
    "any": {},
    "gpu": {
        "selectors": [{"cel": {"expression": f'device.driver == "{DRIVERS[0]}"'}}],
        "config": [{"opaque": {"driver": DRIVERS[0], "parameters": {"mode": "class"}}}],
    },
}
SELECTORS = (
    f'device.driver == "{DRIVERS[0]}"',
    "device.allowMultipleAllocations",
    f'{_OWN}.?model.orValue("") == "a"',
    f"{_OWN}.?numa.orValue(0) >= 1",
    f'{_OWN}.numa == 0 || {_OWN}.model == "b"',
    f'{_OWN}.?version.hasValue() && {_OWN}.version.isGreaterThan(semver("1.5.0"))',
    f'{_CAPACITY}.?memory.hasValue() && {_CAPACITY}.memory.compareTo(quantity("2Gi")) >= 0',
    'cel.bind(own, device.attributes[device.driver], has(own.model) && own.model in ["a", "b"])',
    '!("x" in device.attributes["no.such.domain"])',
    '"rack" in device.attributes["dc.io"] && device.attributes["dc.io"].rack.startsWith("r")',
    'device.attributes["dc." + "io"].?rack.orValue("none") != "r1"',
    "size(device.attributes) >= 1",
)
"""Two of them fail on devices that lack an attribute."""


def some_device(rng: Random, name: str, *, partitioned: bool) -> Json:
    device: Json = {"name": name, "attributes": {}}
    for chance, key, value in (
        (0.8, "model", {"string": rng.choice("abc")}),
        (0.8, "numa", {"int": rng.randrange(3)}),
        (0.5, "version", {"version": rng.choice(("1.2.0", "1.10.0", "2.0.0-rc.1"))}),
        (0.4, "dc.io/rack", {"string": rng.choice(("r1", "r2"))}),
    ):
        if rng.random() < chance:
            device["attributes"][key] = value
    shared = rng.random() < 0.25
    if shared or rng.random() < 0.5:
        memory: Json = {"value": rng.choice(("1Gi", "2Gi", "4Gi"))}
        if shared and memory["value"] == "4Gi":
            memory["requestPolicy"] = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "512Mi", "max": "4Gi"}}
        elif shared and rng.random() < 0.5:
            memory["requestPolicy"] = {"default": "1Gi", "validValues": ["512Mi", "1Gi"]}
        device["capacity"] = {"memory": memory}
    if shared:
        device["allowMultipleAllocations"] = True
    if rng.random() < 0.2:
        device["taints"] = [{"key": "bad.io/x", "value": "y", "effect": rng.choice(("NoSchedule", "None"))}]
    if partitioned and rng.random() < 0.7:
        taken = {"c": {"value": str(rng.randrange(1, 3))}}
        device["consumesCounters"] = [{"counterSet": "set", "counters": taken}]
    return device


def some_slices(rng: Random, title: str, nodes: list[str]) -> list[Json]:
    found = []
    for number in range(rng.randrange(2, 5)):
        node, parts, partitioned = rng.choice(nodes), rng.randrange(1, 3), rng.random() < 0.35
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
        reach: Json = rng.choice(
            (
                {"nodeName": node}, {"nodeName": node}, {"nodeName": node}, {"allNodes": True},
                {"nodeSelector": {"nodeSelectorTerms": [term]}},
            )
        )  # fmt: skip
        count = parts + partitioned + (rng.random() < 0.1)
        spec = {
            "driver": rng.choice(DRIVERS), **reach,
            "pool": {"name": f"{title}-{number}", "generation": 1, "resourceSliceCount": count},
        }  # fmt: skip
        devices = [some_device(rng, f"d{i}", partitioned=partitioned) for i in range(rng.randrange(parts, 5))]
        found += [
            {"metadata": {"name": f"{title}-{number}-{n}"}, "spec": {**spec, "devices": devices[n::parts]}}
            for n in range(parts)
        ]
        if partitioned:
            offered = [{"name": "set", "counters": {"c": {"value": str(rng.randrange(2, 6))}}}]
            found.append({"metadata": {"name": f"{title}-{number}-c"}, "spec": {**spec, "sharedCounters": offered}})
    return found


def _ask(rng: Random, *, may_want_all: bool) -> Json:
    ask: Json = {"deviceClassName": rng.choice(("any", "any", "gpu")), "allocationMode": "ExactCount"}
    if rng.random() < 0.5:
        ask["selectors"] = [{"cel": {"expression": rng.choice(SELECTORS)}} for _ in range(rng.choice((1, 1, 2)))]
    if may_want_all and rng.random() < 0.15:
        ask["allocationMode"] = "All"
    else:
        ask["count"] = rng.choice((1, 1, 2))
    if rng.random() < 0.2:
        ask["tolerations"] = [{"key": "bad.io/x", "operator": "Exists"}]
    if rng.random() < 0.25:
        ask["capacity"] = {"requests": {"memory": rng.choice(("512Mi", "1Gi", "3Gi"))}}
    return ask


def some_claim(rng: Random, name: str) -> Json:
    constrained = rng.random() < 0.35
    requests: list[Json] = []
    for number in range(rng.randrange(1, 3)):
        title = f"r{number}"
        if rng.random() < 0.3:
            several = [{"name": f"s{i}", **_ask(rng, may_want_all=not constrained)} for i in range(2)]
            requests.append({"name": title, "firstAvailable": several})
        else:
            requests.append({"name": title, "exactly": _ask(rng, may_want_all=not constrained)})
    devices: Json = {"requests": requests}
    if constrained:
        kind = rng.choice(("matchAttribute", "distinctAttribute"))
        attribute = rng.choice((f"{DRIVERS[0]}/numa", f"{DRIVERS[0]}/model", "dc.io/rack"))
        devices["constraints"] = [{kind: attribute}]
    if rng.random() < 0.2:
        one = {"opaque": {"driver": DRIVERS[0], "parameters": {"k": "v"}}}
        devices["config"] = [one | ({"requests": ["r0"]} if rng.random() < 0.5 else {})]
    return {"metadata": {"name": name}, "spec": {"devices": devices}}
