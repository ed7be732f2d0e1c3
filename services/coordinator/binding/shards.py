"""What several shards of binders mean for units: a pod group stays in one of them.

A gang is one intent, and one binder commits it; so all members of a group go to nodes of the group's *home*, the shard
that its name hashes to (ADR 0023). The rule is a node selector that every node-local filter, search and explanation
honours by itself: members select by a label that nodes have here alone. With one shard there is neither.

A group that its home cannot take moves to a shard that can, as long as none of it was planned in this term. Later it
stays: a binder that leads no more may say a moment too early that it has given a gang back, and only the same shard's
committer knows of what is left of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec.structs import replace

from services.coordinator.core.state import State
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.scheduling.shards import SHARD_LABEL, Shards


def confined(state: State, pod: Pod) -> Pod:
    """The member of a group, kept in the group's home."""
    return _in_shard(pod, _home_of(state, pod.group)) if state.shards.several else pod


def labelled(shards: Shards, node: Node) -> Node:
    """The node, with its shard as a label."""
    return replace(node, labels={**node.labels, SHARD_LABEL: shards.of(node.name)}) if shards.several else node


def elsewhere(state: State, key: str, pods: Sequence[Pod]) -> Iterator[tuple[str, list[Pod]]]:
    """The other shards that the group may move to, each with ``pods`` as they would be there; none if it must stay."""
    members = state.groups.members.get(key)
    if not state.shards.several or members is None or members.planned:
        return
    if any(pod.nominated_node for pod in members.pending.values()):
        return  # room is being made for it where it is
    home = _home_of(state, key)
    for shard in state.shards.names:
        if shard != home:
            yield shard, [_in_shard(pod, shard) for pod in pods]


def rehome(state: State, key: str, shard: str) -> None:
    """The group, which its home cannot take, moves to a shard that can, as things stand."""
    members = state.groups.members[key]
    members.home = shard
    for pod in list(members.pending.values()):
        moved = _in_shard(pod, shard)
        state.groups.see_pending(moved)
        state.queue.add(moved, state.now, gated=True)
    state.log("group_rehomed", group=key, shard=shard)


def _home_of(state: State, key: str) -> str:
    members = state.groups.members.get(key)
    return (members.home if members is not None else "") or state.shards.of(key)


def _in_shard(pod: Pod, shard: str) -> Pod:
    return replace(pod, pod_class=_selecting(pod.pod_class, shard))


@lru_cache(maxsize=4096)
def _selecting(pod_class: PodClass, shard: str) -> PodClass:
    selector = {**dict(pod_class.node_selector), SHARD_LABEL: shard}
    return replace(pod_class, node_selector=tuple(sorted(selector.items())))
