"""The shells that keep leadership and membership, with real threads, on the store in memory."""

# ruff: noqa: SIM117 -- the nesting shows who lives within whom
from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import pytest

from shared.election.elector import Elector
from shared.election.lease import LeaseSettings
from shared.election.record import LeaderRecord
from shared.errors import ConfigError, StoreRolledBack, StoreUnknown
from shared.ports import CreateRevisionIs, DeleteKey, Put
from shared.runtime.lease.leadership import Leadership, observe_leader
from shared.runtime.lease.membership import Membership
from shared.runtime.lease.thread import LEADER_HUNG_AFTER_S, LeaseThread
from shared.runtime.records.prefix_watch import follow_prefix
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore
from tests.patience import PATIENCE_S

KEY = "/c/coordinator/leader"
FAST = LeaseSettings.for_ttl(1)
SOON = LeaseSettings.for_ttl(2)
"""For who must keep it: the lease thread may be kept from running for more than a second."""
SLOW = LeaseSettings.for_ttl(600)
"""Who waits for its end waits in vain."""


class Faulty(MemoryStore):
    """A client whose calls may end unknown: before they arrive, or after."""

    def __init__(self, server: MemoryEtcd) -> None:
        super().__init__(server)
        self.cut = False
        self.rolled_back = False
        self.lose_next_reply = False

    async def txn(self, compares, ops, *, timeout_s=2.0):
        if self.cut:
            raise StoreUnknown("cut")
        result = await super().txn(compares, ops)
        if self.lose_next_reply:
            self.lose_next_reply = False
            raise StoreUnknown("reply lost")
        return result

    async def keep_alive(self, lease_id, *, timeout_s=2.0):
        if self.rolled_back:
            raise StoreRolledBack("from 9 to 3")
        if self.cut:
            raise StoreUnknown("cut")
        return await super().keep_alive(lease_id)

    async def revoke_lease(self, lease_id, *, timeout_s=2.0):
        if self.cut:
            raise StoreUnknown("cut")
        await super().revoke_lease(lease_id)

    async def list_prefix(self, prefix, *, timeout_s=5.0):
        if self.cut:
            raise StoreUnknown("cut")
        return await super().list_prefix(prefix)


