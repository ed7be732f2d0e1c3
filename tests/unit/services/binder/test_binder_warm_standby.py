"""A binder that was warm takes over from a mirror whose watch has fallen silent: what the former leader bound counts.

The former leader binds a pod, clears its intent and is gone; the standby's watch of the pods has shown nothing of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.binder.core.core import BinderCore
from services.binder.core.state import BinderCoreSettings
from shared.kube.resources import PODS, Resource, WatchEvent
from shared.runtime.kube import reflector
from shared.runtime.kube.shared_watches import SharedWatch
from shared.runtime.kube.watches import Watches
from shared.runtime.process.service import boottime
from shared.wire.messages import Outcome
from tests.builders import make_node, make_pod
from tests.fake_kube import AsyncKube, FakeKube
from tests.unit.services.binder.binder_checks import check_i2
from tests.unit.services.binder.test_binder_shell import KEYS, Stage, leading, taking_over

OTHERS = reflector.SMALL + 1
"""Pods that stand: more than a page, so that a takeover does not list them."""


class FallenSilent(AsyncKube):
    """Streams of pods that were opened before ``cut`` tell nothing from then on, as on a way that lost them."""

    def __init__(self, server: FakeKube) -> None:
        super().__init__(server)
        self.silent = asyncio.Event()
        self.listed: list[str] = []
        self.asked: list[str] = []

    def cut(self) -> None:
        self.silent.set()

    async def list(self, resource: Resource[Any], *, timeout_s: float = 60.0) -> Any:
        self.listed.append(resource.plural)
        return await super().list(resource)

    async def revision(self, resource: Resource[Any]) -> str:
        self.asked.append(resource.plural)
        return await super().revision(resource)

    async def watch_batches(
        self, resource: Resource[Any], *, resource_version: str, brief: int = 0
    ) -> AsyncIterator[Sequence[WatchEvent[Any]]]:
        late = self.silent.is_set()
        async for batch in super().watch_batches(resource, resource_version=resource_version, brief=brief):
            if resource is PODS and self.silent.is_set() and not late:
                await asyncio.Event().wait()
            yield batch


class Successor(Stage):
    """The next leader of the shard, on the mirror that it kept, or with the core that has learned."""

    def __init__(self, former: Stage, watches: Watches, learned: BinderCore | None) -> None:
        self._learned = learned
        super().__init__(etcd=former.etcd, kube=former.kube)
        self._watches = watches

    def core(self, term: int) -> BinderCore:
        if self._learned is None:
            return super().core(term)
        self._learned.lead(term, 0.0)
        return self._learned

    def sources(self) -> list[Coroutine[Any, Any, None]]:
        attended = self._learned is not None
        return [self._watches.follow_nodes(self.shell.post, drop_malformed=True, attended=attended), self._pods()]

    async def _pods(self) -> None:
        await self.shell.intents_listed.wait()
        await self._watches.follow_pods(self.shell.post, attended=self._learned is not None)


async def turns_until(holds: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came about")


@asynccontextmanager
async def taken_over(*, learns: bool = False) -> AsyncIterator[tuple[Successor, FallenSilent]]:
    """``first`` stands on ``n0``, which has room for one, and the standby has not seen it. ``learns``: its core hears
    what the mirror does."""
    async with leading() as former:
        former.kube.add_node(make_node("n0").allocatable(cpu="4"))
        former.kube.add_node(make_node("n1").allocatable(pods="2000"))
        former.kube.add_pod(make_pod("rival").cpu("3"))
        former.kube.add_pod(make_pod("first").cpu("3"))
        for number in range(OTHERS):
            former.kube.add_pod(make_pod(f"other-{number}").cpu("1m").on("n1"))
        api = FallenSilent(former.kube)
        watches, learned = Watches(api), BinderCore(0, BinderCoreSettings(validate=True), KEYS) if learns else None
        if learned is not None:
            core = learned
            assert watches.attend(lambda events: core.learn(events, boottime()), drop_malformed=True)
        mirroring = asyncio.create_task(watches.mirror())
        try:
            await turns_until(lambda: watches.figures() == {"objects": OTHERS + 5, "warm": True})
            api.cut()
            told = await former.shell.submit(former.plan("first"))
            assert [(one.outcome, one.node) for one in told.results] == [(Outcome.BOUND, "n0")]
            await former.shell.drain()
            assert former.intents() == 0
            async with taking_over(Successor(former, watches, learned)) as successor:
                yield successor, api
        finally:
            mirroring.cancel()
            await asyncio.gather(mirroring, return_exceptions=True)


@pytest.mark.parametrize("learns", [False, True])
async def test_what_the_former_leader_bound_is_known_before_a_plan_is_taken_and_nothing_is_listed(
    learns: bool,
) -> None:
    async with taken_over(learns=learns) as (successor, api):
        told = await successor.shell.submit(successor.plan("rival"))
        assert [one.outcome for one in told.results] == [Outcome.CONFLICT]
        assert check_i2(successor.kube, {}) == []
        assert sorted(api.listed) == ["nodes", "pods"], "when the mirror began"
        assert api.asked == ["pods"]


async def test_without_catching_up_a_node_would_be_given_away_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The safeguard switched off: the mirror of the pods is taken as it stands."""
    begin = SharedWatch.__init__

    def trusting(self: SharedWatch, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options | {"exact": False})

    monkeypatch.setattr(SharedWatch, "__init__", trusting)
    async with taken_over() as (successor, _):
        told = await successor.shell.submit(successor.plan("rival"))
        assert [one.outcome for one in told.results] == [Outcome.BOUND]
        assert [one.split()[:2] for one in check_i2(successor.kube, {})] == [["I2:", "n0"]]
