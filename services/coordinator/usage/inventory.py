"""Which workloads stand on which nodes: into the coordinator's own store, and to each agent about its nodes.

    rows whose accounting changed --who stands there now?--> stays that began or ended --> store, journal
    journal, nodes new to an agent's view, what the store learned --> what its next offer tells (``wire.Residents``)

Only while a policy looks at what workloads use: then each batch of events compares the pods of the changed rows with
those known, and offers carry some 12 bytes per stay. Else nothing here runs, and nothing on the way of a pod knows of
it. A stay has a number that is never given twice in a term, so that telling it again changes nothing. Pods that stood
before anybody looked are taken to be old. What workloads use is learned here, where all nodes are seen, and told.

Amounts are accounted in ``cache.py``, use is learned in ``policy/usage``; agents get numbers, no names (ADR 0008).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from services.coordinator.agents.views import AgentView, Heard
from services.coordinator.core.state import CoordinatorState
from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY
from shared.policy.usage.class_usage import BASE, OTHER
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import requested_of, scale_of
from shared.wire.bounds import MAX_COUNT, MAX_FEATURE
from shared.wire.residents import MAX_PRIORITY, Residents, StandingPod, WorkloadName, WorkloadUse

OLD_S = 3600.0
"""Age that a pod gets which stood before anybody looked: old enough for every window."""

MAX_PER_OFFER = 8192
"""Stays told in one offer (some 100 KB); what is beyond waits for the next one."""

MAX_JOURNAL = 65_536
"""Changes remembered for agents that have not been told; one that is further behind is told everything anew."""

MOST_BEHIND = 512
"""Changes of all nodes that an agent looks through for its own, some 25 us, though fewer pods stand on its nodes."""

MAX_NAMES = 4096
"""Workload numbers beyond those in use that an agent is made to remember before it is told everything anew."""

MAX_RISEN = 1024
"""Rises of priorities remembered; then everything is told anew."""

MAX_WORKLOADS = 65_536
"""Workloads numbered beyond those in use; then numbers are given anew, and everything told anew."""

Want = tuple[str, PodClass]
"""A workload that an offer speaks of, and a class of its pods."""


@dataclass(slots=True)
class _Stay:
    """One pod on one node; ``since_s`` of the core's clock."""

    node: str
    workload: str
    pod_class: PodClass
    since_s: float


