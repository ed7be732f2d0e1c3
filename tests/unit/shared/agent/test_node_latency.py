"""A node's latency reaches the agent that decides by it, with the view and with each change of it."""

from __future__ import annotations

from random import Random

from shared.agent.core import AgentCore
from shared.agent.replica import Replica
from shared.model.constraints import PodClass
from shared.model.node import UNKNOWN_LATENCY
from shared.model.resources import CPU, MEMORY
from shared.policy.registry import make_policy
from shared.wire.codec import decode, encode
from shared.wire.messages import VERSION, ClassDefinition, NodeRow, NodeUsage, Offer, UnitGroup, View, ViewUpdate

LIMITED = PodClass(
    requests=((CPU, 250), (MEMORY, 64 << 20)),
    score_cpu_millis=250,
    score_memory_bytes=64 << 20,
    latency_soft_us=20_000,
    latency_hard_us=30_000,
)


def row(slot: int, latency_us: int | None) -> NodeRow:
    usage = NodeUsage(slot, 1, [0, 0, 0], 0, 0)
    known = () if latency_us is None else (latency_us,)
    return NodeRow(f"n{slot}", {}, [], False, {CPU: 8000, MEMORY: 16 << 30, "pods": 110}, usage, *known)


def view(base: int, *rows: NodeRow) -> View:
    return View(1, base, base + 1, [CPU, MEMORY, "pods"], list(rows))


def told(replica: Replica, base: int, latency_us: int | None) -> int:
    message = decode(encode(ViewUpdate(VERSION, 1, 0, 5, view(base, row(0, latency_us)))), ViewUpdate)
    assert replica.apply(message.view)
    return int(replica.table.latency_us[replica.row_of_slot[0]])


def test_latency_comes_with_the_view_and_changes_with_it():
    replica = Replica()
    assert told(replica, 0, 12_000) == 12_000
    assert told(replica, 1, 25_500) == 25_500
    assert told(replica, 2, UNKNOWN_LATENCY) == UNKNOWN_LATENCY


def test_a_coordinator_that_tells_no_latency_means_unknown():
    assert told(Replica(), 0, None) == UNKNOWN_LATENCY


def test_el_moves_with_the_first_decision_after_a_change():
    core = AgentCore(make_policy("el"), Random(1))
    core.update(ViewUpdate(VERSION, 1, 0, 5, view(0, row(0, 12_000), row(1, 25_000), row(2, 60_000))))

    def chosen(change: View | None) -> list[tuple[int, bool]]:
        groups, classes = [UnitGroup(1, [1])], [ClassDefinition(1, LIMITED)]
        answers = core.decide(Offer(VERSION, 9, 0, 5, 1, change, groups, classes, extra=2)).answers
        return [(answer.slot, answer.accept) for answer in answers]

    assert chosen(None) == [(0, True), (1, True), (2, False)]
    assert chosen(view(1, row(0, 60_000), row(1, 25_000), row(2, 12_000))) == [(2, True), (1, True), (0, False)]
