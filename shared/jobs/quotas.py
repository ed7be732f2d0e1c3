"""What Queues leave to training jobs, read before anything is decided, by the very tree that the coordinator asks.
Pure.

    before the policy   a job that a limit holds back is not shown: it neither blocks others nor is given what its pods
                        would not get; of any other the maximum is what its queue leaves it        ``shown``
    after the policy    jobs that share a limit are dealt what is below it: who is below its minimum first, from what
                        others of that queue have above theirs; then one worker at a time to who has the least of what
                        it asked for; nobody grows in a queue in which one waits                   ``dealt``
    and                 a job whose queue is guaranteed what it needs, and takes back what it lent, gets it from those
                        that borrowed: first what they have above their minimum, then whole jobs that may be stopped.
                        What others' pods borrowed the coordinator takes back, once there are pods that wait for it

Nobody is stopped because a limit was lowered below the use: the coordinator takes that back, where a Queue says so.
Limits, guarantees and what is kept: ``shared/scheduling/queues``; whose turn it is below one limit: ``elastic``.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from shared.jobs.bounds import Allowed, capacity
from shared.jobs.observation import JobAllocation, JobObservation, JobsObservation
from shared.model.resources import GPU_MILLI, MILLI_PER_DEVICE
from shared.model.units.queue import Queue, UnitOrder
from shared.scheduling.queues.nodes import Amounts, Blocked, Charge, QueueLine, QueueNode
from shared.scheduling.queues.tree import QueueTree

EPSILON = 1e-9


class QuotaClaim(Struct, frozen=True):
    """How a job counts in queues. ``label``: the queue that it names, "" for its namespace's; ``worker``: what one of
    them asks for; ``servers``: what all its parameter servers do, beside any number of workers; ``gpu``: the resource
    by which it asks for GPUs, "" for none; ``held`` False: another scheduler places it, and no limit holds it back."""

    label: str
    namespace: str
    worker: Amounts
    servers: Amounts = ()
    gpu: str = ""
    held: bool = True


class Used(Struct, frozen=True):
    """What pods of one namespace that name one queue, or none, hold: those that are no job's here."""

    label: str
    namespace: str
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class ShownJobs:
    """``seen``: what the policy is shown; ``held``: jobs that it is not shown, by the limit that holds them;
    ``limited``: those whose growth a limit holds."""

    seen: JobsObservation
    held: dict[str, Blocked]
    limited: dict[str, Blocked]


