"""openb asked for by ResourceClaims in place of conclave.io/gpu-milli: is as much of the GPUs allocated?

    .venv/bin/python -m bench.policies.frag_claims [POLICY] [TRACE] [SEED] [--first-fit]

Each node's GPUs are a pool of shareable devices with a consumable capacity of 1,000 thousandths; a pod claims so many
thousandths of so many devices. The mesh's own parts place both: node table, filters, rules of devices, ranker, policy.
Prints the percentage of GPUs allocated at 130 % demand either way, on how many pods node and device differ, and the CPU
time per pod. ``--first-fit``: devices are given in kube-scheduler's order instead of the fullest first.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from lab.mesh.openb import class_of, nodes_of
from lab.traces.gpu_trace import parse_gpu_nodes, parse_gpu_pods
from shared.model.constraints import NO_NORMS, PodClass
from shared.model.devices import (
    NANO,
    Allocation,
    Capacity,
    ClaimRef,
    Device,
    DeviceAsk,
    DeviceClaim,
    DeviceClass,
    DevicePod,
    DeviceRequest,
    DeviceSlice,
    Reach,
    RequestPolicy,
)
from shared.model.gpu import GpuRequest
from shared.model.gpu_shares import DEFAULT
from shared.model.node import Node
from shared.model.resources import GPU_MILLI
from shared.policy.frag.policy import GpuPolicy
from shared.policy.ranking import Ranker
from shared.policy.registry import make_policy
from shared.policy.rehearsal.submission import GpuNodes, submission
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.devices.cel.selectors import Selectors
from shared.scheduling.devices.dynamic_resources import Devices, PodDevices
from shared.scheduling.devices.inventory import Inventory
from shared.scheduling.devices.search.wanted import NodeOffer
from shared.scheduling.devices.shares import asked_shares, free_shares
from shared.scheduling.state.node_table import NodeTable
from shared.scheduling.state.releases import Release

DATA = Path(os.environ.get("CONCLAVE_SHARED", "../shared")) / "data" / "openb"
DRIVER, SHARE, CLASS = "gpu.example.com", "share", "gpu"
NOWHERE = ("", ())
Placed = tuple[str, tuple[int, ...]]
"""Node and devices."""


class PlayedCluster(NamedTuple):
    """``allocated``: percent of all GPUs; ``placed``: by pod."""

    allocated: float
    placed: list[Placed]
    cpu_ms: float


def _table(nodes: GpuNodes) -> NodeTable:
    table = NodeTable(len(nodes.names))
    for node in nodes_of(nodes):
        table.upsert(node)
    return table


def by_amount(
    nodes: GpuNodes, classes: list[GpuRequest], policy: GpuPolicy
) -> tuple[NodeTable, Callable[[int], Placed]]:
    """Pods ask by conclave.io/gpu-milli."""
    table = _table(nodes)
    ranker = Ranker(table, FeasibilityCache(table), policy, random.Random(0))
    kinds = [class_of(request, nodes) for request in classes]

    def place(which: int) -> Placed:
        slots = ranker.slots(kinds[which], 1, extra=0)
        if not slots:
            return NOWHERE
        devices = table.pick_devices(slots[0].row, classes[which].gpu)
        table.add_usage(slots[0].row, kinds[which], devices)
        return table.names[slots[0].row], devices

    return table, place


def by_claim(
    nodes: GpuNodes, classes: list[GpuRequest], policy: GpuPolicy, *, first_fit: bool
) -> tuple[NodeTable, Callable[[int], Placed]]:
    """Pods claim devices."""
    table = _table(nodes)
    inventory = Inventory()
    inventory.classes[CLASS] = gpu_class()
    there: list[Node] = []
    for index, node in enumerate(table.nodes[: table.rows]):
        assert node is not None
        plain = Node(node.name, labels=node.labels, allocatable={**node.allocatable, GPU_MILLI: 0})
        table.upsert(plain)
        there.append(plain)
        inventory.put_slice(slice_of(node.name, int(nodes.states.devices[index])))
    devices = Devices(inventory, Selectors(), fullest_first=not first_fit)
    for row, node in enumerate(there):
        table.set_claimed(row, free_shares(inventory.of(node).pools, inventory.usage, DEFAULT))
    ranker = Ranker(table, FeasibilityCache(table), policy, random.Random(0))
    widest = there[int(np.argmax(nodes.states.devices))]
    kinds: list[PodClass] = []
    claims: list[DeviceClaim] = []
    for number, request in enumerate(classes):
        claims.append(claim_of(f"c{number}", request.devices, request.milli))
        offer = NodeOffer(
            inventory.of(widest).pools, inventory.usage, devices.selectors, inventory.classes, Release.V1_38,
            widest.name, widest.labels,
        )  # fmt: skip
        without = class_of(GpuRequest(request.cpu, request.memory, 0, 0, request.models), nodes)
        kinds.append(replace(without, claimed=asked_shares(offer, [claims[-1]], DEFAULT)))
    taken = 0

    def place(which: int) -> Placed:
        nonlocal taken
        taken += 1
        claim, kind = claims[which], kinds[which]
        if not claim.requests:
            slots = ranker.slots(kind, 1, extra=0)
            if not slots:
                return NOWHERE
            table.add_usage(slots[0].row, kind, ())
            return table.names[slots[0].row], ()
        inventory.put_claim(claim)
        pod = DevicePod("ns", f"p{taken}", f"p{taken}", (ClaimRef("r", claim.name),))
        prepared = devices.prepare(pod, 0.0)
        assert isinstance(prepared, PodDevices)
        allowed = np.flatnonzero(ranker.feasibility.of(kind).mask & prepared.mask(there))
        if not len(allowed):
            return NOWHERE
        (slot,) = ranker.guided(kind, 1, allowed, np.zeros(table.rows), norms=NO_NORMS)
        node = there[slot.row]
        ((_, given),) = prepared.allocations(node, lambda: f"share-{taken}")
        inventory.count(given)
        table.add_usage(slot.row, kind, ())
        table.set_claimed(slot.row, free_shares(inventory.of(node).pools, inventory.usage, DEFAULT))
        return node.name, numbers_of(given)

    return table, place


def gpu_class() -> DeviceClass:
    """All of the driver's devices."""
    return DeviceClass(CLASS, (f'device.driver == "{DRIVER}"',))


