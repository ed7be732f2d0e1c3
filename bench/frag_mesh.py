"""Placement on openb by the mesh's own parts: node table, filters, ranker, and a policy that nobody told the demand.

    python bench/frag_mesh.py [POLICY] [TRACE] [SEED]

Prints the percentage of GPUs allocated at 130 % demand and the CPU time per pod, ranking and accounting included. The
experiment's figure for the same seed (conclave evaluate --trace) knows the pod list's frequencies; the mesh does not.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import os
import random
import sys
import time
from pathlib import Path

from lab.traces.gpu_trace import parse_gpu_nodes, parse_gpu_pods
from shared.model.constraints import PodClass, Requirement, SelectorTerm
from shared.model.gpu import ANY_MODEL, GpuRequest
from shared.model.node import Node
from shared.model.resources import CPU, GPU_MILLI, MEMORY, PODS
from shared.policy.frag.policy import MIB, GpuPolicy
from shared.policy.frag.view import GPU_MODEL_LABEL
from shared.policy.ranking import Ranker
from shared.policy.registry import make_policy
from shared.policy.rehearsal.submission import GpuNodes, submission
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.node_table import NodeTable

DATA = Path(os.environ.get("CONCLAVE_SHARED", "../shared")) / "data" / "openb"


def table_of(nodes: GpuNodes) -> NodeTable:
    """A node table with the trace's nodes."""
    table, states = NodeTable(len(nodes.names)), nodes.states
    models = {code: model for model, code in nodes.models.items()}
    for index, name in enumerate(nodes.names):
        amounts = {CPU: int(states.cpu_total[index]), MEMORY: int(states.memory_total[index]) * MIB, PODS: 1000}
        amounts[GPU_MILLI] = int(states.devices[index]) * 1000
        table.upsert(Node(name=name, labels={GPU_MODEL_LABEL: models[int(states.model[index])]}, allocatable=amounts))
    return table


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


def main() -> None:
    """Play one episode and print its figures."""
    name, trace, seed = (sys.argv[1:] + ["frag", "default", "500"][len(sys.argv) - 1 :])[:3]
    nodes = parse_gpu_nodes((DATA / "openb_node_list_gpu_node.csv").read_text(), "nodes")
    pods = parse_gpu_pods((DATA / f"openb_pod_list_{trace}.csv").read_text(), trace, nodes)
    table, policy = table_of(nodes), make_policy(name)
    assert isinstance(policy, GpuPolicy)
    ranker = Ranker(table, FeasibilityCache(table), policy, random.Random(int(seed)))
    classes = [class_of(request, nodes) for request in pods.classes]
    rows = submission(pods, nodes.capacity, int(seed)).tolist()
    allocated, started = 0, time.process_time()
    for row in rows:
        which = int(pods.of[row])
        slots = ranker.slots(classes[which], 1, extra=0)
        if slots:
            milli = pods.classes[which].gpu
            table.add_usage(slots[0].row, classes[which], table.pick_devices(slots[0].row, milli))
            allocated += milli
    spent = time.process_time() - started
    print(f"{name} on {trace}, seed {seed}: {100 * allocated / nodes.capacity:.2f} % allocated,", end=" ")
    print(f"{len(rows)} pods, {1e3 * spent / len(rows):.2f} ms of CPU each, {ranker.fallbacks} fallbacks")


if __name__ == "__main__":
    main()
