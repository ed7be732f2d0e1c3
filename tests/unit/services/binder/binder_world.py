"""A small world around binder cores: etcd and an API server in memory, effects carried out one by one, by the test.

Every instruction of a core becomes an effect that the test (or a seeded random walk) carries out, loses, or does
without an answer coming back; a killed binder's effects may still be carried out later, as a zombie's are. All of it is
synchronous and repeatable.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec
import structlog

from services.binder.core.core import BinderCore
from services.binder.core.events import Event, IntentsListed, PlanReceived, StoredIntent
from services.binder.core.instructions import (
    Bind,
    Commit,
    Evict,
    Instruction,
    ListIntents,
    ListPods,
    LookUp,
    MarkPod,
    PlanAnswer,
    ReadPod,
    Refuse,
    ReleaseClaim,
    WriteClaim,
)
from services.binder.core.state import BinderCoreSettings
from services.binder.io.api_calls import ApiCalls
from services.binder.io.store_calls import StoreCalls
from shared.errors import StoreUnknown
from shared.kube.pods.convert import node_from_api, pod_from_api
from shared.kube.resources import DeletedObject, Upserted
from shared.kube.scheduling_kinds import DEVICE_KINDS, NATIVE_GROUPS, RESERVATION_KIND
from shared.model.cluster_events import Listed, NodeDeleted, NodeUpserted, PodDeleted, PodUpserted
from shared.ports import Compare, CreateRevisionIs, DeleteKey, KeyValue, Op, Put, TxnResult
from shared.runtime.kube.watches import object_events, reservation_events
from shared.runtime.observe.metrics import ReservoirQuantiles
from shared.runtime.process.failpoints import Failpoints
from shared.runtime.records.shards import shards_in
from shared.scheduling.shards import Shards
from shared.turns import Log, Stop, Tick
from shared.wire.keys import Keys
from shared.wire.messages import VERSION, Gang, Placement, Plan, PlanResult
from shared.wire.records import Intent, ShardsRecord, decode_record, encode_record, gang_part
from tests.builders import make_node, make_pod
from tests.fake_kube import AsyncKube, FakeKube, at_once
from tests.memory_etcd import MemoryEtcd
from tests.memory_store import MemoryStore

KEYS = Keys()
KINDS = {kind.name: kind for kind in (*DEVICE_KINDS, NATIVE_GROUPS)}
SENT = (Bind, Commit, MarkPod, WriteClaim)
"""What a process that is gone may have sent."""
SHARDS = ("0", "1", "2")


async def granted() -> bool:
    """The plan's terms hold."""
    return True


@dataclass(frozen=True)
class Commitment:
    """One intent that a transaction wrote, and who led at that moment."""

    revision: int
    intent: Intent
    replaced: Intent | None
    binder_leader: int
    coordinator_leader: int


@dataclass
class KnownGang:
    """One gang: its minimum, and its members. ``planned``: as a plan names it, else as transactions wrote it."""

    min_count: int
    members: set[str] = field(default_factory=set)
    planned: bool = False


@dataclass
class Binder:
    """One binder process: its core, what it wants done, how far its watch is."""

    core: BinderCore
    effects: list[Instruction] = field(default_factory=list)
    seen: int = 0
    answers: dict[int, PlanResult] = field(default_factory=dict)
    refusals: dict[int, Refuse] = field(default_factory=dict)
    logs: list[Log] = field(default_factory=list)
    stopped: str = ""

    @property
    def term(self) -> int:
        return self.core.state.term

    @property
    def shard(self) -> str:
        return self.core.state.shard


