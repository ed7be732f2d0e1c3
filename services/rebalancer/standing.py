"""One term of the rebalancer: round by round it reads the cluster, plans in a thread, and carries out what it may.

    sweep what a dead leader left --> [ wait: every_s, or another step of the rollout ] --> read --> plan --> judge
                                          ^                                                                    |
                                          +-------------------- carry out, tell the board <--------------------+

A round is stopped in order where the candidate is taken back, scheduling is paused, a node is drained from it, the
window closes, the lease may have ended, or the process is asked to stop: who has not been asked to leave stays, and
room that nobody needs is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial

import structlog
from msgspec.structs import replace

from services.rebalancer.core.rounds import PlanGuard, RoundScope, judged, scope
from services.rebalancer.core.stats import RebalancerStats
from services.rebalancer.io.records import RebalanceRecords
from services.rebalancer.io.sweeping import run_of, sweep
from services.rebalancer.settings import RebalancerSettings, listed
from shared.adapters.kube.api import KubeClient
from shared.decide.pair import PolicyPair
from shared.decide.rollout import Rollout, same_step
from shared.errors import ConfigError, KubeError
from shared.kube.pods.convert import owner_of
from shared.kube.pods.standing_pods import SourcedPod
from shared.ports import Clock
from shared.rebalance.board import MOST_MOVES, RebalanceBoard, RoundTold, shortened, with_moves, with_round
from shared.rebalance.carrying import Carrying, CarryingPatience
from shared.rebalance.domain import REBALANCE
from shared.rebalance.history import MoveHistory, PastMove
from shared.rebalance.plan import GoalName, MovePlan
from shared.rebalance.planner import ClusterSituation, movable_in
from shared.rebalance.windows import parse_windows
from shared.runtime.kube.moves.carry import CarryOut
from shared.runtime.kube.moves.memory import remember, remembered
from shared.runtime.kube.moves.reading import read_live
from shared.runtime.lease.leadership import Leadership
from shared.runtime.records.rollouts import follow_rollout

log = structlog.get_logger()

BOARD_EVERY_S = 1.0
"""Between two writes of the board while moves are under way."""
AGAIN_S = 10.0
"""After a round whose cluster could not be read, where ``every_s`` is longer."""


class StandingRebalancer:
    """``wall``: seconds since 1970; ``note``: what keeps it from working, "" where nothing does."""

    def __init__(
        self,
        api: KubeClient,
        records: RebalanceRecords,
        pair: PolicyPair[PlanGuard],
        settings: RebalancerSettings,
        leadership: Leadership,
        *,
        term: int,
        clock: Clock,
        note: Callable[[str, str], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.pair, self.stats, self.board = pair, RebalancerStats(), RebalanceBoard()
        self.carrying: Carrying | None = None
        self._api, self._records, self._settings, self._leadership = api, records, settings, leadership
        self._term, self._clock, self._wall, self._note = term, clock, wall, note
        self._windows = parse_windows(settings.windows)
        self._known, self._changed = asyncio.Event(), asyncio.Event()
        self._told = asyncio.Event()
        self._out: CarryOut | None = None
        self._idle = asyncio.Event()
        self._draining = False
        self._numbers = 0
        self._paused = ""
        """Why nobody may be moved, as operators said last."""

    async def follow(self) -> None:
        """The record of the rollout, eternally; another step of it ends what the last one allowed."""
        async for rollout, revision in follow_rollout(self._records.store, self._records.keys, REBALANCE):
            before = self.pair.rollout
            gone = self.pair.read(rollout, revision)
            self._note("candidate", self.pair.refused)
            if gone is not None:
                await self._records.write_rollout(gone, revision)
            if not same_step(before, self.pair.rollout):
                if self._known.is_set():
                    self._changed.set()  # the first reading is what the first round begins with
                self._stop(f"the rollout went on: {self.pair.rollout.stage}")
            self._known.set()

    async def heed(self) -> None:
        """What operators say of scheduling, eternally: nobody is moved while it is paused, or to a node drained from it
        while a round is under way."""
        drained = frozenset[str]()
        async for paused, closed in self._records.follow_paused():
            self._paused = paused
            if paused:
                self._stop(f"scheduling is paused: {paused}")
            elif more := sorted(closed - drained):
                self._stop(f"{more[0]} was drained from scheduling")
            drained = closed

    def _may_move(self) -> bool:
        return not self._paused and self._leadership.is_valid()

    async def run(self) -> None:
        """Rounds, eternally. ``LeadershipLost``."""
        self.board = await self._records.board()
        await self._known.wait()
        while True:
            self._idle.clear()
            self._changed.clear()
            wait_s = self._settings.every_s
            if not self._draining:
                try:
                    self.stats.swept += await sweep(
                        self._api, self._records.keys.prefix, self._term, self._leadership.is_valid
                    )
                    await self._round()
                    self._note("cluster", "")
                except (KubeError, ConfigError) as error:
                    self.stats.unread += 1
                    wait_s = min(wait_s, AGAIN_S)
                    self._note("cluster", str(error)[:256])
                    log.warning("round_without_cluster", error=str(error)[:256])
            self._idle.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    async def tell(self) -> None:
        """The board into etcd whenever it has changed, eternally."""
        while True:
            await self._told.wait()
            self._told.clear()
            await self._records.write_board(self.shown)
            await asyncio.sleep(BOARD_EVERY_S)

    async def drain(self) -> None:
        """Begin nothing more; return once the round has ended."""
        self._draining = True
        self._stop("the rebalancer ends")
        await self._idle.wait()
        await self._records.write_board(self.shown)

    @property
    def shown(self) -> RebalanceBoard:
        """The board, with where each move is by now."""
        return with_moves(self.board, self.carrying) if self.carrying is not None else self.board

    def _stop(self, why: str) -> None:
        if self._out is not None:
            self._out.stop(why)

    async def _round(self) -> None:
        rollout = self.pair.rollout
        if not rollout.on or self.pair.candidate is None:
            why = self.pair.refused or "no goal is rolled out: 'conclave policy try GOAL --for rebalance'"
            self.carrying = None
            self.board = RebalanceBoard(stage=rollout.stage, why=why, rounds=self.board.rounds)
            self._told.set()
            return
        self.stats.rounds += 1
        paused, drained = await self._records.paused()
        there, raws = await read_live(self._api)
        close(there, drained)
        history = await remembered(self._api, self._settings.again_after_s)
        asked = self._settings.request(GoalName(rollout.candidate), listed(self._settings.namespaces), history)
        homes = await asyncio.to_thread(movable_in, there, asked)
        found = self._scope(rollout, homes, paused)
        plan = await self._planned(there, found, history)
        self._begin(found, plan)
        became = judged(self.pair, self.board.rounds, plan, self._settings.most_fruitless, self._clock())
        if became is not None:
            await self._became(became)
        if plan is None or not found.moves or not plan.moves or self._changed.is_set() or self._draining:
            return
        paused, closed = await self._records.paused()  # planning takes its time
        found = self._scope(rollout, homes, paused)
        if found.moves and not closed - drained and same_step(rollout, self.pair.rollout):
            await self._carried(plan, raws, found)
        else:
            self._tell_why(found.why or "a node was drained from scheduling meanwhile")

    def _scope(self, rollout: Rollout, homes: frozenset[str], paused: str) -> RoundScope:
        return scope(rollout, homes, listed(self._settings.namespaces), self._windows, paused, self._wall())

    def _tell_why(self, why: str) -> None:
        self.board = replace(with_round(self.board, replace(self.board.rounds[-1], why=why), new=False), why=why)
        self._told.set()

    async def _planned(self, there: ClusterSituation, found: RoundScope, history: MoveHistory) -> MovePlan | None:
        """By the candidate, beside the loop; None: it failed."""
        guard = self.pair.candidate
        if guard is None:
            return None
        asked = self._settings.request(GoalName(found.goal), found.namespaces, history)
        return await asyncio.to_thread(guard.ask, there, asked, self._wall())

    def _begin(self, found: RoundScope, plan: MovePlan | None) -> None:
        """Tell of a round that begins."""
        rollout, guard = self.pair.rollout, self.pair.candidate
        failed = "" if plan is not None or guard is None else f"no plan: {guard.problem or 'the planner rests'}"
        why = failed or found.why or ("" if plan is None or plan.moves else plan.stopped)
        told = RoundTold(at=self._wall(), goal=found.goal, stage=rollout.stage, since=rollout.since, why=why)
        if plan is not None:
            told = replace(told, unit=plan.unit, before=plan.before, hoped=plan.after, planned=len(plan.moves))
        self.carrying = None
        self.board = RebalanceBoard(
            goal=found.goal, stage=rollout.stage, why=why, namespaces=found.namespaces[:MOST_MOVES],
            plan=None if plan is None else shortened(plan), rounds=self.board.rounds,
        )  # fmt: skip
        self.board = with_round(self.board, told, new=True)
        self.stats.moves_planned += told.planned
        self._told.set()
        log.info("round_planned", goal=found.goal, stage=rollout.stage, moves=told.planned, why=why)

    async def _became(self, rollout: Rollout) -> None:
        """The candidate goes back, or has another good window."""
        if not rollout.on:
            self.stats.rollouts_back += 1
            log.warning("rollout_back", goal=rollout.candidate, reason=rollout.reason)
            self.board = replace(self.board, moving=False, why=rollout.reason)
            self._told.set()
        revision = self.pair.revision
        self.pair.became(rollout)
        await self._records.write_rollout(rollout, revision)

    async def _carried(self, plan: MovePlan, raws: Sequence[SourcedPod], found: RoundScope) -> None:
        by_uid = {raw.metadata.uid: raw for raw in raws}
        owners = {uid: "/".join(owner_of(raw.metadata)[1:]) for uid, raw in by_uid.items()}
        patience = CarryingPatience(ready_s=self._settings.ready_s)
        self.carrying = carrying = Carrying(plan.moves, owners, set(by_uid), patience)
        self._numbers += 1
        run = run_of(self._records.keys.prefix, self._term, self._numbers)
        self.board = replace(self.board, moving=True)
        self._told.set()

        async def write(moves: Sequence[PastMove]) -> None:
            await remember(self._api, moves, run, self._settings.max_per_hour)

        self._out = CarryOut(
            self._api, carrying, by_uid, self._clock, self._line, write, run, leads=self._may_move,
            changed=self._told.set,
        )  # fmt: skip
        closing = None
        if found.for_s != float("inf"):
            closing = asyncio.get_running_loop().call_later(found.for_s, partial(self._stop, "its window has closed"))
        try:
            await self._out.run()
        finally:
            self._out = None
            if closing is not None:
                closing.cancel()
            self._ended(carrying)

    def _line(self, line: str) -> None:
        log.info("move", told=line)

    def _ended(self, carrying: Carrying) -> None:
        """Tell how the round ended."""
        made, failed = carrying.ends
        self.stats.moves_made += made
        self.stats.moves_failed += failed
        told = replace(self.board.rounds[-1], made=made, failed=failed, why=carrying.stopped)
        self.board = with_round(replace(self.board, moving=False), told, new=False)
        self._told.set()
        log.info("round_ended", made=made, failed=failed, stopped=carrying.stopped)


def close(there: ClusterSituation, drained: frozenset[str]) -> None:
    """Nodes that were drained from our scheduling take nobody: no object says so, the mesh does."""
    table = there.state.table
    for name in drained & table.row_of.keys():
        node = table.nodes[table.row_of[name]]
        if node is not None:
            there.state.upsert_node(replace(node, drained="drained"))
