"""CPU of DynamicResources' Filter for one pod over all nodes: 500 nodes with 8 like devices each, one selector. No I/O.

    .venv/bin/python -m bench.parts.devices [NODES] [DEVICES]

CPU time, median of RUNS. "class seen": claims like these were judged before on nodes like these, and one node's device
was given away since (the last pod's); "new class": a selector never compiled before. "all differ": no two nodes have
the same devices in use, so that no answer of one serves another. "no choice": constraints that nothing satisfies, 128
devices a node; the search is bounded by steps. Goals at 500 nodes of 8: new class 5 ms, class seen 100 us.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator

from bench.stand.contest import whole_number
from shared.model.devices import (
    AllocatedDevice,
    Allocation,
    AttributeConstraint,
    Capacity,
    ClaimRef,
    Device,
    DeviceAsk,
    DeviceAttribute,
    DeviceClaim,
    DeviceClass,
    DevicePod,
    DeviceRequest,
    DeviceSlice,
    Reach,
    nanos_of,
)
from shared.model.node import Node
from shared.scheduling.devices.cel.selectors import Selectors
from shared.scheduling.devices.dynamic_resources import Devices, PodDevices
from shared.scheduling.devices.inventory import Inventory

RUNS = 200
DRIVER = "gpu.example.com"


def slice_of(node: str, devices: int) -> DeviceSlice:
    """One node's GPUs, alike but for their index, which no two of a node share."""
    return DeviceSlice(
        f"{node}-gpu", DRIVER, node, 1, 1, Reach(node),
        devices=tuple(
            Device(
                f"gpu-{i}",
                (("index", DeviceAttribute("int", i)), ("model", DeviceAttribute("string", "H100"))),
                (("memory", Capacity(nanos_of("80Gi"))),),
            )
            for i in range(devices)
        ),
    )  # fmt: skip


def cluster(nodes: list[Node], devices: int) -> Devices:
    """Nodes with GPUs, none of which is in use."""
    inventory = Inventory()
    inventory.classes["gpu"] = DeviceClass("gpu", (f'device.driver == "{DRIVER}"',))
    for node in nodes:
        inventory.put_slice(slice_of(node.name, devices))
    return Devices(inventory, Selectors())


def claiming(
    devices: Devices, number: int, ask: DeviceAsk, constraints: tuple[AttributeConstraint, ...] = ()
) -> DevicePod:
    """A pod whose claim, made from a template, is there."""
    claim = DeviceClaim("default", f"claim-{number}", f"uid-{number}", (DeviceRequest("r", ask),), constraints)
    devices.inventory.put_claim(claim)
    return DevicePod("default", f"pod-{number}", f"pod-{number}", (ClaimRef("r", claim.name),))


def filter_all(devices: Devices, pod: DevicePod, nodes: list[Node]) -> int:
    """PreFilter, and Filter on every node; how many take the pod."""
    prepared = devices.prepare(pod, 0.0)
    assert isinstance(prepared, PodDevices)
    return int(prepared.mask(nodes).sum())


def timed(run: Callable[[], int], expected: int) -> float:
    """CPU seconds of one run."""
    start = time.process_time()
    found = run()
    spent = time.process_time() - start
    assert found == expected, (found, expected)
    return spent


def give(devices: Devices, node: Node, device: int) -> None:
    """The device of a node is allocated to somebody."""
    devices.inventory.count(Allocation((AllocatedDevice("r", DRIVER, node.name, f"gpu-{device}"),)))


def model(number: int) -> DeviceAsk:
    """One GPU by a selector of its own."""
    text = f'device.attributes["{DRIVER}"].model == "H100" && device.attributes["{DRIVER}"].index < {1000 + number}'
    return DeviceAsk("r", "gpu", (text,))


def new_class(nodes: list[Node], devices: int) -> Iterator[float]:
    """A selector that nobody had before."""
    kept = cluster(nodes, devices)
    filter_all(kept, claiming(kept, 0, model(0)), nodes)
    for number in itertools.count(1):
        pod = claiming(kept, number, model(number))
        yield timed(lambda pod=pod: filter_all(kept, pod, nodes), len(nodes))  # type: ignore[misc]


def class_seen(nodes: list[Node], devices: int) -> Iterator[float]:
    """Another pod of the same template, after one more device was given."""
    kept = cluster(nodes, devices)
    for number in itertools.count():
        pod = claiming(kept, number, model(0))
        if number:
            give(kept, nodes[number % len(nodes)], 0)
        spent = timed(lambda pod=pod: filter_all(kept, pod, nodes), len(nodes))  # type: ignore[misc]
        if number:
            yield spent


def all_differ(nodes: list[Node], devices: int) -> Iterator[float]:
    """A new class on nodes each of which has other devices in use."""
    kept = cluster(nodes, devices)
    for number, node in enumerate(nodes):
        for device in range(1, devices):
            if number >> (device - 1) & 1:
                give(kept, node, device)
    for number in itertools.count():
        pod = claiming(kept, number, model(number))
        yield timed(lambda pod=pod: filter_all(kept, pod, nodes), len(nodes))  # type: ignore[misc]


def no_choice(nodes: list[Node]) -> Iterator[float]:
    """16 of 128 devices that must be of one root and of different groups, of which each root has 15."""
    inventory = Inventory()
    inventory.classes["gpu"] = DeviceClass("gpu")
    for index, node in enumerate(nodes):
        devices = tuple(
            Device(
                f"d{i}",
                (
                    ("group", DeviceAttribute("int", i // 2 % 15 + i % 2)),
                    ("root", DeviceAttribute("int", i % 2)),
                    ("serial", DeviceAttribute("int", 1000 * index + i)),
                ),
            )
            for i in range(128)
        )
        inventory.put_slice(DeviceSlice(node.name, DRIVER, node.name, 1, 1, Reach(node.name), devices=devices))
    kept = Devices(inventory, Selectors())
    constraints = (AttributeConstraint(f"{DRIVER}/group", distinct=True), AttributeConstraint(f"{DRIVER}/root"))
    for number in itertools.count():
        pod = claiming(kept, number, DeviceAsk("r", "gpu", count=16), constraints)
        yield timed(lambda pod=pod: filter_all(kept, pod, nodes), 0)  # type: ignore[misc]


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.parts.devices", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nodes", type=whole_number, nargs="?", default=500, help="(500)")
    parser.add_argument("devices", type=whole_number, nargs="?", default=8, help="of each node (8)")
    options = parser.parse_args()
    count, devices = options.nodes, options.devices
    nodes = [Node(f"node-{i}", labels={"zone": f"z{i % 3}"}) for i in range(count)]
    for name, runs, samples in (
        ("new class", RUNS, new_class(nodes, devices)),
        ("class seen", RUNS, class_seen(nodes, devices)),
        ("all differ, new class", RUNS // 10, all_differ(nodes, devices)),
        ("no choice", 1, no_choice(nodes)),
    ):
        spent = sorted(itertools.islice(samples, runs))
        print(f"{name}: {statistics.median(spent) * 1e6:.0f} us (best {spent[0] * 1e6:.0f}), {count} nodes")


if __name__ == "__main__":
    main()
