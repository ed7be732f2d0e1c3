"""Which agent decides for which nodes: balanced in number, capacity and failure domains, and stable.

Nodes of one *kind* (``kind_of``: their zone and about their size) are dealt evenly to all agents, so each agent has its
share of every zone and of every sort of machine. Within its kind a node prefers the agents in the order of a hash of
(agent, node) and goes to the first one that is not full (bounded rendezvous hashing): when agents come and go, little
more moves than must. An agent that serves one node only (a DaemonSet's) gets that node and no other. Everybody who
knows the nodes and the agents computes the same partition, so etcd holds the agents and an epoch, not the mapping.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from shared.model.node import Node

ZONE_LABEL = "topology.kubernetes.io/zone"
BY_SIZE = ("cpu", "memory")
"""Of these the order of magnitude to the base of 2 counts: a kubelet reserves a little more on one node than on the
next. Of other resources but pods and storage (GPUs, other devices) the amount itself does."""
NOT_CAPACITY = ("pods", "ephemeral-storage")


def kind_of(node: Node) -> str:
    """Nodes of one kind are shared out among the agents evenly: their zone and about their capacity."""
    sizes = (f"{name}~{node.allocatable.get(name, 0).bit_length()}" for name in BY_SIZE)
    amounts = (
        f"{name}={amount}"
        for name, amount in sorted(node.allocatable.items())
        if amount and name not in BY_SIZE and name not in NOT_CAPACITY and not name.startswith("hugepages-")
    )
    return " ".join((node.labels.get(ZONE_LABEL, ""), *sizes, *amounts))


def assign(nodes: Mapping[str, str], agents: Mapping[str, str]) -> dict[str, str]:
    """Agent id per node. ``nodes``: name -> kind. ``agents``: id -> the one node it serves, or "" for any. No agent for
    a node: absent."""
    own_node = {node: agent for agent, node in sorted(agents.items()) if node}
    owners = {node: own_node[node] for node in nodes if node in own_node}
    general = sorted(agent for agent, node in agents.items() if not node)
    rest = [node for node in nodes if node not in own_node]
    if not general or not rest:
        return owners
    room = _quotas(Counter(nodes[node] for node in rest), general)
    # Nodes pick in the order of their own hash, so that no name is favoured and the order survives changes.
    for node in sorted(rest, key=lambda n: (weight("", n), n)):
        left = room[nodes[node]]
        agent = preferred(node, [agent for agent in general if left[agent] > 0])
        left[agent] -= 1
        owners[node] = agent
    return owners


def _quotas(kinds: Mapping[str, int], agents: Sequence[str]) -> dict[str, dict[str, int]]:
    """Nodes of each kind for each agent: equal to one, and so is the sum over the kinds, nearly always."""
    quotas, over = {}, {}
    for kind, count in kinds.items():
        each, over[kind] = divmod(count, len(agents))
        quotas[kind] = dict.fromkeys(agents, each)
    # What does not divide goes where the kind prefers, to one agent as much as to another.
    most = -(-sum(over.values()) // len(agents))
    taken: dict[str, int] = defaultdict(int)
    for kind in sorted(over, key=lambda k: (weight("", k), k)):
        by_preference = sorted(agents, key=lambda agent: weight(agent, kind), reverse=True)
        for agent in sorted(by_preference, key=lambda agent: max(0, taken[agent] + 1 - most))[: over[kind]]:
            quotas[kind][agent] += 1
            taken[agent] += 1
    return quotas


def preferred(node: str, agents: Iterable[str]) -> str:
    """The agent that ``assign`` would give this node if all of ``agents`` had room; "" where there are none."""
    return max(agents, key=lambda agent: weight(agent, node), default="")


def weight(owner: str, node: str) -> bytes:
    """How much the node prefers the owner, for who compares."""
    return hashlib.blake2b(f"{owner}\0{node}".encode(), digest_size=8).digest()
