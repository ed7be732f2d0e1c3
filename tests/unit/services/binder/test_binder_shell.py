"""The binder's shell on the store in memory and an API server in memory, both with faults. No clock is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import pytest

from services.binder.admin import BinderAdmin
from services.binder.core.core import BinderCore
from services.binder.core.instructions import Bind
from services.binder.core.state import BinderCoreSettings
from services.binder.shell import BinderShell
from shared.errors import ConclaveError, LeadershipLost, StoreUnknown, WireError
from shared.ports import Compare, CreateRevisionIs, DeleteKey, Op, Put, TxnResult
from shared.runtime.http.callers import Caller
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.kube.watches import Watches
from shared.runtime.process.failpoints import Failpoints
from shared.runtime.process.service import boottime
from shared.wire.codec import decode, encode
from shared.wire.keys import Keys
from shared.wire.messages import VERSION, Outcome, Placement, Plan, PlanResult
from tests.builders import make_node, make_pod
from tests.fake_kube import AsyncKube, FakeKube
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore
from tests.patience import PATIENCE_S

KEYS = Keys()


class FaultyStore(MemoryStore):
    """Loses requests or replies of transactions that touch intents, as ``faults`` says, in order."""

    def __init__(self, server: MemoryEtcd) -> None:
        super().__init__(server)
        self.faults: list[str] = []

    async def txn(self, compares: Sequence[Compare], ops: Sequence[Op], *, timeout_s: float = 2.0) -> TxnResult:
        fault = self.faults.pop(0) if self.faults else "ok"
        if fault == "drop_request":
            raise StoreUnknown("no answer")
        result = await super().txn(compares, ops, timeout_s=timeout_s)
        if fault == "drop_reply":
            raise StoreUnknown("no answer")
        return result


class Lease:
    """Leadership as the shell asks for it."""

    def __init__(self) -> None:
        self.valid = True

    def is_valid(self, now: float | None = None) -> bool:
        return self.valid


class Stage:
    """One leading binder; ``etcd``, ``kube``: what another one has left."""

    def __init__(self, *, etcd: MemoryEtcd | None = None, kube: FakeKube | None = None) -> None:
        self.etcd = etcd or MemoryEtcd()
        self.store = FaultyStore(self.etcd)
        self.kube = kube or FakeKube()
        self.api = AsyncKube(self.kube)
        self.lease = Lease()
        self.coordinator_term = self.take(KEYS.coordinator_leader)
        self.term = self.take(KEYS.binder_leader("0"))
        self.ended: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.shell = BinderShell(
            self.core(self.term),
            store=self.store,
            api=self.api,
            keys=KEYS,
            shard="0",
            leadership=self.lease,
            clock=boottime,
            failpoints=Failpoints(),
        )
        if kube is None:
            for name in ("n0", "n1"):
                self.kube.add_node(make_node(name))
            self.kube.add_pod(make_pod("p0").cpu("1"))

    def core(self, term: int) -> BinderCore:
        return BinderCore(term, BinderCoreSettings(retry_s=0.01, clear_linger_s=0.01), KEYS)

    def take(self, key: str) -> int:
        self.etcd.txn([], [DeleteKey(key)])
        return self.etcd.txn([CreateRevisionIs(key, 0)], [Put(key, b"{}")]).revision

    def plan(self, *names: str, node: str = "n0", plan_id: int = 1) -> Plan:
        placements = []
        for unit, name in enumerate(names):
            meta = self.kube.pods[f"default/{name}"]["metadata"]
            placements.append(Placement(unit, meta["uid"], "default", name, meta["resourceVersion"], node))
        return Plan(VERSION, 1, 0, self.coordinator_term, plan_id, placements)

    def intents(self) -> int:
        return len(self.etcd.list_prefix(KEYS.intents_prefix).items)

    async def accepting(self) -> None:
        """Return when the takeover is over."""
        over = asyncio.Event()
        step = self.shell.core.takeover.step

        def noticed() -> None:
            step()
            if self.shell.core.takeover.accepting:
                over.set()

        self.shell.core.takeover.step = noticed  # type: ignore[method-assign]  # the tests' way to await it
        if not self.shell.core.takeover.accepting:
            await over.wait()

    def sources(self) -> list[Coroutine[Any, Any, None]]:
        watches = Watches(self.api)
        return [watches.follow_nodes(self.shell.post, drop_malformed=True), watches.follow_pods(self.shell.post)]

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.shell.run())
                for source in self.sources():
                    group.create_task(source)
        except BaseExceptionGroup as errors:
            self.ended.set_result(errors.exceptions[0])


S = TypeVar("S", bound=Stage)


@asynccontextmanager
async def taking_over(stage: S) -> AsyncIterator[S]:
    task = asyncio.create_task(stage.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            await stage.accepting()
            yield stage
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def leading() -> AbstractAsyncContextManager[Stage]:
    return taking_over(Stage())


async def test_a_plan_is_bound_and_its_intent_cleared_on_drain() -> None:
    async with leading() as stage:
        answer = await stage.shell.submit(stage.plan("p0"))
        assert [(r.outcome, r.node) for r in answer.results] == [(Outcome.BOUND, "n0")]
        await stage.shell.drain()
        assert stage.intents() == 0
        with pytest.raises(RequestRefused) as refused:
            await stage.shell.submit(stage.plan("p0", plan_id=2))
        assert refused.value.code == "not_ready"


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "ablation"])
async def test_a_forged_term_that_commits_nothing_does_not_lock_the_true_coordinator_out(
    checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def believe(term: int) -> None:
        """The safeguard switched off."""

    async with leading() as stage:
        if not checked:
            monkeypatch.setattr(stage.shell, "_confirm", believe)
        forged = Plan(VERSION, 1, 0, 2**40, 1, [])
        if checked:
            with pytest.raises(RequestRefused) as refused:
                await stage.shell.submit(forged)
            assert (refused.value.status, refused.value.code) == (409, "stale_term")
            answer = await stage.shell.submit(stage.plan("p0"))
            assert answer.results[0].outcome == Outcome.BOUND
        else:
            await stage.shell.submit(forged)
            with pytest.raises(RequestRefused) as locked_out:
                await stage.shell.submit(stage.plan("p0"))
            assert locked_out.value.code == "stale_term"


async def test_a_new_term_is_confirmed_once_and_waits_while_etcd_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with leading() as stage:
        reads = 0
        answers: list[int | Exception] = [StoreUnknown("no answer"), stage.coordinator_term]

        async def coordinator_term() -> int:
            nonlocal reads
            answer = answers[reads]
            reads += 1
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(stage.shell.store_calls, "coordinator_term", coordinator_term)
        with pytest.raises(RequestRefused) as refused:
            await stage.shell.submit(stage.plan("p0"))
        assert (refused.value.status, refused.value.code) == (503, "not_ready")
        assert (await stage.shell.submit(stage.plan("p0"))).results[0].outcome == Outcome.BOUND
        await stage.shell.submit(stage.plan(plan_id=2))
        assert reads == 2


@pytest.mark.parametrize("fault", ["drop_request", "drop_reply"])
async def test_a_lost_transaction_is_looked_up_and_ends_in_one_binding(fault: str) -> None:
    async with leading() as stage:
        stage.store.faults = [fault]
        answer = await stage.shell.submit(stage.plan("p0"))
        assert answer.results[0].outcome == Outcome.BOUND
        assert len(stage.kube.bound) == 1


@pytest.mark.parametrize("fault", ["drop_request", "drop_reply"])
async def test_a_lost_binding_is_read_back_and_ends_in_one_binding(fault: str) -> None:
    async with leading() as stage:
        stage.api.faults["bind"] = [fault]
        stage.api.faults["get"] = ["drop_reply"]
        answer = await stage.shell.submit(stage.plan("p0"))
        assert answer.results[0].outcome == Outcome.BOUND
        assert len(stage.kube.bound) == 1


async def test_a_pod_that_changed_is_bound_with_its_newer_version() -> None:
    async with leading() as stage:
        stage.api.gates["bind"], stage.api.reached["bind"] = asyncio.Event(), asyncio.Event()
        answer = asyncio.create_task(stage.shell.submit(stage.plan("p0")))
        await stage.api.reached["bind"].wait()
        stage.kube.touch_pod("p0")
        stage.api.gates["bind"].set()
        assert (await answer).results[0].outcome == Outcome.BOUND
        assert stage.api.calls.count("bind") == 2


async def test_without_a_valid_lease_no_binding_is_sent() -> None:
    async with leading() as stage:
        commit = stage.store.txn

        async def lose_the_lease(
            compares: Sequence[Compare], ops: Sequence[Op], *, timeout_s: float = 2.0
        ) -> TxnResult:
            result = await commit(compares, ops, timeout_s=timeout_s)
            stage.lease.valid = False
            return result

        stage.store.txn = lose_the_lease  # type: ignore[method-assign]  # the fault of this test alone
        with pytest.raises(LeadershipLost):
            await stage.shell.submit(stage.plan("p0"))
        assert isinstance(await stage.ended, LeadershipLost)
        assert stage.api.calls == []
        assert stage.intents() == 1


@pytest.mark.parametrize("looks_again", [True, False], ids=["as built", "ablation"])
async def test_a_lease_that_ends_right_before_the_binding_stops_it(looks_again: bool) -> None:
    """The second look: after the batch was handed out, before the request leaves. Without it the request leaves."""
    async with leading() as stage:
        carry_out = stage.shell.api_calls.bind

        async def with_the_lease_gone(bind: Bind) -> None:
            stage.lease.valid = not looks_again
            await carry_out(bind)

        stage.shell.api_calls.bind = with_the_lease_gone  # type: ignore[method-assign]  # the fault of this test alone
        if looks_again:
            with pytest.raises(LeadershipLost):
                await stage.shell.submit(stage.plan("p0"))
        else:
            await stage.shell.submit(stage.plan("p0"))
        assert stage.api.calls == ([] if looks_again else ["bind"])


async def test_a_deposed_binder_ends_fenced_and_commits_nothing() -> None:
    async with leading() as stage:
        stage.take(KEYS.binder_leader("0"))
        with pytest.raises(LeadershipLost):
            await stage.shell.submit(stage.plan("p0"))
        assert isinstance(await stage.ended, LeadershipLost)
        with pytest.raises(LeadershipLost):
            await stage.shell.submit(stage.plan("p0", plan_id=2))
        assert (stage.intents(), stage.kube.bound) == (0, [])


async def test_a_deposed_coordinators_plan_is_refused_with_its_code() -> None:
    async with leading() as stage:
        plan = stage.plan("p0")
        stage.take(KEYS.coordinator_leader)
        with pytest.raises(RequestRefused) as refused:
            await stage.shell.submit(plan)
        assert (refused.value.code, refused.value.status) == ("stale_term", 409)
        assert stage.kube.bound == []


async def test_the_same_plan_at_once_from_two_connections_is_done_once() -> None:
    async with leading() as stage:
        first, second = await asyncio.gather(
            stage.shell.submit(stage.plan("p0")), stage.shell.submit(stage.plan("p0"))
        )  # fmt: skip
        assert first.results == second.results
        assert len(stage.kube.bound) == 1


async def test_plans_come_as_messages_and_standbys_refuse_them() -> None:
    async with leading() as stage:
        admin = BinderAdmin("b1", "0")
        body = encode(stage.plan("p0"))
        with pytest.raises(RequestRefused) as refused:
            await admin.plans(body, Caller())
        assert (refused.value.code, refused.value.status) == ("not_leader", 421)
        admin.parts = stage.shell
        answer = decode(await admin.plans(body, Caller()), PlanResult)
        assert (answer.follows, answer.plan_id, answer.results[0].outcome) == (1, 1, Outcome.BOUND)
        with pytest.raises(WireError):
            await admin.plans(b"\x93\x01", Caller())
        assert admin.stats()["bound"] == 1
        assert admin.status()["accepting"]


async def test_a_bug_in_the_core_ends_the_term_instead_of_being_swallowed() -> None:
    async with leading() as stage:

        def broken(*_: object) -> list[object]:
            raise ZeroDivisionError

        stage.shell.core._plan = broken  # type: ignore[method-assign]
        with pytest.raises(ConclaveError):
            await stage.shell.submit(stage.plan("p0"))
        assert isinstance(await stage.ended, ZeroDivisionError)


async def test_an_eviction_is_allowed_only_while_etcd_names_both_leaders() -> None:
    stage = Stage()
    calls = stage.shell.store_calls
    assert await calls.leads(stage.term, stage.coordinator_term)
    stage.store.faults.append("drop_request")
    assert not await calls.leads(stage.term, stage.coordinator_term), "without an answer nobody is evicted"
    newer = stage.take(KEYS.coordinator_leader)
    assert not await calls.leads(stage.term, stage.coordinator_term), "the plan's coordinator leads no more"
    assert await calls.leads(stage.term, newer)
    stage.take(KEYS.binder_leader("0"))
    assert not await calls.leads(stage.term, newer), "we lead no more"
