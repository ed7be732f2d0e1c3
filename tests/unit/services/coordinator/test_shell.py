"""One term with its shell, on a store and an API server in memory: what is followed, written, refused and ended."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import numpy as np
import pytest

from services.coordinator.app import FOLLOWED, Outside, begin
from services.coordinator.http.peer_routes import Admin
from services.coordinator.settings import RUNTIME_SETTINGS, CoordinatorSettings
from services.coordinator.standby import StandbyCore
from shared.adapters.peers.traffic import Traffic
from shared.agent.core import AgentCore
from shared.election.record import LeaderRecord
from shared.errors import LeadershipLost, PeerRejected, StoreFenced
from shared.policy.heuristics import KubeDefault
from shared.policy.rollout.rollout import first_pointer
from shared.policy.weights import digest
from shared.policy.weights import encode as encode_weights
from shared.ports import BindRequest, DeleteKey, Put
from shared.runtime.kube.watches import Watches
from shared.runtime.leading import lead
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.failpoints import Failpoints
from shared.runtime.records.settings import change_settings
from shared.wire.codec import decode, encode
from shared.wire.keys import Keys
from shared.wire.messages import VERSION, Offer, Outcome, PlacementResult, Plan, PlanResult, ViewUpdate
from shared.wire.records import AgentRecord, Intent, IntentPod, PolicyRef, encode_record
from tests.builders import make_node, make_pod
from tests.fake_kube import AsyncKube, FakeKube
from tests.marl_weights import weights as made_weights
from tests.memory_store import MemoryStore
from tests.patience import PATIENCE_S

KEYS = Keys.under("/conclave/v1/")


class Peers:
    """Agents and a binder behind a ``PeerClient``'s face."""

    def __init__(self, api: FakeKube) -> None:
        self.traffic = Traffic()
        self.api = api
        self.agents: dict[str, AgentCore] = {}
        self.refuse_plans = ""
        self.plans: list[Plan] = []
        self.timeouts: list[float] = []
        """Of offers, in seconds."""

    async def call(self, url: str, route: str, body: bytes, *, timeout_s: float, service: str) -> bytes:
        if route == "/v1/offers":
            self.timeouts.append(timeout_s)
            answer = encode(self.agents[url].decide(decode(body, Offer)))
        elif route == "/v1/views":
            answer = encode(self.agents[url].update(decode(body, ViewUpdate)))
        else:
            answer = encode(self._bind(decode(body, Plan)))
        self.traffic.route(route).count(sent=len(body), received=len(answer), outcome="ok")
        return answer

    def _bind(self, plan: Plan) -> PlanResult:
        self.plans.append(plan)
        if self.refuse_plans:
            raise PeerRejected("no", code=self.refuse_plans, status=409)
        results = []
        for p in plan.placements:
            self.api.bind(BindRequest(p.namespace, p.name, p.uid, p.resource_version, p.node))
            results.append(PlacementResult(p.unit, Outcome.BOUND, p.node, "", 50))
        return PlanResult(VERSION, 1, plan.message_id, plan.term, plan.plan_id, results, 100)


class Leading:
    """``Leadership`` as far as a term asks it."""

    def __init__(self, term: int) -> None:
        self.term = term
        self.leader = None
        self.valid = True
        self.renewal_s = 0.0

    def is_valid(self, now: float | None = None) -> bool:
        return self.valid


