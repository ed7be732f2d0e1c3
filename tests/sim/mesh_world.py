"""Coordinator, agents and binder together, as pure cores, around one etcd and one API server in memory.

Every message between them crosses the wire codec and may be lost, lose its answer, or come late; every process may be
killed and replaced. All of it is synchronous: a seed is a history. The binder's half is ``binder_world.py``.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from services.binder.core.state import BinderCoreSettings
from services.coordinator.core import events as seen
from services.coordinator.core import instructions as wanted
from services.coordinator.core.core import Core
from services.coordinator.core.state import CoreSettings as CoordinatorSettings
from services.coordinator.io.kube_writes import KubeWrites
from services.coordinator.io.reservation_writes import ReservationWrites
from shared.agent.core import AgentCore
from shared.errors import WireError
from shared.kube.scheduling_kinds import RESERVATION_KIND
from shared.model.cluster_events import Listed, ObjectChanged
from shared.model.units.pod_group import PodGroup
from shared.policy.registry import make_policy
from shared.ports import CreateRevisionIs, DeleteKey, Put
from shared.runtime.kube.watches import node_events, object_events, pod_events, reservation_events
from shared.scheduling.state.object_changes import GROUP_SOURCES
from shared.turns import Log, Stop
from shared.wire.codec import decode, encode
from shared.wire.messages import Decisions, Offer, Plan, PlanResult, ViewAck, ViewUpdate
from shared.wire.records import AgentRecord, Drained, NominationRecord, Paused, decode_record, encode_record
from tests.fake_kube import at_once
from tests.unit.services.binder.binder_world import KEYS, KINDS, SENT, Binder, World

PAUSED = Paused(by="anna", reason="", since="")


@dataclass
class Coordinator:
    """One coordinator process."""

    core: Core
    effects: list[wanted.Instruction] = field(default_factory=list)
    seen: int = 0
    timer: float = 0.0
    open_intents: set[str] = field(default_factory=set)
    stopped: str = ""


@dataclass
class Waiting:
    """A plan's request at a binder, and whether its answer will come through."""

    coordinator: Coordinator
    binder: Binder
    plan_id: int
    heard: bool


