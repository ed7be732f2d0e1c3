"""Partitions: balanced, the same for everybody, and little moves when the members change."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shared.scheduling.partition import assign, preferred

NODES = [f"node-{i}" for i in range(300)]


@given(st.sets(st.sampled_from("abcdefgh"), min_size=1), st.integers(1, 60))
def test_every_node_has_one_owner_and_nobody_owns_more_than_a_fair_share(agents: set[str], count: int) -> None:
    owners = assign(NODES[:count], dict.fromkeys(agents, ""))
    assert owners.keys() == set(NODES[:count])
    assert max(Counter(owners.values()).values()) <= -(-count // len(agents))


def test_order_of_arrival_does_not_matter() -> None:
    agents = dict.fromkeys("abcd", "")
    assert assign(NODES, agents) == assign(reversed(NODES), dict(reversed(agents.items())))


def test_a_leaving_agent_moves_little_more_than_its_own_nodes() -> None:
    before = assign(NODES, dict.fromkeys("abcd", ""))
    after = assign(NODES, dict.fromkeys("abc", ""))
    moved = sum(before[n] != after[n] for n in NODES)
    assert len(NODES) // 4 <= moved <= len(NODES) // 2


def test_an_agent_of_one_node_gets_that_node_only() -> None:
    owners = assign(NODES[:4], {"general": "", "own": "node-2", "lost": "no-such-node"})
    assert owners["node-2"] == "own"
    assert Counter(owners.values()) == {"general": 3, "own": 1}


def test_no_agents_own_nothing() -> None:
    assert assign(NODES, {}) == {}


@given(st.sets(st.sampled_from("abcdefgh"), min_size=1), st.sampled_from(NODES))
def test_a_node_alone_goes_to_the_agent_it_prefers(agents: set[str], node: str) -> None:
    assert assign([node], dict.fromkeys(agents, ""))[node] == preferred(node, agents)
