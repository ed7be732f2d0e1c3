"""The experiment on openb's GPU nodes through a mesh: pods come one by one until 130 % of all GPUs are asked for.

Nobody tells the mesh the pod list's frequencies: ``fgd`` and ``frag`` go by the demand that its coordinator counts.
"""

from __future__ import annotations

import numpy as np

from lab.mesh.placement import NamedPolicy
from lab.mesh.world import Agents
from shared.model.constraints import PodClass, Requirement, SelectorTerm
from shared.model.gpu import ANY_MODEL, GpuRequest, pick_devices
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.power import PWR
from shared.model.resources import CPU, GPU_MILLI, MEMORY, MILLI_PER_DEVICE, PODS
from shared.policy.frag.view import GPU_MODEL_LABEL, MIB
from shared.policy.rehearsal.episode import NO_NODE, RehearsedEpisode
from shared.policy.rehearsal.rehearsal import RehearsalTrace
from shared.policy.rehearsal.submission import GpuNodes, submission

PODS_EACH = 1000
"""No node is full of pods before it is full of what they ask for."""


def nodes_of(nodes: GpuNodes) -> list[Node]:
    """The trace's nodes as the cluster shows them."""
    states, models = nodes.states, {code: model for model, code in nodes.models.items()}
    found = []
    for index, name in enumerate(nodes.names):
        amounts = {CPU: int(states.cpu_total[index]), MEMORY: int(states.memory_total[index]) * MIB, PODS: PODS_EACH}
        amounts[GPU_MILLI] = int(states.devices[index]) * MILLI_PER_DEVICE
        labels = {GPU_MODEL_LABEL: models[int(states.model[index])]}
        found.append(Node(name=name, labels=labels, allocatable=amounts))
    return found


def class_of(request: GpuRequest, nodes: GpuNodes) -> PodClass:
    """The request as a pod class."""
    amounts = {CPU: request.cpu, GPU_MILLI: request.gpu, MEMORY: request.memory * MIB}
    terms = None
    if request.models != ANY_MODEL:
        named = tuple(model for model, code in nodes.models.items() if request.models >> code & 1)
        terms = (SelectorTerm(expressions=(Requirement(GPU_MODEL_LABEL, "In", named),)),)
    return PodClass(
        requests=tuple(sorted((name, amount) for name, amount in amounts.items() if amount)),
        score_cpu_millis=request.cpu,
        score_memory_bytes=request.memory * MIB,
        affinity_terms=terms,
    )


def episode(trace: RehearsalTrace, policy: NamedPolicy, agents: Agents, seed: int) -> RehearsedEpisode:
    """What happened, as the experiment by one decider tells it; no fragment. Nodes draw by PWR's figures."""
    nodes, pods = trace.nodes, trace.pods
    world = policy.world(nodes_of(nodes), agents, seed, power=PWR)
    number, free = {name: row for row, name in enumerate(nodes.names)}, nodes.states.free.copy()
    classes = [class_of(request, nodes) for request in pods.classes]
    rows = submission(pods, nodes.capacity, seed)
    placed, devices, milli = np.full(len(rows), NO_NODE, np.int64), list[tuple[int, ...]](), 0
    allocated = np.zeros(len(rows), np.int64)
    for order, row in enumerate(rows.tolist()):
        which = int(pods.of[row])
        uid, request, used = f"uid-{order}", pods.classes[which], tuple[int, ...]()
        world.add([Pod(uid, "default", uid, "", classes[which], scheduler_name="conclave", workload="openb")])
        world.rest()
        if name := world.node_of(uid):
            node = placed[order] = number[name]
            used = pick_devices(free[node].tolist(), request.gpu)  # as the mesh's accounting does
            for device in used:
                free[node, device] -= request.milli
            milli += request.gpu
        else:
            world.remove(uid)  # the experiment submits a pod once
        devices.append(used)
        allocated[order] = milli
    arrived = np.cumsum(pods.gpu[rows])
    return RehearsedEpisode(seed, rows, placed, tuple(devices), allocated, arrived, nodes.capacity, float("nan"))


def allocated(trace: RehearsalTrace, policy: NamedPolicy, agents: Agents, seed: int) -> float:
    """Percent of all GPU thousandths that pods hold in the end."""
    return episode(trace, policy, agents, seed).allocation()
