"""What the API server is sent: nodes of eight GPUs, the pods that fill them, and those that want their room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.gangs import load
from bench.stand.cluster import LOW, URGENT

Json = dict[str, Any]

GPU, GPUS = "nvidia.com/gpu", 8
PLAIN, GANGS, RECLAIM = SCENES = ("plain", "gangs", "reclaim")
MEMBERS = 4
"""Of each gang of ``gangs``."""
QUEUE_LABEL = "conclave.io/queue"
LENDER, BORROWER = "bench-lender", "bench-borrower"


def node(number: int) -> Json:
    """A ready node of eight GPUs."""
    made = load.node(number)
    made["status"]["capacity"] = made["status"]["allocatable"] = {**load.NODE, GPU: str(GPUS)}
    return made


def pod(name: str, priority: int, *, in_group: str = "", queue: str = "") -> Json:
    """A pod of one GPU."""
    made = load.pod(name, in_group=in_group, app="bench")
    made["spec"]["priority"] = priority
    amounts = {"cpu": "100m", "memory": "128Mi", GPU: "1"}
    made["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": {GPU: "1"}}
    if queue:
        made["metadata"]["labels"][QUEUE_LABEL] = queue
    return made


def standing(nodes: int) -> Iterator[Json]:
    """Pods of low priority that fill so many nodes, and are bound to them; where there are Queues they borrow."""
    for number in range(nodes):
        for place in range(GPUS):
            made = pod(f"low-{number:05}-{place}", LOW, queue=BORROWER)
            made["spec"]["nodeName"] = f"node-{number:05}"
            yield made


def wanting(scene: str, prefix: str, many: int) -> Iterator[tuple[str, Json]]:
    """(the gang's name, "" of a lone pod; the pod) of so many that find no room."""
    if scene == RECLAIM:
        yield from (("", pod(f"{prefix}-{number:06}", LOW, queue=LENDER)) for number in range(many))
        return
    for number in range(many):
        gang = f"{prefix}-{number // MEMBERS:05}" if scene == GANGS else ""
        yield gang, pod(f"{prefix}-{number:06}", URGENT, in_group=gang)


def queues(nodes: int) -> list[Json]:
    """One to which every GPU is guaranteed, and one that has borrowed them."""
    own = {GPU: str(nodes * GPUS)}
    specs: dict[str, Json] = {LENDER: {"guaranteed": own, "reclaim": {"enabled": True}}, BORROWER: {}}
    return [
        {"apiVersion": "conclave.io/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        for name, spec in specs.items()
    ]


group = load.group