class Quotas:
    """The queues at one moment, and how many workers of each job count in them."""

    def __init__(
        self, queues: Iterable[Queue], totals: Mapping[str, int], used: Iterable[Used], claims: Mapping[str, QuotaClaim]
    ) -> None:
        self._tree = QueueTree()
        self._claims = claims
        for queue in queues:
            self._tree.put_queue(queue)
        self._tree.set_capacity(totals)
        self._tree.charge(
            *(
                Charge(f"pods:{number}", one.namespace, one.label, one.amounts, f"pods:{number}")
                for number, one in enumerate(used)
            )
        )

    def count(self, job: str, workers: int) -> None:
        """So many workers of the job count from now on."""
        claim = self._claims.get(job)
        if claim is None:
            return
        if workers:
            amounts = _times(claim.worker, workers, claim.servers)
            self._tree.charge(Charge(job, claim.namespace, claim.label, amounts, job))
        else:
            self._tree.release(job)

    def blocked(self, job: str, more: int, *, starts: bool = False) -> Blocked | None:
        """The limit that so many more workers of the job would exceed; ``starts``: with its parameter servers."""
        claim = self._claims.get(job)
        if claim is None or not claim.held or more <= 0:
            return None
        return self._tree.blocked(self.line(job), _times(claim.worker, more, claim.servers if starts else ()))

    def line(self, job: str) -> QueueLine:
        """The line of the queue that the job is in."""
        claim, tree = self._claims[job], self._tree
        node = tree.structure.nodes.get(tree.line_name(claim.label, claim.namespace))
        if node is None:  # a queue that is named and that nobody has spoken of yet
            tree.charge(Charge(f"names:{claim.label}", claim.namespace, claim.label, (), f"names:{claim.label}"))
            node = tree.structure.nodes[claim.label]
        return node.own

    def queue_of(self, job: str) -> str:
        """The name of the queue that the job is in; "" for none."""
        claim = self._claims.get(job)
        return self._tree.line_name(claim.label, claim.namespace) if claim is not None else ""

    def below(self, job: str, node: QueueNode) -> bool:
        """Whether the limits of this queue hold for the job."""
        claim = self._claims.get(job)
        return claim is not None and claim.held and node in _chain(self.line(job))

    def entitled(self, job: JobObservation) -> bool:
        """Whether the job may take back what its queue lent: its minimum is within what is guaranteed to it."""
        claim = self._claims.get(job.name)
        if claim is None or not claim.held or not claim.gpu:
            return False
        home = self.line(job.name).parent
        return home is not None and home.queue.reclaim and claim.gpu in home.guaranteed and home.within(self.asks(job))

    def asks(self, job: JobObservation) -> Amounts:
        """What the job counts where it has its minimum."""
        claim = self._claims[job.name]
        return _times(claim.worker, job.minimum, claim.servers)

    def delay_s(self, job: str) -> float:
        """So long it waits first."""
        home = self.line(job).parent
        return home.queue.reclaim_after_s if home is not None else 0.0

    def borrows(self, job: str, owner: str) -> bool:
        """Whether the job has GPUs that are guaranteed to the owner's queue, or to one above it: it and each queue
        above it, below the one that both have in common, uses more than its own (S1 of ``queues/reclaim/owed.py``)."""
        claim = self._claims.get(job)
        return claim is not None and bool(claim.gpu) and self._beyond(self.line(job), claim.gpu, self.line(owner)) > 0

    def lent_to_pods(self, owner: str) -> int:
        """How much of the owner's resource for GPUs pods that are no job's have beyond what is guaranteed to them."""
        gpu, ours = self._claims[owner].gpu, self.line(owner)
        lines = {one.line: one for one in self._tree.charges.values() if one.uid.startswith("pods:") and one.line}
        found = 0
        for line in lines:
            there = sum(dict(one.amounts).get(gpu, 0) for one in line.charges.values() if one.uid.startswith("pods:"))
            found += min(there, self._beyond(line, gpu, ours))
        return found

    def of_one_gpu(self, job: str) -> int:
        """How much of the job's resource for GPUs one of them is."""
        return MILLI_PER_DEVICE if self._claims[job].gpu == GPU_MILLI else 1

    def minimum_run_s(self, job: str) -> float:
        """So long a job of this queue runs before it gives anything back."""
        home = self.line(job).parent
        return home.queue.min_run_s if home is not None else 0.0

    def first_come(self, job: str) -> bool:
        """Whether nobody goes past a job of its queue that waits."""
        return self._claims[job].held and self.line(job).order is UnitOrder.FIFO

    def _beyond(self, line: QueueLine, name: str, owner: QueueLine) -> int:
        """What the line, and each queue above it up to what it has in common with the owner, uses above its own."""
        if line is owner:
            return 0
        above = _chain(owner)
        least, node = line.used.get(name, 0), line.parent
        while node is not None and node not in above:
            least = min(least, node.used.get(name, 0) - node.guaranteed.get(name, 0))
            node = node.parent
        return max(0, least)


def shown(seen: JobsObservation, quotas: Quotas, ours: Collection[str]) -> ShownJobs:
    """What the policy may see. All of a queue that could shrink is taken for shrunk where one waits for its minimum."""
    held: dict[str, Blocked] = {}
    limited: dict[str, Blocked] = {}
    for job in seen.jobs:
        quotas.count(job.name, min(job.workers, job.minimum) if job.name in ours else job.workers)
    waits: dict[QueueLine, Blocked] = {}
    for job in sorted(seen.jobs, key=lambda job: (job.submitted, job.name)):
        if job.name not in ours or job.workers >= job.minimum:
            continue
        blocked = quotas.blocked(job.name, job.minimum - job.workers, starts=not job.workers)
        if quotas.first_come(job.name):
            blocked = waits.get(quotas.line(job.name), blocked)
            if blocked is not None:
                waits[quotas.line(job.name)] = blocked
        if blocked is not None:
            held[job.name] = blocked
    for job in seen.jobs:
        quotas.count(job.name, job.workers)
    jobs = []
    for job in seen.jobs:
        if job.name not in ours:
            jobs.append(job)
        elif job.name not in held:
            most, blocked = _most(job, quotas)
            if blocked is not None and most < job.requested:
                limited[job.name] = blocked
            jobs.append(replace(job, maximum=most, requested=min(job.requested, most)))
        elif job.workers:  # its minimum was raised over what its queue leaves: it runs on as it does
            kept = {"minimum": job.workers, "maximum": job.workers, "requested": job.workers}
            jobs.append(replace(job, **kept))
    return ShownJobs(replace(seen, jobs=tuple(jobs)), held, limited)


