"""The agent's composition root: the only place that constructs adapters and wires tasks.

An agent needs etcd for its registration alone, and has no access to Kubernetes at all: what it knows is streamed to it
by the coordinator, so a thousand agents cost the API server nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import aclosing

import msgspec
import structlog

from services.agent.core import AgentCore
from services.agent.experience import ExperienceSettings
from services.agent.policies import PolicyLoader
from services.agent.sender import Sender
from services.agent.settings import AgentSettings
from services.agent.shell import AgentShell
from shared.election.lease import LeaseSettings
from shared.errors import ConfigError
from shared.policy.guard import GuardSettings
from shared.policy.registry import make_policy, ref_of
from shared.runtime.http.peers import build_app
from shared.runtime.lease.membership import Membership
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.health import Warnings
from shared.runtime.process.plugins import plugins_of
from shared.runtime.process.process import (
    START_TIMEOUT_S,
    hops_of,
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
from shared.runtime.records.policies import follow_pointer, get_weights
from shared.runtime.records.prefix_watch import follow_prefix
from shared.version import compatible
from shared.wire.messages import VERSION
from shared.wire.records import AgentRecord, LearnerRecord, decode_record, encode_record

log = structlog.get_logger()


async def main(service: Service, settings: AgentSettings) -> None:
    """Run until asked to stop. ``ConfigError``: a setting, etcd that does not answer, an id used twice."""
    agent_id = identity(settings)
    plugins = plugins_of(settings.plugins)
    rng = random.Random(f"{settings.seed}:{agent_id}")
    policy, guard = make_policy(settings.policy), GuardSettings(deadline_s=settings.policy_deadline_ms / 1000)
    lived = ExperienceSettings(delay_s=settings.reward_delay_s)
    core = AgentCore(
        policy, rng, ref=ref_of(settings.policy), clock=time.thread_time, guard=guard, experience=lived,
        speed=settings.workload_speed, profile=plugins.profile,
    )  # fmt: skip
    metrics = Metrics("agent")
    thread = LeaseThread(store_opener(settings))
    leader_key = keys_of(settings).coordinator_leader

    async def read_term() -> int:
        kv = await asyncio.wrap_future(thread.submit(thread.store.get(leader_key)))
        return kv.create_revision if kv is not None else 0

    hops = hops_of(settings, "agent", agent_id)
    shell = AgentShell(core, metrics, agent_id=agent_id, read_term=read_term, hops=hops)
    peers = peering(settings)
    peers.standing.register(metrics)
    plugins.follow(peers.standing.note)
    app = build_app(
        metrics,
        routes=shell.routes(),
        authenticator=peers.authenticator,
        ready=lambda: service.ready,
        settings=settings,
    )
    listener = await open_listener(settings, app)
    try:
        url = url_of(settings, listener)
        record = AgentRecord(
            id=agent_id,
            url=url,
            incarnation=new_incarnation(),
            node=settings.node,
            protocol=VERSION,
            version=our_version(),
            plugins=plugins.titles,
        )
        replaced = asyncio.Event()
        async with (
            thread,
            Membership(
                thread,
                key=keys_of(settings).agent(agent_id),
                value=encode_record(record),
                settings=LeaseSettings.for_ttl(settings.lease_ttl_s),
                on_replaced=replaced.set,
            ) as membership,
        ):
            await _registered(membership, settings)

            def tell(warnings: Warnings) -> None:
                membership.set_value(encode_record(msgspec.structs.replace(record, warnings=warnings)))

            service.spawn("standing", peers.standing.run(tell))
            _follow_policies(service, settings, thread, core)
            sender = Sender(core, peers.client, agent_id=agent_id, clock=time.monotonic)
            _follow_learner(service, settings, thread, sender)
            service.mark_ready()
            say_ready("agent", agent_id, url)
            await _until_end(service, replaced, agent_id)
    finally:
        await listener.close()
        await peers.client.close()
        hops.close()


def _follow_policies(service: Service, settings: AgentSettings, thread: LeaseThread, core: AgentCore) -> None:
    """Decide by what the pointer in etcd names, as it changes."""
    keys, main_loop = keys_of(settings), asyncio.get_running_loop()

    async def fetch(sha256: str) -> bytes | None:
        return await asyncio.wrap_future(thread.submit(get_weights(thread.store, keys, sha256)))

    loader = PolicyLoader(core.lanes, fetch)

    async def watch() -> None:
        async with aclosing(follow_pointer(thread.store, keys)) as pointers:
            async for stored in pointers:
                if stored is None:
                    log.error("policy_pointer_unreadable", key=keys.policies_active)
                elif stored.pointer is not None:
                    main_loop.call_soon_threadsafe(loader.post, stored.pointer)

    async def follow() -> None:
        await asyncio.wrap_future(thread.submit(watch()))

    service.spawn("policies", loader.run())
    service.spawn("policy_pointer", follow())


def _follow_learner(service: Service, settings: AgentSettings, thread: LeaseThread, sender: Sender) -> None:
    """Send what is lived through to the learner that is registered, if any."""
    prefix, main_loop = keys_of(settings).members_prefix("learner"), asyncio.get_running_loop()

    async def watch() -> None:
        async with aclosing(follow_prefix(thread.store, prefix)) as views:
            async for view in views:
                records = [decode_record(kv.value, LearnerRecord) for kv in view.items.values()]
                known = sorted((r for r in records if r is not None and _speaks(r)), key=lambda r: r.id)
                main_loop.call_soon_threadsafe(sender.follow, known[0] if known else None)

    async def follow() -> None:
        await asyncio.wrap_future(thread.submit(watch()))

    service.spawn("learner", follow())
    service.spawn("transitions", sender.run())


def _speaks(record: LearnerRecord) -> bool:
    """Whether that learner understands us."""
    return record.protocol == VERSION and compatible(record.version, our_version())


async def _registered(membership: Membership, settings: AgentSettings) -> None:
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            await membership.wait_registered()
    except TimeoutError as error:
        raise ConfigError(
            f"etcd: {','.join(settings.etcd)} did not take our registration within {START_TIMEOUT_S:g} s; "
            "start it or mend --etcd"
        ) from error


async def _until_end(service: Service, replaced: asyncio.Event, agent_id: str) -> None:
    """Until asked to stop; a second process of the same id ends this one."""
    waiting = [asyncio.ensure_future(service.stopping.wait()), asyncio.ensure_future(replaced.wait())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    if replaced.is_set():
        raise ConfigError(f"id: another process has registered as agent {agent_id!r}; give each agent its own --id")
