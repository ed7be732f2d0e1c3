"""Devices that pods claim: written into their claims before the Binding, and given back where none came of it.

    committed --> each claim: finalizer, then allocation and reservedFor in one --> seen in the watch --> Binding
                  |  that for extended resources: made before (and told in the pod's status with the Binding)
                  |  allocated elsewhere, a device of it taken too, a device that cannot be bound
                  v
              given up --> this pod leaves its claims; what was allocated for it, and nobody else uses, is free again

A claim has one write of ours under way. Who waits for a claim is in line, and all in line are reserved by the next
write. The claim is seen in the watch before the Binding goes: by then whatever was written to other claims before it
has been seen as well, so that of two schedulers that chose one device the later one has noticed (``contested``). Where
the watch lost its position that holds again when all claims have been listed (``in_order``). Claims
that were found as they ought to be are marked all the same: what an earlier leader sent must not come after that.

The intent names the claims that are allocated or made for its pod; it is committed before any is written, and deleted
when what never bound is given back (``claim_returns.py``). Who inherits it goes on, or gives them back.

What a pod group has for all of its members is reserved for the group, once, and marked for each member; a member that
does not bind marks it once more, so that nothing comes late, and gives nothing back: fellows may use it, and the
coordinator sees when none does. Where another claim has a device of it too, no member is bound.

Source: kube-scheduler 1.36 ``plugins/dynamicresources`` (PreBind, bindClaim, Unreserve).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from services.binder.core.events import ClaimFreed, ClaimUnwritten, ClaimWritten
from services.binder.core.in_flight import BindingStage, InFlightBinding
from services.binder.core.instructions import ReleaseClaim, WriteClaim
from services.binder.core.state import NEVER, BinderState, ConditionsAwaited
from services.binder.cycle.claim_returns import REFUSED, ClaimReturns, WriteRoom
from shared.model.devices import Consumer, DeviceClaim
from shared.model.pod import Pod
from shared.model.versions import newer
from shared.scheduling.devices.claims import BINDING_TIMEOUT_S, unbound_devices, usable
from shared.scheduling.devices.extended import claim_name
from shared.scheduling.matching.selectors import node_matches
from shared.wire.messages import Outcome


class ClaimsAnswer(NamedTuple):
    """About a unit whose Binding is next. ``vain``: why it cannot have its claims; ``refused``: there or elsewhere."""

    ready: bool
    vain: str = ""
    refused: bool = False


WAITS, READY = ClaimsAnswer(ready=False), ClaimsAnswer(ready=True)


class ClaimsOfTerm:
    """Writes claims before Bindings, in one term. ``waits_for``: claims by the unit that waits for them. ``left``: is
    told whose claims are all given back."""

    def __init__(self, state: BinderState, left: Callable[[str], None]) -> None:
        self._state = state
        self._left = left
        self._room = WriteRoom(state.settings.max_bindings)
        self._writing: dict[str, WriteClaim] = {}
        self.returns = ClaimReturns(state, self._room, self._writing, self._all_left)
        self._held_units: dict[str, None] = {}
        """Units that wait until fewer writes are under way."""
        self.in_order = True
        """Whether the watch shows claims in the order in which they were written: not while they are listed anew."""
        self._unseen: dict[str, str] = {}
        """What we wrote and the watch has not shown: the resourceVersion by claim."""
        self._waiting: dict[str, dict[str, Consumer]] = {}
        """Units by claim, first come first, and whom the claim is to be reserved for: the pod, or its pod group."""
        self.waits_for: dict[str, set[str]] = {}
        self._refused: dict[str, str] = {}
        """Units of which a claim was refused: why."""
        self._settling: dict[str, dict[str, None]] = {}
        """By claim, or by unit that leaves some: units that are looked at again once that is settled."""
        self._bound: set[tuple[str, str]] = set()
        """Claims that were being written for units, by uid, as those were bound."""
        self._went: set[str] = set()
        """Claims that the watch showed gone while they were being written."""

    @property
    def busy(self) -> bool:
        """Whether a claim is being written or given back."""
        return bool(self._writing or self.returns.leaving)

    def unsettled(self, uid: str, keys: Collection[str]) -> bool:
        """Whether one of these is being given back, or written for an attempt of the pod that has ended: then the unit
        is looked at again once it is not."""
        leaves = uid in self.returns.leaving
        found = [key for key in keys if self.returns.freeing((key,)) or self._writes_for(key, uid)]
        for what in (*found, uid) if leaves else found:
            self._settling.setdefault(what, {})[uid] = None
        return bool(found) or leaves

    def _writes_for(self, key: str, uid: str) -> bool:
        order = self._writing.get(key)
        return order is not None and uid in order.pods

    def _settled(self, what: str) -> None:
        """Nothing is under way for a claim, or of what a unit leaves, that was: who waited for that is looked at."""
        for uid in self._settling.pop(what, ()):
            if uid in self._state.paused:
                self._state.paused[uid] = self._state.now

    def _all_left(self, uid: str) -> None:
        self._settled(uid)
        self._left(uid)

    # --- before the Binding -----------------------------------------------------------------------------------------

    def ready(self, binding: InFlightBinding, pod: Pod) -> ClaimsAnswer:
        """Whether every claim of the committed unit is as it must be; what is missing is written, and waited for."""
        state, uid, devices = self._state, binding.uid, self._state.devices
        self.leave(uid)
        if (reason := self._refused.pop(uid, "")) != "":
            return ClaimsAnswer(ready=False, vain=reason, refused=True)
        if lacks := devices.lacking(pod):
            return ClaimsAnswer(ready=False, vain=lacks)
        vain = self._in_vain(binding, pod)
        if vain:
            given = (claim for claim in devices.claims(pod) if claim.allocation is not None)
            failed = any(not usable(claim, devices.wall) for claim in given)
            self._conditions_ended(binding, pod, "failure" if failed else "error")
            return ClaimsAnswer(ready=False, vain=vain, refused=devices.name_taken(pod))
        held, own, waits = devices.holders(pod), Consumer(binding.name, uid), []
        for claim in devices.claims(pod):
            key = claim.key
            user = held.get(key, own)
            if not self._carried(binding, key, user):
                self._waiting.setdefault(key, {})[uid] = user
                self.waits_for.setdefault(uid, set()).add(key)
                waits.append(claim)
        for claim in waits:
            self._write(binding, claim)
        self._fill()
        if not waits:
            self._conditions_ended(binding, pod, "success")
            return READY
        ends = min((_ends(state, binding, claim) for claim in waits), default=NEVER)
        if state.now >= ends:
            self._conditions_ended(binding, pod, "timeout")
            return ClaimsAnswer(ready=False, vain=_not_in_time(waits[0]), refused=True)
        state.paused[uid] = min(ends, state.now + state.settings.volumes_again_s)
        return WAITS

    def _conditions_ended(self, binding: InFlightBinding, pod: Pod, status: str) -> None:
        """The unit waits no more for the binding conditions of devices that were written for it: once an attempt."""
        claims = () if binding.conditions_told else self._state.devices.claims(pod)
        given = [one.allocation for one in claims if one.allocation is not None and one.key in binding.claimed]
        for result in (result for allocation in given for result in allocation.results if result.bound_on):
            binding.conditions_told = True
            ended = ConditionsAwaited(result.driver, status, self._state.now - binding.arrived)
            self._state.conditions_awaited.append(ended)

    def _in_vain(self, binding: InFlightBinding, pod: Pod) -> str:
        """Why the pod cannot have its claims on the unit's node any more; "" while it can."""
        state, devices, node = self._state, self._state.devices, binding.node
        claims, needs = devices.claims(pod), devices.extended_claim(pod, node)
        if needs is None and any(one.made for one in binding.claims):
            return f"{node}: no device class stands for its extended resources any more"
        if needs is not None and not any(one.made and one.name == needs.name for one in binding.claims):
            return f"{node}: it is to give devices by claim {needs.name}, which the intent does not name"[:512]
        if why := devices.unfit(pod, node):  # one that an attempt before this has left, or another's
            return f"{node}: {why}"[:512]
        # what was assumed is another's by now, or the claim that we made is gone
        lost = any(claim.allocation is None for claim in claims)
        lost |= needs is not None and all(claim.name != needs.name for claim in claims)
        if lost and (why := devices.assume(pod, node, state.now)):
            return f"{node}: {why}"[:512]
        labels = state.labels(node)
        for claim in devices.claims(pod):
            allocation = claim.allocation
            if allocation is None:
                return f"claim {claim.key} is not allocated"
            if allocation.terms is not None and not node_matches(node, labels, allocation.terms):
                return f"claim {claim.key} got allocated elsewhere in the meantime"
            if not usable(claim, devices.wall):
                return f"claim {claim.key}: {_unbound_text(claim)}"[:512]
        for one in binding.claims:
            key = f"{binding.namespace}/{one.name}"
            taken = devices.contested(key)
            if taken and not one.fresh and self._runs(key):
                taken = devices.contested(key, joined=True)
            if taken:
                if one.fresh:  # what others run with nobody can give back: they keep it, and nobody joins them
                    binding.to_free.add(key)  # also where an attempt before this one wrote it
                return f"{node}: {taken}"[:512]
        return ""

    def _runs(self, key: str) -> bool:
        """Whether a pod runs with the claim: one that it is reserved for, or a member of a group that it is."""
        cluster, accounts = self._state.cluster, self._state.cache.accounts
        shown = self._state.devices.accounts.shown.get(key)
        reserved = frozenset(shown.reserved_for if shown is not None else ())
        groups = [group.key for group in cluster.pod_groups.values() if group.uid in reserved]
        users = reserved.union(*(cluster.members.get(one, ()) for one in groups))
        return any((one := accounts.get(uid)) is not None and one.assumed_at is None for uid in users)

    def _carried(self, binding: InFlightBinding, key: str, consumer: Consumer) -> bool:
        """Whether the API server shows the claim as it must be, its devices ready, and whoever wrote before is late."""
        shown = self._state.devices.accounts.shown.get(key)
        if not self.in_order or key in self._writing or key in self._unseen or self.returns.freeing((key,)):
            return False
        if (
            shown is None
            or shown.allocation is None
            or consumer.uid not in shown.reserved_for
            or key not in binding.claimed
        ):
            return False
        return not unbound_devices(shown)

    def _write(self, binding: InFlightBinding, claim: DeviceClaim) -> None:
        """Send what the claim lacks, unless something is under way for it."""
        state, key = self._state, claim.key
        shown = state.devices.accounts.shown.get(key) or replace(claim, allocation=None, reserved_for=())
        if key in self._writing or self.returns.freeing((key,)):
            return
        allocation = claim.allocation if shown.allocation is None else None
        reserved = shown.reserved_for
        done = self._waiting[key][binding.uid].uid in reserved
        if allocation is None and done and key in binding.claimed:
            return  # its devices are not ready, or the watch is late
        if not self._room.left:
            self._held_units[binding.uid] = None
            return
        consumers: dict[Consumer, None] = {}
        members = []
        for uid, consumer in self._waiting[key].items():
            unit = state.in_flight.get(uid)
            if unit is None or unit.stage is not BindingStage.COMMITTED:
                continue
            if not done and consumer.uid not in reserved:
                consumers[consumer] = None
            elif not consumer.group or consumer.uid not in reserved:
                continue
            if consumer.group:
                members.append(uid)
            # Noted before it is sent: a write without an answer may have come, and must be given back (ADR 0063).
            unit.to_free.add(key)
        order = WriteClaim(
            shown.namespace, shown.name, shown.uid, shown.resource_version, shown.protected,
            f"{binding.cause_id}-{state.term:x}", allocation, tuple(consumers),
            made=shown.for_extended and shown.owner == binding.uid, requests=() if shown.uid else shown.requests,
            members=tuple(members),
        )  # fmt: skip
        self._writing[key] = order
        binding.to_free.add(key)
        if allocation is not None:
            state.devices.accounts.send(key, state.now)
        self._room.under_way += 1
        state.emit(order)

    def _fill(self) -> None:
        """As many of those that wait for room are looked at again as there is room for."""
        self.returns.fill()
        for uid in list(islice(self._held_units, self._room.left)):
            del self._held_units[uid]
            if uid in self._state.paused:
                self._state.paused[uid] = self._state.now

    def leave(self, uid: str) -> None:
        """The unit waits for no claim."""
        self._held_units.pop(uid, None)
        for key in self.waits_for.pop(uid, ()):
            waiting = self._waiting[key]
            del waiting[uid]
            if not waiting:
                del self._waiting[key]

    def shown(self, key: str, claim: DeviceClaim | None) -> None:
        """The watch has shown a claim so, or that it is gone (None). What we wrote is seen when that itself is shown:
        an event of before says nothing, though the claim is known as it is by now."""
        self.passed(key, claim.resource_version if claim is not None else "")

    def passed(self, key: str, version: str) -> None:
        """The watch is at this version of a claim, readable or not ("": it is gone)."""
        ours = self._unseen.get(key)
        if ours is not None and (not version or not newer(ours, version)):
            del self._unseen[key]
        if not version and key in self._writing:
            self._went.add(key)
        self._wake(key)

    def listed(self) -> None:
        """All claims are shown as they are: who waited for that is looked at again."""
        self.in_order = True
        for key in self._waiting:
            self._wake(key)

    # --- answers ----------------------------------------------------------------------------------------------------

    def written(self, event: ClaimWritten) -> None:
        """A write came through: those it reserved the claim for may go on, those that have ended leave it."""
        claim = event.claim
        order = self._writing.pop(claim.key, None)
        if order is None:
            return
        self._room.under_way -= 1
        self._observe(claim)
        self._went.discard(claim.key)
        self._leave_behind(order)
        members = set(order.members)
        for uid, consumer in self._waiting.get(claim.key, {}).items():
            # a member that came after the write may be planned on what the coordinator was just giving back: it is
            # marked for itself first, which one of the two then refuses
            if uid in members if consumer.group else uid in claim.reserved_for or not order.consumers:
                self._state.in_flight[uid].claimed.add(claim.key)
        self._wake(claim.key)
        self._settled(claim.key)
        self.returns.begin(claim.key)
        self._fill()

    def unwritten(self, event: ClaimUnwritten) -> None:
        """A write was refused, or got no answer: what is there now says what follows."""
        key, state = event.key, self._state
        order = self._writing.get(key)
        if order is None:
            return
        claim = event.claim
        if claim is not None and _is_that(order, claim) and _is_done(order, claim):
            self.written(ClaimWritten(claim))
            return
        del self._writing[key]
        self._room.under_way -= 1
        if event.known or event.status:  # a refusal is one, whether or not the claim could be read since
            state.devices.settle(key)
        if claim is not None and event.known:
            self._observe(claim)
        self._went.discard(key)
        self._note_unwritten(order, event)
        self._leave_behind(order)
        self._settled(key)
        self.returns.begin(key)
        self._fill()
        waiting = list(self._waiting.get(key, ()))
        if event.status in REFUSED:
            self._refused.update(dict.fromkeys(waiting, f"claim {key} was refused: {event.message}"[:512]))
        # Somebody else wrote in between, and what that left is known: tried again at once, without a pause.
        outrun = event.known and claim is not None and newer(claim.resource_version, order.resource_version)
        if event.status in REFUSED or outrun:
            self._wake(key)
            return
        for uid in waiting:
            state.pause(state.in_flight[uid], at_least_s=event.retry_after_s or 0.0)

    def _note_unwritten(self, order: WriteClaim, event: ClaimUnwritten) -> None:
        """Nothing is left of a write that was refused, where the claim shows none of it and no other may still come."""
        claim = event.claim
        for uid in order.pods:
            if (binding := self._state.in_flight.get(uid)) is None:
                continue
            if not event.status:
                binding.unanswered.add(order.key)
            elif (
                event.status in REFUSED
                and event.known
                and order.key not in binding.unanswered
                and not _shows(order, claim, uid)
            ):
                binding.to_free.discard(order.key)

    def _leave_behind(self, order: WriteClaim) -> None:
        """What was, or may have been, written for units that have ended, and are not bound, is given back."""
        members = set(order.members)
        for uid in order.pods:
            if (order.key, uid) in self._bound:
                self._bound.discard((order.key, uid))
            elif uid not in self._state.in_flight:
                claim_uid = "" if order.made else order.uid
                group = uid in members
                deallocate = order.allocation is not None and not group
                self.returns.order(
                    ReleaseClaim(order.namespace, order.name, claim_uid, uid, deallocate, order.made, group)
                )

    def freed(self, event: ClaimFreed) -> None:
        """A claim was given back, or not yet."""
        if self.returns.freed(event):
            self._state.devices.settle(event.key)
            if event.claim is not None:
                self._observe(event.claim)
            self._wake(event.key)
            self._settled(event.key)
            self.returns.begin(event.key)
        self._fill()

    def _observe(self, claim: DeviceClaim) -> None:
        """The API server has said what the claim is. What else was written before, the watch says when it shows it; of
        a claim that the watch has shown gone since, or does not know, nothing is learned."""
        devices = self._state.devices
        shown = devices.accounts.shown.get(claim.key)
        made = shown is None and claim.key in devices.accounts.imagined and claim.key not in self._went
        if not made and (shown is None or shown.uid != claim.uid):
            devices.settle(claim.key)
            return
        if shown is None or newer(claim.resource_version, shown.resource_version):
            self._unseen[claim.key] = claim.resource_version
        devices.written(claim)

    # --- what never bound ---------------------------------------------------------------------------------------------

    def ended(self, binding: InFlightBinding, outcome: Outcome) -> None:
        """The unit is settled. What was written for a pod that is bound stays; else the pod leaves its claims."""
        uid = binding.uid
        waits_for = list(self.waits_for.get(uid, ()))
        self.leave(uid)
        self._refused.pop(uid, None)
        if outcome is not Outcome.BOUND and (pod := self._state.pending.get(uid)) is not None:
            self._conditions_ended(binding, pod, "error")
        # Whoever bound it, it stands: a claim that is freed under a pod that runs gives its device to a second.
        if outcome in (Outcome.BOUND, Outcome.ELSEWHERE):
            # Each claim by itself: forgotten with the first answer, the second would be given back under the pod.
            self._bound.update((key, uid) for key in waits_for if self._writes_for(key, uid))
            return
        self._give_back(binding)

    def unused_by(self, binding: InFlightBinding, pod: Pod) -> None:
        """The pod is on a node, by whomever: a claim that was made for it, and that its status does not tell of, serves
        nobody."""
        told = pod.extended_claim.name if pod.extended_claim is not None else ""
        for claim in binding.claims:
            if claim.made and claim.name != told:
                self.returns.order(ReleaseClaim(binding.namespace, claim.name, "", binding.uid, claim.fresh, made=True))

    def left_by(self, units: Collection[InFlightBinding]) -> bool:
        """Whether nothing is left of what was written for units that are about to end; what is, is given back."""
        for binding in units:
            if binding.claims:
                self.leave(binding.uid)
                self._give_back(binding)
        leaving = self.returns.leaving
        return not leaving or all(binding.uid not in leaving for binding in units)

    def _give_back(self, binding: InFlightBinding) -> None:
        """Leave what was, or may have been, written for the unit; once: what is written after that is left anew."""
        uid, written = binding.uid, binding.claimed | binding.to_free
        untold = binding.inherited and not binding.given_back  # nobody tells what an earlier leader wrote
        for claim in binding.claims:
            if untold or f"{binding.namespace}/{claim.name}" in written:
                order = ReleaseClaim(
                    binding.namespace, claim.name, claim.uid, uid, claim.fresh, claim.made, claim.group
                )  # fmt: skip
                self.returns.order(order)
        binding.given_back = True
        binding.claimed.clear()
        binding.to_free.clear()

    def _wake(self, key: str) -> None:
        paused = self._state.paused
        for uid in self._waiting.get(key, ()):
            if uid in paused:
                paused[uid] = self._state.now

    def validate(self) -> Iterator[str]:
        """Who waits for a claim and is not on its way, and what is wrong with what is given back."""
        for uid in self.waits_for.keys() - self._state.in_flight.keys():
            yield f"claims-wait: {uid} waits for a claim, and is not on its way"
        yield from self.returns.validate()


