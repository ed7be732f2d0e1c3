"""What intents of other shards hold on our nodes, or may: each is its own shard's to finish or to withdraw.

Either the nodes were divided anew, and it was committed before; or a gang spans shards, and its home commits one intent
for all of it, on rooms that each of the others *lends* (ADR 0044). Until its end is known, its pods on our nodes are
counted as if they ran there, and no plan may place any of its pods here::

    listed at the takeover ---------------------------+
                                                      v
    lent --our fence is moved, later than lent--> no intent names it any more --> read --on no node--> over: free again
      |                                               |
      +-------the watch shows the pod bound, finished or gone--> over

Who commits on a loan compares our term and our fence as they were when it was told. So nobody can any more once we have
moved the fence; a list of the intents that is not older tells what was committed before. The fence is moved when a loan
is not seen to be used for ``lend_s``, or when the pod's room is asked for again: time decides when to ask, never what
is so. A pod is read after its intent was seen to be gone, and an intent goes only when no Binding of it can succeed any
more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from services.binder.core.events import StoredIntent
from services.binder.core.in_flight import InFlightBinding
from services.binder.core.instructions import ListIntents, ReadPod
from services.binder.core.state import NEVER, BinderState, PlacementArrival
from services.binder.cycle.batch import Lenders
from services.binder.cycle.commit import Committer
from shared.model.pod import Pod
from shared.wire.messages import Loan, Plan
from shared.wire.records import IntentPod, gang_part

FIRST_LOOK_S = 0.5

READS_AT_ONCE = 16
"""Pods that are read at a time: a large gang's loans end together, and Bindings go over the same connections."""


@dataclass(slots=True)
class LentPod:
    """A pod that an intent of another shard names, or may. ``fence``: ours when it was lent, which its commit compares
    (None: it was not lent); ``until``: when it is taken back, if that has not happened."""

    pod: IntentPod
    fence: int | None = None
    until: float = 0.0


class Loans:
    """Pods that intents of other shards name, or may name, by uid."""

    def __init__(self, state: BinderState, committer: Committer) -> None:
        self._state = state
        self._committer = committer
        self._of: dict[str, LentPod] = {}
        self._due: dict[str, None] = {}
        self._asked: set[str] = set()
        self._fence = 0
        self._pause = FIRST_LOOK_S
        self._looks = 0
        self.look_at = NEVER
        """When it is looked next whether any is over."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._of

    def __len__(self) -> int:
        return len(self._of)

    def list(self, intents: Mapping[str, StoredIntent]) -> None:
        """The intents of other shards there were when this leader won."""
        for stored in intents.values():
            if stored.intent is not None:
                self._of.update((pod.uid, LentPod(pod)) for pod in stored.intent.pods)

    def count(self) -> None:
        """All is listed: those that are pending hold what they are to get, if it is ours."""
        state = self._state
        for uid, held in list(self._of.items()):
            account, pod, loan = state.cache.accounts.get(uid), state.pending.get(uid), held.pod
            if account is not None:
                self.over(uid)
            elif pod is not None and state.owns(loan.node):
                state.cache.assume(uid, loan.node, pod.pod_class, state.now, devices=loan.devices)
                state.hold_volumes(pod, loan.node)
        self.count_devices()
        if self._of:
            self.look_at = state.now + self._pause

    def count_devices(self) -> None:
        """Devices are listed, perhaps after the rest: those that were found with the intents hold theirs."""
        state = self._state
        for uid, held in self._of.items():
            pod = state.pending.get(uid)
            if held.fence is None and pod is not None and pod.asks is not None and state.owns(held.pod.node):
                state.devices.assume(pod, held.pod.node, state.now)

    def lend(self, binding: InFlightBinding) -> Loan:
        """What the unit holds is kept for another shard's binder."""
        state, fence = self._state, self._committer.fence.at
        until = state.now + state.settings.lend_s
        self._of[binding.uid] = LentPod(binding.entry(binding.unit), fence, until)
        self._pause = FIRST_LOOK_S
        self.look_at = min(self.look_at, until)
        return Loan(binding.uid, binding.node, state.shard, state.term, fence, binding.rv, list(binding.devices))

    def recall(self, uid: str) -> None:
        """The pod is to be placed anew: find out at once whether what was lent for it is used."""
        self._of[uid].until = self._state.now
        self.look_at = self._state.now

    def fence_moved(self) -> None:
        """Perhaps it has: what was lent before can be committed no more, and is looked at at once, but once."""
        if self._fence == self._committer.fence.at:
            return
        self._fence = self._committer.fence.at
        if self._of:
            self.look_at = self._state.now

    def over(self, uid: str) -> None:
        """The watch has shown what became of the pod."""
        if not self._of:
            return
        self._of.pop(uid, None)
        self._due.pop(uid, None)
        self._asked.discard(uid)
        self._read_next()
        if not self._of:
            self.look_at = NEVER

    def listed(self, intents: Mapping[str, StoredIntent], revision: int) -> None:
        """The intents of other shards at a later ``revision``: pods that none names, or can name any more, are read."""
        named = {pod.uid for stored in intents.values() if stored.intent is not None for pod in stored.intent.pods}
        for uid in self._of.keys() - named - self._asked:
            held = self._of[uid]
            # >=: a list from before the fence was moved may lack an intent that was committed on the loan since.
            if held.fence is None or (self._closed(held) and revision >= self._committer.fence.at):
                self._due[uid] = None
        self._read_next()

    def _read_next(self) -> None:
        while self._due and len(self._asked) < READS_AT_ONCE:
            uid, _ = self._due.popitem()
            self._asked.add(uid)
            self._state.emit(ReadPod(uid, self._of[uid].pod.ns, self._of[uid].pod.name))

    def read(self, uid: str, pod: Pod | None) -> bool:
        """A pod was read; whether it was asked for here."""
        if uid not in self._asked:
            return False
        self.over(uid)
        if pod is not None and (pod.node_name or pod.finished):
            self._state.observe(pod)
        else:
            self._state.cluster.forget(uid)
        return True

    def unread(self, uid: str) -> None:
        """The API server did not answer; the next list asks again."""
        self._asked.discard(uid)
        self._read_next()

    def step(self) -> None:
        """Take back what is due; look whether intents are gone, ever less often: till then their room is nobody's."""
        now, lent = self._state.now, [held for held in self._of.values() if not self._closed(held)]
        # Time says when to ask, never what is so: a lender that let go by its clock could meet a paused home's commit.
        if any(held.until <= now for held in lent):
            self._committer.fence.move()
        self.look_at = now + self._pause
        if len(lent) < len(self._of):
            self._pause = min(2 * self._pause, self._state.settings.sweep_every_s)
            self._looks += 1
            self._state.emit(ListIntents())
        self.look_at = min([self.look_at, *(held.until for held in lent if held.until > now)])

    def looked(self) -> bool:
        """Whether a list that came counts as asked for here: it is not one more of the sweep's, which are far apart."""
        asked = self._looks > 0
        self._looks -= asked
        return asked

    def _closed(self, held: LentPod) -> bool:
        """Whether nothing can be committed on it any more."""
        return held.fence != self._committer.fence.at


