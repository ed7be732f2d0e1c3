"""The learner's composition root: the only place that constructs adapters and wires tasks.

Zero or one learner runs in a mesh. Without it the active policy stays as it is; it needs etcd and the agents' calls,
and nothing needs it.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import msgspec
import structlog

from services.learner.core import HistoryRead, LearnerCore
from services.learner.gate import gate_of
from services.learner.online import OnlineTrainer
from services.learner.publishing import Publisher
from services.learner.settings import LearnerSettings
from services.learner.shell import LearnerShell, OnLosses
from shared.election.lease import LeaseSettings
from shared.errors import ConfigError, StoreError
from shared.experiments.evaluation.seeds import parse_seeds
from shared.policy.marl.features import FEATURES
from shared.ports import Store
from shared.runtime.http.peers import build_app
from shared.runtime.lease.membership import Membership
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.health import Warnings
from shared.runtime.process.process import (
    await_store,
    identity,
    keys_of,
    new_incarnation,
    open_listener,
    our_version,
    peering,
    say_ready,
    store_opener,
    url_of,
)
from shared.runtime.process.service import Service
from shared.runtime.records.policies import follow_pointer, get_weights, read_history
from shared.wire.keys import Keys
from shared.wire.messages import VERSION
from shared.wire.records import LearnerRecord, encode_record

log = structlog.get_logger()

RETRY_S = 0.5


async def main(service: Service, settings: LearnerSettings) -> None:
    """Run until asked to stop. ``ConfigError``: a setting, or etcd that does not answer."""
    service_id, keys, metrics = identity(settings), keys_of(settings), Metrics("learner")
    store = store_opener(settings)()
    peers = peering(settings)
    peers.standing.register(metrics)
    shell = _shell(settings, store, keys, metrics)
    app = build_app(
        metrics,
        routes=shell.routes(),
        authenticator=peers.authenticator,
        ready=lambda: service.ready,
        settings=settings,
    )
    listener = await open_listener(settings, app)
    try:
        await await_store(store, settings)
        url = url_of(settings, listener)
        record = LearnerRecord(
            id=service_id,
            url=url,
            incarnation=new_incarnation(),
            policy=settings.policy,
            protocol=VERSION,
            version=our_version(),
        )
        replaced = asyncio.Event()
        async with (
            LeaseThread(store_opener(settings)) as thread,
            Membership(
                thread,
                key=keys.member("learner", service_id),
                value=encode_record(record),
                settings=LeaseSettings.for_ttl(settings.lease_ttl_s),
                on_replaced=replaced.set,
            ) as membership,
        ):
            await membership.wait_registered()

            def tell(warnings: Warnings) -> None:
                membership.set_value(encode_record(msgspec.structs.replace(record, warnings=warnings)))

            service.spawn("standing", peers.standing.run(tell))
            service.spawn("pointer", _follow(store, keys, shell))
            service.spawn("learning", shell.run())
            service.mark_ready()
            say_ready("learner", service_id, url)
            await _until_end(service, replaced, service_id)
    finally:
        await listener.close()
        await peers.client.close()
        await store.close()


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


async def _follow(store: Store, keys: Keys, shell: LearnerShell) -> None:
    while True:
        try:
            shell.post(HistoryRead(tuple(record.pointer for record in await read_history(store, keys))))
            break
        except StoreError as error:
            log.info("policy_history_unread", error=error)
            await asyncio.sleep(RETRY_S)
    async with aclosing(follow_pointer(store, keys)) as pointers:
        async for stored in pointers:
            if stored is None:
                log.error("policy_pointer_unreadable", key=keys.policies_active)
            else:
                shell.see(stored.pointer)


async def _until_end(service: Service, replaced: asyncio.Event, service_id: str) -> None:
    """Until asked to stop; a second process of the same id ends this one."""
    waiting = [asyncio.ensure_future(service.stopping.wait()), asyncio.ensure_future(replaced.wait())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    if replaced.is_set():
        raise ConfigError(f"id: another process has registered as learner {service_id!r}; give each its own --id")
