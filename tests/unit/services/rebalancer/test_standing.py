"""A term of the rebalancer: it rests where no goal is tried, and obeys a pause amid a round."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, cast

import msgspec

from services.rebalancer.app import planner, stay
from services.rebalancer.core.rounds import PlanGuard
from services.rebalancer.io.records import RebalanceRecords
from services.rebalancer.settings import RebalancerSettings
from services.rebalancer.standing import StandingRebalancer
from shared.decide.judging import Judge
from shared.decide.pair import PolicyPair
from shared.decide.rollout import Rollout, taken_back
from shared.decide.stages import Stage
from shared.errors import KubeRejected
from shared.kube.objects import KubeNode
from shared.kube.pods.standing_pods import STANDING_PODS, SourcedPod
from shared.kube.resources import NODES, ObjectList
from shared.ports import Put
from shared.rebalance.board import RebalanceBoard
from shared.rebalance.domain import REBALANCE
from shared.runtime.records.control import set_paused
from shared.runtime.records.prefix_watch import follow_prefix
from shared.wire.keys import Keys
from tests.builders import make_node
from tests.memory_store import MemoryStore
from tests.unit.shared.rebalance.worlds import owned
from tests.unit.shared.runtime.kube.moves.test_carry import Server

STEP = "2026-11-29T00:00:00.000Z"
ACTIVE = Rollout(stage=Stage.ACTIVE, candidate="empty-nodes", since=STEP)
SETTINGS = RebalancerSettings(every_s=0.2, min_replicas=0, min_pod_age_s=0.0)


class Cluster(Server):
    """Two nodes with a pod each, one of which the other has room for; a budget lets nobody be evicted for now."""

    def __init__(self) -> None:
        super().__init__()
        self.answer.set()
        self.refusal = KubeRejected("budget", status=429)

    async def list(self, resource: Any, **more: Any) -> ObjectList[Any]:
        if resource is NODES:
            nodes = [make_node(name).allocatable(cpu="4", memory="8Gi").json for name in "ab"]
            return ObjectList(tuple(msgspec.convert(node, KubeNode) for node in nodes), "1")
        if resource is STANDING_PODS:
            pods = [owned("p", "a", "500m"), owned("q", "b", "2", owner="other")]
            return ObjectList(tuple(msgspec.convert(pod.json, SourcedPod) for pod in pods), "1")
        return await super().list(resource, **more)

    async def node_metrics(self, **_: Any) -> list[Any]:
        return []


class Leading:
    """Who leads for ever."""

    def is_valid(self) -> bool:
        return True


@asynccontextmanager
async def term(rollout: Rollout) -> AsyncIterator[tuple[StandingRebalancer, Cluster, RebalanceRecords]]:
    """One that leads."""
    store, keys, cluster = MemoryStore(), Keys(), Cluster()
    led = await store.txn([], [Put(keys.leader(REBALANCE.name), b"x")])
    records = RebalanceRecords(store, keys, led.revision)
    await records.write_rollout(rollout, 0)
    pair: PolicyPair[PlanGuard] = PolicyPair(stay(), make=planner, judge=partial(Judge, REBALANCE))
    there = StandingRebalancer(
        cast("Any", cluster), records, pair, SETTINGS, cast("Any", Leading()), term=led.revision,
        clock=asyncio.get_running_loop().time, note=lambda *_: None,
    )  # fmt: skip
    works = [asyncio.ensure_future(one) for one in (there.run(), there.tell(), there.follow(), there.heed())]
    try:
        async with asyncio.timeout(30.0):
            yield there, cluster, records
        assert not any(work.done() for work in works)
    finally:
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)


async def board_where(records: RebalanceRecords, reached: Callable[[RebalanceBoard], bool]) -> RebalanceBoard:
    """The board in etcd once it is so."""
    async with aclosing(follow_prefix(records.store, records.keys.rebalance_board)) as views:
        async for _ in views:
            if reached(board := await records.board()):
                return board
    raise AssertionError("the store was closed")


async def test_without_a_goal_it_rests_and_shows_no_plan_of_one_that_was_taken_back() -> None:
    async with term(Rollout()) as (_, cluster, records):
        assert "no goal is rolled out" in (await board_where(records, lambda board: bool(board.why))).why
        assert cluster.log == []
    async with term(ACTIVE) as (there, cluster, records):
        await cluster.asked.wait()
        back = taken_back(ACTIVE, now=STEP, by="ann", reason="enough")
        await records.write_rollout(back, there.pair.revision)
        board = await board_where(records, lambda board: board.stage == "none")
        assert (board.goal, board.plan, board.moves, board.moving) == ("", None, {}, False)
        assert [(one.made, one.failed) for one in board.rounds] == [(0, 0)], "what it cut short has not failed"


async def test_a_pause_ends_a_round_before_its_next_eviction() -> None:
    async with term(ACTIVE) as (_, cluster, records):
        board = await board_where(records, lambda board: any(one.state == "reserved" for one in board.moves.values()))
        assert board.moving
        await set_paused(records.store, records.keys, True, by="ann", reason="upgrade", now=dt.datetime.now(dt.UTC))
        cluster.refusal = None  # the budget opens
        asked = cluster.log.count("evict")
        board = await board_where(records, lambda board: not board.moving)
        assert board.rounds[-1].why == "scheduling is paused: by ann: upgrade"
        assert cluster.log.count("evict") == asked
        assert cluster.log[-1] == "delete"