class World:
    """Everything around one leading coordinator."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.api = AsyncKube(self.kube)
        self.store = MemoryStore()
        self.peers = Peers(self.kube)
        self.metrics = Metrics("coordinator")
        self.admin = Admin("c0")
        self.leading = Leading(0)
        self.task: asyncio.Task[None] | None = None

    async def put(self, key: str, value: bytes) -> None:
        await self.store.txn([], [Put(key, value)])

    async def start(self, settings: CoordinatorSettings | None = None) -> None:
        await self.put(KEYS.coordinator_leader, b"{}")
        kv = await self.store.get(KEYS.coordinator_leader)
        assert kv is not None
        self.leading.term = kv.create_revision
        record = LeaderRecord(identity="b0", incarnation="x", url="http://b0")
        await self.put(KEYS.binder_leader("0"), record.encode())
        self.admin.leadership = self.leading  # type: ignore[assignment]
        self.admin.register(self.metrics)
        settings = settings or CoordinatorSettings()
        watches = Watches(self.api, FOLLOWED, images=True)
        heir = StandbyCore(self.api, watches, settings, self.store, KEYS)  # type: ignore[arg-type]
        outside = Outside(self.store, self.api, watches, self.peers, Failpoints(), "http://c0", heir)  # type: ignore[arg-type]
        begun = begin(settings, outside, self.admin, self.metrics, kv.create_revision, self.leading)  # type: ignore[arg-type]
        self.task = asyncio.create_task(lead(self.admin, begun))

    async def join(self, agent: str, *, key: str = "", **record: Any) -> None:
        url = f"http://{agent}"
        self.peers.agents[url] = AgentCore(KubeDefault(), np.random.default_rng(1))
        value = encode_record(AgentRecord(id=agent, url=url, incarnation="i", **record))
        await self.put(KEYS.agent(key or agent), value)

    async def until(self, holds: Any) -> None:
        """Wait until something holds; every change here comes from the loop's own turns."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                assert self.task is not None
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0)

    async def ended(self) -> BaseException:
        assert self.task is not None
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([self.task])
        error = self.task.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        assert error is not None
        return error


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    if world.task is not None:
        world.task.cancel()
        with contextlib.suppress(BaseException):
            await world.task
    await world.store.close()


async def test_pods_are_bound_and_figures_are_shown(world: World) -> None:
    world.kube.add_node(make_node("n0"))
    world.kube.add_node(make_node("n1"))
    await world.join("a0")
    await world.join("a1")
    await world.start()
    for number in range(10):
        world.kube.add_pod(make_pod(f"p{number}").cpu("500m"))
    await world.until(lambda: len(world.kube.bound) == 10)
    await world.until(lambda: world.admin.core is not None and not world.admin.core.ledger.placed)
    stats = world.metrics.stats()
    assert stats["coordinator"]["bound"] == 10
    assert stats["coordinator"]["leading"]
    assert stats["coordinator"]["decision_bytes"] / stats["coordinator"]["answers"] < 42
    assert stats["quantiles"]["schedule_latency_ms"]["count"] == 10
    status = world.admin.status()
    assert [agent["nodes"] for agent in status["agents"]] == [1, 1]
    assert status["binders"]["0"]["url"] == "http://b0"
    assert b'conclave_leader{role="coordinator"} 1.0' in world.metrics.exposition()


EMBEDDED = CoordinatorSettings(embedded_agent=True)


async def test_with_an_agent_of_its_own_the_leader_places_where_none_is_registered(world: World) -> None:
    world.kube.add_node(make_node("n0"))
    world.kube.add_node(make_node("n1"))
    await world.start(EMBEDDED)
    for number in range(10):
        world.kube.add_pod(make_pod(f"p{number}").cpu("500m"))
    await world.until(lambda: len(world.kube.bound) == 10)
    assert {pod["spec"]["nodeName"] for pod in world.kube.pods.values()} == {"n0", "n1"}
    assert world.peers.timeouts == [], "an offer left the process"
    (agent,) = world.admin.status()["agents"]
    assert agent["nodes"] == 2


async def test_without_one_nothing_is_placed_where_none_is_registered(world: World) -> None:
    world.kube.add_node(make_node("n0"))
    world.kube.add_pod(make_pod("p0"))
    await world.start()
    await world.until(lambda: world.admin.core is not None and world.admin.core.state.queue.entries)
    assert world.admin.status()["agents"] == []
    assert not world.kube.bound


