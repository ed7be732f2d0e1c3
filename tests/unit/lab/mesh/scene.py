"""A small cluster of unlike nodes, and pods of a few workloads that come one after the other; none leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from msgspec.structs import replace

from lab.mesh.regret import RegretJudge
from lab.mesh.world import Agents, MeshWorld
from services.coordinator.core.events import NodeSample, NodesMeasured
from services.coordinator.core.state import CoreSettings
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.resources import CPU, GPU_MILLI, MEMORY
from shared.policy.frag.view import GPU_MODEL_LABEL
from shared.policy.observation import Policy
from shared.wire.records import PolicyRef
from tests.builders import make_node, make_pod

NODES, WORKLOADS = 12, 6


def unlike_nodes(*, gpus: bool = False, pools: Sequence[str] = ()) -> list[Node]:
    """No two alike; of several latencies, and with GPUs of two models where told. ``pools``: of the nodes in turn, one
    in each turn is in none."""
    found = []
    for number in range(NODES):
        cpu, memory = 8000 + 137 * number * (1 + 2 * (number % 2)), 16_000 + 911 * (number * 5 % NODES)
        node = make_node(f"n{number:02}").allocatable(cpu=f"{cpu}m", memory=f"{memory}Mi", pods="110")
        if gpus and number % 3:
            node = node.label(**{GPU_MODEL_LABEL: "A" if number < NODES // 2 else "B"})
            node.json["status"]["allocatable"][GPU_MILLI] = "8000" if number % 2 else "4000"
        if pools and (turn := number % (len(pools) + 1)):
            node = node.label(pool=pools[turn - 1])
        found.append(replace(node.node(), latency_us=5000 * (number * 7 % NODES)))
    return found


def pod_of(number: int, rng: Random, *, gpus: bool = False) -> Pod:
    """One of ``WORKLOADS``, some of which bear limits of latency."""
    kind = rng.randrange(WORKLOADS)
    made = make_pod(f"p{number}").cpu(f"{250 * (1 + kind % 4)}m").memory(f"{256 * (1 + kind * 3 % 4)}Mi")
    made.json["metadata"]["labels"] = {"app": f"w{kind}"}
    if gpus and kind % 3:
        made.json["spec"]["containers"][0]["resources"]["requests"][GPU_MILLI] = str((250, 1000)[kind % 2])
    pod = made.pod()
    if kind % 2:
        return pod
    return replace(pod, pod_class=replace(pod.pod_class, latency_soft_us=20_000, latency_hard_us=30_000))


def sample_of(rng: Random, node: Node) -> NodeSample:
    """Any use, a few seconds old; of one node in four without its memory."""
    cpu, memory = (round(node.allocatable[name] * rng.random()) for name in (CPU, MEMORY))
    told = None if rng.random() < 0.25 else memory
    return NodeSample(node.name, 7 * rng.random(), cpu, told, rng.random(), rng.random(), source="sensor")


def lost_by(
    agents: str, make: Callable[[], Policy], ref: PolicyRef, *, seed: int, pods: int = 60, gpus: bool = False,
    settings: CoreSettings | None = None, measured: bool = False, pools: Sequence[str] = (),
) -> list[float]:  # fmt: skip
    """What each placement lost against one decider that sees all nodes (``lab.mesh.regret``). ``measured``: of every
    third node after every fifth pod, whatever its requests. ``pools``: half-way each node gets the labels of the next
    one."""
    nodes = unlike_nodes(gpus=gpus, pools=pools)
    world = MeshWorld(nodes, Agents.parse(agents), make, ref, seed=seed, settings=settings)
    judge, rng, lost = RegretJudge(world, make), Random(seed), list[float]()
    for number in range(pods):
        world.add([pod_of(number, rng, gpus=gpus)])
        world.rest(for_s=1.0)
        lost += judge.lost()
        if pools and number == pods // 2:
            for node, after in zip(nodes, nodes[1:] + nodes[:1], strict=True):
                world.change(replace(node, labels=after.labels))
            world.rest()
        if measured and number % 5 == 4:
            world.tell(NodesMeasured(tuple(sample_of(rng, node) for node in nodes[number // 5 % 3 :: 3])))
            world.rest()
    assert len(lost) == pods
    return lost