class World:
    """Time, etcd, the API server, and any number of binders, of which etcd knows one as leader."""

    def __init__(self, *, settings: BinderCoreSettings | None = None, check_preconditions: bool = True) -> None:
        self.now = 100.0
        self.settings = settings or BinderCoreSettings(validate=True)
        self.etcd = MemoryEtcd(clock=lambda: self.now)
        self.kube = FakeKube(check_preconditions=check_preconditions)
        self.commitments: list[Commitment] = []
        self.gangs: dict[str, KnownGang] = {}
        self.api, self.store = AsyncKube(self.kube), RecordingStore(self)
        self._heard: list[Event] = []
        log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        self.api_calls = ApiCalls(
            self.api, self._heard.extend, leadership=AlwaysValid(), failpoints=Failpoints(), bind_timeout_s=5.0,
            bind_ms=ReservoirQuantiles(), bind_seconds=None, log=log,
        )  # fmt: skip
        self.store_calls = {
            shard: StoreCalls(
                self.store, self._heard.extend, keys=KEYS, shard=shard, failpoints=Failpoints(),
                commit_ms=ReservoirQuantiles(),
                log=log,
            )
            for shard in SHARDS
        }  # fmt: skip
        self.coordinator_term = 0
        self.late: list[Instruction] = []
        self.fault_at = 0
        """Of a claim's writes, which one a fault meets."""
        self._plans = 0
        self._requests = 0
        self._units = 0
        self.lead_coordinator()

    # --- who leads ----------------------------------------------------------------------------------------------

    def lead_coordinator(self) -> int:
        self.coordinator_term = self._take(KEYS.coordinator_leader)
        return self.coordinator_term

    def start_binder(self, shard: str = "0", *, ready: bool = True) -> Binder:
        """A new binder wins the shard; the one before, if any, is not told."""
        term = self._take(KEYS.binder_leader(shard))
        binder = Binder(BinderCore(term, self.settings, KEYS, shard=shard, shards=self.shards()))
        if ready:
            self.sync(binder)
            self.settle(binder)
            assert binder.core.takeover.accepting
        return binder

    def sync(self, binder: Binder) -> None:
        """Intents are listed, then nodes and pods."""
        self.tell(binder, IntentsListed(self.stored(), self.fence(binder.shard)))
        self.watch(binder)
        self.tell(binder, Listed("nodes"))
        self.tell(binder, Listed("pods"))

    def crash(self, binder: Binder) -> None:
        """The process is gone; what it has sent may arrive (``late``).

        Of what gives a claim back, that is the write at ``fault_at``, and none after it: each names the version that a
        read before it gave, and between a read and its write the leadership is asked for. Carried out whole in the term
        of the next leader, with ``AlwaysValid``, it would read what that one has written and free it, which nobody can
        whose ``is_valid`` has turned False by the clock (``test_who_may_not_lead_any_more_writes_no_claim...``).
        """
        self.late += [effect for effect in binder.effects if isinstance(effect, SENT)]
        for effect in binder.effects:
            if isinstance(effect, ReleaseClaim):
                self.carry_out(effect, fault="late", shard=binder.shard)
        binder.effects.clear()
        binder.stopped = "killed"

    def _take(self, key: str) -> int:
        self.etcd.txn([], [DeleteKey(key)])
        return self.etcd.txn([CreateRevisionIs(key, 0)], [Put(key, b"{}")]).revision

    # --- shards -------------------------------------------------------------------------------------------------

    def divide(self, *names: str) -> None:
        """The nodes are divided into these shards; nobody is told."""
        record = ShardsRecord(names=names, generation=1)
        self.etcd.txn([], [Put(KEYS.binder_shards, encode_record(record))])

    def shards(self) -> Shards:
        return shards_in(self.etcd.get(KEYS.binder_shards))

    # --- plans --------------------------------------------------------------------------------------------------

    def plan(self, *placements: tuple[str, str] | tuple[str, str, list[str]], term: int = 0) -> Plan:
        """A plan of (pod name, node[, alternatives])."""
        self._plans += 1
        entries = []
        for name, node, *rest in placements:
            self._units += 1
            pod = self.kube.pods[f"default/{name}"]["metadata"]
            alternatives = list(rest[0]) if rest else []
            entries.append(
                Placement(
                    self._units, pod["uid"], "default", name, pod["resourceVersion"], node, alternatives,
                    "kube-default", 1, 0, 1000,
                )
            )  # fmt: skip
        return Plan(VERSION, self._plans, 0, term or self.coordinator_term, self._plans, entries)

    def gang(
        self, *placements: tuple[str, str] | tuple[str, str, list[str]], at_least: int, lone: int = 0, term: int = 0
    ) -> Plan:
        """A plan of one gang of (pod name, node[, alternatives]); the last ``lone`` of them are no members."""
        plan = self.plan(*placements, term=term)
        self._units += 1
        members = [placement.unit for placement in plan.placements[: len(plan.placements) - lone]]
        return msgspec.structs.replace(plan, gangs=[Gang(self._units, "podgroup:default/g", members, at_least)])

    def send(self, binder: Binder, plan: Plan) -> int:
        """Deliver a plan; the request's number."""
        self._requests += 1
        self.tell(binder, PlanReceived(self._requests, plan))
        return self._requests

    # --- what happens -------------------------------------------------------------------------------------------

    def tell(self, binder: Binder, *events: Event) -> None:
        for instruction in binder.core.handle_all(events, self.now):
            match instruction:
                case PlanAnswer():
                    binder.answers[instruction.request] = instruction.result
                case Refuse():
                    binder.refusals[instruction.request] = instruction
                case Log():
                    binder.logs.append(instruction)
                case Stop():
                    binder.stopped = instruction.reason
                case _:
                    binder.effects.append(instruction)

    def watch(self, binder: Binder, count: int | None = None) -> None:
        """Deliver the next ``count`` watch events (all)."""
        fresh = [entry for entry in self.kube.history if entry[0] > binder.seen][:count]
        events: list[Event] = []
        for revision, plural, event in fresh:
            binder.seen = revision
            match event:
                case Upserted() if plural == "pods":
                    events.append(PodUpserted(pod_from_api(event.object)))
                case DeletedObject() if plural == "pods":
                    events.append(PodDeleted(event.object.metadata.uid))
                case _ if plural == RESERVATION_KIND.name:
                    events += reservation_events([event])
                case _ if plural in KINDS:
                    events += object_events(KINDS[plural], [event])
                case Upserted():
                    events.append(NodeUpserted(node_from_api(event.object)))
                case DeletedObject():
                    events.append(NodeDeleted(event.object.metadata.name))
        self.tell(binder, *events)

    def run(self, binder: Binder, kind: type[Instruction] | None = None, *, fault: str = "ok") -> Instruction:
        """Carry out the first effect (of ``kind``). ``fault``: drop_request, drop_reply, late (happens later)."""
        effect = next(e for e in binder.effects if kind is None or isinstance(e, kind))
        binder.effects.remove(effect)
        result = self.carry_out(effect, fault=fault, shard=binder.shard)
        if fault == "late" and not isinstance(effect, WriteClaim | ReleaseClaim):
            self.late.append(effect)
        if result is not None:
            self.tell(binder, result)
        return effect

    def carry_out(self, effect: Instruction, *, fault: str = "ok", shard: str = "0") -> Event | None:
        """The effect on the world, and what the binder hears of it: by the binder's own shell, over fakes in memory."""
        self.api.faults = {verb: [fault] for verb in ("bind", "get", "patch")}
        if isinstance(effect, WriteClaim | ReleaseClaim):
            self.api.faults = {"write": ["ok"] * self.fault_at + [fault]}
        self.store.fault = "ok" if isinstance(effect, ListIntents) else fault  # it is made until it is answered
        match effect:
            case Commit():
                call = self.store_calls[shard].commit(effect)
            case LookUp():
                call = self.store_calls[shard].look_up(effect)
            case ListIntents():
                call = self.store_calls[shard].list_intents()
            case Bind():
                call = self.api_calls.bind(effect)
            case ReadPod():
                call = self.api_calls.read(effect)
            case MarkPod():
                call = self.api_calls.mark(effect)
            case ListPods():
                call = self.api_calls.list_pods()
            case WriteClaim():
                call = self.api_calls.write_claim(effect)
            case ReleaseClaim():
                call = self.api_calls.free_claim(effect)
            case Evict():
                call = self.api_calls.evict(effect, self.settings.scheduler_name, granted)
            case _:
                raise AssertionError(effect)
        at_once(call)
        [heard] = self._heard
        self._heard.clear()
        return heard

    def settle(self, binder: Binder, *, seconds: float = 60.0) -> None:
        """Carry out everything without faults until nothing is on its way; time passes where it must."""
        end = self.now + seconds
        while not binder.stopped:
            if binder.effects:
                self.run(binder)
                continue
            self.watch(binder)
            if binder.effects:
                continue
            at = binder.core.wake_at
            if not binder.core.busy and binder.core.takeover.accepting:
                return
            assert at is not None, "the binder waits for nothing and is not done"
            assert at <= end, "not settled in time"
            self.now = max(self.now, at)
            self.tell(binder, Tick())

    def pass_time(self, binder: Binder, seconds: float) -> None:
        """Let time pass, waking the binder whenever it wants to be; effects stay undone."""
        end = self.now + seconds
        while (at := binder.core.wake_at) is not None and at <= end:
            self.now = max(self.now, at)
            self.tell(binder, Tick())
            if binder.core.wake_at is not None and binder.core.wake_at <= self.now:
                break
        self.now = end

    # --- looking ------------------------------------------------------------------------------------------------

    def intents(self) -> dict[str, Intent | None]:
        return {key: stored.intent for key, stored in self.stored().items()}

    def stored(self) -> dict[str, StoredIntent]:
        listing = self.etcd.list_prefix(KEYS.intents_prefix)
        return {
            KEYS.last_part(kv.key): StoredIntent(decode_record(kv.value, Intent), kv.create_revision)
            for kv in listing.items
        }

    def fence(self, shard: str = "0") -> int:
        kv = self.etcd.get(KEYS.binder_fence(shard))
        return kv.mod_revision if kv is not None else 0

    def leader(self, key: str) -> int:
        kv = self.etcd.get(key)
        return kv.create_revision if kv is not None else 0

    def uid(self, name: str) -> str:
        uid: str = self.kube.pods[f"default/{name}"]["metadata"]["uid"]
        return uid

    def node_of(self, name: str) -> str:
        node: str = self.kube.pods[f"default/{name}"]["spec"].get("nodeName", "")
        return node


