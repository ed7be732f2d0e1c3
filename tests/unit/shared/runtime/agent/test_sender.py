"""Sending transitions to a real listener: kept when it certainly did not take them, let go when it may have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from shared.adapters.peers.client import PeerClient
from shared.agent.core import AgentCore
from shared.policy.heuristics import KubeDefault
from shared.runtime.agent import sender as sending
from shared.runtime.agent.sender import Sender
from shared.runtime.http.callers import Caller
from shared.runtime.http.listener import listen
from shared.runtime.http.peers import PeerRoute, build_app
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.observe.metrics import Metrics
from shared.wire.codec import decode, encode
from shared.wire.messages import VERSION, Transition, Transitions, TransitionsAck
from shared.wire.records import LearnerRecord
from tests.patience import PATIENCE_S

ONE = Transition([0.5], 1, -1.0, [0.25])


class Learner:
    """Takes what comes, or does what ``mode`` says."""

    def __init__(self) -> None:
        self.mode = "takes"
        self.taken: list[Transition] = []

    async def take(self, body: bytes, caller: Caller) -> bytes:
        message = decode(body, Transitions)
        if self.mode == "overloaded":
            raise RequestRefused("busy", code="overloaded")
        if self.mode == "other policy":
            raise RequestRefused("no", code="other_policy")
        if self.mode == "breaks":
            raise RuntimeError("a bug")
        self.taken += message.transitions
        return encode(TransitionsAck(VERSION, 1, message.message_id, 0, len(message.transitions)))


@asynccontextmanager
async def sending_to(learner: Learner) -> AsyncIterator[tuple[AgentCore, Sender]]:
    core, client = AgentCore(KubeDefault(), Random(1)), PeerClient()
    sender = Sender(core, client, agent_id="a", clock=lambda: 0.0)
    listener = await listen(build_app(Metrics("learner"), routes=(PeerRoute("/v1/transitions", learner.take),)))
    sender.follow(LearnerRecord(id="l", url=listener.url, incarnation="i", policy="marl-dqn"))
    core.experience.give_back([ONE, ONE, ONE])
    running = asyncio.create_task(sender.run())
    try:
        yield core, sender
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await client.close()
        await listener.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "SEND_EVERY_S", 0.01)
    monkeypatch.setattr(sending, "PAUSE_S", 0.01)


async def until(holds: Callable[[], bool], *, wake: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await wake()


async def test_transitions_are_sent_once_and_are_gone() -> None:
    learner = Learner()
    async with sending_to(learner) as (core, sender):
        await until(lambda: sender.sent == 3, wake=lambda: asyncio.sleep(0.01))
        assert learner.taken == [ONE] * 3
        assert (core.experience.waiting, core.experience.dropped) == (0, 0)


async def test_an_overloaded_learner_gets_them_later() -> None:
    learner = Learner()
    learner.mode = "overloaded"
    async with sending_to(learner) as (core, sender):
        await until(lambda: sender.failed >= 2, wake=lambda: asyncio.sleep(0.01))
        learner.mode = "takes"
        await until(lambda: sender.sent == 3, wake=lambda: asyncio.sleep(0.01))
        assert learner.taken == [ONE] * 3
        assert core.experience.dropped == 0


@pytest.mark.parametrize(("mode", "dropped"), [("breaks", 3), ("other policy", 0)])
async def test_what_may_have_been_taken_or_is_not_wanted_is_not_sent_again(mode: str, dropped: int) -> None:
    learner = Learner()
    learner.mode = mode
    async with sending_to(learner) as (core, sender):
        await until(lambda: sender.failed == 1, wake=lambda: asyncio.sleep(0.01))
        assert core.experience.waiting == 0
        assert core.experience.dropped == dropped


async def test_a_learner_that_left_is_not_called_and_nothing_is_kept_for_it() -> None:
    learner = Learner()
    learner.mode = "overloaded"
    async with sending_to(learner) as (core, sender):
        await until(lambda: sender.failed >= 1, wake=lambda: asyncio.sleep(0.01))
        sender.follow(None)
        assert core.experience.waiting == 0
        assert core.experience.wanted == ""