class WorkloadInventory:
    """One term's. ``follow`` before ``rank``, that before ``tell``; ``stop`` when no policy looks."""

    def __init__(self, state: CoordinatorState, store: UtilisationStore) -> None:
        self._state = state
        self._store = store
        self._running = False
        self._number = 0
        self._stamp = self._static = -1
        self._on: dict[str, dict[str, int]] = {}
        self._stays: dict[int, _Stay] = {}
        self._journal: list[tuple[str, int, bool]] = []
        self._cut = 0
        self._ids: dict[str, int] = {}
        self._workload_of: dict[int, str] = {}
        """By number."""
        self._risen: list[tuple[str, PodClass]] = []
        """Workloads whose priority has risen, to be told again to who knows them."""
        self._given = OTHER  # numbers up to it are those of the columns of no workload
        self._session = 0
        self._lesson = 0

    def follow(self) -> None:
        """Take over who stands where now."""
        table, index = self._state.cache.table, self._state.cluster.index
        age_s = 0.0 if self._running else OLD_S
        self._running = True
        self._prune()
        self._store.advance(self._state.now)  # here too: pods come and go, and grow old, where nothing is offered
        if self._static != table.static_stamp:
            self._static = table.static_stamp
            self._leave([name for name in self._on if name not in table.row_of])
        for row in table.changed_since(self._stamp).tolist():
            name = table.names[row]
            if not name:
                continue
            known, present = self._on.setdefault(name, {}), index.uids_on(name)
            if known.keys() == present:
                continue
            for uid in [uid for uid in known if uid not in present]:
                self._end(name, known.pop(uid))
            for pod in index.pods_on(name):
                if pod.uid not in known:
                    self.rank(pod.workload, pod.pod_class, pod.priority)
                    known[pod.uid] = self._begin(name, pod.workload, pod.pod_class, age_s)
        self._stamp = table.clock
        if len(self._journal) > 2 * MAX_JOURNAL:  # however many came at once: what an agent is told has a bound too
            self._cut += len(self._journal) - MAX_JOURNAL
            del self._journal[:-MAX_JOURNAL]

    def stop(self) -> None:
        """No policy looks any more: forget everything, numbers excepted."""
        if not self._running:
            return
        self._running = False
        self._stamp = self._static = -1
        self._session += 1
        self._cut += len(self._journal)
        for known in (
            self._on, self._stays, self._journal, self._ids, self._workload_of, self._risen, self._store.priorities,
        ):  # fmt: skip
            known.clear()
        self._store.forget_pods()

    def tell(self, view: AgentView, wants: Iterable[Want]) -> Residents | None:
        """What the next offer to the agent says; None while no policy looks. Counts as told from here on."""
        if not self._running:
            return None
        heard, anew = view.heard, False
        if heard is None or self._behind(heard):
            heard = view.heard = Heard(self._session, self._cut + len(self._journal), risen=len(self._risen))
            anew = True
        ended = self._catch_up(heard)
        if heard.moves != view.moves:
            self._meet(heard, view)
        names: list[WorkloadName] = []
        stands = [self._standing(heard, number, names) for number in self._next(heard)]
        for workload, pod_class in wants:
            self._id(heard, workload, pod_class, names)
        for workload, pod_class in self._risen[heard.risen :]:
            if self._ids.get(workload) in heard.names:
                heard.names.discard(self._ids[workload])
                self._id(heard, workload, pod_class, names)
        heard.risen = len(self._risen)
        uses = self._uses(heard, names)
        return Residents(names, stands, ended, anew, uses) if anew or names or stands or ended or uses else NOTHING

    def rank(self, workload: str, pod_class: PodClass, priority: int) -> int | None:
        """A pod of the workload has that priority; the workload's. Of several the highest counts, so that none is told
        in turns. None: of no workload, or no policy looks."""
        if not workload or not self._running:
            return None
        priority = max(-MAX_PRIORITY, min(priority, MAX_PRIORITY))
        known = self._store.priorities.get(workload)
        if known is not None and priority <= known:
            return known
        self._store.priorities[workload] = priority
        if known is not None:
            self._risen.append((workload, pod_class))
            if len(self._risen) > MAX_RISEN:
                self._risen.clear()
                self._session += 1
        return priority

    def learned(self) -> None:
        """The store took new measurements: agents are told what came of them."""
        self._lesson += 1

    def id_of(self, workload: str) -> int:
        """The workload's number, once it was told; 0: none."""
        return self._ids.get(workload, 0) if workload else 0

    def _prune(self) -> None:
        """Forget workloads of which no pod stands anywhere, once they are too many."""
        if max(len(self._ids), len(self._store.priorities)) <= MAX_WORKLOADS + len(self._stays):
            return
        self._ids.clear()
        self._workload_of.clear()
        for gone in self._store.priorities.keys() - {stay.workload for stay in self._stays.values()}:
            del self._store.priorities[gone]
        self._session += 1

    # --- stays ----------------------------------------------------------------------------------------------------

    def _begin(self, node: str, workload: str, pod_class: PodClass, age_s: float) -> int:
        self._number += 1
        since_s = self._state.now - age_s
        self._stays[self._number] = _Stay(node, workload, pod_class, since_s)
        self._journal.append((node, self._number, True))
        requested = None
        if workload not in self._store.usage.workloads:  # what the first one asks for is what is expected of all
            table = self._state.cache.table
            most = scale_of(table, table.row_of[node])  # whatever a pod asks for, it uses no more than its node has
            requested = np.minimum(requested_of(pod_class), most)
        self._store.bound(str(self._number), node, workload, now_s=since_s, requested=requested)
        return self._number

    def _end(self, node: str, number: int) -> None:
        del self._stays[number]
        self._journal.append((node, number, False))
        self._store.ended(str(number), now_s=self._state.now)

    def _leave(self, nodes: list[str]) -> None:
        """Nodes are gone; agents forget theirs by the view."""
        for name in nodes:
            for number in self._on.pop(name).values():
                self._end(name, number)
        self._store.forget([name for name in self._store.nodes if name not in self._state.cache.table.row_of])

    # --- what agents hear -----------------------------------------------------------------------------------------

    def _behind(self, heard: Heard) -> bool:
        """Whether changes alone do not help the agent any more, it would have to remember too much, or they are more
        than what stands on its nodes: one that is asked now and then would look through all that happened to others."""
        lag = self._cut + len(self._journal) - heard.seen
        return (
            heard.session != self._session
            or heard.seen < self._cut
            or len(heard.names) > MAX_NAMES + len(self._stays)
            or (lag > MOST_BEHIND and lag > sum(len(self._on.get(name, ())) for name in heard.slots))
        )

    def _catch_up(self, heard: Heard) -> list[int]:
        """The stays that ended of those it was told of; those that began wait to be told."""
        ended = []
        for node, number, began in self._journal[heard.seen - self._cut :]:
            if node not in heard.slots:
                continue
            if began:
                heard.waiting[number] = None
            elif number in heard.waiting:
                del heard.waiting[number]
            else:
                ended.append(number)
        heard.seen = self._cut + len(self._journal)
        return ended

    def _meet(self, heard: Heard, view: AgentView) -> None:
        """Nodes came into the agent's view, or left it."""
        heard.moves = view.moves
        slots = {name: (slot, move) for name, (slot, _, move) in view.sent.items()}
        for name, came in slots.items():
            if heard.slots.get(name) != came:
                heard.waiting.update(dict.fromkeys(self._on.get(name, {}).values()))
        heard.slots = slots

    def _next(self, heard: Heard) -> list[int]:
        """The numbers to be told now."""
        found: list[int] = []
        while heard.waiting and len(found) < MAX_PER_OFFER:
            number = next(iter(heard.waiting))
            del heard.waiting[number]
            stay = self._stays.get(number)
            if stay is not None and stay.node in heard.slots:
                found.append(number)
        return found

    def _standing(self, heard: Heard, number: int, names: list[WorkloadName]) -> StandingPod:
        stay = self._stays[number]
        age_ms = max(0, round((self._state.now - stay.since_s) * 1000))
        workload = self._id(heard, stay.workload, stay.pod_class, names)
        return StandingPod(number, heard.slots[stay.node][0], workload, age_ms)

    def _uses(self, heard: Heard, fresh: list[WorkloadName]) -> list[WorkloadUse]:
        """What is known of the use of workloads: of all that the agent knows after a lesson, else of the new ones. What
        was not measured yet is left out: an agent may know better, from the leader before."""
        usage = self._store.usage
        if heard.lesson == self._lesson:
            if not fresh:
                return []
            columns = self._columns({name.id for name in fresh})
        else:
            heard.lesson = self._lesson
            columns = {BASE: BASE, OTHER: OTHER, **self._columns(heard.names)}
        use = usage.use
        return [
            WorkloadUse(number, _told(use[column].tolist()), round(usage.evidence(column), 3))
            for column, number in columns.items()
            if usage.evidence(column) > 0.0
        ]

    def _columns(self, numbers: Collection[int]) -> dict[int, int]:
        """Workload number by column, of those of these workloads that have one."""
        known = self._store.usage.workloads
        named = ((known.get(self._workload_of.get(number, "")), number) for number in sorted(numbers))
        return {column: number for column, number in named if column is not None}

    def _id(self, heard: Heard, workload: str, pod_class: PodClass, names: list[WorkloadName]) -> int:
        """The workload's number, told where the agent does not know it; 0: none."""
        if not workload:
            return 0
        number = self._ids.get(workload)
        if number is None:
            self._given += 1
            number = self._ids[workload] = self._given
            self._workload_of[number] = workload
        if number not in heard.names:
            heard.names.add(number)
            amounts = dict(pod_class.requests)
            key = blake2b(workload.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            cpu_millis, memory_bytes = (min(amounts.get(name, 0), MAX_COUNT) for name in (CPU, MEMORY))
            priority = self._store.priorities.get(workload)
            names.append(WorkloadName(number, key, cpu_millis, memory_bytes, priority))
        return number


def _told(shares: list[float]) -> list[float]:
    """As the wire takes them: a message with one number out of bounds would be refused as a whole."""
    return [min(round(share, 6), MAX_FEATURE) for share in shares]


NOTHING = Residents()
"""Nothing changed, and policies do look."""
