"""A cluster in memory for the jobs core: an API server's rules for what it writes, kubelets, watches that lag, deaths.

Every write takes effect when the test says so, also after the leader that sent it is gone; every event of a watch comes
late, and maybe twice. What it checks after each step are promises to users, said without the core's own words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from msgspec.structs import replace

from services.jobs.core import events as ev
from services.jobs.core.core import JobsCore
from services.jobs.core.deciding import Deciding
from services.jobs.core.instructions import CreateObject, DeleteObject, PatchMinimum, Write, WriteStatus
from services.jobs.core.members import GROUP, SERVICE, like_spec
from services.jobs.core.state import POD, JobsCoreSettings, JobsState
from shared.decide.judging import Judge
from shared.jobs.domain import JOBS
from shared.jobs.guard import JobsGuard
from shared.jobs.observation import Policy
from shared.jobs.policies.elastic import Elastic
from shared.jobs.registry import make
from shared.kube.training.training_pods import TrainingPodRules
from shared.model.controllers.training_job import (
    ATTEMPT_LABEL,
    BOUNDS_ANNOTATION,
    ENDED,
    INDEX_LABEL,
    MADE_OF_LABEL,
    PROGRAM_OVER,
    ROLE_LABEL,
    WORKER,
    GpuNode,
    JobPhase,
    JobStatus,
    MadeObject,
    PodState,
    TrainingJob,
    WorkerPod,
)
from shared.model.units.queue import QUEUE_LABEL

KINDS = ("jobs", "pods")
EPOCH = 1_795_000_000.0
TEMPLATE = {"spec": {"containers": [{"name": "train", "image": "train"}]}}
SETTINGS = JobsCoreSettings(
    validate=True, retry_first_s=1.0, retry_most_s=4.0, decide_every_s=600.0, decide_least_s=0.5
)


def a_job(name: str = "a", **more: Any) -> TrainingJob:
    """A job as a user makes it."""
    values: dict[str, Any] = {
        "namespace": "default", "name": name, "uid": f"uid-{name}", "resource_version": "1", "generation": 1,
        "created": EPOCH, "minimum": 2, "maximum": 4, "requested": 2, "template": TEMPLATE, "backoff_limit": 3,
    }  # fmt: skip
    return TrainingJob(**{**values, **more})


class World:
    """Jobs, pods, groups and nodes as the API server has them, and one core at a time that leads."""

    def __init__(
        self, seed: int = 0, *, policy: Policy | None = None, settings: JobsCoreSettings = SETTINGS, nodes: int = 2
    ) -> None:
        self.rng = Random(seed)
        self.now = 100.0
        self.revision = 10
        self.jobs: dict[str, TrainingJob] = {}
        self.pods: dict[str, WorkerPod] = {}
        self.made: dict[tuple[str, str], MadeObject] = {}
        self.nodes = {f"n{number}": GpuNode(f"n{number}", 4000) for number in range(nodes)}
        self.policy = policy if policy is not None else Elastic()
        self.make: Callable[[str], JobsGuard] = lambda name: JobsGuard(make(name))
        self.judge: Callable[[], Judge] = lambda: Judge(JOBS)
        self.settings = settings
        self.unfit: set[str] = set()
        """Pods that no node takes, for reasons beside GPUs."""
        self.forbidden: dict[str, str] = {}
        """Pods that the API server refuses to make, and in which words."""
        self.say_spec = True
        """Whether pods say what they were made of; those of earlier releases do not."""
        self.stay: set[str] = set()
        """Pods that nobody confirms the end of."""
        self.become: dict[str, PodState] = {}
        """What becomes of pods that get a node; others run."""
        self.sent: list[tuple[JobsCore, Write]] = []
        self.coming: list[ev.Event] = []
        self.told: list[Any] = []
        self.deaths = 0
        self.broken: list[str] = []
        self.uids = 0
        self.core = self._begin()

    # --- leaders ------------------------------------------------------------------------------------------------

    def _begin(self) -> JobsCore:
        state = JobsState(
            term=self.revision, settings=self.settings, rules=TrainingPodRules(report_url="http://jobs"),
            offset=EPOCH - 100.0, report_key=b"k" * 32,
        )  # fmt: skip
        core = JobsCore(state, Deciding(JobsGuard(self.policy), make=self.make, judge=self.judge), kinds=KINDS)
        listed: list[ev.Event] = [ev.JobSeen(job) for job in self.jobs.values()]
        listed += [ev.JobsNodeSeen(node) for node in self.nodes.values()]
        listed += [ev.MadeSeen(made) for made in self.made.values()]
        listed += [ev.JobsPodSeen(pod) for pod in self.pods.values()]
        self.coming = [*listed, *(ev.JobsListed(kind) for kind in KINDS)]
        return core

    def die(self) -> None:
        """The leader is gone with all it remembered; what it sent may still arrive. Another one leads."""
        self.deaths += 1
        self.revision += 1
        self.core = self._begin()

    def turn(self, *events: ev.Event) -> None:
        """One turn of the leader."""
        for one in self.core.handle_all(events, self.now):
            if isinstance(one, CreateObject | DeleteObject | PatchMinimum | WriteStatus):
                self.sent.append((self.core, one))
                if isinstance(one, DeleteObject) and one.resource.kind == POD:
                    self._judge_removal(one)
            else:
                self.told.append(one)

    # --- the API server -----------------------------------------------------------------------------------------

    def put_job(self, job: TrainingJob) -> TrainingJob:
        """A user creates or changes a job; its status stays."""
        known = self.jobs.get(job.key)
        self.revision += 1
        generation = known.generation + 1 if known is not None else 1
        status = known.status if known is not None else JobStatus()
        job = replace(job, resource_version=str(self.revision), generation=generation, status=status)
        self.jobs[job.key] = job
        self.coming.append(ev.JobSeen(job))
        return job

    def change_pod(self, name: str, **changes: Any) -> None:
        if "state" in changes and changes["state"] in PROGRAM_OVER:
            changes.setdefault("holds", False)
        pod = replace(self.pods[name], **changes)
        self.pods[name] = pod
        self.coming.append(ev.JobsPodSeen(pod))

    def remove_pod(self, name: str) -> None:
        self.coming.append(ev.JobsPodGone(self.pods.pop(name).uid))

    def arrive(self, at: int = 0, *, lost: bool = False) -> None:
        """One write that was sent reaches the server. ``lost``: its answer does not come back."""
        core, write = self.sent.pop(at)
        outcome = self._apply(write)
        said = self.forbidden.get(write.name, "") if isinstance(write, CreateObject) else ""
        if core is self.core:
            self.turn(ev.WriteAnswered(write.write, ev.WriteOutcome.UNKNOWN if lost else outcome, said))

    def _apply(self, write: Write) -> ev.WriteOutcome:
        match write:
            case WriteStatus(_, job, status):
                known = self.jobs.get(job.key)
                if known is None or known.uid != job.uid or known.resource_version != job.resource_version:
                    return ev.WriteOutcome.STALE
                self._judge_status(known, status)
                self.revision += 1
                self.jobs[job.key] = replace(known, status=status, resource_version=str(self.revision))
                self.coming.append(ev.JobSeen(self.jobs[job.key]))
            case CreateObject():
                return self._create(write)
            case PatchMinimum(_, _, _, name, uid, minimum):
                made = self.made.get((GROUP, name))
                if made is None or made.uid != uid:
                    return ev.WriteOutcome.STALE
                self.made[GROUP, name] = replace(made, minimum=minimum)
                self.coming.append(ev.MadeSeen(self.made[GROUP, name]))
            case DeleteObject():
                return self._delete(write)
        return ev.WriteOutcome.DONE

    def _create(self, write: CreateObject) -> ev.WriteOutcome:
        meta = write.body["metadata"]
        owner = meta["ownerReferences"][0]["uid"]
        self.uids += 1
        uid = f"{write.name}-{self.uids}"
        if write.resource.kind != POD:
            if (write.resource.kind, write.name) in self.made:
                return ev.WriteOutcome.EXISTS
            spec = write.body["spec"]
            minimum = spec["schedulingPolicy"]["gang"]["minCount"] if write.resource.kind == GROUP else 0
            kind = GROUP if write.resource.kind == GROUP else SERVICE
            made = self.made[kind, write.name] = MadeObject(kind, write.namespace, write.name, uid, owner, minimum)
            self.coming.append(ev.MadeSeen(made))
            return ev.WriteOutcome.DONE
        if write.name in self.forbidden:
            return ev.WriteOutcome.REFUSED
        if write.name in self.pods:
            return ev.WriteOutcome.EXISTS
        if write.dry_run:
            return ev.WriteOutcome.DONE
        labels = meta["labels"]
        job = next((one for one in self.jobs.values() if one.uid == owner), None)
        held = 0 if job is None else job.gpu_milli if labels[ROLE_LABEL] == WORKER else job.ps_gpu_milli
        pod = self.pods[write.name] = WorkerPod(
            uid, write.namespace, write.name, job=owner, role=labels[ROLE_LABEL], index=int(labels[INDEX_LABEL]),
            attempt=int(labels[ATTEMPT_LABEL]), gpu_milli=held, created=EPOCH, made_of=labels[MADE_OF_LABEL],
            bounds=meta["annotations"][BOUNDS_ANNOTATION], queue=labels.get(QUEUE_LABEL, ""),
        )  # fmt: skip
        if not self.say_spec:
            pod = self.pods[write.name] = replace(pod, made_of="", bounds="")
        self.coming.append(ev.JobsPodSeen(pod))
        return ev.WriteOutcome.DONE

    def _delete(self, write: DeleteObject) -> ev.WriteOutcome:
        if write.resource.kind != POD:
            made = self.made.get((GROUP, write.name))
            if made is None or made.uid != write.uid:
                return ev.WriteOutcome.STALE
            del self.made[GROUP, write.name]
            self.coming.append(ev.MadeGone(GROUP, f"{write.namespace}/{write.name}"))
            return ev.WriteOutcome.DONE
        pod = self.pods.get(write.name)
        if pod is None or pod.uid != write.uid:
            return ev.WriteOutcome.STALE
        if pod.state is PodState.RUNNING or pod.name in self.stay:
            self.change_pod(write.name, state=PodState.LEAVING, leave_by=EPOCH - 100.0 + self.now + 30.0)
        else:
            self.remove_pod(write.name)
        return ev.WriteOutcome.DONE

    # --- what users were promised -------------------------------------------------------------------------------

    def _judge_status(self, job: TrainingJob, status: JobStatus) -> None:
        if job.status.phase in ENDED and status.phase is not job.status.phase:
            self.broken.append(f"{job.key}: ended as {job.status.phase.value}, and is {status.phase.value} now")
        if status.failures < job.status.failures or status.restarts < job.status.restarts:
            self.broken.append(f"{job.key}: its counters went back")

    def _judge_removal(self, delete: DeleteObject) -> None:
        """When it is sent, by what the leader could know."""
        state = self.core.state
        pod = state.pods[delete.uid]
        job = next((one.job for one in state.jobs.values() if one.job.uid == pod.job), None)
        if job is None or job.status.phase in ENDED or job.status.target == 0 or pod.state is not PodState.RUNNING:
            return
        if not like_spec(job, pod):
            return
        leaving = {one.uid for core, one in self.sent if core is self.core and isinstance(one, DeleteObject)}
        stay = [
            one for one in state.pods.values()
            if (one.job, one.role, one.state) == (job.uid, WORKER, PodState.RUNNING)
            and one.uid not in leaving
        ]  # fmt: skip
        if len(stay) < job.minimum:
            self.broken.append(f"{job.key}: {pod.name} was taken away, {len(stay)} run of at least {job.minimum}")

    def running(self, job: TrainingJob) -> list[WorkerPod]:
        """Workers that run."""
        return [
            pod for pod in self.pods.values()
            if pod.job == job.uid and pod.role == WORKER and pod.state is PodState.RUNNING
        ]  # fmt: skip

    # --- time ---------------------------------------------------------------------------------------------------

    def deliver(self, count: int | None = None, *, again: bool = False) -> None:
        """The next events of the watches; ``again``: twice."""
        count = len(self.coming) if count is None else count
        events, self.coming = self.coming[:count], self.coming[count:]
        self.turn(*events, *(events if again else ()))

    def settle(self, *, rounds: int = 60, run: bool = True) -> None:
        """Everything arrives and is told, time goes on, kubelets start what waits; until nothing more happens."""
        for _ in range(rounds):
            quiet = True
            while self.sent or self.coming:
                quiet = False
                while self.sent:
                    self.arrive()
                self.deliver()
            if run:
                quiet = not self.kubelets() and quiet
            wake = self.core.wake_at
            if quiet and (wake is None or wake > self.now + 5.0):
                return
            self.now = max(self.now + 0.25, min(wake if wake is not None else self.now + 1.0, self.now + 1.0))
            self.turn(ev.Tick())

    def kubelets(self) -> bool:
        """Whether some pod began to run, or ended as it was told."""
        busy = False
        used = Counter(pod.node for pod in self.pods.values() if pod.node and pod.holds for _ in range(pod.gpu_milli))
        for name, pod in list(self.pods.items()):
            if pod.terminating:
                if name not in self.stay:
                    self.remove_pod(name)
                    busy = True
            elif pod.state is PodState.WAITING and name not in self.unfit:
                node = next((n for n in self.nodes.values() if used[n.name] + pod.gpu_milli <= n.gpu_milli), None)
                if node is not None:
                    used[node.name] += pod.gpu_milli
                    self.change_pod(name, state=self.become.get(name, PodState.RUNNING), node=node.name)
                    busy = True
        return busy

    def end_workers(self, job: TrainingJob, state: PodState = PodState.SUCCEEDED) -> None:
        for pod in self.running(job):
            self.change_pod(pod.name, state=state)

    def status(self, key: str = "default/a") -> JobStatus:
        return self.jobs[key].status

    def phase(self, key: str = "default/a") -> JobPhase:
        return self.status(key).phase


def running(settings: JobsCoreSettings = SETTINGS, **more: Any) -> World:
    """A world whose one job runs."""
    world = World(settings=settings)
    world.put_job(a_job(**more))
    world.settle()
    return world


def conditions(world: World, key: str = "default/a") -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in world.status(key).conditions}
