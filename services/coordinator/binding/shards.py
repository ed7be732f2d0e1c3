"""What several shards of binders mean for units: a pod group is committed by one of them, its *home*.

A gang is one intent, and one binder commits it: that of its home, the shard that its name hashes to (ADR 0023). Members
go to nodes of the home while those can take the group: a node selector by a label that nodes have here alone, which
every node-local filter, search and explanation honours by itself. With one shard there is neither.

    its home can take it --> confined to it
    another shard can, and none of it was planned in this term --> that is its home, and it is confined to it
    all together can, or nobody can --> it *spans*: confined to no shard; the others lend to its home (ADR 0044)

A group of which some were planned keeps its home: a binder that leads no more may say a moment too early that it has
given a gang back, and only the same shard's committer knows of what is left of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from services.coordinator.core.state import CoordinatorState
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.scheduling.shards import SHARD_LABEL, Shards

TOGETHER = "*"
"""All shards together, where a shard is named; no shard has that name."""


def confined(state: CoordinatorState, pod: Pod) -> Pod:
    """The member of a group, kept in the group's home unless that spans."""
    return _in_shard(pod, _way_of(state, pod.group)) if state.shards.several else pod


def labelled(shards: Shards, node: Node) -> Node:
    """The node, with its shard as a label."""
    return replace(node, labels={**node.labels, SHARD_LABEL: shards.of(node.name)}) if shards.several else node


def home_of(state: CoordinatorState, key: str) -> str:
    """The shard whose binder commits the group."""
    members = state.groups.members.get(key)
    return (members.home if members is not None else "") or state.shards.of(key)


def ways(state: CoordinatorState, key: str, pods: Sequence[Pod]) -> list[tuple[str, list[Pod]]]:
    """Where the group may go, best first: a shard, or ``TOGETHER``, and ``pods`` as they would be there.

    One where there is no choice: there is one shard, or room is being made for it where it is.
    """
    members, now = state.groups.members.get(key), _way_of(state, key)
    if not state.shards.several or members is None or any(pod.nominated_node for pod in members.pending.values()):
        return [(now, list(pods))]
    home = home_of(state, key)
    # Once planned, never another: only the same shard's committer knows what is left of an earlier intent (I1).
    others = [] if members.planned else [shard for shard in state.shards.names if shard != home]
    return [(way, [_in_shard(pod, way) for pod in pods]) for way in (home, *others, TOGETHER)]


def goes(state: CoordinatorState, key: str, way: str) -> bool:
    """Whether the group's members are as they are to be for this way."""
    return not state.shards.several or _way_of(state, key) == way


def go(state: CoordinatorState, key: str, way: str) -> None:
    """From now on the group is confined to this shard, its home, or (``TOGETHER``) to none."""
    members = state.groups.members[key]
    members.spans = way == TOGETHER
    if not members.spans:
        members.home = way
    for pod in list(members.pending.values()):
        moved = _in_shard(pod, way)
        state.groups.see_pending(moved)
        state.queue.add(moved, state.now, gated=True)
    state.log("group_moved", group=key, shard=home_of(state, key), spans=members.spans)


def widen(state: CoordinatorState, pod: Pod) -> bool:
    """A lone member finds no node. True: its group was confined, and is not any more, so it is to be tried again."""
    key = pod.group
    if not key or not state.shards.several or pod.nominated_node or _way_of(state, key) == TOGETHER:
        return False
    if key not in state.groups.members:
        return False
    go(state, key, TOGETHER)
    return True


def _way_of(state: CoordinatorState, key: str) -> str:
    members = state.groups.members.get(key)
    return TOGETHER if members is not None and members.spans else home_of(state, key)


def _in_shard(pod: Pod, way: str) -> Pod:
    return replace(pod, pod_class=_selecting(pod.pod_class, way))


@lru_cache(maxsize=4096)
def _selecting(pod_class: PodClass, way: str) -> PodClass:
    selector = dict(pod_class.node_selector)
    selector.pop(SHARD_LABEL, None)
    if way != TOGETHER:
        selector[SHARD_LABEL] = way
    return replace(pod_class, node_selector=tuple(sorted(selector.items())))
