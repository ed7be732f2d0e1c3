"""Sweeps: what should be the same in the cache, the API server and etcd, and is looked at now and then (I7).

    every sweep_every_s    intents in etcd that nobody here waits for -> resolved like inherited ones (``core.py``)
                           accounts no watch event confirmed           -> the pod is read, and believed
    every compare_every_s  what each node holds against its accounts, some nodes a turn;
                           then a full list of pods against the cache

A list is older than the cache's latest events and newer than its oldest, so a difference counts only when two lists in
a row show it; a watch that works never lets it come to that, so each one is logged. Not its job: repairing
what one look only suggests.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.binder.core.events import BoundPod, StoredIntent
from services.binder.core.in_flight import InFlightBinding
from services.binder.core.instructions import ListIntents, ListPods, ReadPod
from services.binder.core.state import BinderState
from shared.model.pod import Pod
from shared.scheduling.state.cache import recount

MAX_READS = 64
"""Pods read by one sweep; the next one goes on."""

COUNTED_AT_ONCE = 128
"""Nodes that one turn counts anew."""


class Reconciler:
    """Sweeps in one term what should be the same everywhere."""

    def __init__(self, state: BinderState) -> None:
        self._state = state
        self._swept_at: float | None = None
        self._compared_at: float | None = None
        self._uncounted: list[str] = []
        self._names: dict[str, tuple[str, str]] = {}
        self._asked: set[str] = set()
        self._suspects: set[str] = set()
        self._idle: Mapping[str, StoredIntent] = {}

    def bound(self, binding: InFlightBinding) -> None:
        """A unit was bound; its account waits for the watch."""
        account = self._state.cache.accounts.get(binding.uid)
        if account is not None and account.assumed_at is not None:
            self._names[binding.uid] = (binding.namespace, binding.name)

    def confirmed(self, uid: str) -> None:
        """The watch has shown the pod on its node, finished or gone."""
        self._names.pop(uid, None)
        self._asked.discard(uid)

    def step(self) -> None:
        """Begin what is due. The first sweep comes one period after the first event."""
        state, settings = self._state, self._state.settings
        if self._swept_at is None or self._compared_at is None:
            self._swept_at = self._compared_at = state.now
        if state.now - self._swept_at >= settings.sweep_every_s:
            self._swept_at = state.now
            self._sweep()
        if state.now - self._compared_at >= settings.compare_every_s:
            self._compared_at = state.now
            self._uncounted = list(state.cache.table.row_of)
            state.emit(ListPods())
        if self._uncounted:
            self._count_some()
        state.agenda.sweeps = min(self._swept_at + settings.sweep_every_s, self._compared_at + settings.compare_every_s)
        if self._uncounted:
            state.agenda.sweeps = state.now

    def read(self, uid: str, pod: Pod | None) -> None:
        """The pod of a late account was read."""
        if uid not in self._asked:
            return
        state = self._state
        self.confirmed(uid)
        if pod is None or pod.finished:
            state.cluster.forget(uid)
        elif pod.node_name:
            state.observe(pod)
        else:
            # The API server accepted our Binding and shows the pod without a node: it went back in time.
            state.log("bound_pod_pending", level="error", pod_uid=uid)
            state.cluster.forget(uid)
            state.see_pending(pod)

    def compare(self, bound: Mapping[str, BoundPod], *, reservations: bool = True) -> None:
        """A full list came. What it and the last one show differently from the cache is put right. ``reservations``
        False: without them, since they were not ours to list."""
        state = self._state
        accounts = state.cache.accounts
        odd = {uid for uid, pod in bound.items() if uid not in accounts or accounts[uid].node_name != pod.node}
        odd |= {uid for uid, account in accounts.items() if account.assumed_at is None and uid not in bound}
        kept = state.cluster.reserved.standing.keys()
        odd -= kept - accounts.keys() if reservations else kept  # whose room a pod has taken
        for uid in sorted(odd & self._suspects):
            state.stats.cache_suspects += 1
            state.log("cache_differs", level="error", pod_uid=uid, listed=uid in bound, accounted=uid in accounts)
            if uid in bound:
                self._asked.add(uid)
                state.emit(ReadPod(uid, bound[uid].namespace, bound[uid].name))
            else:
                state.cluster.forget(uid)
        self._suspects = odd

    def orphans(self, idle: Mapping[str, StoredIntent]) -> dict[str, StoredIntent]:
        """Of the intents that nobody here waits for, those that were the same one sweep ago.

        One look is not enough: a list taken before a delete that has been made since shows what is no longer there.
        """
        twice = {key: stored for key, stored in idle.items() if self._idle.get(key) == stored}
        self._idle = {key: stored for key, stored in idle.items() if key not in twice}
        return twice

    def _count_some(self) -> None:
        for name in recount(self._state.cache, self._uncounted[-COUNTED_AT_ONCE:]):
            self._state.log("cache_miscounted", level="error", node=name)
        del self._uncounted[-COUNTED_AT_ONCE:]

    def _sweep(self) -> None:
        state = self._state
        state.emit(ListIntents())
        late = state.cache.overdue(state.now, state.settings.confirm_after_s)
        reads = 0
        for account in late:
            name = self._names.get(account.uid)
            # A unit on its way ends by its own answers, or by a read of its own where one is missing.
            if account.uid in state.in_flight or name is None or reads >= MAX_READS:
                continue
            reads += 1
            state.stats.late_confirmations += 1
            self._asked.add(account.uid)
            state.emit(ReadPod(account.uid, *name))
