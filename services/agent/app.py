"""The agent's composition root: the only place that constructs adapters and wires tasks.

An agent needs etcd for its registration alone, and has no access to Kubernetes at all: what it knows is streamed to it
by the coordinator, so a thousand agents cost the API server nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from services.agent.settings import AgentSettings
from services.agent.shell import AgentShell
from shared.agent.core import AgentCore
from shared.agent.experience import ExperienceSettings
from shared.policy.domain import PLACEMENT
from shared.policy.registry import make_policy, ref_of
from shared.runtime.agent.following import follow_leader, follow_learner, follow_policies
from shared.runtime.agent.policies import PolicyLoader
from shared.runtime.agent.sender import Sender
from shared.runtime.lease.membership import serve_registered
from shared.runtime.lease.thread import LeaseThread
from shared.runtime.process.plugins import plugins_of, profile_of, profile_titles, titles_of
from shared.runtime.process.runtime import Runtime, new_incarnation, opened
from shared.runtime.process.service import Service
from shared.runtime.records.policies import get_weights
from shared.version import CONCLAVE_VERSION
from shared.wire.messages import VERSION
from shared.wire.records import AgentRecord

if TYPE_CHECKING:
    from services.agent.sensors.sensing import AgentSensing


async def main(service: Service, settings: AgentSettings) -> None:
    """Run until asked to stop. ``ConfigError``: a setting, etcd that does not answer, an id used twice."""
    async with opened(service, settings, "agent") as runtime:
        plugins = plugins_of(settings.plugins)
        plugins.follow(runtime.health.note)
        core = AgentCore(
            make_policy(settings.policy),
            random.Random(f"{settings.seed}:{runtime.id}"),
            ref=ref_of(settings.policy),
            clock=time.thread_time,
            limits=replace(PLACEMENT.limits, deadline_s=settings.policy_deadline_ms / 1000),
            experience=ExperienceSettings(delay_s=settings.reward_delay_s),
            speed=settings.workload_speed,
            profile=profile_of(settings.plugins, settings.gpu_shares, settings.power_curves, settings.load_parts),
        )
        for policy in settings.served().policies():
            core.lanes.own(policy)  # loaded before the first pod asks for it
        thread = LeaseThread(runtime.open_store)
        leader_key = runtime.keys.coordinator_leader

        async def read_term() -> int:
            kv = await asyncio.wrap_future(thread.submit(thread.store.get(leader_key)))
            return kv.create_revision if kv is not None else 0

        shell = AgentShell(core, runtime.metrics, agent_id=runtime.id, read_term=read_term, hops=runtime.hops)
        await runtime.listen(shell.routes())
        senses = bool(settings.node) and settings.sensor_every_s > 0
        record = AgentRecord(
            id=runtime.id,
            url=runtime.url,
            incarnation=new_incarnation(),
            node=settings.node,
            protocol=VERSION,
            version=CONCLAVE_VERSION,
            plugins=titles_of(settings.plugins, settings.power_curves, settings.load_parts)
            + profile_titles(settings.served()),
            sensors=senses,
        )

        def begin() -> None:
            _follow_policies(runtime, thread, core)
            _follow_learner(runtime, thread, Sender(core, runtime.client, agent_id=runtime.id, clock=time.monotonic))
            if sensing is not None:
                _follow_leader(runtime, thread, sensing)

        async with AsyncExitStack() as stack:
            sensing = await stack.enter_async_context(_sensing(runtime, record, core)) if senses else None
            await stack.enter_async_context(thread)
            await serve_registered(runtime, thread, key=runtime.keys.agent(runtime.id), record=record, begin=begin)


def _follow_policies(runtime: Runtime[AgentSettings], thread: LeaseThread, core: AgentCore) -> None:
    """Decide by what the pointer in etcd names, as it changes."""
    keys, main_loop = runtime.keys, asyncio.get_running_loop()

    async def fetch(sha256: str) -> bytes | None:
        return await asyncio.wrap_future(thread.submit(get_weights(thread.store, keys, sha256)))

    loader = PolicyLoader(core.lanes, fetch)
    runtime.service.spawn("policies", loader.run())
    watch = follow_policies(thread.store, keys, lambda pointer: main_loop.call_soon_threadsafe(loader.post, pointer))
    runtime.service.spawn("policy_pointer", _in_thread(thread, watch))


def _follow_learner(runtime: Runtime[AgentSettings], thread: LeaseThread, sender: Sender) -> None:
    """Send what is lived through to the learner that is registered, if any."""
    main_loop = asyncio.get_running_loop()
    watch = follow_learner(
        thread.store, runtime.keys, lambda learner: main_loop.call_soon_threadsafe(sender.follow, learner)
    )
    runtime.service.spawn("learner", _in_thread(thread, watch))
    runtime.service.spawn("transitions", sender.run())


async def _in_thread(thread: LeaseThread, watch: Coroutine[Any, Any, None]) -> None:
    """An agent has one connection to etcd, the lease thread's."""
    await asyncio.wrap_future(thread.submit(watch))


def _sensing(
    runtime: Runtime[AgentSettings], record: AgentRecord, core: AgentCore
) -> AbstractAsyncContextManager[AgentSensing]:
    """What measures the node. Its modules are read only by agents that have one."""
    from services.agent.sensors.reporting import Self
    from services.agent.sensors.sensing import opened_sensing

    who = Self(record.id, record.incarnation, record.node)
    return opened_sensing(runtime.settings, runtime.client, who, url=runtime.url, term=lambda: core.term)


def _follow_leader(runtime: Runtime[AgentSettings], thread: LeaseThread, sensing: AgentSensing) -> None:
    """Measure, and tell whoever leads."""
    main_loop = asyncio.get_running_loop()
    watch = follow_leader(
        thread.store, runtime.keys, lambda leader: main_loop.call_soon_threadsafe(sensing.reporter.follow, leader)
    )
    sensing.register(runtime.metrics)
    sensing.begin(runtime.service)
    runtime.service.spawn("leader", _in_thread(thread, watch))
