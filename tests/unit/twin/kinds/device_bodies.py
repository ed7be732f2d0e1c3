"""Bodies of device kinds, most of them wrong in one thing (``device_cases.py`` says what becomes of them)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
LONG_NAME = "a" * 64


def request(name: str = "r", **exactly: Any) -> Json:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **exactly}}


def claim(*requests: Json, **devices: Any) -> Json:
    return {"spec": {"devices": {"requests": list(requests) or [request()], **devices}}}


def cel(*expressions: str) -> list[Json]:
    return [{"cel": {"expression": one}} for one in expressions]


def slices(*devices: Json, **spec: Any) -> Json:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    return {"spec": {"driver": "gpu.example.com", "pool": pool, "nodeName": "n", "devices": list(devices), **spec}}


def device(name: str = "d0", **fields: Any) -> Json:
    return {"name": name, **fields}


def opaque(driver: str = "gpu.example.com", parameters: Any = None) -> Json:
    return {"opaque": {"driver": driver, "parameters": {"a": 1} if parameters is None else parameters}}


RESULT = {"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "d0"}
POD = {"resource": "pods", "name": "p", "uid": "u"}
SHARE = "11111111-2222-4333-8444-555555555555"


def allocation(*results: Json, **fields: Any) -> Json:
    return {"devices": {"results": list(results) or [RESULT]}, **fields}


def status(*results: Json, **fields: Any) -> Json:
    return {"status": {"allocation": allocation(*results), **fields}}


def claim_bodies() -> dict[str, Json]:
    """Specs of claims; each is a case of a claim and of a template."""
    alternative: Callable[..., Json] = lambda name="a", **more: {"name": name, "deviceClassName": "gpu", **more}  # noqa: E731
    return {
        "plain": claim(),
        "no requests": {"spec": {"devices": {}}},
        "many requests": claim(*(request(f"r{i}") for i in range(33))),
        "most requests": claim(*(request(f"r{i}") for i in range(32))),
        "request twice": claim(request(), request()),
        "request without a name": claim({"exactly": {"deviceClassName": "gpu"}}),
        "request name": claim(request("Bad_Name")),
        "long request name": claim(request(LONG_NAME)),
        "neither kind": claim({"name": "r"}),
        "both kinds": claim({**request(), "firstAvailable": [alternative()]}),
        "no class": claim(request(deviceClassName="")),
        "class name": claim(request(deviceClassName="Bad_Class")),
        "mode": claim(request(allocationMode="Some")),
        "all with a count": claim(request(allocationMode="All", count=2)),
        "all": claim(request(allocationMode="All")),
        "negative count": claim(request(count=-1)),
        "zero count": claim(request(count=0)),
        "alternatives": claim({"name": "r", "firstAvailable": [alternative("a"), alternative("b", count=2)]}),
        "alternative twice": claim({"name": "r", "firstAvailable": [alternative(), alternative()]}),
        "many alternatives": claim({"name": "r", "firstAvailable": [alternative(f"a{i}") for i in range(9)]}),
        "alternative without a class": claim({"name": "r", "firstAvailable": [{"name": "a"}]}),
        "alternative's count": claim({"name": "r", "firstAvailable": [alternative(count=-2)]}),
        "alternative's mode": claim({"name": "r", "firstAvailable": [alternative(allocationMode="Any")]}),
        "empty alternatives": claim({"name": "r", "firstAvailable": []}),
        "selector": claim(request(selectors=cel("device.driver == 'a'"))),
        "selector without cel": claim(request(selectors=[{}])),
        "selector empty": claim(request(selectors=cel(""))),
        "selector that does not parse": claim(request(selectors=cel("device.driver =="))),
        "selector of a number": claim(request(selectors=cel("1"))),
        "selector of a text": claim(request(selectors=cel("device.driver"))),
        "selector of any value": claim(request(selectors=cel("device.attributes['a'].b"))),
        "selector of an unknown field": claim(request(selectors=cel("device.nosuch == 1"))),
        "selector of an unknown variable": claim(request(selectors=cel("node.name == 'a'"))),
        "selector with libraries": claim(
            request(
                selectors=cel(
                    "device.capacity['a'].memory.compareTo(quantity('1Gi')) >= 0",
                    "device.attributes['a'].version.isGreaterThan(semver('1.2.3'))",
                    "cel.bind(a, device.attributes['a'], a.?b.orValue(true))",
                    "device.attributes['a'].name.lowerAscii().startsWith('x')",
                    "device.allowMultipleAllocations == true",
                )
            )
        ),
        "long selector": claim(request(selectors=cel(f"'{'a' * 10300}' == device.driver"))),
        "longest selector": claim(request(selectors=cel(f"'{'a' * (10240 - 21)}' == device.driver"))),
        "costly selector": claim(
            request(selectors=cel("device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, "
                                  "device.attributes.all(d, device.attributes.all(e, a + b + c == d + e)))))"))
        ),
        "many selectors": claim(request(selectors=cel(*["true"] * 33))),
        "toleration": claim(request(tolerations=[{"key": "a", "value": "b"}, {"operator": "Exists"}])),
        "toleration's key": claim(request(tolerations=[{"key": "-a"}])),
        "toleration's operator": claim(request(tolerations=[{"key": "a", "operator": "In"}])),
        "toleration's value with Exists": claim(request(tolerations=[{"operator": "Exists", "value": "b"}])),
        "toleration's value": claim(request(tolerations=[{"key": "a", "value": "-b"}])),
        "toleration's effect": claim(request(tolerations=[{"key": "a", "effect": "Never"}])),
        "toleration of no effect": claim(request(tolerations=[{"key": "a", "effect": "None"}])),
        "admin access": claim(request(adminAccess=True)),
        "no admin access": claim(request(adminAccess=False)),
        "capacity": claim(request(capacity={"requests": {"gpu.example.com/memory": "1Gi"}})),
        "constraint": claim(constraints=[{"requests": ["r"], "matchAttribute": "gpu.example.com/numa"}]),
        "constraint on every request": claim(constraints=[{"matchAttribute": "gpu.example.com/numa"}]),
        "distinct": claim(constraints=[{"distinctAttribute": "gpu.example.com/numa"}]),
        "constraint without an attribute": claim(constraints=[{"requests": ["r"]}]),
        "constraint's attribute without a domain": claim(constraints=[{"matchAttribute": "numa"}]),
        "constraint's empty domain": claim(constraints=[{"matchAttribute": "/numa"}]),
        "constraint's empty name": claim(constraints=[{"matchAttribute": "gpu.example.com/"}]),
        "constraint's attribute": claim(constraints=[{"matchAttribute": "gpu.example.com/nu-ma"}]),
        "constraint's long attribute": claim(constraints=[{"matchAttribute": f"gpu.example.com/{'a' * 33}"}]),
        "constraint's three parts": claim(constraints=[{"matchAttribute": "a/b/c-d"}]),
        "constraint's unknown request": claim(constraints=[{"requests": ["s"], "matchAttribute": "a/b"}]),
        "constraint's deep request": claim(constraints=[{"requests": ["r/a/b"], "matchAttribute": "a/b"}]),
        "constraint's request twice": claim(constraints=[{"requests": ["r", "r"], "matchAttribute": "a/b"}]),
        "constraint on an alternative": claim(
            {"name": "r", "firstAvailable": [alternative()]},
            constraints=[{"requests": ["r/a"], "matchAttribute": "a/b"}],
        ),
        "constraint on no alternative": claim(
            {"name": "r", "firstAvailable": [alternative()]},
            constraints=[{"requests": ["r/b"], "matchAttribute": "a/b"}],
        ),
        "many constraints": claim(constraints=[{"matchAttribute": "a/b"}] * 33),
        "configuration": claim(config=[{"requests": ["r"], **opaque()}]),
        "configuration of nothing": claim(config=[{"requests": ["r"]}]),
        "configuration's driver": claim(config=[opaque("Bad_Driver")]),
        "configuration without a driver": claim(config=[opaque("")]),
        "configuration's long driver": claim(config=[opaque("a" * 64)]),
        "configuration that is no object": claim(config=[opaque(parameters=[1])]),
        "configuration of text": claim(config=[opaque(parameters="a")]),
        "configuration too long": claim(config=[opaque(parameters={"a": "b" * 10300})]),
        "configuration's unknown request": claim(config=[{"requests": ["s"], **opaque()}]),
        "many configurations": claim(config=[opaque()] * 33),
    }  # fmt: skip


def class_bodies() -> dict[str, Json]:
    """Classes."""
    spec: Callable[..., Json] = lambda **fields: {"spec": fields}  # noqa: E731
    return {
        "plain": spec(),
        "selector": spec(selectors=cel("device.driver == 'a'")),
        "selector that does not parse": spec(selectors=cel("device.driver =")),
        "many selectors": spec(selectors=cel(*["true"] * 33)),
        "configuration": spec(config=[opaque()]),
        "configuration of nothing": spec(config=[{}]),
        "many configurations": spec(config=[opaque()] * 33),
        "extended resource": spec(extendedResourceName="example.com/gpu"),
        "extended resource of Kubernetes": spec(extendedResourceName="kubernetes.io/gpu"),
        "extended resource without a domain": spec(extendedResourceName="gpu"),
        "extended resource named as a quota": spec(extendedResourceName="requests.example.com/gpu"),
        "extended resource's name": spec(extendedResourceName="example.com/-gpu"),
    }


def slice_bodies() -> dict[str, Json]:
    """Slices."""
    pool: Callable[..., Json] = lambda **fields: {"name": "n", "generation": 1, "resourceSliceCount": 1} | fields  # noqa: E731
    counters = {"name": "set", "counters": {"memory": {"value": "1Gi"}}}
    consumed = {"counterSet": "set", "counters": {"memory": {"value": "1Gi"}}}
    shared: Callable[..., Json] = lambda value="10", **policy: device(  # noqa: E731
        allowMultipleAllocations=True, capacity={"memory": {"value": value, "requestPolicy": policy}}
    )
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    return {
        "plain": slices(device()),
        "no device": slices(),
        "driver": slices(driver="Bad_Driver"),
        "driver in capitals": slices(driver="GPU.example.com"),
        "no driver": slices(driver=""),
        "long driver": slices(driver="a" * 64),
        "pool": slices(pool=pool(name="Bad_Pool")),
        "no pool": slices(pool=pool(name="")),
        "pool of parts": slices(pool=pool(name="a/b.c/d")),
        "pool of empty parts": slices(pool=pool(name="a//b")),
        "long pool": slices(pool=pool(name="a" * 254)),
        "no slices": slices(pool=pool(resourceSliceCount=0)),
        "negative generation": slices(pool=pool(generation=-1)),
        "node": slices(nodeName="Bad_Node"),
        "empty node": slices(nodeName=""),
        "no place": slices(nodeName=None),
        "two places": slices(allNodes=True),
        "all nodes": slices(nodeName=None, allNodes=True),
        "not all nodes": slices(nodeName=None, allNodes=False),
        "selector": slices(nodeName=None, nodeSelector={"nodeSelectorTerms": [term]}),
        "two terms": slices(nodeName=None, nodeSelector={"nodeSelectorTerms": [term, term]}),
        "no terms": slices(nodeName=None, nodeSelector={"nodeSelectorTerms": []}),
        "place by device": slices(device(nodeName="n"), nodeName=None, perDeviceNodeSelection=True),
        "place by device, none": slices(device(), nodeName=None, perDeviceNodeSelection=True),
        "place by device, two": slices(device(nodeName="n", allNodes=True), nodeName=None, perDeviceNodeSelection=True),
        "place by device, not all": slices(device(allNodes=False), nodeName=None, perDeviceNodeSelection=True),
        "place by device, empty": slices(device(nodeName=""), nodeName=None, perDeviceNodeSelection=True),
        "place by device, off": slices(nodeName=None, perDeviceNodeSelection=False),
        "place of a device": slices(device(nodeName="n")),
        "device twice": slices(device(), device()),
        "device's name": slices(device("Bad_Device")),
        "long device's name": slices(device(LONG_NAME)),
        "most devices": slices(*(device(f"d{i}") for i in range(128))),
        "many devices": slices(*(device(f"d{i}") for i in range(129))),
        "many devices, one tainted": slices(
            *(device(f"d{i}") for i in range(64)), device("t", taints=[{"key": "a", "effect": "NoSchedule"}])
        ),
        "attributes": slices(device(attributes={
            "a": {"int": 0}, "b": {"bool": False}, "c": {"string": ""}, "x.y/d": {"version": "1.2.3-a.1+b"}})),
        "attribute without a value": slices(device(attributes={"a": {}})),
        "attribute with two values": slices(device(attributes={"a": {"int": 1, "bool": True}})),
        "attribute's name": slices(device(attributes={"a-b": {"int": 1}})),
        "attribute's domain": slices(device(attributes={"A_B/c": {"int": 1}})),
        "attribute's long name": slices(device(attributes={"a" * 33: {"int": 1}})),
        "attribute's version": slices(device(attributes={"a": {"version": "1.2"}})),
        "attribute's version with a zero": slices(device(attributes={"a": {"version": "01.2.3"}})),
        "attribute's long text": slices(device(attributes={"a": {"string": "b" * 65}})),
        "attribute's longest text": slices(device(attributes={"a": {"string": "b" * 64}})),
        "attribute's long version": slices(device(attributes={"a": {"version": f"1.2.3-{'b' * 64}"}})),
        "attribute that is a list": slices(device(attributes={"a": {"ints": [1, 2]}})),
        "most attributes": slices(device(attributes={f"a{i}": {"int": i} for i in range(32)})),
        "many attributes and capacities": slices(device(
            attributes={f"a{i}": {"int": i} for i in range(20)},
            capacity={f"c{i}": {"value": "1"} for i in range(13)})),
        "capacity": slices(device(capacity={"memory": {"value": "80Gi"}})),
        "capacity's name": slices(device(capacity={"me-mory": {"value": "80Gi"}})),
        "policy of a device for one": slices(device(capacity={"memory": {"value": "1", "requestPolicy": {}}})),
        "policy": slices(shared(default="1", validRange={"min": "1", "step": "1"})),
        "policy without a rule": slices(shared()),
        "policy of both kinds": slices(shared(default="1", validValues=["1"], validRange={"min": "1"})),
        "values": slices(shared(default="2", validValues=["1", "2", "4"])),
        "values without a default": slices(shared(validValues=["1"])),
        "values without the default": slices(shared(default="3", validValues=["1", "2"])),
        "values out of order": slices(shared(default="1", validValues=["2", "1"])),
        "values twice": slices(shared(default="1", validValues=["1", "1"])),
        "values above the capacity": slices(shared(default="1", validValues=["1", "11"])),
        "many values": slices(shared("20", default="1", validValues=[str(i) for i in range(1, 12)])),
        "range without a default": slices(shared(validRange={"min": "1"})),
        "range without a minimum": slices(shared(default="1", validRange={"max": "2"})),
        "range above the capacity": slices(shared(default="11", validRange={"min": "11"})),
        "range's default below": slices(shared(default="1", validRange={"min": "2"})),
        "range's default above": slices(shared(default="5", validRange={"min": "2", "max": "4"})),
        "range upside down": slices(shared(default="4", validRange={"min": "4", "max": "2"})),
        "range's maximum above the capacity": slices(shared(default="4", validRange={"min": "1", "max": "20"})),
        "range's step": slices(shared(default="4", validRange={"min": "1", "step": "2"})),
        "range's step beyond the capacity": slices(shared(default="1", validRange={"min": "1", "step": "10"})),
        "range's maximum off the steps": slices(shared(default="1", validRange={"min": "1", "max": "4", "step": "2"})),
        "counters": slices(sharedCounters=[counters], devices=None),
        "counters beside devices": slices(device(), sharedCounters=[counters]),
        "counters twice": slices(sharedCounters=[counters, counters], devices=None),
        "counters without a name": slices(sharedCounters=[{**counters, "name": ""}], devices=None),
        "counters' name": slices(sharedCounters=[{**counters, "name": "Bad_Set"}], devices=None),
        "no counters": slices(sharedCounters=[{"name": "set", "counters": {}}], devices=None),
        "counter's name": slices(sharedCounters=[{"name": "s", "counters": {"A_b": {"value": "1"}}}], devices=None),
        "many counter sets": slices(sharedCounters=[{**counters, "name": f"s{i}"} for i in range(9)], devices=None),
        "many counters": slices(
            sharedCounters=[{"name": "s", "counters": {f"c{i}": {"value": "1"} for i in range(33)}}], devices=None),
        "consumed": slices(device(consumesCounters=[consumed])),
        "consumed twice": slices(device(consumesCounters=[consumed, consumed])),
        "consumed of no set": slices(device(consumesCounters=[{**consumed, "counterSet": ""}])),
        "consumed nothing": slices(device(consumesCounters=[{"counterSet": "set", "counters": {}}])),
        "consumed of many": slices(device(consumesCounters=[{**consumed, "counterSet": f"s{i}"} for i in range(3)])),
        "taint": slices(device(taints=[{"key": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}])),
        "taint's key": slices(device(taints=[{"key": "", "effect": "NoExecute"}])),
        "taint's value": slices(device(taints=[{"key": "a", "value": "-b", "effect": "NoExecute"}])),
        "taint without an effect": slices(device(taints=[{"key": "a"}])),
        "taint's effect": slices(device(taints=[{"key": "a", "effect": "PreferNoSchedule"}])),
        "many taints": slices(device(taints=[{"key": f"k{i}", "effect": "None"} for i in range(17)])),
        "conditions": slices(device(bindingConditions=["a"], bindingFailureConditions=["b"], bindsToNode=True)),
        "conditions without failures": slices(device(bindingConditions=["a"])),
        "failures without conditions": slices(device(bindingFailureConditions=["a"])),
        "conditions that overlap": slices(device(bindingConditions=["a"], bindingFailureConditions=["a"])),
        "conditions twice": slices(device(bindingConditions=["a", "a"], bindingFailureConditions=["b", "b"])),
        "conditions' names": slices(device(bindingConditions=["-a"], bindingFailureConditions=["b"])),
        "many conditions": slices(device(bindingConditions=list("abcde"), bindingFailureConditions=["x"])),
        "device of everything wrong": slices(device("A", attributes={"b-": {}}, taints=[{"key": "-"}])),
    }  # fmt: skip


def rule_bodies() -> dict[str, Json]:
    """Taint rules."""
    rule: Callable[..., Json] = lambda selector=None, **taint: {  # noqa: E731
        "spec": ({"deviceSelector": selector} if selector is not None else {})
        | {"taint": {"key": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z", **taint}}
    }
    return {
        "plain": rule(),
        "selector": rule({"driver": "gpu.example.com", "pool": "n", "device": "d0"}),
        "empty selector": rule({}),
        "driver": rule({"driver": "Bad_Driver"}),
        "pool": rule({"pool": "Bad_Pool"}),
        "device": rule({"device": "Bad_Device"}),
        "empty names": rule({"driver": "", "pool": "", "device": ""}),
        "effect": rule(effect="Never"),
        "no effect": rule(effect=""),
        "effect None": rule(effect="None"),
        "key": rule(key=""),
        "value": rule(value="-"),
    }
