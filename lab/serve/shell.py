"""What the learner does about its core's instructions: transitions in over HTTP, training and the gate in a thread.

The event loop stays free for the lease, health and the agents' transitions; torch and the twin run beside it, one at a
time. Transitions of another policy are refused by code, so that an agent knows why nothing is taken.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import structlog

from lab.serve.core import (
    Event,
    GateVerdict,
    GateWeights,
    Instruction,
    LearnerCore,
    Publish,
    Published,
    Train,
    Trained,
    TransitionsTaken,
)
from lab.serve.gate import GateFunction
from lab.serve.online import OnlineTrainer
from lab.serve.publishing import Publisher
from shared.errors import ConclaveError, StoreError
from shared.policy.weights import WeightsFile, decode
from shared.runtime.http.callers import Caller
from shared.runtime.http.limits import Rate
from shared.runtime.http.peers import PeerRoute
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.leader_shell import LeaderShell
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.service import boottime
from shared.wire.codec import MAX_BODY_BYTES, encode
from shared.wire.codec import decode as decode_message
from shared.wire.messages import VERSION, Transitions, TransitionsAck
from shared.wire.records import PolicyRef

log = structlog.get_logger()

AGENT = frozenset({"agent"})
PER_AGENT = Rate(per_s=20.0, burst=40)
"""An agent sends one batch after the other, at most 8 a second."""
MOST_AGENTS = 4096
"""Agents whose count of dropped transitions is remembered, those heard of last."""
Fetch = Callable[[str], Awaitable[bytes | None]]
"""The bytes under a digest; may raise ``StoreError``."""
OnLosses = Callable[[int, list[float]], None]


class LearnerShell(LeaderShell[Event, Instruction]):
    """``run`` is an eternal task. One thing at a time: what comes while an instruction is carried out waits."""

    def __init__(
        self, core: LearnerCore, trainer: OnlineTrainer, gate: GateFunction, publisher: Publisher, metrics: Metrics, *,
        updates: int, seeds: tuple[int, ...], fetch: Fetch, on_losses: OnLosses,
    ) -> None:  # fmt: skip
        super().__init__(self._take_in, boottime, None, most_events=1)
        self._core = core
        self._trainer = trainer
        self._gate = gate
        self._publisher = publisher
        self._updates = updates
        self._seeds = seeds
        self._fetch = fetch
        self._on_losses = on_losses
        self._taken = 0
        """Transitions that the one ``TransitionsTaken`` in the inbox stands for: training takes minutes, agents go on
        sending."""
        self._base: WeightsFile | None = None
        self._base_ref: PolicyRef | None = None
        self._new: WeightsFile | None = None
        self._message_id = 0
        self._dropped: OrderedDict[str, int] = OrderedDict()
        self._refused = 0
        metrics.figure("learner", self.stats)
        metrics.gauge_of("learner_transitions", "Transitions taken", lambda: trainer.replay.added)
        metrics.gauge_of("learner_published", "Candidates published", lambda: core.outcomes["published"])

    def routes(self) -> tuple[PeerRoute, ...]:
        """POST /v1/transitions, for agents only."""
        return (
            PeerRoute(
                "/v1/transitions",
                self.take,
                roles=AGENT,
                max_body_bytes=MAX_BODY_BYTES,
                max_in_flight=16,
                of_one=2,
                rate_of_one=PER_AGENT,
            ),
        )

    async def take(self, body: bytes, caller: Caller) -> bytes:
        """Transitions to TransitionsAck. Refused: ``WireError`` (400), 409 ``other_policy``, 403 ``foreign_agent``."""
        message = decode_message(body, Transitions)
        if caller.name and message.agent != caller.name:
            raise RequestRefused(f"{caller.title} may not speak for another agent", code="foreign_agent")
        if message.policy != self._core.policy:
            self._refused += len(message.transitions)
            raise RequestRefused(f"{message.policy} is not trained here, {self._core.policy} is", code="other_policy")
        taken = self._trainer.add(message.transitions)
        self._refused += len(message.transitions) - taken
        self._dropped[message.agent] = message.dropped
        self._dropped.move_to_end(message.agent)
        if len(self._dropped) > MOST_AGENTS:
            self._dropped.popitem(last=False)
        if taken and not self._taken:
            self.post_one(TransitionsTaken(taken))
        self._taken += taken
        self._message_id += 1
        return encode(TransitionsAck(VERSION, self._message_id, message.message_id, message.term, taken))

    def _take_in(self, events: Sequence[Event], now: float) -> Iterable[Instruction]:  # noqa: ARG002
        [event] = events
        if isinstance(event, TransitionsTaken):
            event, self._taken = TransitionsTaken(self._taken), 0
        return self._core.handle(event)

    def carry_out(self, instruction: Instruction) -> None:
        """Minutes may pass: in a thread, while the loop is free for everything else."""
        self.hold()
        self.start(self._answer(instruction))

    async def _answer(self, instruction: Instruction) -> None:
        match instruction:
            case Train():
                self.resume(await self._train(instruction))
            case GateWeights():
                self.resume(await self._judge())
            case Publish():
                self.resume(await self._publish(instruction))

    async def _train(self, order: Train) -> Trained:
        try:
            self._base, self._base_ref = await self._weights(order.base), order.base
            self._new, losses = await asyncio.to_thread(
                self._trainer.train, self._base, updates=self._updates, version=order.version, data="live transitions"
            )
        except (ConclaveError, StoreError) as error:
            log.warning("training_failed", base=order.base.title, error=error)
            return Trained(str(error))
        self._on_losses(order.version, losses)
        tail = losses[-20:]
        log.info("trained", version=order.version, updates=len(losses), loss=round(sum(tail) / len(tail), 5))
        return Trained()

    async def _judge(self) -> GateVerdict:
        assert self._base is not None
        assert self._new is not None
        try:
            gain = await asyncio.to_thread(self._gate, self._new, self._base, self._seeds)
        except ConclaveError as error:
            log.warning("gate_failed", error=error)
            return GateVerdict(0.0, str(error))
        log.info("gate", gain=round(gain, 4), candidate=self._new.title, active=self._base.title)
        return GateVerdict(gain)

    async def _publish(self, order: Publish) -> Published:
        assert self._new is not None
        assert self._base_ref is not None
        try:
            ref = await self._publisher.publish(self._new, base=self._base_ref, gain=order.gain)
        except (ConclaveError, StoreError) as error:
            log.warning("unpublished", candidate=self._new.title, error=error)
            return Published(str(error))
        log.info("published", candidate=ref.title, sha256=ref.sha256)
        return Published()

    async def _weights(self, ref: PolicyRef) -> WeightsFile:
        if self._base is not None and self._base.sha256 == ref.sha256:
            return self._base
        data = await self._fetch(ref.sha256)
        return decode(data or b"", policy=ref.name, sha256=ref.sha256)

    def stats(self) -> dict[str, Any]:
        """Figures for ``/v1/stats``."""
        core, replay = self._core, self._trainer.replay
        return {
            "policy": core.policy,
            "phase": core.phase.value,
            "transitions": replay.added,
            "transitions_held": replay.size,
            "transitions_refused": self._refused,
            "transitions_dropped": sum(self._dropped.values()),
            "fresh": core.fresh,
            "newest_version": core.newest,
            "last_gain": round(core.last_gain, 5),
            "outcomes": dict(core.outcomes),
        }