def claim_keys(pod: Pod) -> list[str]:
    """The claims of a pod, that for its extended resources among them, whether they are there or not."""
    keys = [f"{pod.namespace}/{one.claim}" for one in pod.asks.claims] if pod.asks is not None else []
    return [*keys, f"{pod.namespace}/{claim_name(pod.name, pod.uid)}"] if pod.extended else keys


def _is_that(order: WriteClaim, claim: DeviceClaim) -> bool:
    """Whether a claim that was read after a write is the one that was to be written; one that was to be made, by whose
    it is."""
    if order.made:
        return claim.for_extended and all(claim.owner == one.uid for one in order.consumers)
    return claim.uid == order.uid


def _is_done(order: WriteClaim, claim: DeviceClaim) -> bool:
    """Whether a claim that was read after a write without an answer is as it was to be."""
    if not order.consumers:
        return False  # a mark says nothing by which it is known: it is made again
    wanted = order.allocation is None or claim.allocation is not None
    return wanted and all(one.uid in claim.reserved_for for one in order.consumers)


def _shows(order: WriteClaim, claim: DeviceClaim | None, uid: str) -> bool:
    """Whether the claim, as it was read after the write, may have something of it, or of a write before it."""
    if claim is None or not _is_that(order, claim):
        return False
    return (
        order.made
        or uid in claim.reserved_for
        or uid in order.members
        or (order.allocation is not None and (claim.protected or claim.allocation is not None))
    )


def _ends(state: BinderState, binding: InFlightBinding, claim: DeviceClaim) -> float:
    """When the wait for the claim's devices is over; NEVER where it waits for a write."""
    if claim.allocation is None or not any(result.bound_on for result in claim.allocation.results):
        return NEVER
    began = claim.allocation.at
    if began is None:
        return binding.arrived + BINDING_TIMEOUT_S
    return state.now + max(0.0, began + BINDING_TIMEOUT_S - state.devices.wall)


def _not_in_time(claim: DeviceClaim) -> str:
    return f"claim {claim.key}: its devices were not bound within {BINDING_TIMEOUT_S:g} s"


def _unbound_text(claim: DeviceClaim) -> str:
    failed = unbound_devices(claim)
    names = ", ".join("/".join(one) for one in failed[:3])
    return f"device {names} could not be bound" if names else "its devices cannot be used"
