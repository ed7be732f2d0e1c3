"""One unit's way through the binder: check, commit, bind, and every way it can go wrong. Pure.

Why apart from ``core.py``: that file says who may ask for what; this one carries a unit from the check to its end. The
diagram is in ``state.py``, the meaning of a Binding's end in ``bind.py``, transactions in ``commit.py``.

Refuses to do: leave a unit without an end. Every stage is left by an answer or by a time (``State.paused``).
"""

from __future__ import annotations

from collections import deque

from services.binder.core.events import BindingAccepted, BindingRefused, BindingUnknown, PodMarked
from services.binder.core.instructions import Bind, MarkPod, ReadPod
from services.binder.core.plans import Plans
from services.binder.core.reconcile import Reconciler
from services.binder.core.state import Stage, State, Transit, newer
from services.binder.core.takeover import Takeover
from services.binder.cycle import bind as binding
from services.binder.cycle.bind import Next, Step
from services.binder.cycle.check import choose, hold, may_bind, outdated, still_fits
from services.binder.cycle.commit import Committer
from services.binder.cycle.volumes import NOT_IN_TIME, in_vain, unbound_claims, waiting_text, writes_for
from shared.model.pod import CAUSE_ANNOTATION, DEVICES_ANNOTATION, POLICY_ANNOTATION, Pod
from shared.ports import BindRequest
from shared.wire.messages import Outcome


