"""The demo's workload of gangs: two tenants, groups of 8 to 64 members that all run or none, some of them in one rack.

Everything is there at once and asks for several times what the nodes have, so gangs wait, run for a while and make
room. Same seed, same workload. ``Shares`` tells from audit entries alone how the tenants shared while both had work
waiting, against what their weights say exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

from lab.audit.log import LogEntry
from lab.audit.rules import pod_facts
from lab.traces.workload import Arrival, node_json, pod_json
from twin.model.usage import USAGE_ANNOTATION, UsageNow, UsageProfile

Json = dict[str, Any]

RACK = "topology.kubernetes.io/rack"
QUEUE = "conclave.io/queue"
TENANTS = {"research": 2, "product": 1}
"""Weights by tenant; each has a queue of its name."""
NODES, RACKS = 16, 4
NODE = {"cpu": "16", "memory": "64Gi", "pods": "110"}
GANGS, SMALLEST, LARGEST = 40, 8, 64
MEMBER = {"cpu": "1", "memory": "1Gi"}
RUN_S, RUN_SPREAD = 60.0, 0.3
"""Virtual seconds that a gang runs, and by which share of them one differs from another."""
IN_ONE_RACK = 4
"""Every so many-th gang of each tenant must be in one rack."""
SHARE_UNITS, SHARE_WITHIN = 1000, 0.02
"""After so many units shares are as the weights say, within so much."""
API_VERSION = "scheduling.k8s.io/v1alpha2"
QUEUE_KIND: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "queues.conclave.io"},
    "spec": {
        "group": "conclave.io",
        "scope": "Cluster",
        "names": {"kind": "Queue", "listKind": "QueueList", "plural": "queues", "singular": "queue"},
        "versions": [{
            "name": "v1alpha1", "served": True, "storage": True, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }],
    },
}  # fmt: skip
"""The kind alone; what a cluster gets (k8s/base/queues-crd.yaml) checks the fields as well."""


def gang_nodes(count: int) -> list[Json]:
    """Nodes in racks, one rack after the other; at least two in each, so that the largest gang finds a rack."""
    per_rack = max(1, -(-count // RACKS))
    return [node_json(f"node-{n:03d}", NODE, labels={RACK: f"rack-{n // per_rack}"}) for n in range(count)]


def rack_room(nodes: int) -> int:
    """Members that the smallest rack takes at once."""
    per_rack = max(1, -(-nodes // RACKS))
    return (nodes % per_rack or per_rack) * int(NODE["cpu"])


def queues() -> list[Json]:
    """One Queue per tenant."""
    return [
        {"apiVersion": "conclave.io/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": {"weight": weight}}
        for name, weight in TENANTS.items()
    ]


def gangs(rng: Random, *, count: int = GANGS, largest: int = LARGEST) -> tuple[list[Json], list[Arrival]]:
    """(pod groups, their members in the order of arrival). Members of a gang run equally long. Each tenant has as much
    to do for its weight as the others, and of the same kind."""
    groups: list[Json] = []
    members: list[Arrival] = []
    turn = [name for name, weight in TENANTS.items() for _ in range(weight)]
    made = dict.fromkeys(TENANTS, 0)
    for number in range(count):
        size, tenant = rng.randint(min(SMALLEST, largest), largest), turn[number % len(turn)]
        seconds = RUN_S * (1.0 + RUN_SPREAD * (2.0 * rng.random() - 1.0))
        name = f"{tenant}-{number:02d}"
        topology = "" if made[tenant] % IN_ONE_RACK else RACK
        made[tenant] += 1
        groups.append(group_json(name, size, tenant=tenant, topology=topology))
        used = UsageProfile(((0, UsageNow(cpu_millis=900, memory_bytes=2**29)),), seconds).to_json()
        for member in range(size):
            pod = pod_json(f"{name}-{member:02d}", MEMBER, labels={QUEUE: tenant}, annotations={USAGE_ANNOTATION: used})
            pod["spec"]["schedulingGroup"] = {"podGroupName": name}
            members.append(Arrival(0.0, pod))
    return groups, members


def group_json(name: str, minimum: int, *, tenant: str, topology: str = "") -> Json:
    """A PodGroup of Kubernetes' own API."""
    spec: Json = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    if topology:
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    metadata = {"name": name, "namespace": "default", "labels": {QUEUE: tenant}}
    return {"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": spec}


