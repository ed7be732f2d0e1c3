"""What the learner does about the instructions of ``rounds.py``: a round in a thread, at most one in ``every_s``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import structlog

from lab.serve.publishing import PublishedUnknown, Publisher
from lab.serve.rounds import Event, Instruction, Offered, OfferWeights, Round, RoundLearned, RoundsCore
from lab.serve.rounds_trainer import RoundsTrainer
from lab.serve.shell import AGENT, PER_AGENT, Fetch
from shared.errors import ConclaveError, ConfigError
from shared.policy.registry import load_policy
from shared.policy.weights import WeightsFile, decode, shipped_bytes, shipped_names
from shared.runtime.http.callers import Caller
from shared.runtime.http.peers import PeerRoute
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.leader_shell import LeaderShell
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.service import boottime
from shared.wire.codec import MAX_BODY_BYTES
from shared.wire.records import PolicyRef

log = structlog.get_logger()


class RoundsShell(LeaderShell[Event, Instruction]):
    """``run`` is an eternal task. One thing at a time: what comes while an instruction is carried out waits."""

    def __init__(
        self, core: RoundsCore, trainer: RoundsTrainer, publisher: Publisher, metrics: Metrics, *, fetch: Fetch,
        every_s: float,
    ) -> None:  # fmt: skip
        super().__init__(self._take_in, boottime, None)
        self._core = core
        self._trainer = trainer
        self._publisher = publisher
        self._fetch = fetch
        self._every_s = every_s
        self._began_s = -every_s
        self._base: WeightsFile | None = None
        metrics.figure("learner", self.stats)
        metrics.gauge_of("learner_rounds", "Rounds of learning on the captured cluster", lambda: core.rounds)
        metrics.gauge_of("learner_published", "Candidates published", lambda: core.outcomes["offered"])

    async def run(self) -> None:
        """As every shell's; a round that is being learned is ended with it."""
        try:
            await super().run()
        finally:
            self._trainer.stop()

    def routes(self) -> tuple[PeerRoute, ...]:
        """POST /v1/transitions, which are refused: nothing is learned from them here."""
        route = PeerRoute(
            "/v1/transitions", self.take, roles=AGENT, max_body_bytes=MAX_BODY_BYTES, max_in_flight=16, of_one=2,
            rate_of_one=PER_AGENT,
        )  # fmt: skip
        return (route,)

    async def take(self, body: bytes, caller: Caller) -> bytes:
        """Refused: 409 ``other_policy``."""
        raise RequestRefused(
            f"{self._core.policy} is learned on a captured cluster here; {caller.title} need send nothing"
            f" ({len(body)} bytes)", code="other_policy",
        )  # fmt: skip

    def _take_in(self, events: Sequence[Event], now: float) -> Iterable[Instruction]:  # noqa: ARG002
        return self._core.handle(events)

    def carry_out(self, instruction: Instruction) -> None:
        """Minutes may pass: in a thread, while the loop is free for everything else."""
        self.hold()
        self.start(self._answer(instruction))

    async def _answer(self, instruction: Instruction) -> None:
        match instruction:
            case Round():
                self.resume(await self._round(instruction))
            case OfferWeights():
                self.resume(await self._offer(instruction))

    async def _round(self, order: Round) -> RoundLearned:
        await asyncio.sleep(max(0.0, self._began_s + self._every_s - boottime()))
        self._began_s = boottime()
        begun, judged = False, dict[PolicyRef, float]()
        try:
            base = await self._weights(order.base)
            files = {ref: await self._kept(ref) for ref in order.judge}
            begun = True
            judged = await asyncio.to_thread(self._judged, base, files)
            first = files.get(order.first) if order.first is not None else None
            gain = await asyncio.to_thread(self._trainer.round, base, order.number, anew=order.anew, first=first)
        except ConclaveError as error:
            log.warning("round_failed", round=order.number, base=order.base.title, error=error)
            return RoundLearned(problem=str(error), begun=begun, judged=judged)
        log.info("round", round=order.number, base=order.base.title, gain=round(gain, 5))
        return RoundLearned(gain, judged=judged)

    def _judged(self, base: WeightsFile, files: Mapping[PolicyRef, WeightsFile | None]) -> dict[PolicyRef, float]:
        """The gains over ``base``; 0, which beats nothing, of what is not kept any more or cannot be used."""
        return {ref: 0.0 if file is None else self._trainer.gain(base, file) for ref, file in files.items()}

    async def _kept(self, ref: PolicyRef) -> WeightsFile | None:
        """What was proposed, if etcd has it still and this release can decide by it."""
        data = await self._fetch(ref.sha256)
        if data is None:
            log.warning("published_gone", candidate=ref.title, error="etcd keeps its weights no more; it beats nothing")
            return None
        try:
            load_policy(ref.name, data=data, sha256=ref.sha256)
            return decode(data, policy=ref.name, sha256=ref.sha256)
        except ConfigError as error:
            log.warning("published_unread", candidate=ref.title, error=error)
            return None

    async def _offer(self, order: OfferWeights) -> Offered:
        try:
            file = self._trainer.best(order.version)
            ref = await self._publisher.publish(file, base=order.base, gain=order.gain, instead_of=order.instead_of)
        except PublishedUnknown as error:
            log.warning("perhaps_published", candidate=error.ref.title, base=order.base.title, error=error)
            return Offered(error.ref, str(error))
        except ConclaveError as error:
            log.warning("unpublished", base=order.base.title, error=error)
            return Offered(problem=str(error))
        log.info("published", candidate=ref.title, sha256=ref.sha256)
        return Offered(ref)

    async def _weights(self, ref: PolicyRef) -> WeightsFile:
        if self._base is not None and self._base.sha256 == ref.sha256:
            return self._base
        data = await self._fetch(ref.sha256)
        if data is None and ref.name in shipped_names():
            data = shipped_bytes(ref.name)  # a mesh that never changed its policy keeps no weights in etcd
        self._base = decode(data or b"", policy=ref.name, sha256=ref.sha256)
        return self._base

    def stats(self) -> dict[str, Any]:
        """Figures for ``/v1/stats``."""
        core = self._core
        return {
            "policy": core.policy,
            "phase": core.phase.value,
            "rounds": core.rounds,
            "newest_version": core.newest,
            "last_gain": round(core.last_gain, 5),
            "outcomes": dict(core.outcomes),
        }