async def test_registered_agents_decide_instead_and_the_leaders_own_again_when_they_are_gone(world: World) -> None:
    world.kube.add_node(make_node("n0"))
    await world.start(EMBEDDED)
    world.kube.add_pod(make_pod("p0"))
    await world.until(lambda: len(world.kube.bound) == 1)
    await world.join("a0")
    await world.until(lambda: [agent["id"] for agent in world.admin.status()["agents"]] == ["a0"])
    world.kube.add_pod(make_pod("p1"))
    await world.until(lambda: len(world.kube.bound) == 2)
    asked = len(world.peers.timeouts)
    assert asked
    await world.store.txn([], [DeleteKey(KEYS.agent("a0"))])
    await world.until(lambda: [agent["id"] for agent in world.admin.status()["agents"]] != ["a0"])
    world.kube.add_pod(make_pod("p2"))
    await world.until(lambda: len(world.kube.bound) == 3)
    assert len(world.peers.timeouts) == asked


async def test_the_leaders_own_agent_decides_by_the_policy_that_the_pointer_names(world: World) -> None:
    world.kube.add_node(make_node("n0"))
    weights = encode_weights(made_weights("good"))
    ref = PolicyRef("marl-dqn", 1, digest(weights))
    await world.put(KEYS.policy_weights(ref.sha256), weights)
    await world.put(KEYS.policies_active, encode_record(first_pointer(ref, number=1)))
    await world.start(EMBEDDED)

    def decided() -> bool:
        """One pod after another: the policy is loaded while the first ones are placed."""
        if len(world.kube.bound) == len(world.kube.pods):
            world.kube.add_pod(make_pod(f"p{len(world.kube.pods)}").cpu("1m"))
        return any(place.policy == ref.name for plan in world.peers.plans for place in plan.placements)

    await world.until(decided)


async def test_an_answer_may_take_as_long_as_a_round_is_told_to_wait_also_while_running(world: World) -> None:
    """With a fixed deadline of 3 s under it ``offer_deadline_ms`` above 3000 was accepted and had no effect."""
    world.kube.add_node(make_node("n0"))
    await world.join("a0")
    await world.start()
    world.kube.add_pod(make_pod("p0"))
    await world.until(lambda: world.kube.bound)
    await change_settings(
        world.store, KEYS, {"offer_deadline_ms": 10_000}, by="anna", reason="", expected_number=None,
        now=dt.datetime.now(dt.UTC), validate=RUNTIME_SETTINGS.validate,
    )  # fmt: skip
    await world.until(lambda: world.admin.core is not None and world.admin.core.control.number == 1)
    world.kube.add_pod(make_pod("p1"))
    await world.until(lambda: len(world.kube.bound) == 2)
    assert world.peers.timeouts[0] == 3.0
    assert world.peers.timeouts[-1] > 10.0


async def test_the_partition_is_published_under_the_term(world: World) -> None:
    await world.join("a0")
    await world.start()
    await world.until(lambda: world.store._server.get(KEYS.partitions_current) is not None)
    kv = await world.store.get(KEYS.partitions_current)
    assert kv is not None
    assert msgspec.json.decode(kv.value)["agents"] == {"a0": ""}


async def test_publishing_under_a_stale_term_ends_the_term(world: World) -> None:
    await world.start()
    await world.store.txn([], [DeleteKey(KEYS.coordinator_leader)])
    await world.put(KEYS.coordinator_leader, b"{}")
    await world.join("a0")
    assert isinstance(await world.ended(), StoreFenced)


async def test_a_lease_that_may_be_over_ends_the_term_before_anything_is_sent(world: World) -> None:
    world.kube.add_node(make_node("n0"))
    await world.join("a0")
    await world.start()
    await world.until(lambda: world.admin.core is not None and world.admin.core.state.started)
    world.leading.valid = False
    world.kube.add_pod(make_pod("late"))
    assert isinstance(await world.ended(), LeadershipLost)
    assert not world.peers.plans


