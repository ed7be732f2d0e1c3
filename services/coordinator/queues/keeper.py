"""Keeps the tree of queues true, once per turn: what counts, how large the cluster is, who must be told.

    accounts that changed, pods given back or gone --dirty--> step --> charged to their queue, or released
    units that a limit holds back --> gated in the scheduling queue, and told which limit

Without any Queue object, and any pod that names one, the tree stands empty: the scheduling queue keeps its own order
and nothing here costs anything. Usage is what the accounts say, so a new leader arrives at the same sums.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from services.coordinator.core.state import CoordinatorState
from services.coordinator.queues.past_use import PastUse
from services.coordinator.queues.reclaiming import Reclaimer
from services.coordinator.queues.status import QueueReporter
from services.coordinator.status.groups import GroupReporter
from services.coordinator.status.reporter import StatusReporter
from shared.model.units.queue import Queue, QueueStatus
from shared.scheduling.places import Place
from shared.scheduling.queues.nodes import Blocked, WaitingUnit
from shared.scheduling.queues.turns import QueueTurns
from shared.scheduling.reasons import NOT_READY

TOLD_PER_TURN = 256
"""Units that are told in one turn that a limit holds them back."""

HISTORY_S = 1.0
"""How often past use is moved on, and what units are told is looked at again, at most."""

LENT_EVERY_S, LENT_AT_LAST_S = 5.0, 60.0
"""Nodes that change in how much they lend alone, as they do all the time, change the totals no more often than this;
and while a look or search for what may be taken back is under way, which ends with that, no sooner than so long after.
"""

SHAPES_PER_LOOK = 256
"""Kinds of units that are held back of which it is asked at a time whether they are for the same reason still."""


class QueueKeeper:
    """Keeps the tree of queues true, in one term."""

    def __init__(
        self,
        state: CoordinatorState,
        reporter: StatusReporter,
        groups: GroupReporter,
        status: QueueReporter,
        reclaimer: Reclaimer,
    ) -> None:
        self._state = state
        self._reporter = reporter
        self._groups = groups
        self._status = status
        self._reclaimer = reclaimer
        self._history_at = 0.0
        self._measured = -1, -1
        """Which nodes the totals are of, as ``nodes_version`` and ``totals_version`` count; -1: there are none."""
        self._measured_at = 0.0
        self.past = PastUse(state)

    def change(self, name: str, queue: Queue | None) -> None:
        """A Queue object came, changed or went. A change of its status alone is none."""
        tree = self._state.queues
        if queue is None:
            tree.drop_queue(name)
            if not tree.queues:
                self._state.queue.labelled = self._named()
            return
        # Our own status comes back by the watch: taken for a change, it would end every look that is under way.
        written = replace(queue, written=QueueStatus(), times={}, resource_version="")
        if tree.queues.get(name) != written:
            tree.put_queue(written)

    def step(self) -> None:
        """Bring the tree up to date, tell who is held back, and take back what was borrowed."""
        state = self._state
        tree, queue = state.queues, state.queue
        if queue.turns is None:
            if not tree.queues and not queue.labelled:
                return
            self._begin()
        elif not tree.queues and not queue.labelled:
            self._end()
            return
        turns = queue.turns
        assert turns is not None
        # First what waits and what counts, then who goes: by sums of before, a limit would hold back the wrong ones.
        queue.catch_up(turns)
        self._count(turns)
        self._measure()
        if state.now >= self._history_at + HISTORY_S:
            self._history_at = state.now
            self.past.resume()
            tree.advance(state.now)
            if not tree.queues:
                queue.labelled = self._named()
            tree.front()
            tree.look_again(SHAPES_PER_LOOK, state.now, state.settings.notice_repeat_s)
        tree.front()
        for unit, blocked in tree.notices.newly(TOLD_PER_TURN, state.now):
            self._hold(unit, blocked)
        self._reclaimer.step(turns)
        self._status.step()

    def wake_at(self) -> float | None:
        """When something is due by itself."""
        state = self._state
        if state.queue.turns is None:
            return None
        if state.queues.notices.waiting or (state.queues.cut_short and state.queues.more):
            return state.now
        times = [self._status.wake_at(), self._reclaimer.wake_at(), self._measure_at()]
        halved = any(queue.half_life_s is not None for queue in state.queues.queues.values())
        if halved or state.queues.notices.holding:
            times.append(self._history_at + HISTORY_S)
        return min((at for at in times if at is not None), default=None)

    def validate(self) -> Iterator[str]:
        """What is broken in what is kept here; nothing while all is well."""
        yield from self._reclaimer.lent.broken()

    # --- from one order to the other ----------------------------------------------------------------------------

    def _begin(self) -> None:
        """There are queues from now on: every pod that holds something counts. Costs as all pods, once."""
        state = self._state
        turns = QueueTurns(state.queues, state.groups.lacking, state.groups.label, state.groups.keeps)
        # Counted before units move over: the first that is asked about finds what stands already in use.
        turns.dirty.update(dict.fromkeys(state.cache.accounts))
        turns.nominated.update(dict.fromkeys(state.cluster.nominated_to))
        state.cache.changed, state.cluster.renominated = turns.dirty, turns.nominated
        self._count(turns)
        self._measure()
        state.queue.take_turns(turns, state.now)
        state.log("queues_begin", queues=len(state.queues.queues), pods=len(state.queues.charges))

    def _end(self) -> None:
        state = self._state
        state.queue.take_turns(None, state.now)
        state.cache.changed = state.cluster.renominated = None
        state.queues.clear()
        # The tree has forgotten its size: queues that come again would find a cluster of size nothing.
        self._measured = -1, -1
        state.log("queues_end")

    def _named(self) -> bool:
        """Whether pods that count or are pending, wherever they wait, name queues. Costs as all that are pending; asked
        only while there is no Queue object."""
        state, turns = self._state, self._state.queue.turns
        if turns is None:
            return state.queue.labelled
        there = any(line.units or line.charges for name, line in turns.tree.lines.items() if name)
        return there or any(turns.label(entry.pod) for entry in state.queue.entries.values())

    # --- what counts --------------------------------------------------------------------------------------------

    def _count(self, turns: QueueTurns) -> None:
        """A pod counts while it has an account, and while it is in flight."""
        state, tree = self._state, self._state.queues
        dirty = list(turns.dirty)
        turns.dirty.clear()
        for uid in dirty:
            # It counts while its victims leave: looked up as a pod without a place it would be released, and others
            # would take what is freed for it.
            if uid in tree.reserved:
                continue
            account, pod = state.cache.accounts.get(uid), state.cluster.index.get(uid)
            if account is None or pod is None:
                entry = state.queue.entries.get(uid)
                if entry is None or entry.place is not Place.IN_FLIGHT:
                    tree.release(uid)
                continue
            known = tree.charges.get(uid)
            # Kept: begun anew with each change of the pod, its minimum run time would protect it for ever.
            since = known.since if known is not None else None
            if since is None and account.assumed_at is None:
                since = state.now
            tree.charge(turns.charge(pod, group=state.groups.key_of.get(uid, ""), since=since))
        # After the charges: who counts already is not expected as well.
        turns.expect(state.cluster.nominated_to, state.queue.entries)

    def _measure(self) -> None:
        """The cluster's totals, where a node came, went or changed."""
        state, at = self._state, self._measure_at()
        if at is not None and state.now >= at:
            self._measured, self._measured_at = (state.nodes_version, state.totals_version), state.now
            state.queues.set_capacity(state.cache.table.totals())

    def _measure_at(self) -> float | None:
        """When the totals are to be taken over; None: they are as they were."""
        state, (nodes, totals) = self._state, self._measured
        if state.nodes_version != nodes:
            return state.now
        if state.totals_version == totals:
            return None
        return self._measured_at + (LENT_AT_LAST_S if self._reclaimer.under_way else LENT_EVERY_S)

    # --- what is held back --------------------------------------------------------------------------------------

    def _hold(self, unit: WaitingUnit, blocked: Blocked) -> None:
        state = self._state
        pods = state.queue.hold_back(unit.key, state.now)
        if not pods:
            return
        text, turns = blocked.text(), state.queue.turns
        if turns is not None and turns.reclaims(pods[0]):
            turns.held_anew = True
        if unit.key in state.queue.groups:
            self._groups.unplaced(unit.key, pods, text, reason=NOT_READY)
            return
        for pod in pods:
            self._reporter.tell(pod, NOT_READY, text)