class RecordingStore(MemoryStore):
    """The etcd of a world: what transactions wrote is noted, and the next call may be lost (``fault``)."""

    def __init__(self, world: World) -> None:
        super().__init__(world.etcd)
        self._world = world
        self.fault = "ok"

    async def get(self, key: str, *, timeout_s: float = 2.0) -> KeyValue | None:
        if self.fault != "ok":
            raise StoreUnknown("the connection was cut")
        return await super().get(key)

    async def txn(self, compares: Sequence[Compare], ops: Sequence[Op], *, timeout_s: float = 2.0) -> TxnResult:
        if self.fault in ("drop_request", "late"):
            raise StoreUnknown("the connection was cut")
        world = self._world
        before = world.intents()
        coordinator = world.leader(KEYS.coordinator_leader)
        result = await super().txn(compares, ops)
        for op in ops if result.succeeded else ():
            if isinstance(op, Put) and op.key.startswith(KEYS.intents_prefix):
                intent = decode_record(op.value, Intent)
                assert intent is not None
                replaced = before.get(KEYS.last_part(op.key))
                leader = world.leader(KEYS.binder_leader(intent.shard))
                world.commitments.append(Commitment(result.revision, intent, replaced, leader, coordinator))
                part = gang_part(KEYS.last_part(op.key))
                if part is not None:
                    gang = world.gangs.setdefault(part[0], KnownGang(intent.min_count))
                    gang.members |= {pod.uid for pod in intent.pods}
        if self.fault == "drop_reply":
            raise StoreUnknown("the connection was cut")
        return result


class AlwaysValid:
    """The leadership of a process that believes in it, perhaps wrongly."""

    def is_valid(self, now: float | None = None) -> bool:
        return True


def make_world(
    *, nodes: int = 3, pods: int = 3, node_cpu: str = "4", pod_cpu: str = "1", settings: BinderCoreSettings
    | None = None,
    check_preconditions: bool = True,
) -> World:  # fmt: skip
    """``n0..`` and ``p0..``."""
    world = World(settings=settings, check_preconditions=check_preconditions)
    for number in range(nodes):
        world.kube.add_node(make_node(f"n{number}").allocatable(cpu=node_cpu))
    for number in range(pods):
        world.kube.add_pod(make_pod(f"p{number}").cpu(pod_cpu))
    return world


def random_fault(rng: Random, share: float) -> str:
    """``ok`` mostly; otherwise one of the three ways to lose an answer."""
    return rng.choice(["drop_request", "drop_reply", "late"]) if rng.random() < share else "ok"
