"""The rebalancer's records in etcd: the candidate that is rolled out, and the board that its successor goes on with."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from shared.decide.rollout import Rollout
from shared.errors import LeadershipLost
from shared.ports import CreateRevisionIs, Put, Store
from shared.rebalance.board import RebalanceBoard
from shared.rebalance.domain import REBALANCE
from shared.runtime.records.control import control_of, read_control
from shared.runtime.records.prefix_watch import follow_prefix, until_known
from shared.runtime.records.rollouts import write_rollout
from shared.wire.keys import Keys
from shared.wire.records import Paused, decode_record


class RebalanceRecords:
    """Of one term: every write compares it."""

    def __init__(self, store: Store, keys: Keys, term: int) -> None:
        self.store, self.keys, self._term = store, keys, term

    async def board(self) -> RebalanceBoard:
        """As an earlier leader left it; one that cannot be read counts as none."""
        kv = await until_known(lambda: self.store.get(self.keys.rebalance_board), "board_unread")
        found = decode_record(kv.value, RebalanceBoard) if kv is not None else None
        return found if found is not None else RebalanceBoard()

    async def write_board(self, board: RebalanceBoard) -> None:
        """``LeadershipLost``: another process leads."""
        compares = [CreateRevisionIs(self.keys.leader(REBALANCE.name), self._term)]
        put = Put(self.keys.rebalance_board, msgspec.json.encode(board))
        result = await until_known(lambda: self.store.txn(compares, [put]), "board_unwritten")
        if not result.succeeded:
            raise LeadershipLost("another rebalancer leads")

    async def write_rollout(self, rollout: Rollout, revision: int) -> None:
        """Where somebody changed the record meanwhile, theirs holds: it is followed."""
        await until_known(
            lambda: write_rollout(
                self.store, self.keys, REBALANCE, rollout, revision=revision, term=self._term
            ),
            "rollout_unwritten",
        )  # fmt: skip

    async def paused(self) -> tuple[str, frozenset[str]]:
        """(why scheduling is paused, "" where it is not; nodes that were drained from it)."""
        control = await until_known(lambda: read_control(self.store, self.keys), "control_unread")
        return _why(control.paused), frozenset(control.drained)

    async def follow_paused(self) -> AsyncGenerator[tuple[str, frozenset[str]], None]:
        """As ``paused``, now and after every change; eternal."""
        async with aclosing(follow_prefix(self.store, self.keys.control_prefix)) as views:
            async for view in views:
                paused, drained, _ = control_of(self.keys, view.items.values())
                yield _why(paused), frozenset(drained)


def _why(paused: Paused | None) -> str:
    return "" if paused is None else f"by {paused.by or 'somebody'}: {paused.reason}"
