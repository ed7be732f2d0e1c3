"""What ``conclave shards`` prints."""

from __future__ import annotations

from services.cli.operate.shards import lines_of

ITEMS = [
    {"name": "0", "nodes": 12, "binder": "http://b0", "term": 7},
    {"name": "1", "nodes": 9, "binder": "", "term": 0},
]


def test_a_shard_that_nobody_leads_says_so() -> None:
    lines = lines_of({"generation": 2, "by": "anna", "reason": "", "since": "now", "items": ITEMS})
    assert lines[2].split() == ["1", "9", "nobody", "leads", "-"]
    assert lines[-1] == "divided by anna at now"


def test_nodes_that_nobody_divided_are_said_to_be_one_shards() -> None:
    assert lines_of({"generation": 0, "items": ITEMS[:1]})[-1] == "the nodes were never divided: one shard has them all"
