"""Nodes where offline pods hold more of what is lent than there is (any more): who is to leave them, and when.

    a node or a pod on it changed --looked at--> enough is lent: forgotten
        --short, by more than the margin--> the grace is over --chosen--> asked to leave
                       ^                                                      |
                       +--- a victim left, was refused, was not heard of; ----+
                            a protected time ended

Who is chosen: ``shared/scheduling/preemption/giving_way.py``. Who lends does not matter: Koordinator, Volcano's agent,
Katalyst or the mesh. What is read is the node's allocatable, and what pods there hold of it. A resource that the node
does not name at all is not known, and nobody leaves for it.

Levels, not edges: a node is judged by what the API server shows, and by whom this leader has asked. So a new leader
goes on: who terminates counts as leaving, and who bears the mark of the one before and stands yet is asked first. Only
nodes that changed are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from services.coordinator.binding.plans import Ledger
from services.coordinator.core.due import Due
from services.coordinator.core.instructions import EmitEvent
from services.coordinator.core.state import CoordinatorState, CoreSettings
from services.coordinator.preemption.evictions import (
    ASKED,
    EVICTED,
    GONE,
    REFUSED,
    UNKNOWN,
    PastEviction,
)
from services.coordinator.preemption.nominations import Nominations
from services.coordinator.preemption.offline_notices import OfflineNotices
from services.coordinator.preemption.promises import Promises
from services.coordinator.preemption.requests import EVICTIONS_PER_PLAN, Requests
from shared.model.node import Node
from shared.model.offline import EVICTION_LABEL
from shared.model.pod import PREEMPTIBLE_ANNOTATION, Pod
from shared.model.qos import is_lent
from shared.scheduling.preemption.giving_way import BUDGET, GivingWayState, VictimChoice, choose, gives_way
from shared.scheduling.preemption.loss import protected_s
from shared.wire.messages import Eviction, EvictionOutcome, EvictionReason, EvictionResult

AGAIN_S, LONGEST_AGAIN_S = 30.0, 600.0
"""Pause before a pod is asked again that the API server has refused to evict, doubling; others are found meanwhile."""

UNHEARD_S, UNKNOWN_S = 60.0, 2.0
"""A victim that has not begun to leave so long after it was asked may be asked again; one of which the binder could not
say whether it was asked, sooner."""

NODES_PER_WORK = 2
"""Nodes looked at in one unit of the turn's work; each victim counts as one more."""

NO_CONTROLLER = f'no controller would make another, and it does not say {PREEMPTIBLE_ANNOTATION}: "true"'
OPTED_OUT = f'it says {PREEMPTIBLE_ANNOTATION}: "false"'
LABELLED_OUT = f'it says {EVICTION_LABEL}: "false"'
ON_ITS_WAY = "it is on its way to a node"

MARKED = (
    "Leaves, and is marked to give way since offline pods where it or one of its gang stands held more than is lent"
)