class Passage:
    """The units on their way in one term."""

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

    def check_if_known(self, transit: Transit) -> None:
        """Check and assume the unit if its pod is known at the plan's resourceVersion or a newer one; else wait."""
        state = self._state
        pod = state.pending.get(transit.uid)
        if pod is None or newer(transit.rv, pod.resource_version):
            if transit.uid not in state.paused:
                state.stats.pods_awaited += 1
                state.paused[transit.uid] = state.now + state.settings.await_pod_s
            return
        self._check(transit, pod)

    def _check(self, transit: Transit, pod: Pod) -> None:
        self._state.paused.pop(transit.uid, None)
        verdict = may_bind(self._state, pod) or choose(self._state, transit, pod)
        if verdict is not None:
            self.settle(transit, verdict.outcome, node=verdict.node, reason=verdict.reason)
            return
        transit.stage = Stage.CHECKED
        self._committer.put(transit.uid, transit.intent(self._state.term))

    def queue(self, key: str) -> None:
        """Bind the unit, whose intent is committed, as soon as there is room."""
        self._to_bind.append(key)

    def to_binding(self, key: str) -> None:
        """The unit's intent is committed, or renewed."""
        transit = self._state.transits.get(key)
        if transit is not None and transit.stage in (Stage.CHECKED, Stage.RENEWING):
            transit.stage = Stage.COMMITTED
            self._to_bind.append(key)

    def bind(self) -> None:
        """Send Bindings while there is room for them in flight."""
        state = self._state
        while self._to_bind and self.bindings_in_flight < state.settings.max_bindings:
            transit = state.transits.get(self._to_bind.popleft())
            if transit is None or transit.stage is not Stage.COMMITTED:
                continue
            # the API server would accept it, also to a node that is gone: nobody but us looks at the node
            reason = outdated(state, transit)
            if reason:
                self.withdraw(transit, reason)
                continue
            if self._volumes_open(transit):
                continue
            transit.stage = Stage.BINDING
            transit.attempts += 1
            if not transit.bind_us:
                transit.bind_us = max(1, round((state.now - transit.arrived) * 1e6))
            self.bindings_in_flight += 1
            self._state.stats.bindings += 1
            state.emit(Bind(transit.attempts, self._request(transit), transit.cause_id))

    def _volumes_open(self, transit: Transit) -> bool:
        """Whether the unit has to wait for its volumes; what they need is written, and a change of one wakes it."""
        state, uid = self._state, transit.uid
        pod = state.pending.get(uid)
        reason = in_vain(state, transit, pod) if pod is not None else ""
        if reason:
            self.withdraw(transit, reason)
            return True
        claims = unbound_claims(state, pod) if pod is not None else []
        if not claims:
            state.await_volumes.discard(uid)
            return False
        settings, ends = state.settings, transit.arrived + state.settings.volumes_wait_s
        if state.now >= ends:
            if not transit.loose:  # else the mark says so, and no other answer may be taken for the mark's
                self._say(transit, NOT_IN_TIME)
            self.withdraw(transit, NOT_IN_TIME, outcome=Outcome.REFUSED)
            return True
        tells = transit.arrived + settings.volumes_tell_s
        if state.now >= tells and not transit.told:
            transit.told = True
            self._say(transit, waiting_text(claims, transit.node))
        for write in writes_for(state, claims, transit.node):
            state.emit(write)
        state.await_volumes.add(uid)
        state.paused[uid] = min(state.now + settings.volumes_again_s, ends if transit.told else min(tells, ends))
        return True

    def _say(self, transit: Transit, message: str) -> None:
        """Say on the pod why it is still pending. Where nothing waits for that, its Binding names a newer version."""
        pod = self._state.pending.get(transit.uid)
        told = pod is not None and pod.condition[0] == "False"
        self._state.emit(MarkPod(transit.uid, transit.namespace, transit.name, message, told))

    def volumes_changed(self) -> None:
        """A claim or volume came, changed or went: units that wait for volumes are looked at again."""
        for uid in self._state.await_volumes:
            if uid in self._state.paused:
                self._state.paused[uid] = self._state.now

    @staticmethod
    def _request(transit: Transit) -> BindRequest:
        annotations = {CAUSE_ANNOTATION: transit.cause_id}
        if transit.policy:
            annotations[POLICY_ANNOTATION] = transit.policy
        if transit.devices:
            annotations[DEVICES_ANNOTATION] = ",".join(map(str, transit.devices))
        return BindRequest(transit.namespace, transit.name, transit.uid, transit.rv, transit.node, annotations)

    def recall(self, node: str) -> None:
        """Call back the Bindings to a node that changed and does not take their pods any more.

        The API server may hold those under way for seconds (admission), and would bind to a cordoned or full node.
        Those that wait, for a throttled API server or for volumes, are given up at once, so that they are told in time.
        """
        paused = self._state.paused
        if not self.bindings_in_flight and not paused:
            return
        for transit in [t for t in self._state.transits.values() if t.node == node]:
            waits = transit.stage is Stage.COMMITTED and transit.uid in paused
            reason = outdated(self._state, transit) if waits or transit.stage is Stage.BINDING else ""
            if reason:
                transit.loose |= transit.stage is Stage.BINDING
                self.withdraw(transit, reason)

    def binding_ended(self, event: BindingAccepted | BindingRefused | BindingUnknown) -> None:
        """A Binding got its answer, or none."""
        self.bindings_in_flight -= 1
        transit = self._state.transits.get(event.uid)
        if transit is None or transit.stage is not Stage.BINDING or transit.attempts != event.attempt:
            return
        if isinstance(event, BindingAccepted):
            self.settle(transit, Outcome.BOUND, node=transit.node)
            return
        if isinstance(event, BindingUnknown):
            self._state.stats.unknown_bindings += 1
            transit.loose, transit.reason = True, "no answer to the Binding"
            self.read(transit)
            return
        if event.status == 409:
            self._state.stats.conflicting_bindings += 1
        step = binding.after_refusal(event.status, event.message)
        transit.reason = step.reason
        if step.next is Next.LATER:
            transit.attempts -= 1
            transit.stage = Stage.COMMITTED
            self._state.pause(transit, at_least_s=event.retry_after_s or 0.0)
            return
        self._follow(transit, step, None)

    def pod_read(self, uid: str, pod: Pod | None) -> None:
        """The API server has said what the pod is; None: it is not there."""
        state, transit = self._state, self._state.transits.get(uid)
        if pod is not None and pod.uid != uid:
            pod = None
        if transit is None:
            self._reconciler.read(uid, pod)
            return
        if transit.stage not in (Stage.AWAITED, Stage.READING):
            return
        transit.asking, transit.failures = False, 0
        state.paused.pop(uid, None)
        if pod is not None and not pod.node_name:
            state.pending[uid] = pod
        if transit.stage is Stage.AWAITED:
            if pod is None:
                self.settle(transit, Outcome.GONE, reason="the pod is gone")
            else:
                self._check(transit, pod)
            return
        self._follow(transit, binding.after_read(transit, pod, max_attempts=state.settings.max_attempts), pod)

    def pod_unread(self, uid: str) -> None:
        """A read failed: it is made again after a pause."""
        transit = self._state.transits.get(uid)
        if transit is None or transit.stage not in (Stage.AWAITED, Stage.READING):
            return
        transit.asking = False
        self._state.pause(transit)
        if transit.stage is Stage.AWAITED and transit.failures >= self._state.settings.max_attempts:
            self.settle(transit, Outcome.CONFLICT, reason="the API server does not say what the pod is")

    def _follow(self, transit: Transit, step: Step, pod: Pod | None) -> None:
        """Carry out what ``binding`` says follows."""
        match step.next:
            case Next.BOUND | Next.ELSEWHERE if pod is not None:
                self._state.observe(pod)
                self.bound_or_gone(transit, pod)
            case Next.GONE:
                self.settle(transit, Outcome.GONE, reason=step.reason)
            case Next.READ:
                self.read(transit)
            case Next.AGAIN:
                transit.stage = Stage.COMMITTED
                self._to_bind.append(transit.uid)
            case Next.RENEW if pod is not None:
                self._renew(transit, pod)
            case Next.RECHECK if pod is not None:
                self._state.cluster.forget(transit.uid)
                reason = still_fits(self._state, transit, pod)
                hold(self._state, transit, pod)
                if reason:
                    self.withdraw(transit, reason)
                else:
                    self._renew(transit, pod)
            case Next.REFUSE:
                self.withdraw(transit, f"the Binding was refused: {step.reason}", outcome=Outcome.REFUSED)
            case _:
                self.withdraw(transit, step.reason)

    def _renew(self, transit: Transit, pod: Pod) -> None:
        transit.rv, transit.stage = pod.resource_version, Stage.RENEWING
        self._committer.renew(transit.uid, transit.intent(self._state.term))

    def read(self, transit: Transit) -> None:
        """Ask the API server what the pod is; in the stage the unit is in, or else READING."""
        if transit.stage is not Stage.AWAITED:
            transit.stage = Stage.READING
        transit.asking = True
        self._state.paused.pop(transit.uid, None)
        self._state.emit(ReadPod(transit.uid, transit.namespace, transit.name))

    def withdraw(self, transit: Transit, reason: str, *, outcome: Outcome = Outcome.CONFLICT) -> None:
        """Give the unit up; while a Binding of it may be under way, only after its pod has been marked and read."""
        outcome = outcome if transit.withdrawing is None else transit.withdrawing
        transit.reason = reason
        if not transit.loose or not self._state.settings.mark_before_withdrawing:
            self.settle(transit, outcome, node=transit.node, reason=reason)
            return
        if transit.withdrawing is None:
            self._state.stats.intents_withdrawn += 1
            self._state.log(
                "intent_withdrawn",
                level="warning",
                pod_uid=transit.uid,
                node=transit.node,
                cause_id=transit.cause_id,
                reason=reason,
            )
            transit.withdrawing = outcome
        self._mark(transit)

    def _mark(self, transit: Transit) -> None:
        transit.stage, transit.asking = Stage.MARKING, True
        self._state.paused.pop(transit.uid, None)
        message = f"placement on {transit.node} withdrawn ({transit.cause_id}, binder term {self._state.term:x}): "
        self._say(transit, (message + transit.reason)[:1024])

    def pod_marked(self, event: PodMarked) -> None:
        """A mark was made, or failed: perhaps there is no such pod, so a pause and a read follow."""
        transit = self._state.transits.get(event.uid)
        if transit is None or transit.stage is not Stage.MARKING:
            return
        transit.asking = False
        if not event.done:
            self._state.pause(transit)
            return
        self._state.stats.pods_marked += 1
        transit.loose, transit.failures = False, 0
        self.read(transit)

    def wake(self) -> None:
        """Go on with the units whose pause is over."""
        state = self._state
        for uid in [uid for uid, until in state.paused.items() if until <= state.now]:
            del state.paused[uid]
            transit = state.transits.get(uid)
            match transit.stage if transit is not None else None:
                case Stage.AWAITED | Stage.READING | Stage.MARKING if transit is not None:
                    # also after a mark that failed: perhaps there is no such pod; the read leads back here if there is
                    self.read(transit)
                case Stage.COMMITTED:
                    self._to_bind.append(uid)
                case _:
                    pass

    def bound_or_gone(self, transit: Transit, pod: Pod) -> None:
        """The API server shows the pod on a node, or finished."""
        if not pod.node_name:
            self.settle(transit, Outcome.GONE, reason="the pod is finished")
        elif pod.node_name == transit.node and (transit.attempts or transit.inherited):
            self.settle(transit, Outcome.BOUND, node=pod.node_name)
        else:
            self.settle(transit, Outcome.ELSEWHERE, node=pod.node_name)

    def settle(self, transit: Transit, outcome: Outcome, *, node: str = "", reason: str = "") -> None:
        """The end of a unit: its account, its intent, its plans."""
        state, uid = self._state, transit.uid
        del state.transits[uid]
        state.await_volumes.discard(uid)
        state.paused.pop(uid, None)
        match outcome:
            case Outcome.BOUND:
                self._state.stats.bound += 1
                state.pending.pop(uid, None)
                self._reconciler.bound(transit)
                if node not in state.cache.table.row_of:
                    self._state.stats.ghost_bindings += 1
                    state.log("ghost_binding", level="warning", pod_uid=uid, node=node, cause_id=transit.cause_id)
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
        self._plans.settle(uid, outcome, node=node, reason=reason, bind_us=transit.bind_us, conflicts=transit.conflicts)
