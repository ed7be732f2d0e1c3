"""Scenario 1: two agents, room for k pods, 2k pods at once: k are bound, and a freed place goes to exactly one more.

Peers fail it with OutOfcpu pods (kubernetes#72043, #106884): two schedulers that both saw the last slot free.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.invariants import node_of
from tests.scenarios.world import World, length, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

ROOM = 10


def told_all(cluster: World) -> bool:
    return all(cluster.told(name) for name, pod in cluster.pods.items() if not node_of(pod))


@pytest.mark.parametrize("nodes", [1, 2])
async def test_the_last_slot_is_given_once_and_a_freed_one_exactly_once_again(tmp_path: Path, nodes: int) -> None:
    async with world(tmp_path, agents=2) as cluster:
        for number in range(nodes):
            await cluster.add_node(f"n{number}", cpu=str(ROOM // nodes))
        await cluster.add_pods((f"p{number:02}" for number in range(2 * ROOM)), cpu="1")
        await cluster.until(
            lambda c: len(c.bound_names()) == ROOM and told_all(c), within_s=15, what=f"{ROOM} bound, the others told"
        )
        pending = sorted(set(cluster.pods) - cluster.bound_names())
        assert cluster.told(pending[0]) == (
            f"0/{nodes} nodes are available: {nodes} Insufficient cpu. "
            f"preemption: 0/{nodes} nodes are available: {nodes} No preemption victims found for incoming pod."
        )
        await cluster.never(
            lambda c: len(c.bound_names()) > ROOM, for_s=length(short=1.5, full=15), what="one too many"
        )

        await cluster.delete_pod(min(cluster.bound_names()))
        await cluster.until(lambda c: len(c.bound_names()) == ROOM, within_s=5, what="the freed place is used")
        await cluster.never(
            lambda c: len(c.bound_names()) > ROOM, for_s=length(short=1.5, full=15), what="one too many"
        )
