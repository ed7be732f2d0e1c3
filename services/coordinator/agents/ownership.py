"""Which agent decides for which nodes, kept up to date as nodes and agents come and go.

A change of agents deals all nodes anew by ``partition.assign`` (stable: most stay). A single new node goes to the
agent that it prefers among those with room, without disturbing the others; when the partitions have drifted too far
apart, all are dealt anew. It refuses to talk to agents: ``views.py`` tells them what follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shared.scheduling.partition import assign

REBALANCE_SLACK = 8
"""Partitions may differ by so many nodes on top of the share, so that small clusters are not dealt for nothing."""


class Ownership:
    """Agent id per node name; ``unowned``: nodes that no agent decides for."""

    def __init__(self, rebalance_share: float) -> None:
        self.epoch = 0
        self.agents: dict[str, str] = {}
        self.owner: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.unowned: set[str] = set()
        self._share = rebalance_share

    def set_agents(self, agents: Mapping[str, str]) -> list[tuple[str, str, str]]:
        """The agents there are: id -> the one node it serves or "". Moves as (node, from, to); "" is nobody."""
        if dict(agents) == self.agents:
            return []
        self.agents = dict(agents)
        return self._deal()

    def add_nodes(self, names: Iterable[str]) -> list[tuple[str, str, str]]:
        """New nodes; those known already are left where they are."""
        fresh = [name for name in names if name not in self.owner and name not in self.unowned]
        if not fresh:
            return []
        if len(fresh) * 4 > len(self.owner):
            # Many at once (a first list): dealing all anew costs no more and balances exactly.
            self.unowned.update(fresh)
            return self._deal()
        moves = []
        for name in fresh:
            agent = self._choose(name)
            self._put(name, agent)
            if agent:
                moves.append((name, "", agent))
        return moves

    def remove_node(self, name: str) -> str:
        """The node is gone; who decided for it, "" for nobody."""
        self.unowned.discard(name)
        agent = self.owner.pop(name, "")
        if agent:
            self.sizes[agent] -= 1
        return agent

    def rebalance(self) -> list[tuple[str, str, str]]:
        """Deal anew if the general partitions have drifted apart (many nodes of one agent were deleted)."""
        general = [self.sizes[agent] for agent, node in self.agents.items() if not node]
        if len(general) < 2:
            return []
        mean = sum(general) / len(general)
        if max(general) <= mean * (1 + self._share) + REBALANCE_SLACK:
            return []
        return self._deal()

    def _deal(self) -> list[tuple[str, str, str]]:
        before = self.owner
        names = [*before, *self.unowned]
        self.owner = assign(names, self.agents)
        self.unowned = {name for name in names if name not in self.owner}
        self.sizes = dict.fromkeys(self.agents, 0)
        for agent in self.owner.values():
            self.sizes[agent] += 1
        self.epoch += 1
        moves = []
        for name in sorted(names):
            old, new = before.get(name, ""), self.owner.get(name, "")
            if old != new:
                moves.append((name, old, new))
        return moves

    def _choose(self, name: str) -> str:
        """As ``assign`` would for this node alone, the others staying where they are."""
        for agent, node in self.agents.items():
            if node == name:
                return agent
        general = {agent: "" for agent, node in self.agents.items() if not node}
        if not general:
            return ""
        total = sum(self.sizes[agent] for agent in general) + 1
        room = -(-total // len(general))
        return assign([name], {agent: "" for agent in general if self.sizes[agent] < room})[name]

    def _put(self, name: str, agent: str) -> None:
        if agent:
            self.owner[name] = agent
            self.sizes[agent] += 1
        else:
            self.unowned.add(name)
