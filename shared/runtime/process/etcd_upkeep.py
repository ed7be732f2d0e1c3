"""Looks after etcd's room: says what is wrong in words, lets writes that can wait rest, makes room where that is ours.

    each ``LOOK_S``: what each member says of itself --> ``judge`` --> a warning, figures, whether there is room
        --NOSPACE or short of room, and etcd is ours alone--> compact --> defragment --> disarm --> look again

etcd counts the size of its file against its quota, with all that is free in it: above, it refuses every write that
needs room, leases and intents too, until the file is smaller *and* somebody has disarmed the alarm. So what can wait
(history, recordings, weights: ``Keys.can_wait``) rests from ``SHORT`` of the quota on, and the rest is kept for leases
and intents. Compacting and defragmenting are etcd's own remedies; they are everybody's affair on an etcd that others
use too, so there (``--etcd-upkeep shared``, the default) nothing is done and what to do is told.

``judge`` is pure. It never disarms CORRUPT: that is no want of room.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

import structlog
from msgspec import Struct

from shared.errors import StoreError, StoreFull, StoreRejected
from shared.ports import (
    Compare,
    KeyValue,
    LeaseGrant,
    Listing,
    MemberState,
    Op,
    Put,
    Store,
    StoreState,
    TxnResult,
    WatchBatch,
)
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.etcd_release import unsafe_text

log = structlog.get_logger()

LOOK_S = 10.0
SOON_S = 2.0
"""How soon it is looked again while there is no room."""

DEFAULT_QUOTA = 2 << 30
"""etcd's own, where nobody gave one; releases before 3.6 do not say which they have."""

SHORT = 0.8
"""Share of the quota from which on writes that can wait do."""

DEFRAGMENT_OF = 0.7
"""A file of which more than this share is in use is not worth being written anew."""

DISARM_BELOW = 0.9
"""Share of the quota that a file must be below, or the next write would bring the alarm back."""

RELIEVE_EVERY_S = 60.0
RUNBOOK = "docs/operations/runbooks.md#conclaveetcdfull"
GB = 1e9


class EtcdVerdict(Struct, frozen=True):
    """``full``: no write that needs room is taken; ``short``: those that can wait are to. ``text``: in words, "" where
    all is well; ``fill``: the fullest member's size as a share of its quota."""

    full: bool = False
    corrupt: bool = False
    short: bool = False
    fill: float = 0.0
    text: str = ""

    @property
    def refuses(self) -> str:
        """Why it takes no writes, in words; "" while it does."""
        return self.text if self.full or self.corrupt else ""


def judge(state: StoreState, *, quota: int = 0, ours: bool = False) -> EtcdVerdict:
    """What is to be made of it. ``quota``: bytes, where we were told; ``ours``: room is made by the mesh itself."""
    full, corrupt = "NOSPACE" in state.alarms, "CORRUPT" in state.alarms
    fill, size = max(
        ((one.size / quota_of(one, quota, full=full), one.size) for one in state.members), default=(0.0, 0)
    )
    short = full or fill >= SHORT
    text = ""
    if corrupt:
        text = (
            "etcd has raised the alarm CORRUPT: its members hold different data, and it answers nothing; replace the "
            "members that differ (docs/operations/disaster.md)"
        )
    elif full:
        text = (
            f"etcd is full (NOSPACE, {size / GB:.2f} GB): it takes no write, so nobody new can lead and nothing is "
            f"placed; {'room is being made' if ours else 'compact, defragment, then etcdctl alarm disarm'} ({RUNBOOK})"
        )
    elif short:
        text = (
            f"etcd is {int(fill * 20) * 5} % full: history and recordings rest, leases and placements go on; "
            f"{'room is being made' if ours else 'compact and defragment it'} ({RUNBOOK})"
        )
    else:
        text = next((text for one in state.members if (text := unsafe_text(one.version))), "")
    return EtcdVerdict(full=full, corrupt=corrupt, short=short, fill=fill, text=text)


def quota_of(member: MemberState, told: int, *, full: bool) -> float:
    """The quota to go by, in bytes: what the member says, what we were told, etcd's default. Where the file is larger
    than that, it is not the default: that of one that is ``full`` is then the file's size, of another one none. Nor has
    it one where the member says -1 (it was switched off)."""
    known = member.quota or told
    if known:
        return float(known) if known > 0 else float("inf")
    if member.size <= DEFAULT_QUOTA:
        return float(DEFAULT_QUOTA)
    return float(member.size) if full else float("inf")


class Maintained(Store, Protocol):
    """A store that can be given room."""

    async def defragment(self, endpoint: str, *, timeout_s: float = 60.0) -> None:
        """Make this member's file as small as what is in it."""
        ...

    async def disarm(self, alarm: str, *, timeout_s: float = 5.0) -> None:
        """End this alarm at every member."""
        ...


