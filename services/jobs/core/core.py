r"""The core of the jobs service: what the watches show goes in, writes come out. Pure: ``now`` is an argument.

    job, pod, node, group seen --> touched jobs --> status as it should be --differs--> WriteStatus (resourceVersion)
    report, answer of a write -->       |   ^                                              |
                                        v   +------------- the watch shows it -------------+
                             pods as the status wants them --> Create, Delete, PatchMinimum

A decision is in the status before anything is done for it; what is done is compared with what is seen, again and again.
So it does not matter where we died, or what was delivered twice. One write per object at a time; one that failed waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from services.jobs.core import assess, trial
from services.jobs.core.deciding import Deciding
from services.jobs.core.events import (
    Event,
    JobGone,
    JobSeen,
    JobsListed,
    JobsNodeGone,
    JobsNodeSeen,
    JobsPodGone,
    JobsPodSeen,
    MadeGone,
    MadeSeen,
    QueueGone,
    QueueSeen,
    Reported,
    RolloutSeen,
    WriteAnswered,
    WriteOutcome,
)
from services.jobs.core.instructions import (
    CreateObject,
    DeleteObject,
    Instruction,
    TellEvent,
    WriteRollout,
    WriteStatus,
)
from services.jobs.core.members import plan
from services.jobs.core.observing import observe, why_waiting, without
from services.jobs.core.phases import check_move
from services.jobs.core.quotas import NEVER_WRITTEN, quotas_of
from services.jobs.core.reporting import recall_annotations, take_annotation, take_report
from services.jobs.core.state import POD, JobsState, JobState, Target, job_of_target
from services.jobs.core.stats import JobsStats
from services.jobs.core.unplaced import watch_places
from shared.backoff import backoff_s
from shared.decide.rollout import Rollout
from shared.errors import InvalidState
from shared.jobs.observation import JobAllocation, JobsObservation
from shared.jobs.quotas import dealt, shown
from shared.kube.training.training_jobs import TRAINING_JOBS
from shared.kube.training.worker_pods import refused
from shared.model.controllers.training_job import ENDED, WORKER, JobPhase, TrainingJob, WorkerPod
from shared.scheduling.queues.nodes import Blocked
from shared.scheduling.queues.structure import bindings_of
from shared.turns import Log, Tick

JOB = TRAINING_JOBS.kind
UNSEEN = 3
"""So often an object that is there may stay unseen by the watch, which is later than the answer, before it is told."""
LOOK_S = 30.0
"""A job that is active is looked at so often, whatever happens."""


class JobsCore:
    """``handle_all`` is all there is; ``wake_at`` says when to come back with a ``Tick``."""

    def __init__(self, state: JobsState, deciding: Deciding, *, kinds: Iterable[str]) -> None:
        self.state = state
        self.deciding = deciding
        self.missing = set(kinds)
        """Kinds that are not listed yet: nothing is decided or written before."""
        self.stats = JobsStats()
        self.wake_at: float | None = None
        self._due: dict[str, float] = {}
        self._decide_at: float | None = None
        self._decided_at = float("-inf")
        self._out: list[Instruction] = []
        self._first_write = 1
        self._held_by_quota = False

    # --- a turn -------------------------------------------------------------------------------------------------

    def handle_all(self, events: Sequence[Event], now: float) -> list[Instruction]:
        """Take in all events, then look at every job that they touch or whose time has come."""
        self._out, self._first_write, self.state.now = [], self.state.writes.number + 1, now
        touched: dict[str, None] = {}
        for event in events:
            touched.update(dict.fromkeys(self._take(event, now)))
        if not self.missing:
            for target in self.state.writes.expire(now):
                touched[job_of_target(target)] = None
            if self._decide_at is not None and self._decide_at <= now:
                touched.update(dict.fromkeys(self._decide(now)))
            touched.update({key: None for key, at in self._due.items() if at <= now})
            for key in touched:
                if key in self.state.jobs:
                    self._look(self.state.jobs[key], now)
        self._set_wake(now)
        if self.state.settings.validate:
            self.validate()
        return self._out

    def validate(self) -> None:
        """Raises ``InvalidState``: an invariant does not hold."""
        from services.jobs.core.validate import broken

        lines = broken(self.state, self._due, ready=not self.missing, since=self._first_write)
        if lines:
            raise InvalidState(lines)

    def _set_wake(self, now: float) -> None:
        times = [*self._due.values()]
        if self._decide_at is not None:
            times.append(self._decide_at)
        settles = self.state.writes.wake_at(now)
        if settles is not None:
            times.append(settles)
        self.wake_at = min(times, default=None) if not self.missing else None

    # --- what comes in ------------------------------------------------------------------------------------------

    def _take(self, event: Event, now: float) -> Iterator[str]:
        """Keys of the jobs that it touches."""
        match event:
            case JobSeen(job):
                yield from self._see_job(job, now)
            case JobGone(key):
                self._forget(key, now)
            case JobsPodSeen(pod):
                yield from self._see_pod(pod, now)
            case JobsPodGone(uid):
                gone = self.state.pods.get(uid)
                if gone is not None:
                    self._drop_pod(gone, now)
                    self.state.timeline.gone(uid, self.state.wall(now))
                    self._forget_annotation(gone)
                    self.state.writes.shown((POD, gone.namespace, gone.name))
                    target = (POD, gone.namespace, gone.name)
                    self.state.writes.waits.pop(target, None)
                    key = job_of_target(target)
                    self._name_free(key, gone.job)
                    yield key
                    yield from self._members_changed(gone, now, gone=True)
            case JobsNodeSeen(node):
                if self.state.nodes.get(node.name) != node:
                    self.state.nodes[node.name] = node
                    self._decide_soon(now)
            case JobsNodeGone(name):
                if self.state.nodes.pop(name, None) is not None:
                    self._decide_soon(now)
            case QueueSeen(queue):
                written = replace(queue, written=NEVER_WRITTEN, times={}, resource_version="")
                if self.state.queues.get(queue.name) != written:
                    self.state.queues[queue.name] = written
                    self._queues_changed(now)
            case QueueGone(name):
                if self.state.queues.pop(name, None) is not None:
                    self._queues_changed(now)
            case MadeSeen(made):
                target = (made.kind, made.namespace, made.name)
                self.state.made[target] = made
                self.state.writes.shown(target)
                yield job_of_target(target)
            case MadeGone(kind, key):
                namespace, _, name = key.partition("/")
                target = (kind, namespace, name)
                theirs = self.state.made.pop(target, None)
                self.state.writes.shown(target)
                self.state.writes.waits.pop(target, None)
                if theirs is not None:
                    self._name_free(key, theirs.job)
                yield key
            case JobsListed(kind):
                if kind in self.missing:
                    self.missing.discard(kind)
                    if not self.missing:
                        yield from self._all_listed(now)
            case WriteAnswered():
                yield from self._answered(event, now)
            case Reported():
                self._count(take_report(self.state, event, now))
                yield event.key
            case RolloutSeen(rollout, revision):
                again = self.deciding.pair.read(rollout, revision)
                if again is not None:
                    self._out.append(WriteRollout(again, revision))
                self._decide_soon(now)
            case Tick():
                pass

    def _all_listed(self, now: float) -> Iterator[str]:
        """Once: pods may have been listed before the jobs that own them."""
        self._decide_soon(now)
        for accepted in recall_annotations(self.state, now):
            self._count(accepted)
        for pod in self.state.pods.values():
            self._note_place(pod, now)
        yield from self.state.jobs

    def _note_place(self, pod: WorkerPod, now: float) -> None:
        owner = self.state.job_of(pod)
        if owner is not None:
            self.state.timeline.see(pod, owner.job.key, self.state.wall(now))

    def _see_job(self, job: TrainingJob, now: float) -> Iterator[str]:
        known = self.state.jobs.get(job.key)
        if known is not None and known.job.uid != job.uid:
            self._forget(job.key, now)
            known = None
        if known is None:
            known = self.state.jobs[job.key] = JobState(job)
            self.state.key_of[job.uid] = job.key
            self._decide_soon(now)
        else:
            before = known.job
            assess.took_effect(known, before.status, job.status)
            known.job = job
            if before.resource_version != job.resource_version:
                self.state.writes.shown((JOB, job.namespace, job.name))
            if before.generation != job.generation:
                trial.end(known)
            tried = before.status.retry_at > job.status.retry_at
            if tried or (before.generation, before.ended, before.deleting) != (job.generation, job.ended, job.deleting):
                self._decide_soon(now)
        if job.paused or job.ended or _outdated(known):
            known.wish = None
        yield job.key

    def _forget(self, key: str, now: float) -> None:
        seen = self.state.jobs.pop(key, None)
        self._due.pop(key, None)
        if seen is not None:
            self.state.key_of.pop(seen.job.uid, None)
            self.state.writes.forget(key)
            self._decide_soon(now)

    def _see_pod(self, pod: WorkerPod, now: float) -> Iterator[str]:
        before = self.state.pods.get(pod.uid)
        if before == pod:
            return
        if before is not None:
            self._drop_pod(before, now)
        elif (owner := self.state.job_of(pod)) is not None:
            assess.count_time(self.state, owner, now)
        self.state.pods[pod.uid] = pod
        self._count_use(pod, 1, now)
        self.state.names[POD, pod.namespace, pod.name] = pod.uid
        self._note_place(pod, now)
        self._note_refusal(before, pod, now)
        if pod.job:
            self.state.of_job.setdefault(pod.job, {})[pod.uid] = pod
        self.state.writes.shown((POD, pod.namespace, pod.name))
        yield from self._members_changed(pod, now)
        if pod.job and pod.report and not self.missing and (before is None or before.report != pod.report):
            self._count(take_annotation(self.state, pod, now))

    def _drop_pod(self, pod: WorkerPod, now: float) -> None:
        seen = self.state.job_of(pod)
        if seen is not None:
            assess.count_time(self.state, seen, now)
        self.state.pods.pop(pod.uid, None)
        self._count_use(pod, -1, now)
        if self.state.names.get((POD, pod.namespace, pod.name)) == pod.uid:
            del self.state.names[POD, pod.namespace, pod.name]
        ours = self.state.of_job.get(pod.job)
        if ours is not None:
            ours.pop(pod.uid, None)
            if not ours:
                del self.state.of_job[pod.job]

    def _name_free(self, key: str, owner: str) -> None:
        """A job may have waited for the name of somebody else's object, also as one whose GPUs were given back."""
        seen = self.state.jobs.get(key)
        if seen is not None and owner != seen.job.uid:
            seen.freed = bool(seen.job.status.unplaced)

    def _note_refusal(self, before: WorkerPod | None, pod: WorkerPod, now: float) -> None:
        """A kubelet did not take it: made again at once, it would be refused at once, for ever."""
        seen = self.state.job_of(pod)
        if seen is None or not refused(pod) or (before is not None and refused(before)):
            return
        seen.refusals[pod.name] += 1
        seen.refusal = f"{pod.node}: {pod.cause}: {pod.message}"
        times, settings = seen.refusals[pod.name] - 1, self.state.settings
        if times:
            wait_s = backoff_s(times, first_s=settings.retry_first_s, most_s=settings.retry_most_s)
            seen.not_before = max(seen.not_before, self.state.wall(now) + wait_s)

    def _queues_changed(self, now: float) -> None:
        self.state.bindings = bindings_of(self.state.queues.values())[0]
        self._decide_soon(now)

    def _count_use(self, pod: WorkerPod, sign: int, now: float) -> None:
        """What a queue's limit left may be more by now, for a job that it holds back."""
        if self.state.usage.add(pod, sign) and self._held_by_quota:
            self._decide_soon(now)

    def _forget_annotation(self, pod: WorkerPod) -> None:
        seen = self.state.job_of(pod)
        if seen is not None:
            seen.read_annotations.pop(pod.uid, None)

    def _members_changed(self, pod: WorkerPod, now: float, *, gone: bool = False) -> Iterator[str]:
        """A pod of a job came, changed or went; or somebody else's, which holds or frees GPUs."""
        if pod.job:
            seen = self.state.job_of(pod)
            if seen is not None:
                assess.note_pod(self.state, seen, pod, gone=gone)
                yield seen.job.key
        if pod.gpu_milli and (not pod.job or not pod.holds or pod.role != WORKER):
            self._decide_soon(now)

    # --- answers ------------------------------------------------------------------------------------------------

    def _answered(self, event: WriteAnswered, now: float) -> Iterator[str]:
        writes = self.state.writes
        found = writes.answered(event.write)
        if found is None:
            return
        target, pending = found
        key, write = job_of_target(target), pending.write
        if isinstance(write, CreateObject) and target[0] == POD:
            if write.dry_run and trial.answered(self.state, target, write, event.outcome, event.message):
                self._decide_soon(now)
                yield key
                return
            if not write.dry_run and event.outcome is WriteOutcome.REFUSED and key in self.state.jobs:
                trial.end(self.state.jobs[key])
        match event.outcome:
            case WriteOutcome.DONE:
                writes.settle(target, now)
                if isinstance(pending.write, WriteStatus):
                    self._tell_change(pending.write, now)
            case WriteOutcome.EXISTS:
                self._exists(target, now)
            case WriteOutcome.STALE:
                writes.settle(target, now)  # what it is now is on its way to us
            case WriteOutcome.REFUSED | WriteOutcome.UNKNOWN:
                refused = event.outcome is WriteOutcome.REFUSED
                self.stats.writes_refused += refused
                text = f"{target[0]} {target[2]}: {event.message}"[:512] if refused else ""
                writes.failed(target, now, text)
                if key not in self.state.jobs:
                    del writes.waits[target]  # nobody will look for it again
                self._log(
                    "warning" if refused else "info",
                    "job_write_failed",
                    job=key,
                    target="/".join(target),
                    error=event.message,
                )
        yield key

    def _exists(self, target: Target, now: float) -> None:
        """The name is taken: by what we made before, which is seen or on its way to us, or by somebody else's."""
        state, kind = self.state, target[0]
        known = state.named(target) if kind == POD else state.made.get(target)
        if known is not None:
            state.writes.settle(target, now)  # whose it is, the next look sees
            return
        again = state.writes.waits[target].failures if target in state.writes.waits else 0
        what = f"{kind} {target[1]}/{target[2]} is there, says the API server, and no watch shows it; look at it"
        state.writes.failed(target, now, what if again >= UNSEEN else "")

    def _tell_change(self, write: WriteStatus, now: float) -> None:
        """Something became of the job: an event for people."""
        before, after = write.job.status, write.status
        self.state.timeline.note(write.job.key, before, after, self.state.wall(now))
        self.stats.restarts += after.restarts - before.restarts
        self.stats.failures += after.failures - before.failures
        if (before.phase, before.target, before.failures) == (after.phase, after.target, after.failures):
            return
        bad = after.phase is JobPhase.FAILED or after.failures > before.failures
        note = after.conditions[0].message if after.conditions else ""
        if before.target != after.target:
            note = f"{before.target} -> {after.target} workers; {note}"
        self._out.append(TellEvent(write.job, "Warning" if bad else "Normal", after.phase.value, note))
        self._log(
            "info", "job_moved", job=write.job.key, phase=after.phase.value, before=before.phase.value,
            target=after.target, attempt=after.attempt, restarts=after.restarts,
        )  # fmt: skip

    def _count(self, accepted: bool | None) -> None:
        if accepted is not None:
            self.stats.reports += 1
            self.stats.reports_refused += not accepted

    # --- decisions ----------------------------------------------------------------------------------------------

    def _decide_soon(self, now: float) -> None:
        at = max(now, self._decided_at + self.state.settings.decide_least_s)
        self._decide_at = at if self._decide_at is None else min(self._decide_at, at)

    def _decide(self, now: float) -> Iterator[str]:
        """Ask the policy. Where it fails, everything stays as it was decided last."""
        self._decided_at, self._decide_at = now, now + self.state.settings.decide_every_s
        seen = observe(self.state, now)
        for key in seen.untried:
            trial.begin(self.state.jobs[key])
            yield key
        if not seen.ours:
            return
        deciding, quotas = self.deciding, quotas_of(self.state, seen)
        view = shown(seen.observation, quotas, seen.ours) if quotas is not None else None
        asked = seen if view is None else without(seen, view)
        decided = deciding.decide(self.state, asked, now)
        allowed, held = decided.allowed, dict[str, Blocked]()
        if quotas is not None and view is not None:
            result = dealt(seen.observation, allowed, quotas, ours=seen.ours, may_stop=seen.may_stop, held=view.held)
            allowed, held = result.allowed, {**view.limited, **result.held}
        self._held_by_quota = bool(held)
        if decided.problem:
            self.stats.policy_failures += 1
            self._log("error", "policy_failed", policy=deciding.pair.teacher.name, error=decided.problem)
        if decided.rollout is not None:
            self._roll(decided.rollout)
        self.stats.decisions += 1
        self.stats.wishes_refused += len(allowed.refused)
        for key in seen.ours:
            yield from self._take_decision(
                key, asked.observation, allowed.refused.get(key, ""), allowed.changes.get(key), held.get(key)
            )

    def _roll(self, rollout: Rollout) -> None:
        """The candidate went back, or a window of it is over."""
        pair = self.deciding.pair
        before = pair.rollout
        if before.on and not rollout.on:
            self.stats.rollouts_back += 1
            self._log("warning", "rollout_back", candidate=before.candidate, stage=before.stage, reason=rollout.reason)
        self._out.append(WriteRollout(rollout, pair.revision))
        pair.became(rollout)

    def _take_decision(
        self, key: str, seen: JobsObservation, refused: str, change: JobAllocation | None, held: Blocked | None
    ) -> Iterator[str]:
        job = self.state.jobs[key]
        said, job.refused, job.quota = job.quota, refused, held
        if change is not None:
            job.wish = change
        idle = job.job.status.target == 0 and job.wish is None
        waits_for = why_waiting(seen, key, refused) if idle else ""
        if job.wish is not None or waits_for != job.waits_for or refused or said != held:
            job.waits_for = waits_for
            yield key

    # --- one job ------------------------------------------------------------------------------------------------

    def _look(self, seen: JobState, now: float) -> None:
        """Write its status where that is due, and make its pods what the status says."""
        job, writes = seen.job, self.state.writes
        self._due.pop(job.key, None)
        if job.deleting:
            return
        assess.watch_members(self.state, seen, now)
        watch_places(self.state, seen, now)
        for write in (*plan(self.state, seen, now), *trial.asks(self.state, seen, now)):
            self.stats.workers_made += (
                isinstance(write, CreateObject) and write.resource.kind == POD and not write.dry_run
            )
            self.stats.workers_removed += isinstance(write, DeleteObject) and write.resource.kind == POD
            self._out.append(write)
        status = assess.next_status(self.state, seen, now)
        check_move(job.uid, job.status.phase, status.phase, "look", list(seen.story))
        target = (JOB, job.namespace, job.name)
        at = assess.write_at(self.state, seen, status, now)
        if at is not None and at <= now:
            if writes.free(target, now):
                if status.phase is not job.status.phase or status.target != job.status.target:
                    seen.story.append(
                        f"{now:.3f} {job.status.phase.value} -> {status.phase.value}, target {status.target}"
                    )
                seen.written_at = now
                self._out.append(writes.send(target, lambda number: WriteStatus(number, job, status)))
            at = None
        writes.forget(job.key, over=now)
        self._look_again(seen, at, now)

    def _look_again(self, seen: JobState, write_at: float | None, now: float) -> None:
        job, offset = seen.job, self.state.offset
        times = [] if write_at is None else [write_at]
        if job.status.phase not in ENDED:
            if job.status.phase in assess.ACTIVE or job.status.phase is JobPhase.STOPPING:
                times.append(now + LOOK_S)
            if job.status.retry_at > now + offset:
                times.append(job.status.retry_at - offset)
            if seen.not_before > now + offset:
                times.append(seen.not_before - offset)
            if seen.finishing_since:
                times.append(max(now + assess.TELLING_S, seen.finishing_since + self.state.settings.finish_s - offset))
        if times:
            self._due[job.key] = max(min(times), now + 1e-3)

    def _log(self, level: str, event: str, **facts: object) -> None:
        self._out.append(Log(event, tuple(facts.items()), level))


def _outdated(known: JobState) -> bool:
    """Whether it was decided before the minimum was raised over it."""
    wish, job = known.wish, known.job
    return wish is not None and 0 < wish.workers < job.minimum and wish.workers != job.status.target
