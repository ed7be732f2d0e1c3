"""The binding cycle of one unit: check, commit, bind, and every way it can go wrong. Pure.

Why apart from ``core.py``: that file says who may ask for what; this one carries a unit from the check to its end. The
stages and their moves are in ``in_flight.py``, transactions in ``commit.py``.

The API server's answer is the only truth about a pod: a 409 or a lost answer is settled by reading the pod, never by
guessing. Read: on our node, it is bound, by whomever; elsewhere, the account moves there; gone or recreated, nothing is
held; still unbound, the Binding is sent again, after a newer resourceVersion has been written to the intent in a fenced
transaction (a deposed leader must not be able to refresh its own token).

No unit is left without an end: every stage is left by an answer or by a time (``State.paused``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from services.binder.core.events import BindingAccepted, BindingRefused, BindingUnknown, PodMarked
from services.binder.core.in_flight import InFlightBinding, Stage
from services.binder.core.instructions import Bind, MarkPod, ReadPod
from services.binder.core.plans import Plans
from services.binder.core.reconcile import Reconciler
from services.binder.core.state import State, newer
from services.binder.core.takeover import Takeover
from services.binder.cycle.check import choose, hold, may_bind, outdated, still_fits
from services.binder.cycle.commit import Committer
from services.binder.cycle.volumes import NOT_IN_TIME, in_vain, unbound_claims, waiting_text, writes_for
from shared.model.pod import CAUSE_ANNOTATION, DEVICES_ANNOTATION, POLICY_ANNOTATION, Pod
from shared.ports import BindRequest
from shared.scheduling.story import FACT_CHARS
from shared.wire.messages import Outcome

ASSUMED = frozenset({Stage.CHECKED, Stage.COMMITTED, Stage.BINDING, Stage.RENEWING})
"""Stages in which the unit's node counts it."""

STORED = frozenset({Stage.COMMITTED, Stage.BINDING, Stage.READING, Stage.RENEWING, Stage.MARKING})
"""Stages in which the unit's intent is in etcd."""