@dataclass(slots=True)
class _Asked:
    """A victim. ``until``: when it may be asked again, if it has not begun to leave by then; not while it is ``open``
    what became of the request."""

    node: str
    until: float
    open: bool = True


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why the API server did not evict a pod, and until when it is passed over: for so long."""

    until: float
    pause_s: float
    why: str


def _of_offline(settings: CoreSettings) -> tuple[float, ...]:
    """What decides here: with any other setting everything goes on."""
    return (
        settings.offline_eviction, settings.offline_margin, settings.offline_grace_s, settings.offline_min_runtime_s,
    )  # fmt: skip


class GivingWay:
    """One term's."""

    def __init__(self, state: CoordinatorState, ledger: Ledger, nominations: Nominations) -> None:
        self._state = state
        self._nominations = nominations
        self._ledger = ledger
        self._promises = Promises(state)
        self._requests = Requests(state, ledger)
        """Those that stand in the binder's line."""
        self._settings: CoreSettings | None = None
        """Those by which all nodes were looked at last."""
        self._changed: dict[str, dict[str, None]] = {}
        """Nodes to look at, by shard; who had his turn last is last."""
        self._more = False
        """Whether some of them may be looked at in the next turn already."""
        self._due = Due()
        self._evictions: list[Eviction] = []
        """Those that this turn's plan is to ask for."""
        self.asked: dict[str, _Asked] = {}
        self.short: dict[str, float] = {}
        """Nodes that were found to be short by more than the margin, since when."""
        self._ripe = set[str]()
        """Those that were for the whole grace: there it is to hold again, without a margin."""
        self._refused: dict[str, _Refused] = {}
        """Victims that the API server would not evict, by uid."""
        self._budgeted: set[str] = set()
        """Nodes where disruption budgets keep somebody."""
        self._told = set[str]()
        """Who leaves and was told so, though by this leader's asking or not."""
        self._untold: dict[str, Pod] = {}
        """Who is to be told so once this one leads."""
        self._notices = OfflineNotices(state)
        self._totals: tuple[int, Mapping[str, int]] = (-1, {})

    # --- what changed -------------------------------------------------------------------------------------------

    def node_changed(self, name: str) -> None:
        """What is lent there, or who holds what of it, may have changed."""
        if self._state.settings.offline_eviction:
            self._changed.setdefault(self._state.shards.of(name), {})[name] = None
            self._more = True

    def pod_changed(self, pod: Pod) -> None:
        """A pod was seen bound, or changed there."""
        if pod.offline is not None and pod.uid not in self.asked:
            self.node_changed(pod.node_name)
            self._tell_of_anothers(pod)

    def pod_gone(self, uid: str, node: str) -> None:
        """The pod holds nothing any more."""
        self._forget(uid)
        self._refused.pop(uid, None)
        self._told.discard(uid)
        self._untold.pop(uid, None)
        self._notices.gone(uid)
        if node in self.short:
            self.node_changed(node)

    def binder_changed(self) -> None:
        """Nodes of a shard may be looked at that had no binder."""
        self._more = True

    def budgets_changed(self) -> None:
        """Evictions may be allowed that were not."""
        for node in sorted(self._budgeted):
            self.node_changed(node)

    # --- work ---------------------------------------------------------------------------------------------------

    def wake_at(self) -> float | None:
        """When it is to be stepped next; None: once something changes."""
        state = self._state
        if state.paused is not None:
            return None
        if self._settings is not state.settings or self._more:
            return state.now
        return self._due.next_at()  # nothing is due while it is off

    def step(self) -> None:
        """Look at nodes that changed, as far as the turn's work goes."""
        state = self._state
        if state.paused is not None:
            return
        if self._settings is not state.settings:
            before, self._settings = self._settings, state.settings
            while self._untold:
                self._tell_of_anothers(self._untold.pop(next(iter(self._untold))))
            if before is None or _of_offline(before) != _of_offline(state.settings):
                self._begin()
        self._more = False
        self._requests.send(self._addressed)
        if not state.settings.offline_eviction:
            self._due = Due()
            return
        for name in self._due.take(state.now):
            self.node_changed(name)
        left = state.work * NODES_PER_WORK
        for shard in list(self._changed):
            if left <= 0 or not self._may_ask(shard):
                continue
            names = self._changed.pop(shard)
            while names and left > 0 and len(self._evictions) < EVICTIONS_PER_PLAN:
                name = next(iter(names))
                del names[name]
                left -= 1 + self._look(name)
            if names:
                self._changed[shard] = names
            if self._evictions:
                evictions, self._evictions = self._evictions, []
                self._ledger.evict(evictions)
        self._more = any(map(self._may_ask, self._changed))
        state.work = max(0, left // NODES_PER_WORK)

    def _may_ask(self, shard: str) -> bool:
        """Whether the shard's nodes are looked at: not before one of its plans is answered, where many are out, nor
        while the binder has others in its line, or there is none."""
        reason = EvictionReason.GIVE_WAY
        return (
            self._ledger.is_led(shard)
            and not self._requests.has(shard, reason)
            and self._ledger.may_evict(shard, reason)
        )

    def _begin(self) -> None:
        """A term begins, or other settings hold: all nodes are looked at where offline pods hold too much."""
        state = self._state
        self._due = Due()
        self.short.clear()
        self._ripe.clear()
        self._notices.clear()
        self._budgeted.clear()
        self._changed.clear()
        if not state.settings.offline_eviction:
            return
        table = state.cache.table
        for name in [name for name in table.resource_names if is_lent(name)]:
            column = table.column_of[name]
            rows = (table.requested[column, : table.rows] > table.allocatable[column, : table.rows]).nonzero()[0]
            for row in rows.tolist():
                if table.nodes[row] is not None:
                    self.node_changed(table.names[row])

    # --- one node -----------------------------------------------------------------------------------------------

    def _look(self, name: str) -> int:
        """Judge a node; returns how many were asked to leave."""
        state = self._state
        row = state.cache.table.row_of.get(name)
        node = state.cache.table.nodes[row] if row is not None else None
        if row is None or node is None:
            self._over(name)
            return 0
        over, unsaid = self._over_lent(node, row)
        if not any(amount > 0 for amount in over.values()):
            self._over(name, told=bool(unsaid))
            if unsaid:
                self._notices.unsaid(node, unsaid)
            return 0
        held = {
            resource: int(state.cache.table.requested[state.cache.table.column_of[resource], row]) for resource in over
        }
        margin = state.settings.offline_margin
        if name not in self._ripe and not any(over[resource] > margin * held[resource] for resource in over):
            self._over(name, told=bool(unsaid))
            return 0
        ripe = self.short.setdefault(name, state.now) + state.settings.offline_grace_s
        if state.now < ripe:
            self._due.later(name, ripe)
            return 0
        self._ripe.add(name)
        short = self._without_leaving(name, over)
        if not short:
            return 0
        choice = choose(state.cluster, name, short, self._moment(name))
        (self._budgeted.add if BUDGET in choice.stays.values() else self._budgeted.discard)(name)
        self._notices.stay(node, choice)
        self._ask(node, over, choice)
        return len(choice.victims)

    def _over_lent(self, node: Node, row: int) -> tuple[dict[str, int], str]:
        """By lent resource, how much more pods hold than the node has; and one that it does not name and pods hold."""
        table, over, unsaid = self._state.cache.table, dict[str, int](), ""
        for name in table.resource_names:
            if not is_lent(name):
                continue
            held = int(table.requested[table.column_of[name], row])
            if name in node.allocatable:
                over[name] = held - node.allocatable[name]
            elif held:
                unsaid = unsaid or name
        return over, unsaid

    def _without_leaving(self, name: str, over: Mapping[str, int]) -> dict[str, int]:
        """What is short though those that leave already are gone, and those that are on their way do not come: the
        binder may refuse them, and they lose nothing. Empty where nothing is."""
        left, accounts = dict(over), self._state.cache.accounts
        for pod in self._state.cluster.index.pods_on(name):
            if pod.offline is not None and (accounts[pod.uid].assumed_at is not None or self._leaves(pod)):
                for resource, amount in pod.pod_class.requests:
                    if resource in left:
                        left[resource] -= amount
        return {resource: amount for resource, amount in left.items() if amount > 0}

    def _leaves(self, pod: Pod) -> bool:
        """Whether it is on its way out: terminating, marked as a victim by others right before that, asked by this
        leader, or to be asked once it is known in etcd where the pod goes that it leaves for. Our own mark alone does
        not tell: whoever set it may have died before he evicted."""
        if pod.terminating or (pod.preempted and not gives_way(pod)):
            return True
        state, asked, nominated = self._state, self.asked.get(pod.uid), pod.uid in self._nominations.leaving
        if asked is None or nominated:
            leaves = nominated or state.evicted.outcome(pod.uid) in (ASKED, EVICTED)  # for another pod, or its queue
            if leaves and (account := state.cache.accounts.get(pod.uid)) is not None:
                self._due.later(account.node_name, state.now + UNHEARD_S)
            return leaves
        if asked.open:
            return True
        if state.now < asked.until:
            self._due.later(asked.node, asked.until)
            return True
        state.evicted.became(pod.uid, UNKNOWN)
        self._forget(pod.uid)
        return False

    def _moment(self, node: str) -> GivingWayState:
        state, groups = self._state, self._state.groups
        if self._totals[0] != state.totals_version:
            self._totals = state.totals_version, state.cache.table.totals()
        now = state.now + (state.epoch or 0.0)

        def stays(pod: Pod) -> str:
            return self._why_it_stays(pod, node, now)

        def keeps(key: str) -> int:
            return groups.keeps(key) - groups.ran(key)

        return GivingWayState(now, self._totals[1], keeps, stays, self._leaves)

    def _why_it_stays(self, pod: Pod, node: str, now: float) -> str:
        """Why the pod may not be asked to leave the node, or with its gang for the node; "" where it may."""
        state, terms = self._state, pod.offline
        if not pod.preemptible:
            return OPTED_OUT
        if pod.labels.get(EVICTION_LABEL) == "false":
            return LABELLED_OUT
        if terms is None or not terms.returns:
            return NO_CONTROLLER
        refused = self._refused.get(pod.uid)
        if refused is not None and refused.until > state.now:
            self._due.later(node, refused.until)
            return refused.why
        account = state.cache.accounts.get(pod.uid)
        if account is None or account.assumed_at is not None:
            self._due.later(node, state.now + UNKNOWN_S)
            return ON_ITS_WAY
        if left_s := protected_s(pod, now, state.settings.offline_min_runtime_s):
            self._due.later(node, state.now + left_s)
            return f"it is to run for {math.ceil(left_s)} s more"
        return ""

    # --- asked to leave -----------------------------------------------------------------------------------------

    def _ask(self, node: Node, over: Mapping[str, int], choice: VictimChoice) -> None:
        state = self._state
        for pod in choice.victims:
            account = state.cache.accounts[pod.uid]
            self.asked[pod.uid] = _Asked(node.name, state.now + UNHEARD_S)
            self._promises.make(pod)
            state.evicted.asked(
                PastEviction(
                    state.now, pod.uid, pod.namespace, pod.name, pod.priority, account.node_name, "",
                    f"online pods of node {node.name}", 0,
                    workload=pod.workload,
                )
            )  # fmt: skip
            self._evictions.append(
                Eviction(pod.uid, pod.namespace, pod.name, node.name, account.node_name, reason=EvictionReason.GIVE_WAY)
            )
        if choice.victims:
            lent = ", ".join(f"{name} {over[name]}" for name in sorted(over) if over[name] > 0)
            state.log(
                "offline_pods_give_way", node=node.name, victims=len(choice.victims), over=lent,
                broken=",".join(choice.broken),
            )  # fmt: skip
            state.stats.asked_to_give_way += len(choice.victims)

    def _addressed(self, eviction: Eviction) -> Eviction | None:
        """The request of one in the binder's line, for its end; None where that is known, or nobody is to leave now."""
        state, uid = self._state, eviction.uid
        pod = state.cluster.index.get(uid)
        if uid not in self.asked or pod is None:
            return None
        if state.settings.offline_eviction and not pod.terminating:
            return eviction
        state.evicted.became(uid, EVICTED if pod.terminating else UNKNOWN)
        self._forget(uid)
        self._nominations.asked_by_others(uid, leaves=pod.terminating)
        return None

    def answered(self, eviction: Eviction, result: EvictionResult) -> bool:
        """What became of a victim, by the binder. False: it was asked to leave for somebody else."""
        if eviction.reason != EvictionReason.GIVE_WAY:
            return False
        uid, asked = eviction.uid, self.asked.get(eviction.uid)
        self._more = True
        if not result.waits:
            self._requests.ended(eviction)
        elif (pod := self._state.cluster.index.get(uid)) is None or pod.terminating:
            result = EvictionResult(uid, EvictionOutcome.EVICTED)  # it had its end since the binder said so
        elif asked is not None and self._requests.again(eviction):
            return True
        if asked is not None:
            asked.open = False
            soon = result.outcome == EvictionOutcome.UNKNOWN and not result.waits
            asked.until = self._state.now + (UNKNOWN_S if soon else UNHEARD_S)
            self._due.later(asked.node, asked.until)
        self._promises.settle(uid)
        self._hear(eviction, result)
        self._nominations.asked_by_others(uid, leaves=result.outcome in (EvictionOutcome.EVICTED, EvictionOutcome.GONE))
        return True

    def _hear(self, eviction: Eviction, result: EvictionResult) -> None:
        """Its end, or that nobody knows it."""
        state, uid = self._state, eviction.uid
        match result.outcome:
            case EvictionOutcome.EVICTED:
                state.evicted.became(uid, EVICTED)
                state.stats.gave_way += 1
                note = f"Evicted since offline pods on node {eviction.preemptor} hold more than is lent there"
                self._tell(uid, eviction.namespace, eviction.name, note)
            case EvictionOutcome.GONE:
                state.evicted.became(uid, GONE)  # the watch tells when it left
            case EvictionOutcome.UNKNOWN:
                state.evicted.became(uid, UNKNOWN)
            case _:
                state.evicted.became(uid, REFUSED)
                self._forget(uid)
                before = self._refused.get(uid)
                pause_s = min(2 * before.pause_s, LONGEST_AGAIN_S) if before is not None else AGAIN_S
                why = f"its eviction was refused: {result.reason[:128]}"
                self._refused[uid] = _Refused(state.now + pause_s, pause_s, why)
                if before is None:
                    facts = {"pod_uid": uid, "node": eviction.preemptor, "reason": result.reason}
                    state.log("eviction_failed", level="warning", **facts)
                self.node_changed(eviction.preemptor)

    def _tell_of_anothers(self, pod: Pod) -> None:
        """Whom the leader before asked, who heard of no answer and told nobody: it may have told some of them. The mark
        does not say that it leaves by that: it may have been deleted by its user before it was evicted."""
        if not (pod.terminating and gives_way(pod)):
            return
        if self._settings is None:
            self._untold[pod.uid] = pod
        else:
            self._tell(pod.uid, pod.namespace, pod.name, MARKED)

    def _tell(self, uid: str, namespace: str, name: str, note: str) -> None:
        if uid in self._told:
            return
        if self._state.cluster.index.get(uid) is not None:  # else nothing would forget it
            self._told.add(uid)
        self._state.out.append(EmitEvent(uid, namespace, name, "", "Normal", "GaveWay", "Evicting", note))

    def validate(self) -> Iterator[str]:
        """What contradicts itself, one line each."""
        for uid in self._told:
            if self._state.cluster.index.get(uid) is None:
                yield f"{uid} gave way, is gone, and is kept"

    def not_asked(self, eviction: Eviction) -> bool:
        """The plan that carried the request was refused: nobody was asked by it. False: it was somebody else's."""
        if eviction.reason != EvictionReason.GIVE_WAY:
            return False
        self._state.evicted.became(eviction.uid, REFUSED)
        self._forget(eviction.uid)
        self._due.later(eviction.preemptor, self._state.now + UNKNOWN_S)
        self._nominations.asked_by_others(eviction.uid, leaves=False)
        return True

    def _forget(self, uid: str) -> None:
        self.asked.pop(uid, None)
        self._promises.settle(uid)

    def _over(self, name: str, *, told: bool = False) -> None:
        """Enough is lent there, or there is no such node. ``told``: what was told of it holds on."""
        self.short.pop(name, None)
        self._ripe.discard(name)
        if not told:
            self._notices.over(name)
        self._budgeted.discard(name)