async def test_a_binder_with_a_higher_term_ends_the_term(world: World) -> None:
    world.kube.add_node(make_node("n0"))
    await world.join("a0")
    world.peers.refuse_plans = "stale_term"
    await world.start()
    world.kube.add_pod(make_pod("a"))
    assert isinstance(await world.ended(), LeadershipLost)


async def test_a_pending_pod_is_told_by_condition_and_event(world: World) -> None:
    world.kube.add_node(make_node("n0"))
    await world.join("a0")
    await world.start()
    world.kube.add_pod(make_pod("big").cpu("64"))
    await world.until(lambda: world.api.events)
    (condition,) = world.kube.pods["default/big"]["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    assert "lastTransitionTime" in condition
    event = world.api.events[0]
    assert (event["reason"], event["type"], event["regarding"]["name"]) == ("FailedScheduling", "Warning", "big")


async def test_an_inherited_intent_is_waited_for(world: World) -> None:
    world.kube.add_node(make_node("n0"))
    uid = world.kube.add_pod(make_pod("promised").cpu("3"))
    pod = IntentPod(uid=uid, ns="default", name="promised", rv="1", node="n0")
    await world.put(KEYS.intent(uid), encode_record(Intent(plan_id=1, coordinator_term=1, unit=1, pods=(pod,))))
    await world.put(KEYS.intent("strange"), b"not an intent")
    await world.join("a0")
    await world.start()
    await world.until(lambda: world.admin.core is not None and world.admin.core.place_of(uid) == ["intent"])
    await world.store.txn([], [DeleteKey(KEYS.intent(uid))])
    await world.until(lambda: world.kube.bound)
    assert world.kube.bound[0].uid == uid


async def test_pods_are_looked_at_once_the_intents_are_known(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one whose intent goes in between would be taken for pending, its node for free."""
    known, list_prefix = asyncio.Event(), world.store.list_prefix

    async def list_late(prefix: str, **options: Any) -> Any:
        if prefix == KEYS.intents_prefix:
            await known.wait()
        return await list_prefix(prefix, **options)

    monkeypatch.setattr(world.store, "list_prefix", list_late)
    world.kube.add_node(make_node("n0"))
    await world.join("a0")
    await world.start()
    await world.until(lambda: world.admin.core and world.admin.core.takeover.missing == ["intents", "pods"])
    known.set()
    await world.until(lambda: world.admin.core and world.admin.core.state.started)


async def test_an_agent_of_another_protocol_is_ignored(world: World) -> None:
    world.kube.add_node(make_node("n0"))
    await world.join("future", protocol=VERSION + 1)
    await world.join("a0")
    await world.start()
    world.kube.add_pod(make_pod("a"))
    await world.until(lambda: world.kube.bound)
    assert [agent["id"] for agent in world.admin.status()["agents"]] == ["a0"]


@pytest.mark.parametrize(
    ("key", "fields"),
    [pytest.param("", {"version": "1.0.0"}, id="major version"), pytest.param("other", {}, id="anothers id")],
)
async def test_an_agent_that_is_not_believed_decides_nothing(world: World, key: str, fields: dict[str, Any]) -> None:
    world.kube.add_node(make_node("n0"))
    await world.join("foe", key=key, **fields)
    await world.join("a0", version="0.9.0")
    await world.start()
    world.kube.add_pod(make_pod("a"))
    await world.until(lambda: world.kube.bound)
    assert [agent["id"] for agent in world.admin.status()["agents"]] == ["a0"]


async def test_a_status_patch_whose_answer_is_lost_does_not_stop_anything(world: World) -> None:
    world.kube.add_node(make_node("n0"))
    world.api.faults["patch"] = ["drop_reply", "drop_request"]
    await world.join("a0")
    await world.start()
    world.kube.add_pod(make_pod("big").cpu("64"))
    world.kube.add_pod(make_pod("big2").cpu("64"))
    await world.until(lambda: len(world.api.events) == 2)
    world.kube.add_pod(make_pod("small"))
    await world.until(lambda: world.kube.bound)