@dataclass(slots=True)
class _Tenant:
    waiting: int = 0
    used: int = 0
    integral: float = 0.0


class Shares:
    """Feed every audit entry in order. ``weights``: of each tenant, by the queue that its pods' label names."""

    def __init__(self, weights: dict[str, int]) -> None:
        self._weights = weights
        self._tenants = {name: _Tenant() for name in weights}
        self._pods: dict[str, tuple[str, str, int]] = {}
        """By uid: tenant, ``waiting`` or ``running``, milli-cores."""
        self._units: set[str] = set()
        """Those that began to run while all tenants had work waiting."""
        self._last_s = 0.0
        self._seconds = 0.0

    def feed(self, entry: LogEntry) -> None:
        """Take one accepted change into account."""
        if entry.kind != "Pod":
            return
        tenant = (entry.object["metadata"].get("labels") or {}).get(QUEUE, "")
        if tenant not in self._tenants:
            return
        self._pass(entry.time_s)
        known = self._pods.pop(entry.uid, None)
        if known is not None:
            self._count(known, -1)
        spec, status = entry.object.get("spec") or {}, entry.object.get("status") or {}
        if entry.gone or status.get("phase") in ("Succeeded", "Failed"):
            return
        cpu = pod_facts(entry.object).requests.get("cpu", 0) if known is None else known[2]
        now = (tenant, "running" if spec.get("nodeName") else "waiting", cpu)
        if now[1] == "running" and known is not None and known[1] == "waiting" and self._contended:
            self._units.add((spec.get("schedulingGroup") or {}).get("podGroupName") or entry.uid)
        self._pods[entry.uid] = now
        self._count(now, 1)

    def _count(self, pod: tuple[str, str, int], sign: int) -> None:
        tenant = self._tenants[pod[0]]
        if pod[1] == "waiting":
            tenant.waiting += sign
        else:
            tenant.used += sign * pod[2]

    @property
    def _contended(self) -> bool:
        return all(tenant.waiting for tenant in self._tenants.values())

    def _pass(self, time_s: float) -> None:
        if self._contended:
            took_s = time_s - self._last_s
            self._seconds += took_s
            for tenant in self._tenants.values():
                tenant.integral += tenant.used * took_s
        self._last_s = time_s

    def figures(self) -> dict[str, Any]:
        """Per tenant its share of what both used while both had work waiting, and the exact one by weight."""
        whole, weights = sum(tenant.integral for tenant in self._tenants.values()), sum(self._weights.values())
        found: dict[str, Any] = {"seconds": round(self._seconds, 2), "units": len(self._units)}
        for name, tenant in self._tenants.items():
            exact = float(Fraction(self._weights[name], weights))
            found[name] = {"share": round(tenant.integral / whole, 4) if whole else 0.0, "exact": round(exact, 4)}
        return found


def unfair(shares: Mapping[str, Any]) -> list[str]:
    """Which tenants had another share than their weight says, once there were units enough to tell."""
    if shares.get("units", 0) < SHARE_UNITS:
        return []
    return [
        f"share of {name} is {share['share']:.1%} after {shares['units']} units, must be {share['exact']:.1%} within "
        f"{SHARE_WITHIN * 100:g} points"
        for name, share in shares.items()
        if isinstance(share, dict) and abs(share["share"] - share["exact"]) > SHARE_WITHIN
    ]


def gang_rows(figures: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Rows of the final table (name, value) from the demo's JSON."""
    took = figures["gang_bind_ms"]
    rows = [
        ("gangs whole, broken, in part",
         f"{figures['gangs_whole']} of {figures['gangs']}, {figures['gangs_broken']}, {figures['gangs_partial']}"),
        ("gangs outside their rack", str(figures["gangs_scattered"])),
        ("first to last bind of a gang", f"p50 {took['p50']:.0f} ms, p99 {took['p99']:.0f} ms"),
    ]  # fmt: skip
    shares = figures.get("shares") or {}
    for name, share in shares.items():
        if isinstance(share, dict):
            rows.append((f"share of {name}", f"{share['share']:.1%}, exactly {share['exact']:.1%}"))
    return rows