class MeshWorld(World):
    """One leading coordinator, one leading binder per shard, some agents."""

    def __init__(
        self, seed: int, *, agents: int = 2, settings: BinderCoreSettings | None = None, shards: tuple[str, ...] = (),
        coordinator: CoordinatorSettings | None = None,
    ) -> None:  # fmt: skip
        super().__init__(settings=settings)
        if shards:
            self.divide(*shards)
        self.coordinator_settings = replace(
            coordinator or CoordinatorSettings(),
            validate=self.settings.validate, units_per_turn=self.settings.units_per_turn,
        )  # fmt: skip
        self.rng = Random(seed)
        self.agents: dict[str, AgentCore] = {}
        self.records: dict[str, AgentRecord] = {}
        self.waiting: dict[tuple[int, int], Waiting] = {}
        self.late_plans: list[Plan] = []
        self.late_writes: list[wanted.PatchCondition] = []
        self._told: list[seen.Event] = []
        self.may_act = True
        self.writes = KubeWrites(
            self.api, self._told.append, controller="conclave", instance="c0", clock=lambda: self.now,
            start=at_once, may_act=lambda: self.may_act, crowded=lambda: False,
        )  # fmt: skip
        self.reservations = ReservationWrites(self.api, may_act=lambda: self.may_act, reached=lambda _: None)
        self.control = seen.ControlSeen()
        self.disobeyed: list[str] = []
        self.groups: dict[str, PodGroup] = {}
        self.binders = {shard: self.start_binder(shard) for shard in self.shards().names}
        for number in range(agents):
            self.start_agent(f"a{number}")
        self.coordinator = self.elect()

    @property
    def binder(self) -> Binder:
        """That of the first shard."""
        return self.binders["0"]

    # --- processes ----------------------------------------------------------------------------------------------

    def start_agent(self, name: str) -> None:
        """A new process under the name: it knows nothing."""
        incarnation = f"{name}-{self.rng.getrandbits(32)}"
        self.agents[name] = AgentCore(make_policy("kube-default"), Random(incarnation))
        self.records[name] = AgentRecord(id=name, url=incarnation, incarnation=incarnation)

    def stop_agent(self, name: str) -> None:
        self.agents.pop(name, None)
        self.records.pop(name, None)

    def elect(self) -> Coordinator:
        """A new coordinator leads: it lists everything."""
        term = self.lead_coordinator()
        core = Core(
            term=term, scheduler_name="conclave", policy="kube-default", rng=Random(term),
            settings=self.coordinator_settings, shards=self.shards(),
        )  # fmt: skip
        self.coordinator = coordinator = Coordinator(core)
        self.look(coordinator)
        stored = {KEYS.intent(key): kv.intent for key, kv in self.stored().items()}
        coordinator.open_intents = set(stored)
        intents = tuple(
            seen.IntentRecord(
                key,
                tuple((pod.uid, pod.node) for pod in intent.pods),
                tuple((pod.uid, pod.reservation) for pod in intent.pods if pod.reservation),
            )
            for key, intent in stored.items()
            if intent is not None
        )
        self.inform(
            coordinator,
            *self._groups_told(),
            Listed("nodes"),
            Listed("pods"),
            Listed(RESERVATION_KIND.name),
            seen.IntentsListed(intents, self._nominations()),
            self.control,
            seen.AgentsChanged(tuple(self.records.values())),
            *(self.leads(binder) for binder in self.binders.values() if not binder.stopped),
        )
        return coordinator

    def replace_coordinator(self) -> None:
        """Killed: its plans under way may still arrive."""
        self.late_plans += [e.plan for e in self.coordinator.effects if isinstance(e, wanted.SendPlan)]
        self.late_writes += [e for e in self.coordinator.effects if isinstance(e, wanted.PatchCondition)]
        self.coordinator.stopped = "killed"
        self.elect()

    def replace_binder(self, shard: str = "0") -> None:
        """Killed: its Bindings, transactions and marks under way may still arrive."""
        old = self.binders.get(shard)
        if old is not None:
            self.late += [e for e in old.effects if isinstance(e, SENT)]
            old.stopped = "killed"
        if old is not None:
            self.hang_up(old)
        binder = self.binders[shard] = self.start_binder(shard, ready=False)
        self.sync(binder)
        self.inform(self.coordinator, self.leads(binder))

    def hang_up(self, binder: Binder) -> None:
        """Whoever waits for this binder's answers hears that none will come."""
        for key, waiting in list(self.waiting.items()):
            if waiting.binder is binder:
                del self.waiting[key]
                self.inform(waiting.coordinator, seen.PlanFailed(waiting.plan_id, "peer_unknown", refused=False))

    @staticmethod
    def leads(binder: Binder) -> seen.BinderChanged:
        """That this binder leads its shard."""
        return seen.BinderChanged(f"b{binder.term}", binder.term, binder.shard)

    def agents_changed(self) -> None:
        self.inform(self.coordinator, seen.AgentsChanged(tuple(self.records.values())))

    # --- what the coordinator hears and wants -------------------------------------------------------------------

    def inform(self, coordinator: Coordinator, *events: seen.Event) -> None:
        if coordinator.stopped:
            return
        for instruction in coordinator.core.handle(list(events), self.now):
            match instruction:
                case wanted.SetTimer():
                    coordinator.timer = instruction.at
                case Stop():
                    coordinator.stopped = instruction.reason
                case wanted.EmitEvent() | wanted.PublishPartition() | Log() | wanted.TellPodGroup():
                    pass
                case _:
                    self._obeyed(coordinator.core, instruction)
                    coordinator.effects.append(instruction)

    def _obeyed(self, core: Core, instruction: wanted.Instruction) -> None:
        """Note what goes against what operators said, as far as the coordinator has heard of it."""
        if isinstance(instruction, wanted.SendOffer) and core.state.paused is not None:
            self.disobeyed.append("an offer while paused")
        if isinstance(instruction, wanted.SendPlan):
            opened = core.ledger.plans[instruction.plan.plan_id]
            if opened.sends == 1 and not opened.again and not opened.lends_to:
                self.disobeyed += partial(core, instruction.plan)
            for placement in instruction.plan.placements if opened.sends == 1 and not opened.again else ():
                if core.state.drained.keys() & {placement.node, *placement.alternatives}:
                    self.disobeyed.append(f"a plan for drained {placement.node} or {placement.alternatives}")

    def tell_group(self, group: PodGroup) -> None:
        """A pod group came or changed; the coordinator hears of it at once."""
        self.groups[group.key] = group
        self.inform(self.coordinator, *self._groups_told())

    def _groups_told(self) -> list[seen.Event]:
        kind = {source: kind for kind, source in GROUP_SOURCES.items()}
        return [ObjectChanged(kind[group.source], group.title, group) for group in self.groups.values()]

    def say(self, *, paused: bool | None = None, drained: set[str] | None = None) -> None:
        """An operator pauses, resumes, drains: it is in etcd, the coordinator hears of it later."""
        before = self.control
        pause = before.paused if paused is None else PAUSED if paused else None
        names = {record.node for record in before.drained} if drained is None else drained
        records = tuple(Drained(node=name, by="anna", reason="", since="") for name in sorted(names))
        self.control = seen.ControlSeen(pause, records)

    def look(self, coordinator: Coordinator, count: int | None = None) -> None:
        """Deliver the next watch events, and which inherited intents are gone."""
        events: list[seen.Event] = []
        for revision, plural, event in [e for e in self.kube.history if e[0] > coordinator.seen][:count]:
            coordinator.seen = revision
            if plural == RESERVATION_KIND.name:
                events += reservation_events([event])
            elif plural in KINDS:
                events += object_events(KINDS[plural], [event])
            else:
                events += pod_events([event]) if plural == "pods" else node_events([event])
        gone = coordinator.open_intents - {KEYS.intent(key) for key in self.stored()}
        coordinator.open_intents -= gone
        self.inform(coordinator, *events, *(seen.IntentGone(key) for key in sorted(gone)))

    def do(self, coordinator: Coordinator, *, fault: str = "ok") -> None:
        """Carry out the coordinator's first effect."""
        effect = coordinator.effects.pop(0)
        happens, heard = fault in ("ok", "drop_reply"), fault == "ok"
        match effect:
            case wanted.SendOffer():
                self._offer(coordinator, effect, happens=happens, heard=heard)
            case wanted.SendView():
                self._view(coordinator, effect, happens=happens, heard=heard)
            case wanted.SendPlan():
                self._plan(coordinator, effect, happens=happens, heard=heard)
                if fault == "late":
                    self.late_plans.append(effect.plan)
            case wanted.PatchCondition():
                self._write(coordinator, self.writes.patch(effect), fault)
                if fault == "late":
                    self.late_writes.append(effect)
            case wanted.StoreNominations():
                self._store(coordinator, effect, fault)
            case wanted.FreeClaim():
                self._write(coordinator, self.writes.free_claim(effect), fault)
            case wanted.KeepRoom():
                self._write(coordinator, self.reservations.reserve(effect), "ok")
            case wanted.FetchPod():
                self._write(coordinator, self.writes.fetch(effect), fault)
            case _:
                raise AssertionError(effect)

    def _write(self, coordinator: Coordinator, call: Coroutine[Any, Any, None], fault: str) -> None:
        """What the coordinator's own shell does, over the API server in memory."""
        self.api.faults = {verb: [fault] for verb in ("get", "patch")}
        at_once(call)
        heard, self._told[:] = list(self._told), []
        self.inform(coordinator, *heard)

    def _store(self, coordinator: Coordinator, work: wanted.StoreNominations, fault: str) -> None:
        """As the shell does: the same again until etcd answers, under the term. None comes late: the fence is moved."""
        happens, heard = fault in ("ok", "drop_reply"), fault == "ok"
        if not heard:
            coordinator.effects.insert(0, work)
        if not happens:
            return
        term = coordinator.core.state.term
        ops = [
            Put(KEYS.nomination(uid), encode_record(NominationRecord(pod=pod, node=node, term=term)))
            if node
            else DeleteKey(KEYS.nomination(uid))
            for uid, pod, node in work.changes
        ]
        if not self.etcd.txn([CreateRevisionIs(KEYS.coordinator_leader, term)], ops).succeeded:
            coordinator.stopped = "fenced"
        elif heard:
            stored = [seen.NominationStored(uid, node, work.number) for uid, _, node in work.changes if node]
            self.inform(coordinator, *stored)

    def _nominations(self) -> tuple[tuple[str, str], ...]:
        """(pod uid, node), as etcd has them."""
        found = self.etcd.list_prefix(KEYS.nominations_prefix).items
        records = ((kv.key, decode_record(kv.value, NominationRecord)) for kv in found)
        return tuple((KEYS.last_part(key), record.node) for key, record in records if record is not None)

    def deliver_late_write(self) -> None:
        """A condition of before arrives at the API server; nobody waits for its answer."""
        if self.late_writes:
            late = self.late_writes.pop(self.rng.randrange(len(self.late_writes)))
            self.api.faults = {}
            at_once(self.writes.patch(late))
            self._told.clear()

    def deliver_late_plan(self) -> None:
        """A plan of before arrives at the binder; nobody waits for its answer."""
        if self.late_plans:
            plan = self.late_plans.pop(self.rng.randrange(len(self.late_plans)))
            self.send(self.rng.choice(list(self.binders.values())), plan)

    def route_answers(self) -> None:
        """What the binders have answered, to those who wait."""
        for (term, request), waiting in list(self.waiting.items()):
            binder = waiting.binder
            answer, refusal = binder.answers.get(request), binder.refusals.get(request)
            if answer is None and refusal is None:
                continue
            del self.waiting[term, request]
            if not waiting.heard:
                continue
            if answer is not None:
                result = decode(encode(answer), PlanResult)
                self.inform(waiting.coordinator, seen.PlanAnswered(waiting.plan_id, result))
            elif refusal is not None:
                failed = seen.PlanFailed(waiting.plan_id, refusal.code, refused=refusal.status < 500)
                self.inform(waiting.coordinator, failed)

    # --- inside -------------------------------------------------------------------------------------------------

    def _agent(self, name: str, url: str) -> AgentCore | None:
        record = self.records.get(name)
        return self.agents[name] if record is not None and record.url == url else None

    def _offer(self, coordinator: Coordinator, effect: wanted.SendOffer, *, happens: bool, heard: bool) -> None:
        agent, request = self._agent(effect.agent, effect.url), effect.offer.message_id
        decisions, code = None, "peer_unknown"
        if agent is not None and happens:
            try:
                decisions = decode(encode(agent.decide(decode(encode(effect.offer), Offer))), Decisions)
                assert agent.validate() == []
            except WireError as error:
                code = error.code
        if decisions is not None and heard:
            self.inform(coordinator, seen.DecisionsReceived(effect.agent, request, decisions))
        else:
            self.inform(coordinator, seen.RequestFailed(effect.agent, request, code))

    def _view(self, coordinator: Coordinator, effect: wanted.SendView, *, happens: bool, heard: bool) -> None:
        agent, request = self._agent(effect.agent, effect.url), effect.update.message_id
        ack, code = None, "peer_unknown"
        if agent is not None and happens:
            try:
                ack = decode(encode(agent.update(decode(encode(effect.update), ViewUpdate))), ViewAck)
                assert agent.validate() == []
            except WireError as error:
                code = error.code
        if ack is not None and heard:
            self.inform(coordinator, seen.ViewAcked(effect.agent, request, ack))
        else:
            self.inform(coordinator, seen.RequestFailed(effect.agent, request, code))

    def _plan(self, coordinator: Coordinator, effect: wanted.SendPlan, *, happens: bool, heard: bool) -> None:
        plan_id = effect.plan.plan_id
        binder = next((b for b in self.binders.values() if effect.url == f"b{b.term}" and not b.stopped), None)
        if binder is None:
            self.inform(coordinator, seen.PlanFailed(plan_id, "peer_unreachable", refused=True))
            return
        if happens:
            request = self.send(binder, decode(encode(effect.plan), Plan))
            self.waiting[binder.term, request] = Waiting(coordinator, binder, plan_id, heard)
        if not heard:
            self.inform(coordinator, seen.PlanFailed(plan_id, "peer_unknown", refused=False))


def partial(core: Core, plan: Plan) -> list[str]:
    """I5 in what is planned: gangs that would run with fewer members than their minimum, if all of it is bound."""
    groups, planned = core.state.groups, {placement.unit: placement.uid for placement in plan.placements}
    together = {unit for gang in plan.gangs for unit in gang.members}
    wrong = []
    for gang in plan.gangs:
        bound = len(groups.members[gang.group].bound)
        if len(gang.members) < gang.min_count or bound + gang.min_count < groups.minimum(gang.group):
            wrong.append(f"I5: plan {plan.plan_id} has {len(gang.members)} of {gang.group} beside {bound}")
    for unit in planned.keys() - together:
        key = groups.key_of.get(planned[unit], "")
        if key and len(groups.members[key].bound) + 1 < groups.minimum(key):
            wrong.append(f"I5: plan {plan.plan_id} has a lone member of {key}, which has not its minimum")
    return wrong
