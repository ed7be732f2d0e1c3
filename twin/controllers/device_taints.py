"""The device taint eviction controller of the twin: pods leave whose devices got a NoExecute taint.

``twin.model.device_taints`` decides. A pod that is to leave gets the condition DisruptionTarget, then it is deleted
with its grace. What a DeviceTaintRule comes to is told in its status: at once when the rule is new or other, and 10
seconds after pods left because of it. Tolerations last in virtual seconds.
"""

from __future__ import annotations

from typing import Any

from twin.controllers.device_claims import CLAIMS, claims_of, group_of
from twin.controllers.kubelet_objects import with_conditions
from twin.controllers.runtime import Controller, ObjectKey
from twin.kinds.devices.taints import RULES
from twin.kinds.workload.pod_groups import GROUP
from twin.model.device_taints import (
    IN_PROGRESS,
    NO_EXECUTE,
    DeviceKey,
    DeviceTaintPools,
    RuleCounts,
    TaintEviction,
    eviction_of,
    rule_condition,
    seconds_of,
    selects,
)
from twin.registry.registry import TwinRegistry

Json = dict[str, Any]

SLICES = "resourceslices.resource.k8s.io"
STATUS_PERIOD_S = 10.0
_TARGET = ("True", "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint")
_ENDED = ("Succeeded", "Failed")


