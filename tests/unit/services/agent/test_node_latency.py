"""A node's latency reaches the agent that decides by it, with the view and with each change of it."""

from __future__ import annotations

from services.agent.replica import Replica
from shared.model.node import UNKNOWN_LATENCY
from shared.wire.codec import decode, encode
from shared.wire.messages import VERSION, NodeRow, NodeUsage, View, ViewUpdate


def row(latency_us: int | None) -> NodeRow:
    usage = NodeUsage(0, 1, [0, 0, 0], 0, 0)
    known = () if latency_us is None else (latency_us,)
    return NodeRow("n", {}, [], False, {"cpu": 4000}, usage, *known)


def told(replica: Replica, base: int, latency_us: int | None) -> int:
    view = View(1, base, base + 1, ["cpu", "memory", "pods"], [row(latency_us)])
    message = decode(encode(ViewUpdate(VERSION, 1, 0, 5, view)), ViewUpdate)
    assert replica.apply(message.view)
    return int(replica.table.latency_us[replica.row_of_slot[0]])


def test_latency_comes_with_the_view_and_changes_with_it():
    replica = Replica()
    assert told(replica, 0, 12_000) == 12_000
    assert told(replica, 1, 25_500) == 25_500
    assert told(replica, 2, UNKNOWN_LATENCY) == UNKNOWN_LATENCY


def test_a_coordinator_that_tells_no_latency_means_unknown():
    assert told(Replica(), 0, None) == UNKNOWN_LATENCY