class BindingCycle:
    """Carries each unit in flight from check to settled."""

    def __init__(
        self, state: State, committer: Committer, plans: Plans, takeover: Takeover, reconciler: Reconciler
    ) -> None:
        self.bindings_in_flight = 0
        self._state = state
        self._committer = committer
        self._plans = plans
        self._takeover = takeover
        self._reconciler = reconciler
        self._to_bind: deque[str] = deque()

    def check_if_known(self, binding: InFlightBinding) -> None:
        """Check and assume the unit if its pod is known at the plan's resourceVersion or a newer one; else wait."""
        state = self._state
        pod = state.pending.get(binding.uid)
        if pod is None or newer(binding.rv, pod.resource_version):
            if binding.uid not in state.paused:
                state.stats.pods_awaited += 1
                state.paused[binding.uid] = state.now + state.settings.await_pod_s
            return
        self._check(binding, pod)

    def _check(self, binding: InFlightBinding, pod: Pod) -> None:
        self._state.paused.pop(binding.uid, None)
        verdict = may_bind(self._state, pod) or choose(self._state, binding, pod)
        if verdict is not None:
            self.settle(binding, verdict.outcome, node=verdict.node, reason=verdict.reason)
            return
        self._state.move(binding, Stage.CHECKED)
        self._committer.put(binding.uid, binding.intent(self._state.term))

    def queue(self, key: str) -> None:
        """Bind the unit, whose intent is committed, as soon as there is room."""
        self._to_bind.append(key)

    def to_binding(self, key: str) -> None:
        """The unit's intent is committed, or renewed."""
        binding = self._state.in_flight.get(key)
        if binding is not None and binding.stage in (Stage.CHECKED, Stage.RENEWING):
            self._state.move(binding, Stage.COMMITTED)
            self._to_bind.append(key)

    def bind(self) -> None:
        """Send Bindings while there is room for them in flight."""
        state = self._state
        while self._to_bind and self.bindings_in_flight < state.settings.max_bindings:
            binding = state.in_flight.get(self._to_bind.popleft())
            if binding is None or binding.stage is not Stage.COMMITTED:
                continue
            # the API server would accept it, also to a node that is gone: nobody but us looks at the node
            reason = outdated(state, binding)
            if reason:
                self.withdraw(binding, reason)
                continue
            if self._volumes_open(binding):
                continue
            state.move(binding, Stage.BINDING)
            binding.attempts += 1
            if not binding.bind_us:
                binding.bind_us = max(1, round((state.now - binding.arrived) * 1e6))
            self.bindings_in_flight += 1
            self._state.stats.bindings += 1
            state.emit(Bind(binding.attempts, self._request(binding), binding.cause_id))

    def _volumes_open(self, binding: InFlightBinding) -> bool:
        """Whether the unit has to wait for its volumes; what they need is written, and a change of one wakes it."""
        state, uid = self._state, binding.uid
        pod = state.pending.get(uid)
        reason = in_vain(state, binding, pod) if pod is not None else ""
        if reason:
            self.withdraw(binding, reason)
            return True
        claims = unbound_claims(state, pod) if pod is not None else []
        if not claims:
            state.await_volumes.discard(uid)
            return False
        settings, ends = state.settings, binding.arrived + state.settings.volumes_wait_s
        if state.now >= ends:
            if not binding.loose:  # else the mark says so, and no other answer may be taken for the mark's
                self._say(binding, NOT_IN_TIME)
            self.withdraw(binding, NOT_IN_TIME, outcome=Outcome.REFUSED)
            return True
        tells = binding.arrived + settings.volumes_tell_s
        if state.now >= tells and not binding.told:
            binding.told = True
            self._say(binding, waiting_text(claims, binding.node))
        for write in writes_for(state, claims, binding.node):
            state.emit(write)
        state.await_volumes.add(uid)
        state.paused[uid] = min(state.now + settings.volumes_again_s, ends if binding.told else min(tells, ends))
        return True

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

    @staticmethod
    def _request(binding: InFlightBinding) -> BindRequest:
        annotations = {CAUSE_ANNOTATION: binding.cause_id}
        if binding.policy:
            annotations[POLICY_ANNOTATION] = binding.policy
        if binding.devices:
            annotations[DEVICES_ANNOTATION] = ",".join(map(str, binding.devices))
        return BindRequest(binding.namespace, binding.name, binding.uid, binding.rv, binding.node, annotations)

    def recall(self, node: str) -> None:
        """Call back the Bindings to a node that changed and does not take their pods any more.

        The API server may hold those under way for seconds (admission), and would bind to a cordoned or full node.
        Those that wait, for a throttled API server or for volumes, are given up at once, so that they are told in time.
        """
        paused = self._state.paused
        if not self.bindings_in_flight and not paused:
            return
        for binding in [t for t in self._state.in_flight.values() if t.node == node]:
            waits = binding.stage is Stage.COMMITTED and binding.uid in paused
            reason = outdated(self._state, binding) if waits or binding.stage is Stage.BINDING else ""
            if reason:
                binding.loose |= binding.stage is Stage.BINDING
                self.withdraw(binding, reason)

    def binding_ended(self, event: BindingAccepted | BindingRefused | BindingUnknown) -> None:
        """A Binding got its answer, or none."""
        self.bindings_in_flight -= 1
        binding = self._state.in_flight.get(event.uid)
        if binding is None or binding.stage is not Stage.BINDING or binding.attempts != event.attempt:
            return
        if isinstance(event, BindingAccepted):
            self.settle(binding, Outcome.BOUND, node=binding.node)
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
                binding.attempts -= 1
                self._state.move(binding, Stage.COMMITTED)
                self._state.pause(binding, at_least_s=event.retry_after_s or 0.0)
            case _:
                self._refuse(binding, binding.reason)

    def pod_read(self, uid: str, pod: Pod | None) -> None:
        """The API server has said what the pod is; None: it is not there."""
        state, binding = self._state, self._state.in_flight.get(uid)
        if pod is not None and pod.uid != uid:
            pod = None
        if binding is None:
            self._reconciler.read(uid, pod)
            return
        if binding.stage not in (Stage.AWAITED, Stage.READING):
            return
        binding.asking, binding.failures = False, 0
        state.paused.pop(uid, None)
        if pod is not None and not pod.node_name:
            state.pending[uid] = pod
        if binding.stage is Stage.AWAITED:
            if pod is None:
                self.settle(binding, Outcome.GONE, reason="the pod is gone")
            else:
                self._check(binding, pod)
            return
        self._follow(binding, pod)

    def pod_unread(self, uid: str) -> None:
        """A read failed: it is made again after a pause."""
        binding = self._state.in_flight.get(uid)
        if binding is None or binding.stage not in (Stage.AWAITED, Stage.READING):
            return
        binding.asking = False
        self._state.pause(binding)
        if binding.stage is Stage.AWAITED and binding.failures >= self._state.settings.max_attempts:
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
        elif binding.withdrawing is not None:
            self.withdraw(binding, binding.reason)
        elif binding.attempts >= state.settings.max_attempts:
            self.withdraw(binding, f"not bound after {binding.attempts} Bindings: {binding.reason}"[:512])
        elif (verdict := may_bind(state, pod)) is not None:
            self._refuse(binding, verdict.reason)
        elif pod.pod_class != binding.pod_class:  # it asks for something else than what was checked
            state.cluster.forget(binding.uid)
            reason = still_fits(state, binding, pod)
            hold(state, binding, pod)
            if reason:
                self.withdraw(binding, reason)
            else:
                self._renew(binding, pod)
        elif pod.resource_version == binding.rv:
            state.move(binding, Stage.COMMITTED)
            self._to_bind.append(binding.uid)
        else:
            self._renew(binding, pod)

    def _refuse(self, binding: InFlightBinding, reason: str) -> None:
        self.withdraw(binding, f"the Binding was refused: {reason}", outcome=Outcome.REFUSED)

    def _renew(self, binding: InFlightBinding, pod: Pod) -> None:
        binding.rv = pod.resource_version
        self._state.move(binding, Stage.RENEWING)
        self._committer.renew(binding.uid, binding.intent(self._state.term))

    def read(self, binding: InFlightBinding) -> None:
        """Ask the API server what the pod is; in the stage the unit is in, or else READING."""
        if binding.stage is not Stage.AWAITED:
            self._state.move(binding, Stage.READING)
        binding.asking = True
        self._state.paused.pop(binding.uid, None)
        self._state.emit(ReadPod(binding.uid, binding.namespace, binding.name))

    def withdraw(self, binding: InFlightBinding, reason: str, *, outcome: Outcome = Outcome.CONFLICT) -> None:
        """Give the unit up; while a Binding of it may be under way, only after its pod has been marked and read."""
        outcome = outcome if binding.withdrawing is None else binding.withdrawing
        binding.reason = reason
        if not binding.loose:
            self.settle(binding, outcome, node=binding.node, reason=reason)
            return
        if binding.withdrawing is None:
            self._state.stats.intents_withdrawn += 1
            self._state.log(
                "intent_withdrawn",
                level="warning",
                pod_uid=binding.uid,
                node=binding.node,
                cause_id=binding.cause_id,
                reason=reason,
            )
            binding.withdrawing = outcome
        self._mark(binding)

    def _mark(self, binding: InFlightBinding) -> None:
        self._state.move(binding, Stage.MARKING)
        binding.asking = True
        self._state.paused.pop(binding.uid, None)
        message = f"placement on {binding.node} withdrawn ({binding.cause_id}, binder term {self._state.term:x}): "
        self._say(binding, (message + binding.reason)[:1024])

    def pod_marked(self, event: PodMarked) -> None:
        """A mark was made, or failed: perhaps there is no such pod, so a pause and a read follow."""
        binding = self._state.in_flight.get(event.uid)
        if binding is None or binding.stage is not Stage.MARKING:
            return
        binding.asking = False
        if not event.done:
            self._state.pause(binding)
            return
        self._state.stats.pods_marked += 1
        binding.loose, binding.failures = False, 0
        self.read(binding)

    def wake(self) -> None:
        """Go on with the units whose pause is over."""
        state = self._state
        for uid in [uid for uid, until in state.paused.items() if until <= state.now]:
            del state.paused[uid]
            binding = state.in_flight.get(uid)
            match binding.stage if binding is not None else None:
                case Stage.AWAITED | Stage.READING | Stage.MARKING if binding is not None:
                    # also after a mark that failed: perhaps there is no such pod; the read leads back here if there is
                    self.read(binding)
                case Stage.COMMITTED:
                    self._to_bind.append(uid)
                case _:
                    pass

    def bound_or_gone(self, binding: InFlightBinding, pod: Pod) -> None:
        """The API server shows the pod on a node, or finished."""
        if not pod.node_name:
            self.settle(binding, Outcome.GONE, reason="the pod is finished")
        elif pod.node_name == binding.node and (binding.attempts or binding.inherited):
            self.settle(binding, Outcome.BOUND, node=pod.node_name)
        else:
            self.settle(binding, Outcome.ELSEWHERE, node=pod.node_name)

    def settle(self, binding: InFlightBinding, outcome: Outcome, *, node: str = "", reason: str = "") -> None:
        """The end of a unit: its account, its intent, its plans."""
        state, uid = self._state, binding.uid
        state.move(binding, Stage.SETTLED)
        state.story.add(uid, "{} {} {}", outcome.name, node, reason[:FACT_CHARS])
        del state.in_flight[uid]
        state.await_volumes.discard(uid)
        state.paused.pop(uid, None)
        match outcome:
            case Outcome.BOUND:
                self._state.stats.bound += 1
                state.pending.pop(uid, None)
                self._reconciler.bound(binding)
                if node not in state.cache.table.row_of:
                    self._state.stats.ghost_bindings += 1
                    state.log("ghost_binding", level="warning", pod_uid=uid, node=node, cause_id=binding.cause_id)
            case Outcome.ELSEWHERE:
                self._state.stats.elsewhere += 1
            case Outcome.GONE:
                self._state.stats.gone += 1
                state.cluster.forget(uid)
                state.pending.pop(uid, None)
            case _:
                if outcome is Outcome.CONFLICT:
                    self._state.stats.conflicts += 1
                else:
                    self._state.stats.refused += 1
                state.cluster.forget(uid)
        self._committer.clear(uid, state.now)
        self._takeover.settled(uid)
        self._plans.settle(uid, outcome, node=node, reason=reason, bind_us=binding.bind_us, conflicts=binding.conflicts)

    def validate(self) -> Iterator[str]:
        """Units that nothing will move on, or that are not accounted where they are to go."""
        state, waits = self._state, self._committer.waits
        bound_next = set(self._to_bind)
        for uid, binding in state.in_flight.items():
            if binding.uid != uid:
                yield f"unit-key: {binding.uid} is kept under {uid}"
            paused = uid in state.paused
            match binding.stage:
                case Stage.CHECKED | Stage.RENEWING:
                    goes_on = waits(uid)
                case Stage.COMMITTED:
                    goes_on = paused or uid in bound_next
                case Stage.AWAITED | Stage.READING | Stage.MARKING:
                    goes_on = paused or binding.asking
                case stage:
                    goes_on = stage is Stage.BINDING
            if not goes_on:
                yield f"goes-on: {uid} is {binding.stage.value} and nothing will move it on"
            account = state.cache.accounts.get(uid)
            if binding.stage in ASSUMED and (account is None or account.node_name != binding.node):
                yield f"assumed: {uid} is {binding.stage.value} for {binding.node}, which does not count it"
            if binding.stage in STORED and not self._committer.holds(uid):
                yield f"intent-known: {uid} is {binding.stage.value} and has no intent in etcd"
        for uid in (state.paused.keys() | state.await_volumes) - state.in_flight.keys():
            yield f"waits: {uid} waits for a time or a volume, and is not on its way"
        sent = sum(binding.stage is Stage.BINDING for binding in state.in_flight.values())
        if not sent <= self.bindings_in_flight <= state.settings.max_bindings:
            yield f"bindings: {sent} units are being bound by {self.bindings_in_flight} Bindings in flight"
