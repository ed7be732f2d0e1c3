"""Partitions: balanced in number, capacity and domains, the same for everybody; little moves when members change."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shared.scheduling.partition import ZONE_LABEL, assign, kind_of, preferred
from tests.builders import make_node

NODES = dict.fromkeys([f"node-{i}" for i in range(300)], "")
AGENTS = st.sets(st.sampled_from("abcdefgh"), min_size=1)


def spread(counts: list[int]) -> int:
    return max(counts) - min(counts)


@given(AGENTS, st.integers(1, 60))
def test_every_node_has_one_owner_and_nobody_owns_more_than_a_fair_share(agents: set[str], count: int) -> None:
    nodes = dict(list(NODES.items())[:count])
    owners = assign(nodes, dict.fromkeys(agents, ""))
    assert owners.keys() == nodes.keys()
    assert max(Counter(owners.values()).values()) <= -(-count // len(agents))


@given(AGENTS, st.lists(st.sampled_from(["zone-a", "zone-b", "zone-c", "large", "gpu"]), max_size=120))
def test_each_agent_has_its_share_of_every_kind_of_node_and_of_all(agents: set[str], kinds: list[str]) -> None:
    nodes = {f"node-{number}": kind for number, kind in enumerate(kinds)}
    owners = assign(nodes, dict.fromkeys(agents, ""))
    for kind in set(kinds):
        of_kind = Counter(owners[name] for name in nodes if nodes[name] == kind)
        assert spread([of_kind[agent] for agent in agents]) <= 1
    of_all = Counter(owners.values())
    assert spread([of_all[agent] for agent in agents]) <= 2


def test_without_kinds_an_agent_may_get_none_of_the_few_nodes_with_gpus() -> None:
    kinds = {name: "gpu" if number % 50 == 0 else "" for number, name in enumerate(NODES)}
    agents = dict.fromkeys("abc", "")

    def gpus(owners: dict[str, str]) -> list[int]:
        return [sum(kinds[name] == "gpu" and owners[name] == agent for name in NODES) for agent in agents]

    assert gpus(assign(kinds, agents)) == [2, 2, 2]
    assert gpus(assign(NODES, agents)) != [2, 2, 2]


def test_a_kind_is_a_zone_and_about_a_size_and_each_device() -> None:
    def kind(cpu: str, memory: str, zone: str = "z1", gpus: int = 0) -> str:
        node = make_node().allocatable(cpu=cpu, memory=memory).label(**{ZONE_LABEL: zone})
        return kind_of((node.gpus(gpus) if gpus else node).node())

    usual = kind("7900m", "31Gi")
    assert usual == kind("7800m", "30Gi")
    assert len({usual, kind("7900m", "31Gi", "z2"), kind("31900m", "31Gi"), kind("7900m", "31Gi", gpus=8)}) == 4


def test_order_of_arrival_does_not_matter() -> None:
    agents = dict.fromkeys("abcd", "")
    kinds = {name: f"zone-{number % 3}" for number, name in enumerate(NODES)}
    assert assign(kinds, agents) == assign(dict(reversed(kinds.items())), dict(reversed(agents.items())))


def test_a_leaving_agent_moves_little_more_than_its_own_nodes() -> None:
    for kinds in (NODES, {name: f"zone-{number % 3}" for number, name in enumerate(NODES)}):
        before = assign(kinds, dict.fromkeys("abcd", ""))
        after = assign(kinds, dict.fromkeys("abc", ""))
        moved = sum(before[n] != after[n] for n in NODES)
        assert len(NODES) // 4 <= moved <= len(NODES) // 2


def test_an_agent_of_one_node_gets_that_node_only() -> None:
    nodes = dict(list(NODES.items())[:4])
    owners = assign(nodes, {"general": "", "own": "node-2", "lost": "no-such-node"})
    assert owners["node-2"] == "own"
    assert Counter(owners.values()) == {"general": 3, "own": 1}


def test_no_agents_own_nothing() -> None:
    assert assign(NODES, {}) == {}


@given(AGENTS, st.sampled_from(list(NODES)))
def test_a_node_alone_goes_to_an_agent_of_those_asked(agents: set[str], node: str) -> None:
    assert assign({node: ""}, dict.fromkeys(agents, ""))[node] in agents
    assert preferred(node, agents) in agents
