"""No growth into pending pods, nor beyond what the nodes have room for. Pure.

Room is counted by requests alone (cores, bytes, pods), first fit: an upper bound, since taints and affinities are the
scheduler's. What several services ask for is taken from the same nodes, in the order of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from shared.autoscaling.safety.scene import Draft, FreeNode, SafetyScene


def pending(scene: SafetyScene, draft: Draft) -> None:
    """Not above what there is, while pods of it wait for a node."""
    for name, case in scene.services.items():
        if case.seen.pending:
            why = f"{case.seen.pending} of its pods wait for a node"
            draft.at_most(name, case.seen.replicas, "pending", why)


def room(scene: SafetyScene, draft: Draft) -> None:
    """Not above what fits on the nodes."""
    if scene.nodes is None:
        return
    nodes = list(scene.nodes)
    for name, case in scene.services.items():
        more = draft.replicas[name] - case.seen.replicas
        if more <= 0:
            continue
        granted = placed(nodes, case.takes, more)
        why = f"the nodes have room for {granted} more"
        draft.at_most(name, case.seen.replicas + granted, "room", why)


def placed(nodes: list[FreeNode], requests: Mapping[str, float], pods: int) -> int:
    """How many of ``pods`` pods fit; their room is taken from ``nodes``."""
    cpu, memory = requests.get("cpu", 0.0), requests.get("memory", 0.0)
    left = pods
    for index, node in enumerate(nodes):
        if not left:
            break
        fits = min(
            left,
            node.pods,
            int(node.cpu / cpu + 1e-9) if cpu > 0 else left,
            int(node.memory / memory + 1e-9) if memory > 0 else left,
        )
        if fits > 0:
            nodes[index] = replace(
                node, cpu=node.cpu - fits * cpu, memory=node.memory - fits * memory, pods=node.pods - fits
            )
            left -= fits
    return pods - left
