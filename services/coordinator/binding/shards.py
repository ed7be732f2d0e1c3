"""What several shards of binders mean for units: a pod group stays in one of them.

A gang is one intent, and one binder commits it; so all members of a group go to nodes of the group's *home*, the shard
that its name hashes to (ADR 0023). The rule is a node selector that every node-local filter, search and explanation
honours by itself: members select by a label that nodes have here alone. With one shard there is neither.

A group that its home cannot take moves to a shard that can, as long as none of it was planned in this term. Later it
stays: a binder that leads no more may say a moment too early that it has given a gang back, and only the same shard's
committer knows of what is left of it.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import replace

from services.coordinator.core.state import State
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.scheduling.parts import in_one_go
from shared.scheduling.shards import SHARD_LABEL, Shards


def confined(state: State, pod: Pod) -> Pod:
    """The member of a group, kept in the group's home."""
    return _in_shard(pod, _home_of(state, pod.group)) if state.shards.several else pod


def labelled(shards: Shards, node: Node) -> Node:
    """The node, with its shard as a label."""
    return replace(node, labels={**node.labels, SHARD_LABEL: shards.of(node.name)}) if shards.several else node


def rehome(state: State, key: str) -> bool:
    """Whether the group, which its home cannot take, has moved to a shard that can, as things stand."""
    members, group = state.groups.members.get(key), state.groups.group(key)
    if not state.shards.several or group is None or members is None or members.planned:
        return False
    pods = list(members.pending.values())
    if any(pod.nominated_node for pod in pods):
        return False  # room is being made for it where it is
    for shard in state.shards.names:
        moved = [_in_shard(pod, shard) for pod in pods]
        if shard == _home_of(state, key) or not in_one_go(state.domains.attempting(group, moved)).reached:
            continue
        members.home = shard
        for pod in moved:
            state.groups.see_pending(pod)
            state.queue.add(pod, state.now, gated=True)
        state.log("group_rehomed", group=key, shard=shard)
        return True
    return False


def _home_of(state: State, key: str) -> str:
    members = state.groups.members.get(key)
    return (members.home if members is not None else "") or state.shards.of(key)


def _in_shard(pod: Pod, shard: str) -> Pod:
    return replace(pod, pod_class=_selecting(pod.pod_class, shard))


@lru_cache(maxsize=4096)
def _selecting(pod_class: PodClass, shard: str) -> PodClass:
    selector = {**dict(pod_class.node_selector), SHARD_LABEL: shard}
    return replace(pod_class, node_selector=tuple(sorted(selector.items())))
