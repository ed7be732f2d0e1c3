"""The binder's decisions in one term: events in, instructions out. No await, no clock, no I/O.

Why: the last word on every placement is spoken here. A plan's placement is checked against the node as it is now and
assumed; its intent is committed to etcd under both terms; then it is bound with the uid and resourceVersion that the
intent names; every unclear end is settled by reading the pod. The diagram of a unit's way is in ``in_flight.py``.

Invariants (numbers as in reliability.md): I1 one live intent per pod (absence of its key is compared) and one Binding
that can succeed (uid and resourceVersion); I2 nothing is committed that does not fit beside everything bound or
assumed; I4 every transaction compares our term, and the plan's for new intents; I9 an event told twice finds nothing
to do. It refuses to trust a plan, an agent, or memory of another term.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from itertools import repeat
from random import Random

from services.binder.core.events import (
    BindingAccepted,
    BindingRefused,
    BindingUnknown,
    ClaimFreed,
    ClaimUnwritten,
    ClaimWritten,
    CommitRefused,
    Committed,
    CommitUnknown,
    Compared,
    Event,
    Evicted,
    IntentsListed,
    LookedUp,
    LookUpFailed,
    PlanReceived,
    PodMarked,
    PodRead,
    PodReadFailed,
    ShardsSeen,
    StoredIntent,
)
from services.binder.core.in_flight import BindingStage, InFlightBinding
from services.binder.core.inherit import Inheritance
from services.binder.core.instructions import Instruction, Refuse
from services.binder.core.loans import Loans, beyond, divide, unsound, with_loans
from services.binder.core.lookups import SHARDS_CHANGED, LookUps
from services.binder.core.plans import Plans
from services.binder.core.reconcile import Reconciler
from services.binder.core.state import BinderCoreSettings, BinderState, BinderStats, PlacementArrival
from services.binder.core.takeover import DEVICES, RESERVATIONS, BinderTakeover
from services.binder.cycle.binding_cycle import BindingCycle
from services.binder.cycle.commit import Committer
from services.binder.cycle.evictions import EvictionQueue
from services.binder.cycle.gang_cycle import GangCycle
from shared.errors import InvalidState
from shared.model.cluster_events import (
    Listed,
    NodeDeleted,
    NodeUpserted,
    ObjectChanged,
    ObjectUnreadable,
    PodDeleted,
    PodUpserted,
    PositionLost,
)
from shared.model.devices import DeviceClaim
from shared.model.pod import Pod
from shared.model.versions import newer
from shared.scheduling.shards import ONLY, Shards
from shared.scheduling.state.object_changes import drop_object, put_object
from shared.scheduling.state.room.reserved_room import in_name_of
from shared.turns import Tick
from shared.wire.keys import Keys
from shared.wire.messages import EvictionOutcome, Loan, Outcome, Placement
from shared.wire.records import gang_part

EVENTS_PER_TURN = 1000
"""Events that the shell hands over at once: more (a first list, a watch that was cut) take several turns."""


class BinderCore:
    """One term of one shard. ``wake_at`` is when it wants a ``Tick`` next; ``kinds``: what is listed beside pods and
    nodes before intents are judged; ``epoch``: seconds since 1970 at which the clock that it is told stood at 0;
    ``rng``: another one in each process, for it names users of shared devices."""

    def __init__(
        self, term: int, settings: BinderCoreSettings, keys: Keys, *, shard: str = ONLY, shards: Shards | None = None,
        kinds: Collection[str] = (), epoch: float = 0.0, rng: Random | None = None,
    ) -> None:  # fmt: skip
        self.state = BinderState(term, settings, shard, shards or Shards(), epoch=epoch, rng=rng or Random(term))
        self._profiles = settings.profiles if settings.profiles.special else None
        self.committer = Committer(
            keys,
            shard=shard,
            term=term,
            linger_s=settings.clear_linger_s,
            size=settings.max_value_pods,
            shards=self.state.shards.revision,
        )
        self.plans = Plans(self.state)
        self.takeover = BinderTakeover(self.state, kinds)
        self.reconciler = Reconciler(self.state)
        self.loans = Loans(self.state, self.committer)
        self.coordinator_term = 0
        self.cycle = BindingCycle(self.state, self.committer, self.plans, self.takeover, self.reconciler, self.loans)
        self.takeover.giving_back = lambda: self.cycle.claims.busy
        self.gangs = GangCycle(self.state, self.committer, self.cycle)
        self.lookups = LookUps(self.state, self.committer, self.plans, self.cycle, self.gangs)
        self.inheritance = Inheritance(self.state, self.committer, self.cycle, self.takeover)
        self.evictions = EvictionQueue(self.state, self.plans)

    @property
    def stats(self) -> BinderStats:
        """Counters of this term."""
        return self.state.stats

    @property
    def wake_at(self) -> float:
        """When something is due that no event will announce."""
        agenda, paused = self.state.agenda, self.state.paused
        times = [agenda.plans, agenda.sweeps, agenda.claims, self.loans.look_at]
        if self.state.arriving or self.state.unfinished or self.state.inherited:
            times.append(self.state.now)
        if paused:
            times.append(min(paused.values()))
        if (at := self.committer.wake_at()) is not None:
            times.append(at)
        if self.lookups.again_at is not None:
            times.append(self.lookups.again_at)
        if not self.takeover.accepting and (at := self.takeover.wake_at()) is not None:
            times.append(at)
        return min(times)

    @property
    def busy(self) -> bool:
        """Whether a unit is on its way, or a finished intent still in etcd."""
        state, committer = self.state, self.committer
        coming = state.in_flight or state.arriving or state.inherited
        return bool(coming or self.cycle.claims.busy or committer.backlog or committer.sent is not None)

    def learn(self, events: Iterable[Event], now: float) -> None:
        """Take in what the API server shows while another leads; nothing follows from it."""
        state = self.state
        state.now = state.story.now = now
        state.zones.now = now
        if state.zones.wake_at <= now:
            state.zones.advance(now)
        for event in events:
            state.cause = type(event)
            self._take(event)
        state.cause = Tick
        # Whatever it was, it is the leader's to do (I4).
        state.out.clear()

    def lead(self, term: int, epoch: float) -> None:
        """The term that begins, of a core that has learned; the wall clock may have been set since it was made."""
        self.state.term = self.committer.term = term
        self.state.epoch = epoch

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take in one event; what is to be done now."""
        return self.handle_all((event,), now)

    def handle_all(self, events: Iterable[Event], now: float) -> list[Instruction]:
        """Take in what came together (one read of a watch); what is to be done now."""
        state = self.state
        state.now = state.story.now = now
        state.devices.wall = state.epoch + now
        state.zones.now = now
        if state.zones.wake_at <= now:
            state.zones.advance(now)
        for event in events:
            state.cause = type(event)
            self._take(event)
        if state.arriving:
            state.cause = PlanReceived
            self._take_up()
        state.cause = Tick
        self._advance()
        state.left = state.settings.units_per_turn
        if state.settings.validate and (problems := self.validate()):
            raise InvalidState(state.story.told(problems))
        out, state.out = state.out, []
        return out

    def validate(self) -> list[str]:
        """Every invariant that does not hold between two turns, its name first; empty while all is well."""
        state = self.state
        return [
            *state.cluster.validate(),
            *self.cycle.validate(),
            *self.committer.validate(
                {
                    *state.in_flight,
                    *state.inherited,
                    *self.cycle.claims.returns.leaving,
                    *(key for gang in state.gangs.values() for key in gang.keys),
                }
            ),
            *self.plans.validate(),
            *self.takeover.validate(),
        ]

    def story(self, uid: str) -> list[str]:
        """One unit's life in this term, oldest line first; as far back as the ring goes."""
        return self.state.story.lines(uid)

    # --- events -------------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        match event:
            case PodUpserted():
                self._pod_seen(event.pod)
            case PodDeleted():
                self._pod_gone(event.uid)
            case NodeUpserted():
                table = self.state.cache.table
                known = table.clock
                self.state.cache.upsert_node(event.node)
                # Kubelets write their nodes all the time: one that is as it was must call nobody back.
                if table.clock != known:
                    self.cycle.recall(event.node.name)
            case ObjectChanged():
                if event.item is None:
                    drop_object(self.state.cluster, event.kind, event.key)
                else:
                    put_object(self.state.cluster, event.kind, event.key, event.item)
                if event.kind == "deviceclasses":
                    self.state.classes_changed()
                if event.kind == "resourceclaims":
                    self.cycle.claims.shown(event.key, event.item if isinstance(event.item, DeviceClaim) else None)
                if event.kind in ("persistentvolumeclaims", "persistentvolumes") and self.state.await_volumes:
                    self.cycle.volumes_changed()
            case NodeDeleted():
                self.state.cache.remove_node(event.name)
                self.cycle.recall(event.name)
            case PlanReceived():
                self._plan(event)
            case Committed():
                self.lookups.written(self.committer.succeeded(event.batch, event.revision, self.state.now))
                self.loans.fence_moved()
            case CommitRefused() | CommitUnknown():
                self.lookups.commit_failed(event)
            case LookedUp():
                self.coordinator_term, foreign = self.lookups.looked_up(event, self.coordinator_term)
                self.loans.fence_moved()
                for key, stored in foreign.items():
                    self._foreign(key, stored)
            case LookUpFailed():
                self.lookups.look_failed(event)
            case BindingAccepted() | BindingRefused() | BindingUnknown():
                self.cycle.binding_ended(event)
            case PodRead():
                pod = None if event.pod is None else self._as_judged(event.pod)
                if event.uid not in self.loans or not self.loans.read(event.uid, pod):
                    self.cycle.pod_read(event.uid, pod)
            case PodReadFailed():
                self.loans.unread(event.uid)
                self.cycle.pod_unread(event.uid)
            case Evicted():
                self.evictions.answered(event.plan, event.result)
                # Who leaves is shown gone by the watch, and only then is there room; who stays ends the wait now.
                if event.result.outcome not in (EvictionOutcome.EVICTED, EvictionOutcome.GONE):
                    self.cycle.room_left(event.result.uid)
            case ClaimWritten():
                self.cycle.claims.written(event)
            case ClaimUnwritten():
                self.cycle.claims.unwritten(event)
            case ClaimFreed():
                self.cycle.claims.freed(event)
            case PodMarked():
                self.cycle.pod_marked(event)
            case Listed():
                if event.kind == "podgroups":
                    self.state.devices.knows_groups = event.served
                if event.kind == RESERVATIONS:
                    self.takeover.reservations_listed(refused=event.refused)
                else:
                    self._listed(event.kind)
            case ObjectUnreadable():
                if event.kind == "resourceclaims" and event.resource_version:
                    self.cycle.claims.passed(event.key, event.resource_version)
            case PositionLost():
                self.takeover.unlisted(event.kind)
                # Our own write may be shown before a claim that had the device earlier: no Binding before the list.
                self.cycle.claims.in_order &= event.kind != "resourceclaims"
            case IntentsListed():
                self._intents_listed(event)
            case ShardsSeen():
                # Memory does not do: what a node's former owner bound may not have come by the watch yet (ADR 0023).
                if event.revision != self.state.shards.revision:
                    self.lookups.stop(SHARDS_CHANGED)
            case Compared():
                self.reconciler.compare(event.bound, reservations=event.reservations)
            case Tick():
                pass

    def _advance(self) -> None:
        """Do whatever the event made possible, or the time made due."""
        agenda, now, line = self.state.agenda, self.state.now, self.cycle.line
        taking_over = not self.takeover.accepting
        if taking_over and (due := self.takeover.due()) is not None:
            self.loans.count()
            # What other shards hold is counted first, above: inherited units are judged beside it (I2).
            self.inheritance.take(due)
        elif self.state.inherited or self.inheritance.put_off:
            self.inheritance.go_on()
        if self.state.paused:
            self.cycle.wake()
        if self.state.unfinished:
            self.gangs.go_on()
        if self.state.touched:
            self.gangs.step()
        if taking_over:
            self.takeover.step()
            if self.takeover.accepting:
                # Plans only now: one for a pod whose intent is not judged yet would commit it a second time (I1).
                self._take_kept()
        if agenda.plans <= now:
            self.plans.step()
        if agenda.sweeps <= now:
            self.reconciler.step()
        if self.loans.look_at <= now:
            self.loans.step()
        if agenda.claims <= now:
            self.cycle.claims.returns.step()
        if self.lookups.again_at is not None:
            self.lookups.step()
        if self.evictions.waiting:
            self.evictions.step()
        # I4: somebody else leads, or owns the nodes. Nothing is bound or committed here any more.
        if not self.lookups.stopped:
            if line.pods or line.gangs:
                self.cycle.bind()
            while self.state.touched:  # what became of members may let others go, or end them all
                self.gangs.step()
                self.cycle.bind()
            # After Bindings: what was given up on the way to them goes with this transaction.
            commit = self.committer.next_commit(now) if self.committer.sent is None else None
            if commit is not None:
                self.state.stats.transactions += 1
                self.state.stats.transaction_ops += len(commit.ops)
                self.state.emit(commit)

    def _as_judged(self, pod: Pod) -> Pod:
        if pod.reserves is not None:
            pod = in_name_of(pod, self.state.settings.scheduler_name)
        return pod if self._profiles is None else self._profiles.applied(pod)

    def _pod_seen(self, pod: Pod) -> None:
        if pod.reserves is not None or self._profiles is not None:
            pod = self._as_judged(pod)
        state, binding = self.state, self.state.in_flight.get(pod.uid)
        if pod.node_name or pod.finished:
            state.pending.pop(pod.uid, None)
            # Observed before its unit ends: one that is bound waits for the watch's word only where that has not come.
            state.observe(pod)
            if pod.takes:
                self.cycle.reservation_shown(pod.uid)
            if pod.finished:
                self.cycle.room_left(pod.uid)
            elif pod.terminating:
                state.leavers.leaves(pod.uid, pod.node_name, state.now)
            self.loans.over(pod.uid)
            self.reconciler.confirmed(pod.uid)
            if binding is not None:
                self.cycle.bound_or_gone(binding, pod)
            return
        account = state.cache.accounts.get(pod.uid)
        known = state.pending.get(pod.uid)
        if account is not None and account.assumed_at is None:
            return  # a read was ahead of the watch: it is bound
        # A read was ahead of the watch (I8): by the older state a pod would be judged that is no more so.
        if known is not None and newer(known.resource_version, pod.resource_version):
            return
        if pod.scheduler_name in state.settings.ours:
            state.pending[pod.uid] = state.devices.described(pod) if pod.extended else pod
        if binding is None:
            return
        if binding.stage is BindingStage.AWAITED:
            self.cycle.check_if_known(binding)
        elif pod.terminating and binding.stage is BindingStage.CHECKED:
            self.cycle.settle(binding, Outcome.GONE, reason="the pod is terminating")

    def _pod_gone(self, uid: str) -> None:
        self.state.pending.pop(uid, None)
        self.state.cluster.forget(uid)
        # After its account is gone: those who waited for its room are checked against the node at once.
        self.cycle.room_left(uid)
        self.loans.over(uid)
        self.reconciler.confirmed(uid)
        binding = self.state.in_flight.get(uid)
        if binding is not None:
            self.cycle.settle(binding, Outcome.GONE, reason="the pod was deleted")

    def _plan(self, event: PlanReceived) -> None:
        state, plan = self.state, event.plan
        # I4: the leader that this plan is of has been succeeded, and its successor has planned the same pods.
        if plan.term < self.coordinator_term:
            message = f"term {plan.term} is over; {self.coordinator_term} has been seen"
            state.emit(Refuse(event.request, "stale_term", message, 409))
            return
        # Confirmed by etcd before it came here (`BinderShell.submit`): a forged one would lock the true one out.
        if plan.term > self.coordinator_term:
            self._new_coordinator(plan.term)
        if not self.takeover.accepting:
            self.plans.keep(event.request, plan, self.takeover.missing)
            return
        if len({p.uid for p in plan.placements}) + len({p.unit for p in plan.placements}) != 2 * len(plan.placements):
            state.emit(Refuse(event.request, "wire_invalid", "a pod or unit is in the plan twice", 400))
            return
        if (wrong := unsound(plan)) or (plan.gangs and (wrong := self.gangs.malformed(plan))):
            state.emit(Refuse(event.request, "wire_invalid", wrong, 400))
            return
        if message := beyond(state, plan):
            state.emit(Refuse(event.request, "wrong_shard", message, 421))
            return
        # Before it is opened: a plan that is refused leaves nothing here, and may be sent again as it is.
        if len(state.in_flight) + len(state.arriving) + len(plan.placements) > state.settings.max_units:
            state.emit(Refuse(event.request, "overloaded", "too many units are on their way", 429, 1.0))
            return
        opened = self.plans.open(event.request, plan)
        if opened is None:
            return
        arriving = self.gangs.open(plan) if plan.gangs and not plan.lend else zip(plan.placements, repeat(""))
        arrivals: Iterable[PlacementArrival] = (
            PlacementArrival(plan.term, plan.plan_id, one, gang) for one, gang in arriving
        )
        state.arriving.extend(with_loans(plan, arrivals) if plan.lend or plan.loans else arrivals)
        self._take_up()
        if plan.evictions:
            self.evictions.add((plan.term, plan.plan_id), plan.evictions)

    def _take_kept(self) -> None:
        """The takeover is over: what came meanwhile, as if it came now."""
        self.state.cause = PlanReceived
        for request, plan in self.plans.kept():
            self._plan(PlanReceived(request, plan))
        self.state.cause = Tick

    def _take_up(self) -> None:
        """Placements in order, as many as a turn takes up."""
        state = self.state
        while state.arriving and state.left > 0:
            state.left -= 1
            self._place(*state.arriving.popleft())

    def _new_coordinator(self, term: int) -> None:
        self.coordinator_term = term
        self.state.arriving = deque(arrival for arrival in self.state.arriving if arrival.term >= term)
        self.lookups.drop_older(term)
        self.evictions.drop_older(term)

    def _place(
        self, term: int, plan_id: int, placement: Placement, gang_key: str, lend: bool, loan: Loan | None
    ) -> None:
        state, uid = self.state, placement.uid
        account = state.cache.accounts.get(uid)
        binding, gang = state.in_flight.get(uid), self.gangs.arrived(gang_key, plan_id) if gang_key else None
        # Before all else: an intent of another shard names it, or may yet. Placed here it could be bound twice (I1).
        if uid in self.loans:
            self.loans.recall(uid)
            self.plans.settle(uid, Outcome.CONFLICT, reason="another shard's binder has not given it up yet")
            return
        if uid in self.takeover.put_off:
            # no conflict, by which what its pod group has would be freed: it may be bound yet
            why = "an earlier intent of it waits for devices to be listed"
            self.plans.settle(uid, Outcome.UNRESOLVED, node=placement.node, reason=why)
            return
        # It stands, or is assumed by a Binding that was accepted: the plan hears where, nothing is begun.
        if binding is None and account is not None:
            outcome = Outcome.BOUND if account.node_name == placement.node else Outcome.ELSEWHERE
            self.plans.settle(uid, outcome, node=account.node_name)
            if gang is not None and gang.gathering:
                gang.bound += 1
            return
        if binding is not None or uid in state.inherited:
            return
        # Before it is begun: to ask again for an attempt that has ended is no new attempt.
        if (ended := self.plans.ends.get((term, placement.unit))) is not None:
            self.plans.settle(uid, ended[0], node=ended[1], reason=ended[2])
            return
        if gang_key and (gang is None or not gang.gathering):
            why = "its gang was given back" if gang is None or gang.over else "its gang is on its way without it"
            self.plans.settle(uid, Outcome.CONFLICT, reason=why)
            return
        binding = state.in_flight[uid] = InFlightBinding(
            uid=uid,
            namespace=placement.namespace,
            name=placement.name,
            rv=placement.resource_version,
            node=placement.node,
            unit=placement.unit,
            coordinator_term=term,
            plan_id=plan_id,
            policy=f"{placement.policy}@{placement.policy_version}" if placement.policy else "",
            arrived=state.now,
            gang=gang_key,
            placement=placement,
            lend=lend,
            reservation=placement.reservation,
        )
        if loan is not None:
            # By the version and devices that the lender judged, not by the plan's: it keeps just that.
            binding.loan, binding.rv, binding.devices = loan, loan.resource_version, tuple(loan.devices)
        if gang is not None:
            gang.members[uid] = binding
        state.story.add(uid, "plan {} wants it on {} as unit {}", plan_id, placement.node, binding.cause_id)
        state.move(binding, BindingStage.AWAITED)
        self.cycle.check_if_known(binding)

    def _intents_listed(self, event: IntentsListed) -> None:
        """The first list is the takeover's; later ones are the sweep's."""
        own, others = divide(self.state, event.intents)
        if not self.takeover.intents_known:
            self.committer.fence.at = event.fence
            self.takeover.list_intents(own)
            self.loans.list(others)
            return
        if self.loans:
            self.loans.listed(others, event.revision)
        # Asked for by loans, soon after the last: two looks so close would take an intent for an orphan whose
        # delete is under way.
        if self.loans.looked():
            return
        idle = {key: stored for key, stored in own.items() if not self.inheritance.known(key)}
        orphans = self.reconciler.orphans(idle)
        self.stats.intents_orphaned += len(orphans)
        self.inheritance.take(orphans)

    def _listed(self, kind: str) -> None:
        """A list is complete. ``InvalidState``: pods were listed before the intents of other shards, so that one bound
        in between would have no intent, nor a node."""
        if kind == "pods" and not self.state.sole and not self.takeover.intents_known:
            raise InvalidState(["listed: pods were listed before the intents of other shards"])
        self.takeover.listed(kind)
        if kind in DEVICES and self.takeover.devices_listed:
            self.loans.count_devices()
        if kind == "resourceclaims":
            self.cycle.claims.listed()

    def _foreign(self, key: str, stored: StoredIntent) -> None:
        """Another intent of the pod is in etcd: that one is resolved, and the plans hear its end."""
        part = gang_part(key)
        gang = self.state.gangs.get(part[0]) if part is not None else None
        if gang is not None:
            self.gangs.drop(gang, "another intent of this gang is in etcd")
            return  # the sweep finds it, with its links
        binding = self.state.in_flight.pop(key, None)
        self.state.cluster.forget(key)
        # Ours is out of the way by now: what is in etcd becomes the unit under the same uid.
        own, _ = divide(self.state, {key: stored})
        self.stats.intents_orphaned += len(own)
        self.inheritance.take(own)
        if binding is not None and key not in self.state.in_flight and key not in self.state.inherited:
            outcome = Outcome.UNRESOLVED if key in self.takeover.put_off else Outcome.CONFLICT  # it may be bound yet
            self.plans.settle(key, outcome, node=binding.node, reason="another intent of this pod is in etcd")
