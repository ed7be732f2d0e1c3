"""What several shards of binders mean for units: a pod group stays in one of them.

A gang is one intent, and one binder commits it; so all members of a group go to nodes of the group's *home*, the shard
that its name hashes to (ADR 0023). The rule is a node selector that every node-local filter, search and explanation
honours by itself: members select by a label that nodes have here alone. With one shard there is neither.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.scheduling.shards import SHARD_LABEL, Shards


def confined(shards: Shards, pod: Pod) -> Pod:
    """The pod, kept in its group's home where it is a member of one."""
    if not shards.several or not pod.group:
        return pod
    return replace(pod, pod_class=_selecting(pod.pod_class, shards.of(pod.group)))


def labelled(shards: Shards, node: Node) -> Node:
    """The node, with its shard as a label."""
    return replace(node, labels={**node.labels, SHARD_LABEL: shards.of(node.name)}) if shards.several else node


@lru_cache(maxsize=4096)
def _selecting(pod_class: PodClass, shard: str) -> PodClass:
    selector = {**dict(pod_class.node_selector), SHARD_LABEL: shard}
    return replace(pod_class, node_selector=tuple(sorted(selector.items())))
