"""The audit's book of one cluster: which pods count on which node, and which rules an addition breaks.

Pure and slow on purpose (see ``audit_rules``). It keeps usage by node *name*: pods stay counted while a node is deleted
and comes back. Nothing is repaired: a device named twice is counted twice and reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lab.audit.rules import (
    GPU_DEVICES_ANNOTATION,
    MILLI_PER_DEVICE,
    Amounts,
    AuditedPodFacts,
    NodeFacts,
    add,
    lends,
    named_devices,
    ports_clash,
    refusal,
)

ELIGIBILITY_GRACE_S = 2.0
"""A label or taint that changed so shortly before a bind may not have been seen yet by anybody; source: our own choice,
twice the longest watch delay measured on a loaded 2-core machine. So may a pod that has grown in place."""


@dataclass(slots=True)
class NodeBook:
    """What counts on one node name. ``facts`` is None while the node does not exist."""

    facts: NodeFacts | None = None
    before: NodeFacts | None = None
    changed_s: float = 0.0
    used: Amounts = field(default_factory=dict)
    pods: dict[str, AuditedPodFacts] = field(default_factory=dict)
    devices: dict[int, int] = field(default_factory=dict)
    shares: dict[str, dict[int, int]] = field(default_factory=dict)
    grown: list[tuple[float, str, Amounts]] = field(default_factory=list)
    """When a pod that stands here has come to count more, which, and by how much; the latest last."""

    def change(self, facts: NodeFacts | None, time_s: float) -> None:
        """The node was created, changed or (None) deleted."""
        if facts != self.facts:
            self.before, self.facts, self.changed_s = self.facts, facts, time_s

    def resize(self, uid: str, pod: AuditedPodFacts, time_s: float) -> None:
        """A pod that counts here counts something else now; who made it grow beyond the node is not judged."""
        known = self.pods.get(uid)
        if known is None or known.requests == pod.requests:
            return
        add(self.used, known.requests, -1)
        add(self.used, pod.requests)
        self.pods[uid] = pod
        more = {name: value - known.requests.get(name, 0) for name, value in pod.requests.items()}
        more = {name: value for name, value in more.items() if value > 0}
        lately = [one for one in self.grown if time_s - one[0] <= ELIGIBILITY_GRACE_S]
        self.grown = [*lately, (time_s, uid, more)] if more else [one for one in lately if one[1] != uid]

    def _unseen(self, time_s: float) -> Amounts:
        """By how much pods that stand here have grown that lately."""
        unseen: Amounts = {}
        for at_s, uid, more in self.grown:
            if time_s - at_s <= ELIGIBILITY_GRACE_S and uid in self.pods:
                add(unseen, more)
        return unseen

    def add(
        self, uid: str, pod: AuditedPodFacts, annotations: dict[str, str], time_s: float
    ) -> Iterator[tuple[str, str]]:
        """Count a pod; yields (check, what is wrong) for what its being here breaks of capacity."""
        if uid in self.pods:
            return
        clash = any(ports_clash(pod.ports, other.ports) for other in self.pods.values())
        self.pods[uid] = pod
        add(self.used, pod.requests)
        self.used["pods"] = self.used.get("pods", 0) + 1
        if clash:
            yield "misplaced", "its host port is taken there"
        offered = self.facts.allocatable if self.facts else {}
        unseen = self._unseen(time_s)
        for name in [*pod.requests, "pods"]:
            if name in pod.by_claim and not offered.get(name):
                continue
            has = offered.get(name, 0)
            if lends(name):  # what is lent is lowered at any moment: who did not see it yet is not to blame
                has = max(facts.allocatable.get(name, 0) for facts in self.seen(time_s)) if self.seen(time_s) else 0
            if self.used[name] - unseen.get(name, 0) > has:
                yield "overlent" if lends(name) else "overcommitted", f"{name}: {self.used[name]} used of {has}"
        yield from self._add_devices(uid, pod, annotations)

    def _add_devices(self, uid: str, pod: AuditedPodFacts, annotations: dict[str, str]) -> Iterator[tuple[str, str]]:
        milli = pod.gpu_milli
        if not milli:
            return
        try:
            devices = named_devices(annotations.get(GPU_DEVICES_ANNOTATION))
        except ValueError as error:
            yield "gpu", str(error)
            return
        if devices is None:
            yield "gpu", f"it asks for {milli} thousandths of a GPU but names no device"
            return
        whole = milli >= MILLI_PER_DEVICE
        if whole and milli != len(devices) * MILLI_PER_DEVICE:
            yield "gpu", f"it asks for {milli} thousandths but names {len(devices)} devices"
        if not whole and len(devices) != 1:
            yield "gpu", f"a share of one device is spread over {len(devices)}"
        count = self.facts.devices if self.facts else 0
        share = MILLI_PER_DEVICE if whole else milli
        self.shares[uid] = dict.fromkeys(devices, share)
        for device in devices:
            self.devices[device] = self.devices.get(device, 0) + share
            if device >= count:
                yield "gpu", f"device {device} of {count}"
            elif self.devices[device] > MILLI_PER_DEVICE:
                yield "gpu", f"device {device} carries {self.devices[device]} of {MILLI_PER_DEVICE}"

    def remove(self, uid: str) -> None:
        """The pod finished or is gone."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        add(self.used, pod.requests, -1)
        self.used["pods"] -= 1
        for device, share in self.shares.pop(uid, {}).items():
            self.devices[device] -= share

    def seen(self, time_s: float) -> list[NodeFacts]:
        """The node as anybody may have seen it at that time: as it is, and as it was where it changed only just."""
        seen = [self.facts]
        if time_s - self.changed_s <= ELIGIBILITY_GRACE_S:
            seen.append(self.before)
        return [facts for facts in seen if facts is not None]

    def placement_error(self, pod: AuditedPodFacts, time_s: float) -> str:
        """Why a pod bound now should not be here by selector, affinity or taint; empty when it may."""
        errors = [refusal(pod, facts) for facts in self.seen(time_s)] or ["a node that does not exist"]
        return errors[0] if all(errors) else ""

    def admits(self, pod: AuditedPodFacts) -> bool:
        """Whether one more such pod fits as things are."""
        facts = self.facts
        if facts is None or refusal(pod, facts):
            return False
        for name, asked in [*pod.requests.items(), ("pods", 1)]:
            if self.used.get(name, 0) + asked > facts.allocatable.get(name, 0):
                return False
        if any(ports_clash(pod.ports, other.ports) for other in self.pods.values()):
            return False
        return self._admits_devices(pod.gpu_milli, facts.devices)

    def _admits_devices(self, milli: int, count: int) -> bool:
        if milli >= MILLI_PER_DEVICE:
            free = sum(1 for device in range(count) if not self.devices.get(device, 0))
            return milli % MILLI_PER_DEVICE == 0 and free >= milli // MILLI_PER_DEVICE
        return milli == 0 or any(self.devices.get(device, 0) + milli <= MILLI_PER_DEVICE for device in range(count))
