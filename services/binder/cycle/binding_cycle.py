"""The binding cycle of one unit: check, commit, bind, and every way it can go wrong. Pure.

Why apart from ``core.py``: that file says who may ask for what; this one carries a unit from the check to its end. The
stages and their moves are in ``in_flight.py``, transactions in ``commit.py``.

The API server's answer is the only truth about a pod: a 409 or a lost answer is settled by reading the pod, never by
guessing. Read: on our node, it is bound, by whomever; elsewhere, the account moves there; gone or recreated, nothing is
held; still unbound, the Binding is sent again, after a newer resourceVersion has been written to the intent in a fenced
transaction (a deposed leader must not be able to refresh its own token).

No unit is left without an end: every stage is left by an answer or by a time (``BinderState.paused``). Where a member
of a gang may go on, and where it ends with the others, is ``gang_cycle.py``'s to say.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from services.binder.core.events import BindingAccepted, BindingRefused, BindingUnknown, PodMarked
from services.binder.core.gangs import LET_GO, GangStage
from services.binder.core.in_flight import BindingStage, InFlightBinding
from services.binder.core.instructions import Bind, MarkPod, ReadPod
from services.binder.core.loans import Loans, lenders_of
from services.binder.core.plans import Plans
from services.binder.core.reconcile import Reconciler
from services.binder.core.state import BinderState
from services.binder.core.takeover import BinderTakeover
from services.binder.cycle.batch import NO_LENDERS
from services.binder.cycle.check import borrow, choose, hold, may_be_of_class, may_bind, outdated, still_fits, unseen
from services.binder.cycle.claims import ClaimsOfTerm, claim_keys
from services.binder.cycle.commit import Committer
from services.binder.cycle.line import BindingLine
from services.binder.cycle.validate import problems
from services.binder.cycle.volumes import NOT_IN_TIME, in_vain, unbound_claims, waiting_text, writes_for
from shared.model.pod import Pod
from shared.model.units.reservation import reservation_of
from shared.model.versions import newer
from shared.scheduling.story import FACT_CHARS
from shared.wire.messages import Outcome


class BindingCycle:
    """Carries each unit in flight from check to settled."""

    def __init__(
        self,
        state: BinderState,
        committer: Committer,
        plans: Plans,
        takeover: BinderTakeover,
        reconciler: Reconciler,
        loans: Loans,
    ) -> None:
        self.line = BindingLine(state.settings.max_bindings)
        self._state = state
        self._committer = committer
        self._plans = plans
        self._takeover = takeover
        self._reconciler = reconciler
        self._loans = loans
        self.claims = ClaimsOfTerm(state, self._left)

    def check_if_known(self, binding: InFlightBinding) -> None:
        """Check and assume the unit if its pod is known at the plan's resourceVersion or a newer one; else wait."""
        state, pod = self._state, self._known(binding)
        if binding.lend and binding.asking:
            return  # an answer from before must not be taken for one to what is asked later
        if pod is None:
            if binding.uid not in state.paused:
                state.stats.pods_awaited += 1
                state.paused[binding.uid] = state.now + state.settings.await_pod_s
            return
        self._check(binding, pod)

    def _known(self, binding: InFlightBinding) -> Pod | None:
        pod = self._state.pending.get(binding.uid)
        # Of an older version the spec may be another, and a Binding by its resourceVersion would only get 409.
        return None if pod is None or newer(binding.rv, pod.resource_version) else pod

    def _check(self, binding: InFlightBinding, pod: Pod) -> None:
        binding.extended = bool(pod.extended)
        if (pod.asks is not None or binding.extended) and (again_s := self._waits_for_devices(binding, pod)):
            self._state.paused[binding.uid] = self._state.now + again_s
            return
        if binding.reservation and self._awaits_reservation(binding):
            self._state.paused[binding.uid] = binding.reservation_until
            return
        self._state.paused.pop(binding.uid, None)
        judged = choose if binding.loan is None else borrow
        kept = unseen(self._state, binding) if binding.reservation else None
        # `judged` last: it assumes the pod, and nothing that refused afterwards would give that room back (I2).
        verdict = may_bind(self._state, pod) or kept or judged(self._state, binding, pod)
        if verdict is not None:
            if not verdict.full or binding.placement is None or not self._awaits_room(binding, verdict.full):
                self.settle(binding, verdict.outcome, node=verdict.node, reason=verdict.reason)
            return
        self._state.move(binding, BindingStage.CHECKED)
        if binding.gang:
            self._state.touch(binding.gang)
        elif binding.lend:
            # Told once nothing given up before can come any more: a late intent would claim the same room (ADR 0044).
            self._committer.fence.pass_by(binding.uid)
        else:
            lenders = lenders_of((binding,)) if binding.loan is not None else NO_LENDERS
            self._committer.put(binding.uid, binding.intent(self._state.term, self._state.shard), lenders)

    def _waits_for_devices(self, binding: InFlightBinding, pod: Pod) -> float:
        """So many seconds at most it is too early to judge, 0: it is not.

        What an attempt before this one leaves is not to be judged by, nor half a list. Where no device class is listed,
        and the node offers what the pod requests, no list is waited for.
        """
        settings = self._state.settings
        by_devices = pod.asks is not None or may_be_of_class(self._state, binding, pod)
        if by_devices and not self._takeover.devices_known:
            return settings.await_pod_s
        if self.claims.busy and self.claims.unsettled(binding.uid, claim_keys(pod)):
            return settings.claims_again_s
        return 0.0

    def _awaits_reservation(self, binding: InFlightBinding) -> bool:
        """Whether the reservation is not shown yet: the coordinator's watch may be ahead."""
        state = self._state
        if binding.reservation in state.cluster.reserved.standing:
            return False
        binding.reservation_until = binding.reservation_until or state.now + state.settings.await_pod_s
        return state.now < binding.reservation_until

    def reservation_shown(self, uid: str) -> None:
        """A reservation is shown where it is, or as over: who waits for that is looked at again."""
        state = self._state
        for unit in state.paused:
            if (binding := state.in_flight.get(unit)) is not None and binding.reservation == uid:
                state.paused[unit] = state.now

    def _awaits_room(self, binding: InFlightBinding, full: tuple[str, ...]) -> bool:
        """Whether a full candidate may be shown without somebody in a moment: the unit is looked at again then."""
        state, longest = self._state, self._state.settings.await_room_s
        # Set once: begun anew at each look, the wait would last as long as the slowest pod takes to go.
        binding.room_until = binding.room_until or state.now + longest
        if state.now >= binding.room_until:
            state.leavers.in_vain(full, binding.room_until - longest)
            return False
        if not state.leavers.awaited_by(binding.uid, full, counted=state.cache.accounts):
            return False
        state.paused[binding.uid] = binding.room_until
        return True

    def room_left(self, uid: str) -> None:
        """A pod is gone, or does not leave after all: who waited for its room is looked at again."""
        for unit in self._state.leavers.ended(uid):
            binding = self._state.in_flight.get(unit)
            if binding is not None and binding.stage is BindingStage.AWAITED and binding.room_until:
                self.check_if_known(binding)

    def queue(self, binding: InFlightBinding) -> None:
        """Bind the unit, whose intent is committed, as soon as there is room and its gang lets it go."""
        if binding.gang and self._state.gangs[binding.gang].stage is not GangStage.BINDING:
            self._state.touch(binding.gang)
        else:
            self.line.add(binding.uid, binding.gang)

    def to_binding(self, binding: InFlightBinding) -> None:
        """The unit's intent is committed, or renewed; one that is lent waited for the others' alone."""
        if binding.lend:
            self._plans.lent[binding.uid] = self._loans.lend(binding)
            self.end(binding, Outcome.LENT, node=binding.node)
            del self._plans.lent[binding.uid]
        # In any other stage it has gone on without this: a batch that is told of twice changes nothing (I9).
        elif binding.stage in (BindingStage.CHECKED, BindingStage.RENEWING):
            self._state.move(binding, BindingStage.COMMITTED)
            self.queue(binding)

    def bind(self) -> None:
        """Send Bindings while there is room for them in flight."""
        state = self._state
        line = self.line
        while (line.pods or line.gangs) and (uid := line.next(state.now, self._at_once)) is not None:
            binding = state.in_flight.get(uid)
            # Its place in the line outlives it: whoever was recalled or settled meanwhile is passed over here.
            if binding is None or binding.stage is not BindingStage.COMMITTED or binding.withdrawing is not None:
                continue
            gang = state.gangs[binding.gang] if binding.gang else None
            if gang is not None and gang.short and not gang.bound:
                continue  # it has just fallen below its minimum, and is looked at next
            if not self.may_go(binding):
                continue
            state.move(binding, BindingStage.BINDING)
            binding.attempts += 1
            if not binding.bind_us:
                binding.bind_us = max(1, round((state.now - binding.arrived) * 1e6))
            line.sent(uid, binding.gang)
            state.stats.bindings += 1
            step = ""
            if gang is not None:
                step = "gang_next" if gang.bound else "gang_first"
                gang.probe = uid
            room = self._room(binding.reservation) if binding.reservation else None
            bind = Bind(binding.attempts, binding.request(), binding.cause_id, step, room=room)
            state.emit(self._telling(binding, bind) if binding.extended else bind)

    def _room(self, uid: str) -> tuple[str, str, str] | None:
        """The Reservation that is to name its taker; None: it is shared, or not shown."""
        reserve = self._state.cluster.reserved.standing.get(uid)
        if reserve is None or reserve.reserves is None or not reserve.reserves.once:
            return None
        return reserve.namespace, reservation_of(reserve.name), uid

    def _telling(self, binding: InFlightBinding, bind: Bind) -> Bind:
        """With what the pod's status is to say first of the claim for its extended resources, where it does not yet."""
        pod = self._state.pending.get(binding.uid)
        wanted = self._state.devices.extended_claim(pod, binding.node) if pod is not None else None
        if pod is None or wanted == pod.extended_claim:
            return bind
        return replace(bind, tells=True, extended=wanted)

    def _at_once(self, key: str, most: int) -> int:
        gang = self._state.gangs.get(key)
        return gang.at_once(most) if gang is not None else most

    def may_go(self, binding: InFlightBinding) -> bool:
        """Whether the committed unit can be bound now; one that has to wait, or is given up, cannot."""
        # the API server would accept it, also to a node that is gone: nobody but us looks at the node
        reason = outdated(self._state, binding)
        if reason:
            self.withdraw(binding, reason)
            return False
        pod = self._state.pending.get(binding.uid)
        if pod is None:
            return True
        if pod.relations is not None and pod.relations.claims and not self._has_volumes(binding, pod):
            return False
        return pod.asks is None or self._has_devices(binding, pod)

    def _has_devices(self, binding: InFlightBinding, pod: Pod) -> bool:
        """Whether every claim of the pod has its devices, for this pod."""
        answer = self.claims.ready(binding, pod)
        if answer.vain:
            outcome = Outcome.REFUSED if answer.refused else Outcome.CONFLICT
            if answer.refused and not binding.loose:
                self._say(binding, answer.vain)
            self.withdraw(binding, answer.vain, outcome=outcome)
        return answer.ready

    def _has_volumes(self, binding: InFlightBinding, pod: Pod) -> bool:
        """Whether every claim of the pod is bound."""
        state, uid = self._state, binding.uid
        # Before what is unbound: a claim that was deleted is not, and the pod would be bound without it.
        reason = in_vain(state, binding, pod)
        if reason:
            self.withdraw(binding, reason)
            return False
        claims = unbound_claims(state, pod)
        if not claims:
            state.await_volumes.discard(uid)
            return True
        # it has to wait for its volumes: what they need is written, and a change of one wakes it
        settings, ends = state.settings, binding.arrived + state.settings.volumes_wait_s
        if state.now >= ends:
            if not binding.loose:  # else the mark says so, and no other answer may be taken for the mark's
                self._say(binding, NOT_IN_TIME)
            self.withdraw(binding, NOT_IN_TIME, outcome=Outcome.REFUSED)
            return False
        tells = binding.arrived + settings.volumes_tell_s
        if state.now >= tells and not binding.told:
            binding.told = True
            self._say(binding, waiting_text(claims, binding.node))
        for write in writes_for(state, claims, binding.node):
            state.emit(write)
        state.await_volumes.add(uid)
        state.paused[uid] = min(state.now + settings.volumes_again_s, ends if binding.told else min(tells, ends))
        return False

    def _say(self, binding: InFlightBinding, message: str) -> None:
        """Say on the pod why it is still pending. Where nothing waits for that, its Binding names a newer version."""
        pod = self._state.pending.get(binding.uid)
        told = pod is not None and pod.condition[0] == "False"
        self._state.emit(MarkPod(binding.uid, binding.namespace, binding.name, message, told))

    def volumes_changed(self) -> None:
        """A claim or volume came, changed or went: units that wait for volumes are looked at again."""
        for uid in self._state.await_volumes:
            if uid in self._state.paused:
                self._state.paused[uid] = self._state.now

    def recall(self, node: str) -> None:
        """Call back the Bindings to a node that changed and does not take their pods any more.

        The API server may hold those under way for seconds (admission), and would bind to a cordoned or full node.
        Those that wait, for a throttled API server or for volumes, are given up at once, so that they are told in time.
        """
        paused = self._state.paused
        if not self.line.in_flight and not paused and not self._state.gangs:
            return
        for binding in [t for t in self._state.in_flight.values() if t.node == node]:
            # A lone unit in the line is looked at right before its Binding anyway (`may_go`).
            waits = binding.stage is BindingStage.COMMITTED and (binding.uid in paused or bool(binding.gang))
            reason = outdated(self._state, binding) if waits or binding.stage is BindingStage.BINDING else ""
            if reason:
                # Nobody knows what becomes of that Binding: only a mark makes it impossible (ADR 0007, 4).
                binding.loose |= binding.stage is BindingStage.BINDING
                self.withdraw(binding, reason)

    def binding_ended(self, event: BindingAccepted | BindingRefused | BindingUnknown) -> None:
        """A Binding got its answer, or none."""
        self.line.answered(event.uid)
        binding = self._state.in_flight.get(event.uid)
        # By number: an answer to an earlier Binding says nothing of the one that is under way now.
        if binding is None or binding.stage is not BindingStage.BINDING or binding.attempts != event.attempt:
            return
        if isinstance(event, BindingAccepted):
            self.end(binding, Outcome.BOUND, node=binding.node)
            return
        if isinstance(event, BindingUnknown):
            self._state.stats.unknown_bindings += 1
            binding.loose, binding.reason = True, "no answer to the Binding"
            self.read(binding)
            return
        binding.reason = f"{event.status}: {event.message}"[:512]
        match event.status:
            case 404 | 409:  # a 404 may be the pod's, its namespace's, or only this Binding's uid's
                self._state.stats.conflicting_bindings += event.status == 409
                self.read(binding)
            case 429 | 503:  # nothing happened, and we are asked to come again
                # Not counted against it: a busy API server is no reason to give up a node that takes the pod.
                binding.attempts -= 1
                self._state.move(binding, BindingStage.COMMITTED)
                self._state.pause(binding, at_least_s=event.retry_after_s or 0.0)
            case _:
                self._refuse(binding, binding.reason)

    def pod_read(self, uid: str, pod: Pod | None) -> None:
        """The API server has said what the pod is; None: it is not there."""
        state, binding = self._state, self._state.in_flight.get(uid)
        # Another pod bears the name by now: ours is gone, and the old plan must not bind its successor (I1).
        if pod is not None and pod.uid != uid:
            pod = None
        if binding is None:
            self._reconciler.read(uid, pod)
            return
        if binding.stage not in (BindingStage.AWAITED, BindingStage.READING):
            return
        binding.asking, binding.failures = False, 0
        state.paused.pop(uid, None)
        if pod is not None and not pod.node_name:
            pod = state.see_pending(pod)
        if binding.stage is BindingStage.AWAITED:
            if pod is None:
                self.settle(binding, Outcome.GONE, reason="the pod is gone")
            else:
                self._check(binding, pod)
            return
        self._follow(binding, pod)

    def pod_unread(self, uid: str) -> None:
        """A read failed: it is made again after a pause."""
        binding = self._state.in_flight.get(uid)
        if binding is None or binding.stage not in (BindingStage.AWAITED, BindingStage.READING):
            return
        binding.asking = False
        self._state.pause(binding)
        if binding.stage is BindingStage.AWAITED and binding.failures >= self._state.settings.max_attempts:
            self.settle(binding, Outcome.CONFLICT, reason="the API server does not say what the pod is")

    def _follow(self, binding: InFlightBinding, pod: Pod | None) -> None:
        """What follows for a unit whose pod was read because a Binding's end was not clear, or after it was marked."""
        state = self._state
        if pod is None:
            self.settle(binding, Outcome.GONE, reason="the pod is gone")
        elif pod.node_name:  # also one that is terminating or finished meanwhile: it was bound, and that is the answer
            state.observe(pod)
            self.bound_or_gone(binding, pod)
        elif pod.terminating or pod.finished:
            self.settle(binding, Outcome.GONE, reason="the pod is terminating or finished")
        # Given up and on no node: it ends if it was marked; if the mark failed, it is marked again.
        elif binding.withdrawing is not None:
            self.withdraw(binding, binding.reason)
        elif binding.attempts >= state.settings.max_attempts:
            self.withdraw(binding, f"not bound after {binding.attempts} Bindings: {binding.reason}"[:512])
        elif (verdict := may_bind(state, pod)) is not None:
            self._refuse(binding, verdict.reason)
        # A home sees a part of what is held on others' nodes: it cannot judge the pod as it is now (ADR 0044).
        elif pod.pod_class != binding.pod_class and not state.owns(binding.node):
            self.withdraw(binding, f"{binding.node}: the pod has changed since another shard lent its room")
        elif pod.pod_class != binding.pod_class:  # it asks for something else than what was checked
            # Not beside itself, and held again whatever comes out: its intent stands until it is settled (I2).
            state.cluster.forget(binding.uid)
            reason = still_fits(state, binding, pod)
            hold(state, binding, pod)
            if reason:
                self.withdraw(binding, reason)
            else:
                self._renew(binding, pod)
        elif pod.resource_version == binding.rv:
            state.move(binding, BindingStage.COMMITTED)
            self.queue(binding)
        else:
            self._renew(binding, pod)

    def _refuse(self, binding: InFlightBinding, reason: str) -> None:
        self.withdraw(binding, f"the Binding was refused: {reason}", outcome=Outcome.REFUSED)

    def _renew(self, binding: InFlightBinding, pod: Pod) -> None:
        binding.rv = pod.resource_version
        self._state.move(binding, BindingStage.RENEWING)
        if binding.gang:
            self._state.gangs[binding.gang].renewed(binding)
            self._state.touch(binding.gang)
        else:
            self._committer.renew(binding.uid, binding.intent(self._state.term, self._state.shard))

    def read(self, binding: InFlightBinding) -> None:
        """Ask the API server what the pod is; in the stage the unit is in, or else READING."""
        if binding.stage is not BindingStage.AWAITED:
            self._state.move(binding, BindingStage.READING)
        binding.asking = True
        self._state.paused.pop(binding.uid, None)
        self._state.emit(ReadPod(binding.uid, binding.namespace, binding.name))

    def withdraw(self, binding: InFlightBinding, reason: str, *, outcome: Outcome = Outcome.CONFLICT) -> None:
        """Give the unit up; while a Binding of it may be under way, only after its pod has been marked and read."""
        # The first decision stands: by that the gang counts the member as leaving.
        outcome = outcome if binding.withdrawing is None else binding.withdrawing
        binding.reason = reason
        if not binding.loose:
            self.settle(binding, outcome, node=binding.node, reason=reason)
            return
        if binding.withdrawing is None:
            self._state.stats.intents_withdrawn += 1
            self._state.log(
                "intent_withdrawn", level="warning", pod_uid=binding.uid, node=binding.node, cause_id=binding.cause_id,
                reason=reason,
            )  # fmt: skip
            self._give_up(binding, outcome)
        self.mark(binding, reason)

    def _give_up(self, binding: InFlightBinding, outcome: Outcome) -> None:
        """It is decided as what the unit ends, unless its pod turns out to be bound."""
        if binding.withdrawing is None and (gang := self._state.gangs.get(binding.gang)) is not None:
            gang.leaving += 1
            self._state.touch(gang.key)
        binding.withdrawing = outcome

    def mark(self, binding: InFlightBinding, reason: str) -> None:
        """Make Bindings of the unit that may be under way impossible, then read its pod."""
        self._state.move(binding, BindingStage.MARKING)
        binding.asking = True
        self._state.paused.pop(binding.uid, None)
        message = f"placement on {binding.node} withdrawn ({binding.cause_id}, binder term {self._state.term:x}): "
        self._say(binding, (message + reason)[:1024])

    def pod_marked(self, event: PodMarked) -> None:
        """A mark was made, or failed: perhaps there is no such pod, so a pause and a read follow."""
        binding = self._state.in_flight.get(event.uid)
        if binding is None or binding.stage is not BindingStage.MARKING:
            return
        binding.asking = False
        if not event.done:
            self._state.pause(binding)
            return
        self._state.stats.pods_marked += 1
        # Marked is not settled: the Binding may have come first, and then the pod is bound, whatever was decided.
        binding.loose, binding.failures = False, 0
        self.read(binding)

    def wake(self) -> None:
        """Go on with the units whose pause is over."""
        state = self._state
        for uid in [uid for uid, until in state.paused.items() if until <= state.now]:
            del state.paused[uid]
            binding = state.in_flight.get(uid)
            match binding.stage if binding is not None else None:
                case BindingStage.AWAITED if binding is not None and (
                    pod := self._known(binding)
                ):  # not the pod is awaited
                    self._check(binding, pod)
                case BindingStage.AWAITED | BindingStage.READING | BindingStage.MARKING if binding is not None:
                    # also after a mark that failed: perhaps there is no such pod; the read leads back here if there is
                    self.read(binding)
                case BindingStage.COMMITTED if binding is not None:
                    self.queue(binding)
                case _:
                    pass

    def bound_or_gone(self, binding: InFlightBinding, pod: Pod) -> None:
        """The API server shows the pod on a node, or finished."""
        if pod.node_name and binding.claims:
            self.claims.unused_by(binding, pod)
        if not pod.node_name:
            self.settle(binding, Outcome.GONE, reason="the pod is finished")
        # Where nobody of ours sent a Binding, somebody else chose the same node, with devices of his own choosing.
        elif pod.node_name == binding.node and (binding.attempts or binding.inherited):
            self.settle(binding, Outcome.BOUND, node=pod.node_name)
        else:
            self.settle(binding, Outcome.ELSEWHERE, node=pod.node_name)

    def settle(self, binding: InFlightBinding, outcome: Outcome, *, node: str = "", reason: str = "") -> None:
        """The end of a unit; of a member whose gang falls below its minimum by it, only with the others.

        A member whose claims are to be given back ends after that: it may be planned anew then, on another shard, and
        no intent would keep anybody from its pod."""
        gang = self._state.gangs[binding.gang] if binding.gang and outcome in LET_GO else None
        if gang is None or not (gang.needs(binding) or (gang.committed and not self.claims.left_by((binding,)))):
            self.end(binding, outcome, node=node, reason=reason)
            return
        if binding.stage is not BindingStage.COMMITTED:
            self._state.move(binding, BindingStage.COMMITTED)
        gang.note(binding, reason)
        binding.reason = reason
        self._give_up(binding, outcome)
        self._state.touch(gang.key)

    def end(self, binding: InFlightBinding, outcome: Outcome, *, node: str = "", reason: str = "") -> None:
        """The end of a unit: its account, its intent, its plans."""
        state, uid = self._state, binding.uid
        state.move(binding, BindingStage.SETTLED)
        state.story.add(uid, "{} {} {}", outcome.name, node, reason[:FACT_CHARS])
        del state.in_flight[uid]
        state.await_volumes.discard(uid)
        state.paused.pop(uid, None)
        if binding.room_until and (placement := binding.placement) is not None:
            state.leavers.waits_no_more(uid, (placement.node, *placement.alternatives))
        state.stats.ended(outcome)
        if binding.claims or self.claims.waits_for:
            self.claims.ended(binding, outcome)
        if outcome is Outcome.BOUND:
            self._reconciler.bound(binding)
            if node not in state.cache.table.row_of:
                state.stats.ghost_bindings += 1
                state.log("ghost_binding", level="warning", pod_uid=uid, node=node, cause_id=binding.cause_id)
        # The account is where the API server shows the pod; the devices assumed here are nobody's.
        elif outcome is Outcome.ELSEWHERE:
            state.devices.forget(uid)
        # What is lent stays counted until the loan is over: another shard may be committing on it (I2).
        elif outcome is not Outcome.LENT:
            state.cluster.forget(uid)
        # Who is given back stays pending: its next plan is judged by that, without a read.
        if outcome in (Outcome.BOUND, Outcome.GONE):
            state.pending.pop(uid, None)
        if binding.gang:
            state.gangs[binding.gang].left(binding, outcome, reason)
            state.touch(binding.gang)
        # Else its intent keeps everybody from the pod until its claims are free (ADR 0063): `_left` clears it.
        elif uid not in self.claims.returns.leaving:
            self._committer.clear(uid, state.now)
        if binding.inherited:
            self._takeover.settled(uid)
        # Before `settle`, which forgets who waited: a later plan that asks for this very attempt must hear its end.
        if outcome in LET_GO and not self._plans.waiting_for(uid):
            self._plans.keep_end((binding.coordinator_term, binding.unit), outcome, node, reason)
        self._plans.settle(uid, outcome, node=node, reason=reason, bind_us=binding.bind_us, conflicts=binding.conflicts)

    def _left(self, uid: str) -> None:
        """Nothing is left of what was written for a unit that has ended, or is about to: its intent may go."""
        self._committer.clear(uid, self._state.now)  # also of who has come back as a member of a gang since
        binding = self._state.in_flight.get(uid)
        gang = self._state.gangs.get(binding.gang) if binding is not None else None
        if binding is None or gang is None:
            return
        self._state.touch(gang.key)
        given_up = binding.withdrawing
        if (
            given_up is not None
            and binding.stage is BindingStage.COMMITTED
            and not gang.over
            and not gang.needs(binding)
        ):
            self.end(binding, given_up, node=binding.node, reason=binding.reason)

    def validate(self) -> Iterator[str]:
        """Units that nothing will move on, or that are not accounted where they are to go."""
        yield from problems(self._state, self._committer, self.line, self.claims.returns.leaving)
        yield from self.claims.validate()