class Heard:
    """Callbacks in order, to be awaited."""

    def __init__(self) -> None:
        self.all: list[tuple[object, ...]] = []
        self._changed = asyncio.Event()

    def note(self, *what: object) -> None:
        self.all.append(what)
        self._changed.set()

    async def wait(self, accept: Callable[[list[tuple[object, ...]]], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not accept(self.all):
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
def server() -> MemoryEtcd:
    return MemoryEtcd()


@pytest.fixture
async def store(server: MemoryEtcd) -> AsyncIterator[MemoryStore]:
    opened = MemoryStore(server)
    yield opened
    await opened.close()


def candidacy(thread: LeaseThread, name: str, heard: Heard | None = None, settings: LeaseSettings = FAST) -> Leadership:
    heard = heard or Heard()
    return Leadership(
        thread,
        key=KEY,
        record=LeaderRecord(identity=name, incarnation=f"{name}1", url=f"http://{name}"),
        settings=settings,
        on_elected=lambda term: heard.note("elected", term),
        on_lost=lambda term, reason: heard.note("lost", term, reason),
    )


# --- leadership -------------------------------------------------------------------------------------------------


async def test_the_term_is_the_create_revision_of_the_key(server):
    async with LeaseThread(lambda: MemoryStore(server)) as thread, candidacy(thread, "a") as leadership:
        term = await leadership.wait_elected()
        assert leadership.is_valid()
        assert leadership.term == term == server.get(KEY).create_revision


async def test_a_resignation_is_followed_at_once_although_the_ttl_is_long(server):
    first, second = Heard(), Heard()
    async with LeaseThread(lambda: MemoryStore(server)) as one, LeaseThread(lambda: MemoryStore(server)) as two:
        async with candidacy(one, "a", first, SLOW) as a:
            await a.wait_elected()
            async with candidacy(two, "b", second, SLOW) as b:
                await a.__aexit__(None, None, None)
                async with asyncio.timeout(PATIENCE_S):
                    await b.wait_elected()
                assert not a.is_valid()
    assert [what[0] for what in first.all] == ["elected", "lost"]
    assert first.all[-1][2] == "resigned"


async def test_a_leader_that_is_said_to_have_ended_is_followed_at_once_although_the_ttl_is_long(server):
    first = Heard()
    async with LeaseThread(lambda: MemoryStore(server)) as one, LeaseThread(lambda: MemoryStore(server)) as two:
        async with candidacy(one, "a", first, SLOW) as a:
            term = await a.wait_elected()
            async with candidacy(two, "b", settings=SLOW) as b:
                async with asyncio.timeout(PATIENCE_S):
                    while b.leader is None:  # noqa: ASYNC110  a hint, published without an event
                        await asyncio.sleep(0.01)
                    b.leader_ended(term)
                    await first.wait(lambda heard: ("lost", term, "deposed") in heard)
                    # whichever of the two is faster leads then: both live
                    led, _ = await asyncio.wait(
                        [asyncio.create_task(one.wait_elected()) for one in (a, b)], return_when=asyncio.FIRST_COMPLETED
                    )
                    assert min(task.result() for task in led) > term


async def test_leaving_gives_the_key_back(server):
    async with LeaseThread(lambda: MemoryStore(server)) as thread, candidacy(thread, "a", settings=SLOW) as leadership:
        await leadership.wait_elected()
    assert server.get(KEY) is None


async def test_a_leader_cut_off_is_invalid_before_its_key_ends_and_leads_anew_later(server):
    heard = Heard()
    clients: list[Faulty] = []

    def connect() -> Faulty:
        clients.append(Faulty(server))
        return clients[-1]

    async with LeaseThread(connect) as thread, candidacy(thread, "a", heard, LeaseSettings()) as leadership:
        first = await leadership.wait_elected()
        clients[0].cut = True
        await heard.wait(lambda all_: ("lost", first, "validity_over") in all_)
        assert not leadership.is_valid()
        assert server.get(KEY) is not None
        clients[0].cut = False
        assert await leadership.wait_elected() > first


async def test_a_claim_whose_reply_is_lost_still_leads(server):
    def connect() -> Faulty:
        client = Faulty(server)
        client.lose_next_reply = True
        return client

    async with LeaseThread(connect) as thread, candidacy(thread, "a") as leadership:
        assert await leadership.wait_elected() == server.get(KEY).create_revision


@pytest.mark.parametrize(("hung_after_s", "key_remains"), [(1.0, False), (60.0, True)])
async def test_a_hung_main_loop_loses_key_and_registration(server, hung_after_s, key_remains):
    """Ablation: with a watch on the main loop that never triggers, a hung leader keeps its key for ever."""
    async with LeaseThread(lambda: MemoryStore(server), hung_after_s=hung_after_s) as thread:
        async with (
            candidacy(thread, "a", settings=SOON) as leadership,
            Membership(thread, key="/c/agents/a", value=b"", settings=SOON) as member,
        ):
            await leadership.wait_elected()
            await member.wait_registered()
            # Blocks the main loop on purpose, until the key is gone or has outlived its TTL.
            until = time.monotonic() + (3.0 if key_remains else PATIENCE_S)
            while time.monotonic() < until and (key_remains or server.get(KEY) or server.get("/c/agents/a")):
                time.sleep(0.05)  # noqa: ASYNC251
            assert (server.get(KEY) is not None) == key_remains
            assert (server.get("/c/agents/a") is not None) == key_remains
            assert leadership.is_valid() == key_remains
            # It recovers by itself once the service does.
            await leadership.wait_elected()


@pytest.mark.parametrize(("hung_after_s", "keeps"), [(LEADER_HUNG_AFTER_S, True), (1.0, False)])
async def test_a_leader_whose_turns_are_longer_than_its_lease_keeps_it_while_they_end(server, hung_after_s, keeps):
    """Ablation: by the bound that a leader had before, being busy is taken for being hung."""
    heard = Heard()
    async with LeaseThread(lambda: MemoryStore(server), hung_after_s=hung_after_s) as thread:
        async with candidacy(thread, "a", heard, SOON) as leadership:
            term = await leadership.wait_elected()
            for _ in range(2 if keeps else 1):
                time.sleep(3.0)  # noqa: ASYNC251 -- one turn, half as long again as the TTL
                await asyncio.sleep(0)
            assert (leadership.term == term) == keeps
            assert (("elected", term) in heard.all[:1] and len(heard.all) == 1) == keeps


async def test_a_store_that_went_back_ends_candidacy_and_membership(server):
    heard, replaced = Heard(), Heard()
    clients: list[Faulty] = []

    def connect() -> Faulty:
        clients.append(Faulty(server))
        return clients[-1]

    async with LeaseThread(connect) as thread:
        async with (
            candidacy(thread, "a", heard) as leadership,
            Membership(
                thread, key="/c/agents/a", value=b"", settings=FAST, on_replaced=lambda: replaced.note("replaced")
            ) as member,
        ):
            term = await leadership.wait_elected()
            await member.wait_registered()
            clients[0].rolled_back = True
            await heard.wait(lambda all_: ("lost", term, "store_rolled_back") in all_)
            await replaced.wait(lambda all_: all_ == [("replaced",)])
            assert not leadership.is_valid()
            assert not member.registered()
            # A standby learns of it where it waits.
            with pytest.raises(StoreRolledBack):
                await leadership.wait_elected()
            clients[0].rolled_back = False
    assert [what[0] for what in heard.all] == ["elected", "lost"]


async def test_a_bug_in_the_elector_ends_leadership(server, monkeypatch):
    heard = Heard()
    async with LeaseThread(lambda: MemoryStore(server)) as thread, candidacy(thread, "a", heard) as leadership:
        term = await leadership.wait_elected()

        def broken(*_: object) -> object:
            raise ZeroDivisionError

        monkeypatch.setattr(Elector, "step", broken)
        await heard.wait(lambda all_: ("lost", term, "internal") in all_)
        assert not leadership.is_valid()


async def test_a_deleted_leader_key_is_noticed_by_watch(server, store):
    heard = Heard()
    async with LeaseThread(lambda: MemoryStore(server)) as thread:
        async with candidacy(thread, "a", heard, SLOW) as leadership:
            term = await leadership.wait_elected()
            await store.txn([CreateRevisionIs(KEY, term)], [DeleteKey(KEY)])
            await heard.wait(lambda all_: ("lost", term, "deposed") in all_)
            assert await leadership.wait_elected() > term


async def test_a_store_that_cannot_be_opened_fails_the_start():
    def broken() -> MemoryStore:
        raise ConfigError("no such CA file")

    with pytest.raises(ConfigError, match="no such CA"):
        async with LeaseThread(broken):
            raise AssertionError("must not start")


async def test_clients_observe_leader_and_term(server, store):
    async with LeaseThread(lambda: MemoryStore(server)) as thread, aclosing(observe_leader(store, KEY)) as seen:
        assert await anext(seen) is None
        async with candidacy(thread, "a", settings=SLOW) as leadership:
            term = await leadership.wait_elected()
            record, seen_term = await anext(seen)
            assert (record.url, seen_term) == ("http://a", term)
        assert await anext(seen) is None


# --- membership -------------------------------------------------------------------------------------------------


async def until(server: MemoryEtcd, condition: Callable[[], bool]) -> None:
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(changed.set)

    server.subscribe(wake)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                changed.clear()
                await changed.wait()
    finally:
        server.unsubscribe(wake)


async def test_a_member_is_there_then_changes_then_leaves_at_once(server):
    async with LeaseThread(lambda: MemoryStore(server)) as thread:
        async with Membership(thread, key="/c/agents/a", value=b"1", settings=SLOW) as member:
            await member.wait_registered()
            assert member.registered()
            assert server.get("/c/agents/a").value == b"1"
            member.set_value(b"2")
            await until(server, lambda: server.get("/c/agents/a").value == b"2")
        assert server.get("/c/agents/a") is None


async def test_a_member_that_has_left_is_told_a_new_value_in_vain(server):
    """What looks at certificates runs until the very end: its warning must not end a drain with exit code 2."""
    async with LeaseThread(lambda: MemoryStore(server)) as thread:
        async with Membership(thread, key="/c/agents/a", value=b"1", settings=FAST) as member:
            await member.wait_registered()
        member.set_value(b"2")
    member.set_value(b"3")
    assert server.get("/c/agents/a") is None


async def test_a_member_whose_lease_ended_registers_again(server):
    async with LeaseThread(lambda: MemoryStore(server)) as thread:
        async with Membership(thread, key="/c/agents/a", value=b"1", settings=FAST) as member:
            await member.wait_registered()
            first = server.get("/c/agents/a")
            server.revoke_lease(first.lease_id)
            await until(server, lambda: server.get("/c/agents/a") is not None)
            assert server.get("/c/agents/a").lease_id != first.lease_id


async def test_a_member_whose_key_was_deleted_registers_again(server, store):
    async with LeaseThread(lambda: MemoryStore(server)) as thread:
        async with Membership(thread, key="/c/agents/a", value=b"1", settings=FAST) as member:
            await member.wait_registered()
            await store.txn([], [DeleteKey("/c/agents/a")])
            await until(server, lambda: server.get("/c/agents/a") is not None)


async def test_a_new_incarnation_replaces_the_old_at_once_and_for_good(server):
    told = asyncio.Event()
    async with LeaseThread(lambda: MemoryStore(server)) as one, LeaseThread(lambda: MemoryStore(server)) as two:
        async with Membership(one, key="/c/agents/a", value=b"old", settings=FAST, on_replaced=told.set) as old:
            await old.wait_registered()
            async with Membership(two, key="/c/agents/a", value=b"new", settings=FAST) as new:
                await new.wait_registered()
                assert server.get("/c/agents/a").value == b"new"
                async with asyncio.timeout(PATIENCE_S):
                    await told.wait()
                assert not old.registered()
                assert server.get("/c/agents/a").value == b"new"


async def test_a_registration_whose_reply_is_lost_is_no_rival(server):
    def connect() -> Faulty:
        client = Faulty(server)
        client.lose_next_reply = True
        return client

    replaced = Heard()
    async with LeaseThread(connect) as thread:
        async with Membership(
            thread, key="/c/agents/a", value=b"1", settings=FAST, on_replaced=lambda: replaced.note("replaced")
        ) as member:
            async with asyncio.timeout(PATIENCE_S):
                await member.wait_registered()
            assert replaced.all == []


# --- following a prefix -----------------------------------------------------------------------------------------


async def test_following_yields_the_whole_content_after_each_change(store):
    async with aclosing(follow_prefix(store, "/c/agents/")) as views:
        assert dict((await anext(views)).items) == {}
        await store.txn([], [Put("/c/agents/a", b""), Put("/c/agents/b", b"")])
        assert sorted((await anext(views)).items) == ["/c/agents/a", "/c/agents/b"]
        await store.txn([], [DeleteKey("/c/agents/a")])
        assert sorted((await anext(views)).items) == ["/c/agents/b"]


async def test_following_lists_again_after_compaction(store):
    async with aclosing(follow_prefix(store, "/c/agents/")) as views:
        await anext(views)
        await store.txn([], [Put("/c/agents/a", b"")])
        await anext(views)
        await store.txn([], [DeleteKey("/c/agents/a")])
        last = (await store.txn([], [Put("/c/agents/b", b"")])).revision
        await store.compact(last)
        view = await anext(views)
        assert sorted(view.items) == ["/c/agents/b"]
        assert view.revision >= last


async def test_following_waits_through_an_outage(server):
    client = Faulty(server)
    client.cut = True
    async with aclosing(follow_prefix(client, "/c/agents/")) as views:
        first = asyncio.ensure_future(anext(views))
        await asyncio.sleep(0.05)
        client.cut = False
        assert dict((await first).items) == {}