def claim_of(name: str, devices: int, milli: int) -> DeviceClaim:
    """For so many thousandths of so many devices."""
    ask = DeviceAsk("r", CLASS, count=devices, capacity=((SHARE, milli * NANO),))
    return DeviceClaim("ns", name, name, (DeviceRequest("r", ask),) if devices else ())


def slice_of(node: str, devices: int) -> DeviceSlice:
    """A node's GPUs."""
    policy = RequestPolicy(default=1000 * NANO, least=NANO, step=NANO, ranged=True)
    capacity = ((SHARE, Capacity(1000 * NANO, policy)),)
    every = tuple(Device(f"gpu-{i}", capacity=capacity, shareable=True) for i in range(devices))
    return DeviceSlice(f"{node}-gpu", DRIVER, node, 1, 1, Reach(node), devices=every)


def numbers_of(given: Allocation) -> tuple[int, ...]:
    """Which devices those are."""
    return tuple(int(result.device.rpartition("-")[2]) for result in given.results)


def played(
    rows: list[int], of: list[int], classes: list[GpuRequest], place: Callable[[int], Placed], capacity: int
) -> PlayedCluster:
    """Everything placed one by one."""
    allocated, placed, started = 0, [], time.process_time()
    for row in rows:
        placed.append(place(of[row]))
        allocated += classes[of[row]].gpu if placed[-1] != NOWHERE else 0
    spent = time.process_time() - started
    return PlayedCluster(100 * allocated / capacity, placed, 1e3 * spent / len(rows))


def main() -> None:
    """Play one list both ways and print what differs."""
    given = [one for one in sys.argv[1:] if not one.startswith("-")]
    name, trace, seed = (given + ["frag", "default", "500"][len(given) :])[:3]
    nodes = parse_gpu_nodes((DATA / "openb_node_list_gpu_node.csv").read_text(), "nodes")
    pods = parse_gpu_pods((DATA / f"openb_pod_list_{trace}.csv").read_text(), trace, nodes)
    classes, of = list(pods.classes), [int(one) for one in pods.of]
    rows = submission(pods, nodes.capacity, int(seed)).tolist()
    results = []
    for ask in ("amount", "claim"):
        policy = make_policy(name)
        assert isinstance(policy, GpuPolicy)
        if ask == "amount":
            _, place = by_amount(nodes, classes, policy)
        else:
            _, place = by_claim(nodes, classes, policy, first_fit="--first-fit" in sys.argv)
        results.append(played(rows, of, classes, place, nodes.capacity))
        print(f"{name} on {trace}, seed {seed}, by {ask}: {results[-1].allocated:.2f} % allocated,", end=" ")
        print(f"{len(rows)} pods, {results[-1].cpu_ms:.2f} ms of CPU each", flush=True)
    first, second = results
    other_node = sum(a[0] != b[0] for a, b in zip(first.placed, second.placed, strict=True))
    other_device = sum(a != b for a, b in zip(first.placed, second.placed, strict=True)) - other_node
    print(f"difference {second.allocated - first.allocated:+.2f} points; {other_node} pods on another node,", end=" ")
    print(f"{other_device} on another device of the same")


if __name__ == "__main__":
    main()