class EtcdUpkeep:
    """Of one process. ``ours``: etcd is this mesh's alone; ``acts``: whether this process is the one to act now."""

    def __init__(
        self,
        store: Maintained,
        *,
        quota: int = 0,
        ours: bool = False,
        acts: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._quota = quota
        self._ours = ours
        self._acts = acts
        self._relieved_at = float("-inf")
        self._refused = ""
        self.state = StoreState()
        self.verdict = EtcdVerdict()

    def text(self) -> str:
        """What is wrong with etcd, in a line; "" for nothing."""
        refused = f"; {self._refused}" if self._refused and self.verdict.short else ""
        return self.verdict.text + refused

    def register(self, metrics: Metrics) -> None:
        """``etcd_full``, ``etcd_corrupt``, ``etcd_fill_ratio``, ``etcd_size_bytes``."""
        metrics.gauge_of("etcd_full", "1 while etcd takes no writes (NOSPACE)", lambda: self.verdict.full)
        metrics.gauge_of("etcd_corrupt", "1 while etcd has the alarm CORRUPT", lambda: self.verdict.corrupt)
        metrics.gauge_of(
            "etcd_fill_ratio", "Size of the fullest etcd member as a share of its quota", lambda: self.verdict.fill
        )
        metrics.gauge_of(
            "etcd_size_bytes", "Size of the largest etcd member's file",
            lambda: max((one.size for one in self.state.members), default=0),
        )  # fmt: skip

    async def run(self) -> None:
        """Eternal."""
        while True:
            await self.look()
            await asyncio.sleep(SOON_S if self.verdict.full else LOOK_S)

    async def look(self) -> None:
        """See how etcd is, and make room where there is none and that is ours to do."""
        if not await self._see() or not self._ours or not self.verdict.short or self.verdict.corrupt:
            return
        loop = asyncio.get_running_loop()
        if self._acts() and loop.time() - self._relieved_at >= RELIEVE_EVERY_S:
            try:
                await self._relieve()
                self._refused = ""
            except StoreError as error:
                self._refused = f"making room failed ({error})"
                log.warning("etcd_relief_failed", error=error)
            self._relieved_at = loop.time()  # it may have taken longer than the pause

    async def _see(self) -> bool:
        try:
            self.state = await self._store.state()
        except StoreError as error:
            log.debug("etcd_state_unknown", error=error)
            return False
        self.verdict = judge(self.state, quota=self._quota, ours=self._ours)
        return True

    async def _relieve(self) -> None:
        """Compact, defragment what is worth it, member by member, then disarm once every file is small enough."""
        log.warning("etcd_relief", fill=round(self.verdict.fill, 2), full=self.verdict.full)
        try:
            await self._store.compact(self.state.revision, timeout_s=30.0)
        except StoreFull:
            raise
        except StoreRejected as error:  # compacted already
            log.info("etcd_not_compacted", error=error)
        await self._see()
        for member in self.state.members:
            if self._is_worth_defragmenting(member):
                await self._store.defragment(member.endpoint)
                log.warning("etcd_defragmented", member=member.endpoint, before=member.size)
        await self._see()
        if not self.verdict.full:
            return
        if self.verdict.fill < DISARM_BELOW:
            await self._store.disarm("NOSPACE")
            log.warning("etcd_disarmed", fill=round(self.verdict.fill, 2))
            await self._see()
        else:
            raise StoreFull("what etcd holds is alive, none of it history: give it a larger quota, or delete from it")

    def _is_worth_defragmenting(self, member: MemberState) -> bool:
        quota = quota_of(member, self._quota, full=self.verdict.full)
        if self.verdict.full and member.in_use < DISARM_BELOW * quota:
            return member.size >= DISARM_BELOW * quota  # any room that lets the alarm be disarmed
        return member.size >= SHORT * quota and member.in_use <= DEFRAGMENT_OF * member.size


class SparingStore:
    """A store in which writes that can wait do (``StoreFull``) while there is little room. ``can_wait``: whether a
    transaction that puts these keys can."""

    def __init__(self, store: Store, *, can_wait: Callable[[Sequence[str]], bool], short: Callable[[], bool]) -> None:
        self._store = store
        self._can_wait = can_wait
        self._short = short

    async def txn(self, compares: Sequence[Compare], ops: Sequence[Op], *, timeout_s: float = 2.0) -> TxnResult:
        """See ``Store.txn``. ``StoreFull``: it can wait, and there is little room."""
        if self._short() and self._can_wait([op.key for op in ops if isinstance(op, Put)]):
            raise StoreFull(f"etcd is short of room: what can wait is not written ({RUNBOOK})")
        return await self._store.txn(compares, ops, timeout_s=timeout_s)

    async def get(self, key: str, *, timeout_s: float = 2.0) -> KeyValue | None:
        """See ``Store.get``."""
        return await self._store.get(key, timeout_s=timeout_s)

    async def state(self, *, timeout_s: float = 2.0) -> StoreState:
        """See ``Store.state``."""
        return await self._store.state(timeout_s=timeout_s)

    async def list_prefix(self, prefix: str, *, timeout_s: float = 5.0) -> Listing:
        """See ``Store.list_prefix``."""
        return await self._store.list_prefix(prefix, timeout_s=timeout_s)

    async def grant_lease(self, ttl_s: int, *, timeout_s: float = 2.0) -> LeaseGrant:
        """See ``Store.grant_lease``."""
        return await self._store.grant_lease(ttl_s, timeout_s=timeout_s)

    async def keep_alive(self, lease_id: int, *, timeout_s: float = 2.0) -> float:
        """See ``Store.keep_alive``."""
        return await self._store.keep_alive(lease_id, timeout_s=timeout_s)

    async def revoke_lease(self, lease_id: int, *, timeout_s: float = 2.0) -> None:
        """See ``Store.revoke_lease``."""
        await self._store.revoke_lease(lease_id, timeout_s=timeout_s)

    def watch(self, prefix: str, *, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """See ``Store.watch``."""
        return self._store.watch(prefix, start_revision=start_revision)

    async def compact(self, revision: int, *, timeout_s: float = 2.0) -> None:
        """See ``Store.compact``."""
        await self._store.compact(revision, timeout_s=timeout_s)

    async def close(self) -> None:
        """See ``Store.close``."""
        await self._store.close()