class DeviceTaintEviction(Controller[ObjectKey]):
    """Keys are claims, whose consumers are judged, and rules."""

    user = "system:serviceaccount:kube-system:device-taint-eviction-controller"

    def __init__(self, registry: TwinRegistry, *, speed: float = 1.0) -> None:
        super().__init__(registry)
        self._speed = speed
        self._pools = DeviceTaintPools()
        self._rules: dict[str, Json] = {}
        """Those that evict, by name."""
        self._specs: dict[str, tuple[str, Json]] = {}
        """Of every rule: its uid, and the spec that its status was made of."""
        self._claims: dict[DeviceKey, set[ObjectKey]] = {}
        """Which claims have a device."""
        self._devices: dict[ObjectKey, frozenset[DeviceKey]] = {}
        self._evicted: dict[str, int] = {}
        """By the rule's name: how many pods left because of it."""

    def follows(self) -> list[str]:
        return [SLICES, RULES, CLAIMS, "pods"]

    def concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
        if resource == SLICES:
            spec = obj["spec"]
            for name in self._pools.remove(obj) if gone else self._pools.put(obj):
                self._note_claims((spec["driver"], spec["pool"]["name"], name))
        elif resource == RULES:
            self._take_rule(obj, gone=gone)
        elif resource == CLAIMS:
            self._take_claim(obj, gone=gone)
        elif resource == "pods" and not gone and obj["spec"].get("nodeName") and (self._rules or self._pools.tainted):
            # its claims were reserved before it was bound
            for name in claims_of(obj):
                self.note((CLAIMS, obj["metadata"]["namespace"], name))

    def _note_claims(self, device: DeviceKey) -> None:
        for key in self._claims.get(device, ()):
            self.note(key)

    def _take_rule(self, rule: Json, *, gone: bool) -> None:
        name = rule["metadata"]["name"]
        known = (rule["metadata"]["uid"], rule["spec"])
        if not gone and self._specs.get(name) == known:
            return
        old = self._rules.pop(name, None)
        if gone:
            self._specs.pop(name, None)
            self._evicted.pop(name, None)
        else:
            self._specs[name] = known
            self.note((RULES, "", name))
            if rule["spec"]["taint"]["effect"] == NO_EXECUTE:
                self._rules[name] = rule
        for device in list(self._claims):
            if any(one is not None and selects(one, device) for one in (old, self._rules.get(name))):
                self._note_claims(device)

    def _take_claim(self, claim: Json, *, gone: bool) -> None:
        key = (CLAIMS, claim["metadata"]["namespace"], claim["metadata"]["name"])
        allocation = None if gone else (claim.get("status") or {}).get("allocation")
        results = (allocation or {}).get("devices", {}).get("results") or ()
        devices = frozenset((one["driver"], one["pool"], one["device"]) for one in results)
        before = self._devices.pop(key, frozenset())
        for device in before - devices:
            self._claims[device].discard(key)
            if not self._claims[device]:
                del self._claims[device]
        for device in devices - before:
            self._claims.setdefault(device, set()).add(key)
        if devices:
            self._devices[key] = devices
            self.note(key)
        elif before:
            self.forget(key)

    # --- claims -------------------------------------------------------------------------------------------------------

    def reconcile(self, key: ObjectKey) -> None:
        obj = self.registry.get(*key)
        if obj is None:
            return
        if key[0] == RULES:
            self._tell(key, obj)
        elif key in self._devices:
            self._judge(key, obj)

    def _judge(self, key: ObjectKey, claim: Json) -> None:
        eviction = eviction_of(claim, self._pools, self._rules)
        if eviction is None:
            return
        wait_s = (eviction.at_s - self.registry.clock()) / self._speed
        if wait_s > 0:
            self.again(key, wait_s)
            return
        for pod in self._consumers(claim):
            self._evict(pod, eviction)

    def _consumers(self, claim: Json) -> list[Json]:
        """The pods that a claim is reserved for, by themselves or through their pod group, and that are on a node."""
        found: list[Json] = []
        namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        for one in (claim.get("status") or {}).get("reservedFor") or ():
            if (one.get("apiGroup"), one.get("resource")) == (GROUP, "podgroups"):
                members = (pod for pod in self.registry.list("pods", namespace) if group_of(pod) == one["name"])
                found += [pod for pod in members if pod["spec"].get("nodeName") and name in claims_of(pod)]
            if one.get("apiGroup") or one.get("resource") != "pods":
                continue
            pod = self.registry.get("pods", namespace, one["name"])
            if pod is not None and pod["metadata"]["uid"] == one["uid"] and pod["spec"].get("nodeName"):
                found.append(pod)
        return found

    def _evict(self, pod: Json, eviction: TaintEviction) -> None:
        if pod["metadata"].get("deletionTimestamp") or (pod.get("status") or {}).get("phase") in _ENDED:
            return
        now = self.registry.now_text(self.registry.clock())
        key = ("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
        self.change(key, lambda old: _targeted(old, now))
        self.delete("pods", pod)
        for name in eviction.rules:
            self._evicted[name] = self._evicted.get(name, 0) + 1
            self.again((RULES, "", name), STATUS_PERIOD_S / self._speed)

    # --- rules --------------------------------------------------------------------------------------------------------

    def _tell(self, key: ObjectKey, rule: Json) -> None:
        status = rule.get("status") or {}
        others = [one for one in status.get("conditions") or () if one["type"] != IN_PROGRESS]
        known = next((one for one in status.get("conditions") or () if one["type"] == IN_PROGRESS), None)
        if known is not None and known.get("observedGeneration") == rule["metadata"].get("generation"):
            since_s = self.registry.clock() - seconds_of(known["lastTransitionTime"])
            left_s = STATUS_PERIOD_S - since_s * self._speed
            if left_s > 0:
                self.again(key, left_s / self._speed)
                return
        condition = rule_condition(rule, self._counts(rule))
        if known is not None and {name: known.get(name) for name in condition} == condition:
            return
        condition["lastTransitionTime"] = self.registry.now_text(self.registry.clock())
        conditions = [*others, condition]
        self.change(key, lambda old: {**old, "status": {**(old.get("status") or {}), "conditions": conditions}})

    def _counts(self, rule: Json) -> RuleCounts:
        effect, name = rule["spec"]["taint"]["effect"], rule["metadata"]["name"]
        evicted = self._evicted.get(name, 0)
        if effect not in (NO_EXECUTE, "None"):
            return RuleCounts(evicted=evicted)
        # None: what would be if it were NoExecute
        taint = {**rule["spec"]["taint"], "effect": NO_EXECUTE}
        meant = {name: {**rule, "spec": {**rule["spec"], "taint": taint}}}
        pods: set[tuple[str, str]] = set()
        allocated = 0
        for device, keys in self._claims.items():
            if not selects(rule, device):
                continue
            for key in keys:
                allocated += 1
                claim = self.registry.get(*key)
                if claim is not None and eviction_of(claim, DeviceTaintPools(), meant) is not None:
                    pods |= {(key[1], pod["metadata"]["uid"]) for pod in self._consumers(claim) if _stays(pod)}
        published = sum(selects(rule, device) for device in self._pools.devices())
        return RuleCounts(len(pods), len({namespace for namespace, _ in pods}), evicted, published, allocated)


def _targeted(pod: Json, now: str) -> Json:
    status = pod.get("status") or {}
    return {**pod, "status": {**status, "conditions": with_conditions(status, now, {"DisruptionTarget": _TARGET})}}


def _stays(pod: Json) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and (pod.get("status") or {}).get("phase") not in _ENDED
