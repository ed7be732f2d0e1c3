"""The learner's composition root: the only place that constructs adapters and wires tasks.

Zero or one learner runs in a mesh. Without it the active policy stays as it is; it needs etcd and the agents' calls,
and nothing needs it.
"""

from __future__ import annotations

import time
from contextlib import aclosing
from pathlib import Path

from lab.evaluation.seeds import parse_seeds
from lab.learner.training.captured import CapturedFile, read_captured
from lab.serve.core import HistoryRead, LearnerCore, LearnerPointerSeen
from lab.serve.gate import gate_of
from lab.serve.online import OnlineTrainer
from lab.serve.publishing import Publisher
from lab.serve.rounds import RoundsCore
from lab.serve.rounds_shell import RoundsShell
from lab.serve.rounds_trainer import RoundsTrainer
from lab.serve.settings import LearnerSettings
from lab.serve.shell import LearnerShell, OnLosses
from shared.policy.marl.features import FEATURES
from shared.ports import Store
from shared.runtime.lease.membership import serve_registered
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.process import await_store
from shared.runtime.process.runtime import new_incarnation, opened
from shared.runtime.process.service import Service
from shared.runtime.records.policies import follow_pointer, get_weights, read_history
from shared.runtime.records.prefix_watch import until_known
from shared.version import CONCLAVE_VERSION
from shared.wire.keys import Keys
from shared.wire.messages import VERSION
from shared.wire.records import LearnerRecord


async def main(service: Service, settings: LearnerSettings) -> None:
    """Run until asked to stop. ``ConfigError``: a setting, a capture, or etcd that does not answer."""
    # before anything is opened: a capture that cannot be read is told at once
    captured = None if settings.capture is None else read_captured("capture", settings.capture)
    async with opened(service, settings, "learner") as runtime:
        store, keys = runtime.store, runtime.keys
        shell: LearnerShell | RoundsShell
        if captured is None:
            shell = _shell(settings, store, keys, runtime.metrics)
        else:
            shell = _rounds(settings, captured, store, keys, runtime.metrics)
        await runtime.listen(shell.routes())
        await await_store(store, settings)
        record = LearnerRecord(
            id=runtime.id,
            url=runtime.url,
            incarnation=new_incarnation(),
            policy=settings.policy,
            protocol=VERSION,
            version=CONCLAVE_VERSION,
        )

        def begin() -> None:
            service.spawn("pointer", _follow(store, keys, shell))
            service.spawn("learning", shell.run())

        async with LeaseThread(runtime.open_store) as thread:
            key = keys.member("learner", runtime.id)
            await serve_registered(runtime, thread, key=key, record=record, begin=begin)


def _shell(settings: LearnerSettings, store: Store, keys: Keys, metrics: Metrics) -> LearnerShell:
    """``ConfigError``: the policy has no gate, or the seeds cannot be read."""
    trainer = OnlineTrainer(
        features=len(FEATURES),
        capacity=settings.capacity,
        learning_rate=settings.learning_rate,
        discount=settings.discount,
        seed=settings.seed,
    )

    async def fetch(sha256: str) -> bytes | None:
        return await get_weights(store, keys, sha256)

    return LearnerShell(
        LearnerCore(settings.policy, settings.min_transitions, settings.gate_margin),
        trainer,
        gate_of(settings.policy),
        Publisher(store, keys),
        metrics,
        updates=settings.updates,
        seeds=parse_seeds(settings.gate_seeds),
        fetch=fetch,
        on_losses=_board(settings.state_dir),
    )


def _rounds(
    settings: LearnerSettings, captured: CapturedFile, store: Store, keys: Keys, metrics: Metrics
) -> RoundsShell:
    """``ConfigError``: the policy does not learn on a capture, or not on this one."""

    async def fetch(sha256: str) -> bytes | None:
        return await get_weights(store, keys, sha256)

    return RoundsShell(
        RoundsCore(settings.policy, settings.round_margin),
        RoundsTrainer(
            settings.policy, captured, seed=settings.seed, steps=settings.round_steps, begun=int(time.time())
        ),
        Publisher(store, keys),
        metrics,
        fetch=fetch,
        every_s=settings.round_every_s,
    )


def _board(folder: Path | None) -> OnLosses:
    """What writes the losses where TensorBoard reads them; nothing without a folder."""
    if folder is None:
        return _forget
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))

    def write(version: int, losses: list[float]) -> None:
        for step, loss in enumerate(losses):
            writer.add_scalar(f"online/v{version}/loss", loss, step)
        writer.flush()

    return write


def _forget(version: int, losses: list[float]) -> None:
    """Losses that nobody asked to keep."""


async def _follow(store: Store, keys: Keys, shell: LearnerShell | RoundsShell) -> None:
    history = await until_known(lambda: read_history(store, keys), "policy_history_unread")
    shell.post_one(HistoryRead(tuple(record.pointer for record in history)))
    async with aclosing(follow_pointer(store, keys)) as pointers:
        async for stored in pointers:
            shell.post_one(LearnerPointerSeen(stored.pointer))
