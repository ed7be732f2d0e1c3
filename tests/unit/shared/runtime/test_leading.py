"""The way of one candidacy: stood by, led, asked to stop or lost, and what a service is asked for in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from shared.errors import LeadershipLost
from shared.runtime import leading
from shared.runtime.leading import Face, PeerRoutes, _stand_by_and_lead, stand
from shared.runtime.observe.metrics import Metrics


class Plain(Face[str]):
    """A face that shows nothing."""

    def routes(self) -> PeerRoutes:
        return ()

    def register(self, metrics: Metrics) -> None: ...

    def status(self) -> dict[str, Any]:
        return {}


class Candidate:
    """One candidacy, of which the test says what happens; ``heard``: what the service was asked for."""

    def __init__(self) -> None:
        self.face, self.heard = Plain("p"), list[str]()
        self.stopping, self.began, self.fails = asyncio.Event(), asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        self.elected: asyncio.Future[int] = loop.create_future()
        self.lost: asyncio.Future[str] = loop.create_future()
        service: Any = SimpleNamespace(stopping=self.stopping)
        leadership: Any = SimpleNamespace(wait_elected=self._elected)
        way = _stand_by_and_lead(service, self.face, self._begin, leadership, self.lost, self._drain)
        self.task = asyncio.create_task(way)

    async def _elected(self) -> int:
        return await self.elected

    async def _begin(self, term: int, _: object) -> tuple[str, Sequence[Coroutine[Any, Any, None]]]:
        self.heard.append(f"begin {term}")
        return f"parts of {term}", [self._run()]

    async def _run(self) -> None:
        self.began.set()
        await self.fails.wait()
        raise ZeroDivisionError

    async def _drain(self, parts: str) -> None:
        self.heard.append(f"drain {parts}")


async def test_a_term_is_drained_when_the_process_is_to_stop() -> None:
    one = Candidate()
    one.elected.set_result(7)
    await one.began.wait()
    assert one.face.parts == "parts of 7"
    one.stopping.set()
    await one.task
    assert one.heard == ["begin 7", "drain parts of 7"]


async def test_who_is_to_stop_before_it_is_elected_begins_nothing() -> None:
    one = Candidate()
    one.stopping.set()
    await one.task
    assert (one.heard, one.face.parts) == ([], None)


async def test_a_lost_term_is_not_drained_and_ends_by_what_it_was_lost_by() -> None:
    one = Candidate()
    one.elected.set_result(7)
    await one.began.wait()
    one.lost.set_result("term 7 is over: expired")
    with pytest.raises(LeadershipLost, match="term 7 is over: expired"):
        await one.task
    assert one.heard == ["begin 7"]


async def test_an_error_of_any_of_its_tasks_ends_the_term() -> None:
    one = Candidate()
    one.elected.set_result(7)
    await one.began.wait()
    one.fails.set()
    with pytest.raises(ExceptionGroup) as ended:
        await one.task
    assert ended.group_contains(ZeroDivisionError)


@pytest.mark.parametrize(
    ("ends", "in_order"), [("stop", True), ("lost", False), ("stop and lost", False), ("fails", False)]
)
@pytest.mark.parametrize("leaving_fails", [False, True])
async def test_who_leaves_shows_its_term_until_all_is_settled_and_hears_whether_it_is_in_order(
    monkeypatch: pytest.MonkeyPatch, ends: str, in_order: bool, leaving_fails: bool
) -> None:
    face, stopping, fails, heard = Plain("p"), asyncio.Event(), asyncio.Event(), list[object]()
    lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def elected() -> int:
        return 7

    @asynccontextmanager
    async def candidacy(*_: object, **__: object) -> AsyncIterator[tuple[Any, asyncio.Future[str]]]:
        try:
            yield SimpleNamespace(wait_elected=elected), lost
        finally:
            heard.append(("resigned", face.parts))

    async def run() -> None:
        if "lost" in ends:
            lost.set_result("term 7 is over: expired")
        if "stop" in ends:
            stopping.set()
        if ends == "fails":
            fails.set()
        await fails.wait()
        raise ZeroDivisionError

    async def begin(term: int, _: object) -> tuple[str, Sequence[Coroutine[Any, Any, None]]]:
        return f"parts of {term}", [run()]

    async def leave(in_order: bool) -> None:
        heard.append(("leave", in_order, face.parts))
        if leaving_fails:
            raise KeyError

    monkeypatch.setattr(leading, "candidacy", candidacy)
    runtime: Any = SimpleNamespace(service=SimpleNamespace(stopping=stopping))
    standing = stand(runtime, face, begin, key="k", role="r", ready=lambda: heard.append("ready"), leave=leave)
    (ended,) = await asyncio.gather(standing, return_exceptions=True)
    expected: type[BaseException] | None = LeadershipLost if "lost" in ends else None
    expected = KeyError if leaving_fails else ExceptionGroup if ends == "fails" else expected
    assert (type(ended) if ended is not None else None) is expected
    assert heard == ["ready", ("leave", in_order, "parts of 7"), ("resigned", None)]