def _most(job: JobObservation, quotas: Quotas) -> tuple[int, Blocked | None]:
    """(the most workers that its limits leave it, from what it has or its minimum on, the limit that holds the
    next)."""
    low, high = max(job.workers, job.minimum), max(job.maximum, job.workers, job.minimum)
    first = low
    while low < high:
        middle = (low + high + 1) // 2
        if quotas.blocked(job.name, middle - job.workers, starts=not job.workers) is None:
            low = middle
        else:
            high = middle - 1
    if low >= max(job.maximum, first):
        return low, None
    return low, quotas.blocked(job.name, low + 1 - job.workers, starts=not job.workers)


class QuotaVerdict(Struct, frozen=True):
    """``allowed``: what is carried out; ``held``: the limit that holds back what was decided for a job."""

    allowed: Allowed
    held: dict[str, Blocked]


class _Dealing:
    """One decision. ``seen``: all jobs as they are, also those that the policy was not shown."""

    def __init__(
        self,
        seen: JobsObservation,
        allowed: Allowed,
        quotas: Quotas,
        *,
        ours: Collection[str],
        may_stop: Collection[str],
        held: Mapping[str, Blocked],
    ) -> None:
        self.seen, self.quotas, self.ours, self.may_stop = seen, quotas, ours, may_stop
        self.changes, self.refused = dict(allowed.changes), dict(allowed.refused)
        self.order = sorted(seen.jobs, key=lambda job: (-job.priority, job.submitted, job.name))
        self.wants = {job.name: self.changes[job.name].workers if job.name in self.changes else job.workers
                      for job in seen.jobs}  # fmt: skip
        self.given = {job.name: min(job.workers, self.wants[job.name]) for job in seen.jobs}
        self.held = dict(held)
        self._spare: list[JobObservation] = []
        for job in seen.jobs:
            quotas.count(job.name, self.given[job.name])

    def give(self, job: str, workers: int) -> None:
        self.given[job] = workers
        self.quotas.count(job, workers)

    def minima(self) -> None:
        """Who is to start, or to reach its minimum, in order."""
        waits: dict[QueueLine, Blocked] = {}
        self._spare = [
            job for job in reversed(self.order) if job.name in self.ours and self.given[job.name] > job.minimum
        ]
        for job in self.order:
            lacks = job.minimum - self.given[job.name]
            if job.name not in self.ours or self.wants[job.name] < job.minimum or lacks <= 0:
                continue
            first_come = self.quotas.first_come(job.name)
            blocked = self.quotas.blocked(job.name, lacks, starts=not self.given[job.name])
            if first_come and blocked is None:
                blocked = waits.get(self.quotas.line(job.name))
                if blocked is not None:
                    self.held[job.name] = blocked
                    continue
            if blocked is None or self._make_room(job, lacks, blocked):
                self.give(job.name, job.minimum)
                continue
            self.held[job.name] = blocked
            if first_come:
                waits.setdefault(self.quotas.line(job.name), blocked)

    def _make_room(self, job: JobObservation, lacks: int, blocked: Blocked) -> bool:
        """Take what others below that limit have above their minimum, the least important and youngest first; nothing
        where that is not enough."""
        found: Blocked | None = blocked
        taken: dict[str, int] = {}
        for other in self._spare:
            before = self.given[other.name]
            while (
                other is not job
                and found is not None
                and self.given[other.name] > other.minimum
                and self.quotas.below(other.name, found.node)
            ):
                taken.setdefault(other.name, before)
                self.give(other.name, self.given[other.name] - 1)
                found = self.quotas.blocked(job.name, lacks, starts=not self.given[job.name])
            if found is None:
                return True
        for name, workers in taken.items():
            self.give(name, workers)
        return False

    def growth(self) -> None:
        """What is wished beyond that, one worker at a time. Who waits for what can come keeps others from growing."""
        closed = [blocked.node for blocked in self.held.values() if not blocked.never and not blocked.problem]
        taken = {job.name for job in self.seen.jobs if self.given[job.name] < min(job.workers, self.wants[job.name])}
        heap = [(self.given[job.name] / max(1, job.requested), number, job) for number, job in enumerate(self.order)]
        heap = [item for item in heap if item[2].name in self.ours and item[2].name not in taken]
        heapq.heapify(heap)
        while heap:
            _, number, job = heapq.heappop(heap)
            given = self.given[job.name]
            if not given or given >= self.wants[job.name]:
                continue
            blocked = self.quotas.blocked(job.name, 1)
            behind = next((node for node in closed if self.quotas.below(job.name, node)), None)
            if blocked is None and behind is None:
                self.give(job.name, given + 1)
                heapq.heappush(heap, ((given + 1) / max(1, job.requested), number, job))
            elif blocked is not None:
                self.held[job.name] = blocked

    def reclaim(self) -> None:
        """What queues lent comes back to those that are guaranteed it and wait."""
        free = self._free()
        lenders = [other for other in reversed(self.order) if self._may_give(other, whole=False)]
        failed: dict[QueueLine, list[dict[str, int]]] = {}
        for job in self.order:
            if job.name not in self.ours or self.given[job.name]:
                continue
            waited = self.seen.now - job.submitted
            if not self.quotas.entitled(job) or waited < self.quotas.delay_s(job.name):
                continue
            asks = dict(self.quotas.asks(job))
            in_vain = failed.setdefault(self.quotas.line(job.name), [])
            if any(all(asks.get(name, 0) >= amount for name, amount in less.items()) for less in in_vain):
                continue  # one of its queue that asks for no more got nothing
            needs = job.minimum * job.gpus_per_worker + job.server_gpus
            left = self._take_back(job, needs, free, lenders)
            if left is None:
                in_vain.append(asks)
                continue
            if left > free:
                failed.clear()  # a whole job gave more than was asked for
            free = left
            lenders = [other for other in lenders if self.given[other.name]]
            self.give(job.name, job.minimum)
            self.wants[job.name] = job.minimum
            self.held.pop(job.name, None)
            self.refused.pop(job.name, None)

    def _take_back(
        self, job: JobObservation, needs: float, free: float, lenders: Iterable[JobObservation]
    ) -> float | None:
        """GPUs that are free once the job has what it needs; None: it cannot, and nothing is taken."""
        taken: dict[str, int] = {}
        for whole in (False, True):
            for other in lenders:
                if other is job or not self._may_give(other, whole=whole):
                    continue
                while (free + EPSILON < needs or self._blocked(job)) and self.quotas.borrows(other.name, job.name):
                    given = self.given[other.name]
                    left = given - 1 if given > other.minimum else 0
                    if given == 0 or (left == 0 and not whole):
                        break
                    taken.setdefault(other.name, given)
                    self.give(other.name, left)
                    free += (given - left) * other.gpus_per_worker + (other.server_gpus if not left else 0.0)
                if free + EPSILON >= needs and not self._blocked(job):
                    return free - needs
        # what pods of others borrowed is the coordinator's to take back: it does so for pods that wait
        lent = 0.0
        if free + EPSILON < needs:
            lent = self.quotas.lent_to_pods(job.name) / self.quotas.of_one_gpu(job.name)
        if free + lent + EPSILON >= needs and not self._blocked(job):
            return free - needs
        for name, workers in taken.items():
            self.give(name, workers)
        return None

    def _may_give(self, other: JobObservation, *, whole: bool) -> bool:
        if other.name not in self.ours or not self.given[other.name] or other.gpus_per_worker <= 0:
            return False
        if not other.workers:
            return True  # it has not begun: nothing is lost
        young = other.since_change_s < self.quotas.minimum_run_s(other.name)
        return not young and (not whole or other.name in self.may_stop)

    def _blocked(self, job: JobObservation) -> bool:
        return self.quotas.blocked(job.name, job.minimum, starts=True) is not None

    def _free(self) -> float:
        held = sum(
            self.given[job.name] * job.gpus_per_worker + (job.server_gpus if self.given[job.name] else 0.0)
            for job in self.seen.jobs
        )
        return capacity(self.seen) - held

    def dealt(self) -> QuotaVerdict:
        for job in self.seen.jobs:
            given, wanted = self.given[job.name], self.changes.get(job.name)
            if given == job.workers and (wanted is None or wanted.workers == job.workers):
                continue
            if wanted is not None and wanted.workers == given:
                continue
            if given == job.workers and wanted is not None and wanted.batch in (None, job.batch_now):
                del self.changes[job.name]
                continue
            batch = wanted.batch if wanted is not None else None
            self.changes[job.name] = JobAllocation(workers=given, batch=batch)
        return QuotaVerdict(Allowed(self.changes, self.refused), self.held)


def dealt(
    seen: JobsObservation,
    allowed: Allowed,
    quotas: Quotas,
    *,
    ours: Collection[str],
    may_stop: Collection[str],
    held: Mapping[str, Blocked],
) -> QuotaVerdict:
    """What of a policy's decision is carried out. ``held``: jobs that it was not shown."""
    dealing = _Dealing(seen, allowed, quotas, ours=ours, may_stop=may_stop, held=held)
    dealing.minima()
    dealing.reclaim()
    dealing.growth()
    return dealing.dealt()


def _times(worker: Amounts, count: int, beside: Amounts) -> Amounts:
    found = {name: amount * count for name, amount in worker}
    for name, amount in beside:
        found[name] = found.get(name, 0) + amount
    return tuple(sorted(found.items()))


def _chain(line: QueueLine) -> list[QueueNode]:
    found, node = [], line.parent
    while node is not None:
        found.append(node)
        node = node.parent
    return found
