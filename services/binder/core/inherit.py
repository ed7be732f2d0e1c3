"""Intents that nobody on its way here wrote: an earlier leader's, at the takeover, or others that a sweep finds.

Each pod of one becomes a unit on its way, is judged (``takeover.py``), and finished or withdrawn. A gang's are joined
again, so that the minimum decides when all are judged: with nobody bound and too few that still can be, all are
withdrawn together. A link
whose head is not there means nothing, and is deleted; a head whose links are not all there cannot be read.

Intents that claim devices are put off, all parts of a gang's together, while those are not listed: their pods are
counted where they are to go, and no plan places them.

A pod that two intents name (only a store that went back in time shows that) is carried by the first alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.binder.core.events import StoredIntent
from services.binder.core.gangs import GangStage, InFlightGang
from services.binder.core.in_flight import BindingStage, InFlightBinding
from services.binder.core.state import BinderState, InheritedPod
from services.binder.core.takeover import BinderTakeover, adopt, judge
from services.binder.cycle.binding_cycle import BindingCycle
from services.binder.cycle.commit import Committer
from shared.wire.messages import Outcome
from shared.wire.records import Intent, IntentPod, gang_part


class Inheritance:
    """Takes over what is found in etcd."""

    def __init__(self, state: BinderState, committer: Committer, cycle: BindingCycle, takeover: BinderTakeover) -> None:
        self._state = state
        self._committer = committer
        self._cycle = cycle
        self._takeover = takeover
        self.put_off: dict[str, StoredIntent] = {}
        """Intents that wait for devices to be listed, by key."""

    def take(self, intents: Mapping[str, StoredIntent]) -> None:
        """Take over these, all that belong together at once: as many pods as the turn has time for, the rest later."""
        if not self._takeover.devices_listed:
            intents = self._put_off_some(intents)
        links: dict[str, dict[int, StoredIntent]] = {}
        heads: dict[str, StoredIntent] = {}
        for key, stored in intents.items():
            part = gang_part(key)
            if part is None:
                self._lone(key, stored)
            elif part[1]:
                links.setdefault(part[0], {})[part[1]] = stored
            else:
                heads[key] = stored
        for key, stored in heads.items():
            self._gang(key, stored, links.pop(key, {}))
        for key, parts in links.items():
            for number, stored in parts.items():
                # Its head was never committed, or is gone: to finish by links alone would bind a part of a gang (I5).
                self._delete(f"{key}:{number}", stored)
        self.go_on()

    def _take_put_off(self) -> None:
        """Devices are listed: what was put off is judged now."""
        put_off, self.put_off = self.put_off, {}
        self.take(put_off)
        for uid in self._takeover.put_off - self._state.inherited.keys():  # of intents that cannot be read
            self._uncount(uid)

    def _uncount(self, uid: str) -> None:
        """The pod waits for devices no more: as a unit it is counted anew, where the watch has not shown it."""
        if uid in self._takeover.put_off:
            self._takeover.put_off.discard(uid)
            account = self._state.cache.accounts.get(uid)
            if account is not None and account.assumed_at is not None:
                self._state.cluster.forget(uid)

    def _put_off_some(self, intents: Mapping[str, StoredIntent]) -> Mapping[str, StoredIntent]:
        """The intents that need not wait for devices; the pods of the others are counted."""
        state = self._state
        claiming = {
            _unit_key(key)
            for key, stored in intents.items()
            if stored.intent is not None and any(pod.claims for pod in stored.intent.pods)
        }
        put_off = {key: stored for key, stored in intents.items() if _unit_key(key) in claiming}
        if not put_off:
            return intents
        self.put_off.update(put_off)
        missing = ", ".join(self._takeover.missing)
        state.log("intents_await_devices", level="warning", intents=len(put_off), missing=missing)
        for pod in (pod for stored in put_off.values() if stored.intent is not None for pod in stored.intent.pods):
            self._takeover.put_off.add(pod.uid)
            pending = state.pending.get(pod.uid)
            if pending is not None and pod.uid not in state.cache.accounts:
                state.cache.assume(pod.uid, pod.node, pending.pod_class, state.now, devices=pod.devices)
                state.hold_volumes(pending, pod.node)
        return {key: stored for key, stored in intents.items() if key not in put_off}

    def go_on(self) -> None:
        """Take up and judge some of those that wait."""
        state = self._state
        if self.put_off and self._takeover.devices_listed:
            self._take_put_off()
        while state.inherited and state.left > 0:
            state.left -= 1
            uid = next(iter(state.inherited))
            inherited = state.inherited.pop(uid)
            self._uncount(uid)
            binding = adopt(state, inherited.intent, inherited.pod, gang=inherited.gang)
            state.move(binding, BindingStage.COMMITTED)
            state.in_flight[uid] = binding
            if inherited.gang:
                gang = state.gangs[inherited.gang]
                gang.members[uid] = binding
                gang.coming -= 1
                if not gang.coming:
                    state.touch(gang.key)
            self._judge(binding)

    def known(self, key: str) -> bool:
        """Whether the intent is of somebody on its way, or about to be, or in a transaction."""
        part = gang_part(key)
        state = self._state
        if key in self.put_off:
            return True
        if part is not None:
            return part[0] in state.gangs or self._committer.waits(key)
        carried = key in state.in_flight or key in state.inherited or key in self._cycle.claims.returns.leaving
        return carried or self._committer.waits(key)

    def _lone(self, key: str, stored: StoredIntent) -> None:
        intent = stored.intent
        # The key's absence is what keeps a pod from two intents (I1): one that names another pod guards nothing.
        if intent is None or len(intent.pods) != 1 or intent.pods[0].uid != key:
            self._unreadable(key)
            return
        self._state.stats.intents_inherited += 1
        self._committer.adopt(key, stored.created)
        self._expect(intent, intent.pods[0], "")

    def _gang(self, key: str, head: StoredIntent, links: Mapping[int, StoredIntent]) -> None:
        parts = [head, *(links[number] for number in sorted(links))]
        intents = [part.intent for part in parts if part.intent is not None]
        intent = head.intent
        if intent is None or not intent.group or sorted(links) != list(range(1, intent.links + 1)) or (
            len(intents) != len(parts)
        ):  # fmt: skip
            self._unreadable(key)
            return
        self._state.stats.intents_inherited += 1
        gang = InFlightGang(
            key, intent.group, intent.unit, intent.coordinator_term, intent.plan_id, intent.policy, intent.min_count,
            stage=GangStage.COMMITTED,
        )  # fmt: skip
        self._state.gangs[key] = gang
        self._state.touch(key)
        for part_key, part, stored in zip(_keys(key, len(parts)), intents, parts, strict=True):
            self._committer.adopt(part_key, stored.created)
            gang.parts.append({pod.uid: pod for pod in part.pods})
        for pod in (pod for part in gang.parts for pod in part.values()):
            if pod.uid in self._state.in_flight or pod.uid in self._state.inherited:
                self._state.log("pod_in_two_intents", level="error", pod_uid=pod.uid, gang=key)
                continue
            gang.coming += 1
            self._expect(intent, pod, key)

    def _expect(self, intent: Intent, pod: IntentPod, gang: str) -> None:
        self._state.inherited[pod.uid] = InheritedPod(intent, pod, gang)
        self._takeover.opened(pod.uid)

    def _judge(self, binding: InFlightBinding) -> None:
        judged = judge(self._state, binding)
        if judged is None:
            self._cycle.queue(binding)
            return
        outcome, said = judged
        settled = outcome in (Outcome.BOUND, Outcome.ELSEWHERE)
        if settled and not any(claim.made for claim in binding.claims):
            self._cycle.settle(binding, outcome, node=said)
        # Not ended on a list alone: a pod that it does not show may have another scheduler's name by now (I3).
        elif settled or outcome is Outcome.GONE:  # which claim it tells of; whether it is gone
            self._cycle.read(binding)
        else:
            self._cycle.withdraw(binding, said)

    def _delete(self, key: str, stored: StoredIntent) -> None:
        self._committer.adopt(key, stored.created)
        self._committer.clear(key, self._state.now, first=True)

    def _unreadable(self, key: str) -> None:
        self._state.stats.intents_unreadable += 1
        self._state.log("intent_unreadable", level="error", key=key)


def _unit_key(key: str) -> str:
    part = gang_part(key)
    return part[0] if part is not None else key


def _keys(key: str, parts: int) -> list[str]:
    return [key, *(f"{key}:{link}" for link in range(1, parts))]
