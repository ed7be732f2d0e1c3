"""Sends what the agent lived through to the learner, as long as there is one. Losing it costs learning, nothing else.

The learner is found by its registration in etcd. A batch that it does not take is kept for later, within bounds; a
learner that is gone costs one short failed call now and then, never a decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from shared.adapters.peers.client import PeerClient
from shared.agent.core import AgentCore
from shared.errors import PeerError, PeerRejected, WireError
from shared.wire.codec import decode, encode
from shared.wire.messages import VERSION, Transition, Transitions, TransitionsAck
from shared.wire.records import LearnerRecord

log = structlog.get_logger()

TRANSITIONS = "/v1/transitions"
SEND_EVERY_S = 1.0
TIMEOUT_S = 2.0
BATCH = 256
MOST_BATCHES = 8
PAUSE_S = 5.0
"""After a failed call."""


class Sender:
    """``follow`` says who the learner is; ``run`` is an eternal task."""

    def __init__(self, core: AgentCore, client: PeerClient, *, agent_id: str, clock: Callable[[], float]) -> None:
        self._core = core
        self._client = client
        self._id = agent_id
        self._clock = clock
        self._learner: LearnerRecord | None = None
        self._message_id = 0
        self.sent = 0
        self.failed = 0

    def follow(self, learner: LearnerRecord | None) -> None:
        """The learner as it is registered now; None: there is none."""
        before, self._learner = self._learner, learner
        self._core.experience.want(learner.policy if learner is not None else "")
        if (before and before.incarnation) != (learner and learner.incarnation):
            log.info("learner_changed", url=learner.url if learner is not None else "")

    async def run(self) -> None:
        """Read rewards as they are due, send what is ready."""
        while True:
            await asyncio.sleep(SEND_EVERY_S)
            core, learner = self._core, self._learner
            if learner is None:
                continue
            for _ in range(core.experience.settings.pending):
                if not core.read_rewards(self._clock()):
                    break
                await asyncio.sleep(0)  # offers come first
            for _ in range(MOST_BATCHES):
                if not core.experience.waiting:
                    break
                if not await self._send(learner):
                    await asyncio.sleep(PAUSE_S)
                    break

    async def _send(self, learner: LearnerRecord) -> bool:
        experience = self._core.experience
        batch = experience.take(BATCH)
        self._message_id += 1
        message = Transitions(
            VERSION, self._message_id, 0, self._core.term, self._id, learner.policy, batch, experience.dropped
        )
        try:
            body = await self._client.call(
                learner.url, TRANSITIONS, encode(message), timeout_s=TIMEOUT_S, service="learner"
            )
            self.sent += decode(body, TransitionsAck).taken
        except PeerRejected as error:
            self.failed += 1
            if error.code in {"peer_unreachable", "peer_untrusted", "overloaded"}:
                self._keep(batch, learner.policy)
            log.info("transitions_refused", code=error.code, count=len(batch))
            return False
        except (PeerError, WireError) as error:
            self.failed += 1  # it may have taken them: twice the same would weigh double, so they are let go
            experience.dropped += len(batch)
            log.info("transitions_lost", code=error.code, count=len(batch))
            return False
        return True

    def _keep(self, batch: list[Transition], policy: str) -> None:
        """Send it later, unless another policy's learner has come meanwhile: to that one its features mean nothing."""
        experience = self._core.experience
        if experience.wanted == policy:
            experience.give_back(batch)
        else:
            experience.dropped += len(batch)
