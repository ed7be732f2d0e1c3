"""Which agent decides for which nodes: bounded rendezvous hashing, stable under membership change.

Each node prefers the agents in the order of a hash of (agent, node) and goes to the first one that is not full; full
is ceil(nodes / agents). An agent that serves one node only (a DaemonSet's) gets that node and no other. Everybody who
knows the nodes and the agents computes the same partition, so etcd holds the agents and an epoch, not the mapping.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping


def assign(nodes: Iterable[str], agents: Mapping[str, str]) -> dict[str, str]:
    """Agent id per node. ``agents``: id -> the one node it serves, or "" for any. No agent for a node: absent."""
    wanted = sorted(nodes)
    owners: dict[str, str] = {}
    own_node = {node: agent for agent, node in sorted(agents.items()) if node}
    general = sorted(agent for agent, node in agents.items() if not node)
    rest = []
    for node in wanted:
        if node in own_node:
            owners[node] = own_node[node]
        else:
            rest.append(node)
    if not general or not rest:
        return owners
    room = dict.fromkeys(general, -(-len(rest) // len(general)))
    # Nodes pick in the order of their own hash, so that no name is favoured and the order survives changes.
    for node in sorted(rest, key=lambda n: weight("", n)):
        for agent in sorted(general, key=lambda a: weight(a, node), reverse=True):
            if room[agent] > 0:
                room[agent] -= 1
                owners[node] = agent
                break
    return owners


def preferred(node: str, agents: Iterable[str]) -> str:
    """The agent that ``assign`` would give this node if all of ``agents`` had room; "" where there are none."""
    return max(agents, key=lambda agent: weight(agent, node), default="")


def weight(owner: str, node: str) -> bytes:
    """How much the node prefers the owner, for who compares."""
    return hashlib.blake2b(f"{owner}\0{node}".encode(), digest_size=8).digest()
