"""Which agent decides for which node, and what each is told of it: property tests of ownership and views."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.coordinator.agents.registry import REBALANCE_SLACK, Ownership
from services.coordinator.agents.views import FEW_NODES, ROWS_PER_PIECE, AgentView
from shared.agent.replica import Replica
from shared.scheduling.state.node_table import NodeTable
from shared.wire.records import AgentRecord
from tests.builders import make_node, make_pod

CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("agents"), st.sets(st.sampled_from("abcd")).map(sorted)),
        st.tuples(st.just("own"), st.integers(0, 5)),
        st.tuples(st.just("add"), st.lists(st.integers(0, 60), max_size=40, unique=True)),
        st.tuples(st.just("remove"), st.lists(st.integers(0, 60), max_size=40, unique=True)),
        st.tuples(st.just("relabel"), st.integers(0, 60)),
        st.tuples(st.just("rebalance"), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=200)
@given(CHANGES)
def test_every_node_has_one_owner_if_anybody_can_own_it_and_moves_tell_the_whole_story(changes: list) -> None:
    ownership = Ownership(0.25)
    nodes: set[str] = set()
    told: dict[str, str] = {}
    agents: dict[str, str] = {}
    for change, what in changes:
        moves: list[tuple[str, str, str]] = []
        if change == "agents":
            agents = dict.fromkeys(what, "")
            moves = ownership.set_agents(agents)
        elif change == "own":
            agents = agents | {"own": f"n{what}"}
            moves = ownership.set_agents(agents)
        elif change == "add":
            nodes |= {f"n{number}" for number in what}
            moves = ownership.add_nodes({f"n{number}": f"zone-{number % 3}" for number in what})
        elif change == "relabel":
            ownership.change_kind(f"n{what}", "zone-9")
        elif change == "remove":
            for number in what:
                nodes.discard(f"n{number}")
                ownership.remove_node(f"n{number}")
                told.pop(f"n{number}", None)
        else:
            moves = ownership.rebalance()
        for name, old, new in moves:
            assert told.get(name, "") == old
            told[name] = new
        told = {name: agent for name, agent in told.items() if agent}
        assert told == ownership.owner
        assert set(ownership.owner) | ownership.unowned == nodes
        assert not set(ownership.owner) & ownership.unowned
        kinds = Counter((ownership.kinds[name], agent) for name, agent in ownership.owner.items())
        assert {(kind, a): n for kind, of in ownership.of_kind.items() for a, n in of.items() if n} == kinds
        assert ownership.kinds.keys() == nodes
        assert ownership.sizes == {a: list(ownership.owner.values()).count(a) for a in agents}
        if any(not node for node in agents.values()):
            assert not ownership.unowned
        assert all(agents[agent] in ("", name) for name, agent in ownership.owner.items())


def test_partitions_that_drifted_apart_are_dealt_anew() -> None:
    ownership = Ownership(0.25)
    ownership.set_agents({"a": "", "b": ""})
    ownership.add_nodes(dict.fromkeys([f"n{number}" for number in range(100)], ""))
    for name in [name for name, agent in ownership.owner.items() if agent == "a"]:
        ownership.remove_node(name)
    assert ownership.sizes["b"] > REBALANCE_SLACK
    assert ownership.rebalance()
    assert abs(ownership.sizes["a"] - ownership.sizes["b"]) <= 1
    assert not ownership.rebalance()


def test_one_new_node_moves_no_other() -> None:
    ownership = Ownership(0.25)
    ownership.set_agents({"a": "", "b": ""})
    ownership.add_nodes(dict.fromkeys([f"n{number}" for number in range(100)], ""))
    before = dict(ownership.owner)
    ownership.add_nodes({"new": ""})
    assert {name: agent for name, agent in ownership.owner.items() if name != "new"} == before


def test_partitions_in_which_one_kind_of_node_drifted_apart_are_dealt_anew() -> None:
    ownership = Ownership(0.25)
    ownership.set_agents({"a": "", "b": ""})
    nodes = {f"n{number}": "" for number in range(200)}
    ownership.add_nodes(nodes)
    for name in [name for name, agent in ownership.owner.items() if agent == "a"][:40]:
        ownership.change_kind(name, "gpu")
    assert ownership.sizes["a"] == ownership.sizes["b"]
    assert ownership.rebalance()
    assert ownership.of_kind["gpu"] == {"a": 20, "b": 20}
    assert not ownership.rebalance()


def test_a_new_node_goes_to_the_agent_that_has_fewest_of_its_kind() -> None:
    ownership = Ownership(0.25)
    ownership.set_agents({"a": "", "b": ""})
    ownership.add_nodes({f"n{number}": "" for number in range(100)})
    for number in range(10):
        ownership.add_nodes({f"gpu-{number}": "gpu"})
    assert ownership.of_kind["gpu"] == {"a": 5, "b": 5}


# --- views: whatever happens to the table, the agent's replica follows ----------------------------------------------

WORLD = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.integers(0, 7), st.integers(0, 2)),
        st.tuples(st.just("remove"), st.integers(0, 7), st.just(0)),
        st.tuples(st.just("use"), st.integers(0, 7), st.integers(1, 3)),
        st.tuples(st.just("own"), st.integers(0, 7), st.integers(0, 1)),
        st.tuples(st.just("send"), st.just(0), st.just(0)),
        st.tuples(st.just("reset"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


def same(table: NodeTable, replica: Replica, owned: set[str]) -> None:
    other = replica.table
    assert set(other.row_of) == owned
    for name in owned:
        mine, theirs = table.row_of[name], other.row_of[name]
        assert replica.slot_of_row[theirs] == mine
        for resource, column in table.column_of.items():
            there = other.column_of.get(resource)
            assert table.requested[column, mine] == (other.requested[there, theirs] if there is not None else 0)
        assert table.generation[mine] == other.generation[theirs]
        node, copy = table.nodes[mine], other.nodes[theirs]
        assert node is not None
        assert copy is not None
        assert (node.labels, node.taints, node.allocatable) == (copy.labels, copy.taints, copy.allocatable)
        assert copy.unschedulable == (node.unschedulable or node.deleting)


@pytest.mark.parametrize("others", [0, 8 * FEW_NODES])
@settings(max_examples=300)
@given(changes=WORLD)
def test_an_agents_replica_follows_whatever_happens(others: int, changes: list) -> None:
    table, replica = NodeTable(2), Replica()
    for number in range(others):
        table.upsert(make_node(f"other{number}").node())
    owner: dict[str, str] = {}
    view = AgentView(AgentRecord(id="a", url="", incarnation="i"), epoch=1)
    pod_class = make_pod().cpu("1").gpu_milli(500).pod().pod_class
    for change, number, what in [*changes, ("send", 0, 0)]:
        name = f"n{number}"
        if change == "upsert":
            known = name in table.row_of
            table.upsert(make_node(name).gpus(what).label(kind=str(what)).node())
            if not known:
                owner[name] = "a"
                view.pending.add(name)
        elif change == "remove" and name in table.row_of:
            table.remove(name)
            owner.pop(name, None)
            view.pending.add(name)
        elif change == "use" and name in table.row_of:
            for _ in range(what):
                table.add_usage(table.row_of[name], pod_class, ())
        elif change == "own" and name in table.row_of:
            owner[name] = "ab"[what]
            view.pending.add(name)
        elif change == "reset":
            view.reset(view.epoch + 1, {n for n, agent in owner.items() if agent == "a"})
        elif change == "send":
            while (piece := view.piece(table, owner)) is not None:
                assert replica.apply(piece)
                assert replica.revision == view.revision
            if view.revision:
                same(table, replica, {n for n, agent in owner.items() if agent == "a"})


def test_a_large_partition_goes_in_pages() -> None:
    table, replica = NodeTable(), Replica()
    view = AgentView(AgentRecord(id="a", url="", incarnation="i"), epoch=1)
    names = {f"n{number}" for number in range(3 * ROWS_PER_PIECE + 1)}
    for name in sorted(names):
        table.upsert(make_node(name).node())
    view.pending = set(names)
    pieces = []
    while (piece := view.piece(table, dict.fromkeys(names, "a"))) is not None:
        pieces.append(piece)
        assert replica.apply(piece)
    assert [len(piece.nodes) for piece in pieces] == [ROWS_PER_PIECE] * 3 + [1]
    assert pieces[0].base == 0
    same(table, replica, names)


def test_a_heartbeat_of_all_nodes_with_changed_labels_is_told_in_pages_too() -> None:
    table, replica = NodeTable(), Replica()
    view = AgentView(AgentRecord(id="a", url="", incarnation="i"), epoch=1)
    names = {f"n{number}" for number in range(2 * ROWS_PER_PIECE)}
    for generation in ("old", "new"):
        for name in sorted(names):
            table.upsert(make_node(name).label(kind=generation).node())
        if generation == "old":
            view.pending = set(names)
        while (piece := view.piece(table, dict.fromkeys(names, "a"))) is not None:
            assert replica.apply(piece)
    same(table, replica, names)
