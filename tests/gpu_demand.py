"""A demand that the learned value of ``frag`` places worse than FGD does, and machines for it."""

from __future__ import annotations

from shared.model.constraints import PodClass
from shared.scheduling.state.cache import ClusterCache
from tests.builders import NodeBuilder, PodBuilder, make_node, make_pod
from tests.small_trace import MACHINES

BULK = ((4, 16, 1000), (2, 8, 250), (88, 320, 8000), (16, 64, 0), (32, 128, 4000))
"""Cores, GiB, thousandths of a GPU: five kinds in equal numbers; in openb shares and single GPUs prevail."""
OPENB = (
    (3152, 5600, 810, 1047), (11300, 49152, 1000, 857), (11400, 48128, 1000, 534), (3152, 5600, 1000, 470),
    (11908, 47104, 470, 388), (12500, 57344, 0, 364), (8000, 30517, 470, 360), (32000, 49152, 0, 284),
    (18708, 64512, 1000, 255), (11908, 47104, 650, 237), (9810, 41560, 1000, 195), (8000, 30517, 0, 163),
)  # fmt: skip
"""Milli-cores, MiB, thousandths of a GPU, how many: the twelve most frequent kinds of openb's default list."""
MODEL, GPU = "conclave.io/gpu-model", "conclave.io/gpu-milli"


def pod_of(cpu: float, memory: float, milli: int, name: str = "pod") -> PodBuilder:
    """A pod that asks for so many cores, GiB and thousandths of a GPU."""
    pod = make_pod(name).cpu(f"{round(cpu * 1000)}m").memory(f"{round(memory * 1024)}Mi")
    if milli:
        resources = pod.gpu_milli(milli).json["spec"]["containers"][0]["resources"]
        resources["limits"] = {GPU: resources["requests"][GPU]}
    return pod


def bulk_pod(number: int) -> PodBuilder:
    """A pod of one of the kinds."""
    return pod_of(*BULK[number % len(BULK)], name=f"p{number}")


def openb_demand() -> dict[PodClass, int]:
    """How many of each of openb's kinds."""
    found = {}
    for cpu, memory, milli, count in OPENB:
        found[pod_of(cpu / 1000, memory / 1024, milli).pod().pod_class] = count
    return found


def machine(number: int) -> NodeBuilder:
    """A node as openb has them."""
    cpu, memory, gpus, model = MACHINES[number % len(MACHINES)]
    node = make_node(f"n{number}").allocatable(cpu=f"{cpu}m", memory=f"{memory}Mi", pods="250")
    return node.gpus(gpus).label(**{MODEL: model})


def machines(count: int) -> ClusterCache:
    """So many of them."""
    cache = ClusterCache()
    for number in range(count):
        cache.upsert_node(machine(number).node())
    return cache
