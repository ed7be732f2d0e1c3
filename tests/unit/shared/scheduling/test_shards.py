"""Shards of nodes: one owner each, the same for everybody, and few nodes move."""

from __future__ import annotations

from collections import Counter

from shared.scheduling.shards import Shards
from shared.wire.records import Intent

NODES = [f"node-{number}" for number in range(600)]


def test_one_shard_has_every_node() -> None:
    assert {Shards().of(node) for node in NODES} == {"0"}


def test_nodes_are_divided_about_evenly() -> None:
    counts = Counter(map(Shards(("a", "b", "c")).of, NODES))
    assert min(counts.values()) > 150


def test_a_shard_that_is_added_takes_its_part_and_no_other_node_moves() -> None:
    before, after = Shards(("a", "b")), Shards(("a", "b", "c"))
    moved = {node for node in NODES if before.of(node) != after.of(node)}
    assert moved
    assert {after.of(node) for node in moved} == {"c"}


def test_the_order_of_names_decides_nothing() -> None:
    assert [Shards(("a", "b")).of(node) for node in NODES] == [Shards(("b", "a")).of(node) for node in NODES]


def test_an_intent_is_its_own_shards_while_there_is_that_shard() -> None:
    intent = Intent(plan_id=1, coordinator_term=1, unit=1, pods=(), shard="b")
    assert Shards(("a", "b")).resolver("uid", intent) == "b"
    assert Shards(("a", "c")).resolver("uid", intent) == Shards(("a", "c")).of("uid")
    assert Shards(("a", "c")).resolver("uid", None) == Shards(("a", "c")).of("uid")
