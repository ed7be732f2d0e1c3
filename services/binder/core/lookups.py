"""A transaction that was refused or got no answer: look at etcd, and let every unit know what that means for it.

What each key's state means is ``commit.py``'s to say; here units and gangs hear of it. Not its job: intents that nobody
on its way wrote (``inherit.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from services.binder.core.events import CommitRefused, CommitUnknown, LookedUp, LookUpFailed, StoredIntent
from services.binder.core.instructions import LookUp
from services.binder.core.plans import Plans
from services.binder.core.state import BinderState
from services.binder.cycle.binding_cycle import BindingCycle
from services.binder.cycle.commit import Committer
from services.binder.cycle.gang_cycle import GangCycle
from shared.turns import Stop
from shared.wire.messages import Outcome
from shared.wire.records import Intent, gang_part

TERM_OVER = "the coordinator's term is over"
SHARDS_CHANGED = "the nodes are divided into other shards: all is listed again"
NOT_TAKEN = "etcd does not take the intent"
TAKEN_BACK = "another shard's binder has taken back the room that it lent"


class LookUps:
    """What follows from the transaction in flight. ``stopped``: somebody else leads the shard, or it is
    another one by now."""

    def __init__(
        self, state: BinderState, committer: Committer, plans: Plans, cycle: BindingCycle, gangs: GangCycle
    ) -> None:
        self.stopped = False
        self.again_at: float | None = None
        """When a look that failed is made again."""
        self._state = state
        self._committer = committer
        self._plans = plans
        self._cycle = cycle
        self._gangs = gangs

    def written(self, intents: Mapping[str, Intent | None]) -> None:
        """These are in etcd, or (None) waited for a transaction alone."""
        for key, intent in intents.items():
            binding = self._state.in_flight.get(key)
            if binding is not None:
                self._cycle.to_binding(binding)
            elif intent is not None and gang_part(key) is not None:
                self._gangs.written(key, intent)

    def commit_failed(self, event: CommitRefused | CommitUnknown) -> None:
        """The transaction was refused, or got no answer."""
        batch = self._committer.sent
        if batch is None or batch.number != event.batch:
            return
        if isinstance(event, CommitUnknown):
            self._state.stats.transactions_unknown += 1
        else:
            self._state.stats.transactions_refused += 1
        self.look()

    def look_failed(self, event: LookUpFailed) -> None:
        """etcd did not answer; it is asked again after a pause."""
        # The batch stays: until it is known what etcd holds, no other transaction goes. A later one is not looked up
        # for this: before its own answer, what is not there yet would be taken for lost.
        if (batch := self._committer.sent) is not None and batch.number == event.batch:
            self.again_at = self._state.now + self._state.settings.retry_s

    def step(self) -> None:
        """Look again where it is time."""
        if self.again_at is not None and self.again_at <= self._state.now:
            self.look()

    def look(self) -> None:
        """Ask etcd what became of the transaction in flight."""
        self.again_at = None
        batch = self._committer.sent
        if batch is not None:
            lenders = tuple(sorted({shard for shard, _, _ in batch.lenders}))
            self._state.emit(LookUp(batch.number, batch.keys, lenders))

    def looked_up(self, event: LookedUp, coordinator_term: int) -> tuple[int, Mapping[str, StoredIntent]]:
        """What etcd holds; the coordinator's term as known from now on, and intents that somebody else wrote."""
        batch = self._committer.sent
        diagnosis = self._committer.failed(event, self._state.now)
        if diagnosis is None or batch is None:
            return coordinator_term, {}
        if diagnosis.fenced or diagnosis.moved:
            led = f"the shard's leader has term {event.own_term}, we have {self._state.term}"
            self.stop(led if diagnosis.fenced else SHARDS_CHANGED)
            return coordinator_term, {}
        # What was committed goes on even where its coordinator is over: an intent in etcd is finished or withdrawn.
        self.written(diagnosis.committed)
        if diagnosis.stale:
            # etcd knows who leads: a term that never led, once named in a plan, must not lock the true one out
            coordinator_term = event.coordinator_term or coordinator_term
            self._stale(diagnosis.stale, batch.coordinator_term)
        self._drop(diagnosis.exhausted, NOT_TAKEN)
        self._drop(diagnosis.recalled, TAKEN_BACK)
        return coordinator_term, diagnosis.foreign

    def stop(self, reason: str) -> None:
        """Nothing is committed or bound here any more."""
        self.stopped = True
        self._state.emit(Stop(reason))

    def drop_older(self, term: int) -> None:
        """Nothing of an older coordinator's is committed any more; what is committed goes on."""
        self._plans.refuse_stale(term)
        self._gangs.drop_older(term, TERM_OVER)
        self._drop(self._committer.drop_stale(term), TERM_OVER)

    def _stale(self, keys: list[str], term: int) -> None:
        """The coordinator whose plans these are leads no more."""
        self._state.log("coordinator_fenced", level="warning", coordinator_term=term, units=len(keys))
        for key in keys:
            for uid in self._uids(key):
                for opened in self._plans.waiting_for(uid):
                    # <=: a newer coordinator may have planned the same pods, and its plans go on.
                    if opened.plan.term <= term:
                        self._plans.refuse(opened, "stale_term", f"term {term} is over", 409)
        self._drop(keys, TERM_OVER)

    def _uids(self, key: str) -> list[str]:
        part = gang_part(key)
        if part is None:
            return [key]
        gang = self._state.gangs.get(part[0])
        return list(gang.members) if gang is not None else []

    def _drop(self, keys: Iterable[str], reason: str) -> None:
        for key in keys:
            part, binding = gang_part(key), self._state.in_flight.get(key)
            gang = self._state.gangs.get(part[0]) if part is not None else None
            if gang is not None:
                self._gangs.drop(gang, reason)
            elif binding is not None:
                self._cycle.settle(binding, Outcome.CONFLICT, node=binding.node, reason=reason)