def lenders_of(bindings: Iterable[InFlightBinding]) -> Lenders:
    """Who keeps room for the intent that names these."""
    return frozenset((loan.shard, loan.term, loan.fence) for one in bindings if (loan := one.loan) is not None)


def with_loans(plan: Plan, arrivals: Iterable[PlacementArrival]) -> Iterator[PlacementArrival]:
    """The placements of a plan that lends, or rests on what others lent."""
    loans = {loan.uid: loan for loan in plan.loans}
    return (arrival._replace(lend=plan.lend, loan=loans.get(arrival.placement.uid)) for arrival in arrivals)


def divide(
    state: BinderState, intents: Mapping[str, StoredIntent]
) -> tuple[Mapping[str, StoredIntent], Mapping[str, StoredIntent]]:
    """The intents that are ours to finish or withdraw, and those of other shards. All parts of a gang's go together."""
    if state.sole:
        return intents, {}
    own: dict[str, StoredIntent] = {}
    others: dict[str, StoredIntent] = {}
    for key, stored in intents.items():
        part = gang_part(key)
        unit, said = (key, stored) if part is None else (part[0], intents.get(part[0], stored))
        resolver = state.shards.resolver(unit, said.intent)
        (own if resolver == state.shard else others)[key] = stored
    return own, others


def beyond(state: BinderState, plan: Plan) -> str:
    """Which node of another shard the plan names, other than what that lent; "" where none."""
    if state.sole and not plan.loans:
        return ""
    lent = {loan.uid: loan.shard for loan in plan.loans}
    for placement in plan.placements:
        shard = lent.get(placement.uid, state.shard)
        for node in (placement.node, *placement.alternatives):
            if (owner := state.shards.of(node)) != shard:
                return f"node {node[:64]} is of shard {owner}, this is {state.shard}"
    return ""


def unsound(plan: Plan) -> str:
    """What is wrong with what the plan lends or rests on; "" where nothing is."""
    if plan.lend and (plan.loans or plan.evictions):
        return "a plan that lends has loans or evictions"
    if not plan.loans:
        return ""
    wanted = {placement.uid: (placement.node, *placement.alternatives) for placement in plan.placements}
    lent = {loan.uid: (loan.node,) for loan in plan.loans}
    if len(lent) < len(plan.loans) or any(wanted.get(uid) != nodes for uid, nodes in lent.items()):
        return "loans are not of one placement each, on its node"
    return ""
