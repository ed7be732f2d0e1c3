"""A cluster of training jobs over time: jobs come, a policy divides the GPUs, work is done, restarts are paid.

What happens between two decisions follows exactly from the tables; there is no step size in it. The policy is asked at
every round (as Pollux' simulator does: OSDI 2021, section 5.3), at every arrival and end, or at both. A decision is
taken whole or refused whole: with one worker beyond a bound or a node's GPUs the last good one stands.

    waits --workers--> restarts --restart_s later--> learns --all work done--> ended
      ^----------------- no workers, from either ----------'    other workers: restarts again
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from lab.worlds.training.models import DealtBatch, TrainingModel
from lab.worlds.training.speed import MeasuredSpeed, MistakenSpeed, type_factor
from shared.jobs.observation import Decision, JobAllocation, JobObservation, JobsObservation, NodeObservation, Policy
from shared.jobs.policies.placing import Free, pack

EPSILON = 1e-9
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTrainingJob:
    """One job of a workload."""

    name: str
    submitted: float
    """Seconds."""
    model: TrainingModel
    requested: int
    batch: int
    """Global. What its samples and its efficiency are counted in."""
    minimum: int = 1
    maximum: int
    batch_range: tuple[int, int] | None = None
    restart_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """How the cluster behaves, and what of it a policy gets to see."""

    round_s: float = 60.0
    rounds: bool = True
    """The policy is asked at each round."""
    events: bool = False
    """And, or instead, at each arrival and end."""
    interference: float = 0.0
    """The share of its speed that a job on several nodes loses beside another such job on a node. Pollux: 0 to 0.5."""
    lag_rounds: int = 0
    """What jobs report (progress, work left, GPU time) is so many decisions old when a policy sees it."""
    speed_error: float = 0.0
    """How far the speeds that policies see are from the true ones: 0.2 is up to 20 % either way."""
    gpu_types: Mapping[str, float] = field(default_factory=dict)
    """Speed of a GPU type beside the measured one, for all models or (``of_model``) for one."""
    most_s: float = 60 * DAY_S
    """A run that lasts longer is given up: jobs starve."""


class ScheduleChange(NamedTuple):
    """One line of a schedule. ``event``: submit, start, move, batch, stop, end."""

    time: float
    job: str
    event: str
    placement: Mapping[str, int]
    """Workers, hence GPUs, by node, from now on."""
    batch: int
    servers: int = 0
    """Parameter servers, of a job that has any."""


class _Asked(NamedTuple):
    """What a decision gives one job. ``placement`` {}: it waits."""

    placement: dict[str, int]
    batch: int
    servers: int


@dataclass(slots=True)
class _State:
    job: SimulatedTrainingJob
    speed: MeasuredSpeed | MistakenSpeed
    placement: dict[str, int] = field(default_factory=dict)
    batch: int = 0
    servers: int = 0
    dealt: DealtBatch | None = None
    step_s: float = inf
    progress: float = 0.0
    restart_left: float = 0.0
    attained_s: float = 0.0
    ran_s: float = 0.0
    restarts: int = -1
    changed: float = 0.0
    ended: float | None = None
    reports: list[tuple[float, float, float]] = field(default_factory=list)
    """(progress, attained, ran) at past decisions, as many as the lag needs."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What became of one job. Times in seconds; ``ended`` None: it did not end."""

    name: str
    submitted: float
    ended: float | None
    restarts: int
    attained_s: float
    """GPU-seconds."""

    @property
    def completion_s(self) -> float:
        """From submission to end; infinite for one that did not end."""
        return inf if self.ended is None else self.ended - self.submitted


class Simulation:
    """One run. ``observe`` and ``apply`` a decision, then ``advance`` to ``next_moment()``, until ``done``."""

    def __init__(
        self,
        jobs: Sequence[SimulatedTrainingJob],
        nodes: Sequence[NodeObservation],
        settings: SimulationSettings,
        seed: int,
    ) -> None:
        """``ValueError``: two jobs or nodes of one name, or no moment at which a policy would be asked."""
        if len({job.name for job in jobs}) < len(jobs) or len({node.name for node in nodes}) < len(nodes):
            raise ValueError("two jobs or two nodes have one name")
        if not (settings.rounds or settings.events):
            raise ValueError("a policy is asked at rounds, at events or at both")
        self.settings = settings
        self.nodes = tuple(nodes)
        self.now = 0.0
        self.changes: list[ScheduleChange] = []
        self.refused: list[str] = []
        """Why decisions were refused, one line each."""
        self._gpus = {node.name: node.gpus for node in nodes}
        self._types = {node.name: node.gpu_type for node in nodes}
        self._places = sum(node.places for node in nodes)
        self._coming = sorted(jobs, key=lambda job: job.submitted)[::-1]
        self._here: dict[str, _State] = {}
        self._ended: list[JobOutcome] = []
        self._speeds: dict[tuple[str, int], MeasuredSpeed | MistakenSpeed] = {}
        self._seed = seed
        self._arrive()

    @property
    def done(self) -> bool:
        """Nothing is left to happen, or the run is given up."""
        return not (self._coming or self._here) or self.now >= self.settings.most_s

    @property
    def left(self) -> int:
        """Jobs that have not ended, those to come included."""
        return len(self._coming) + len(self._here)

    @property
    def outcomes(self) -> list[JobOutcome]:
        """Of all jobs, by submission."""
        left = [_outcome(state) for state in self._here.values()]
        never = [JobOutcome(job.name, job.submitted, None, 0, 0.0) for job in self._coming]
        return sorted([*self._ended, *left, *never], key=lambda one: (one.submitted, one.name))

    def next_moment(self) -> float:
        """When the policy is to be asked next."""
        moments = []
        if self.settings.rounds:
            # with nothing here, rounds until the next arrival are passed over
            soonest = self._coming[-1].submitted if self._coming and not self._here else self.now
            rounds = max(self.now // self.settings.round_s + 1, -(-soonest // self.settings.round_s))
            moments.append(rounds * self.settings.round_s)
        if self.settings.events:
            if self._coming:
                moments.append(self._coming[-1].submitted)
            moments += [self._end_of(state) for state in self._here.values()]
        return min(*moments, self.settings.most_s)

    def advance(self, to: float) -> None:
        """Let time pass. Jobs that come or end on the way do so at their own moments."""
        crowded = self._crowded()
        for state in list(self._here.values()):
            self._work(state, self.now, to, slowed=self._slowed(state, crowded))
        self.now = to
        self._arrive()

    def observe(self) -> JobsObservation:
        """What a policy sees now."""
        return JobsObservation(now=self.now, jobs=tuple(map(self._seen, self._here.values())), nodes=self.nodes)

    def apply(self, decision: Decision) -> str:
        """Carry a decision out. Returns why it was refused as a whole, or ""."""
        why, wanted = self._checked(decision)
        if why:
            self.refused.append(f"{self.now:.0f} s: {why}")
            return why
        for name, asked in wanted.items():
            self._change(self._here[name], asked)
        return ""

    def _arrive(self) -> None:
        while self._coming and self._coming[-1].submitted <= self.now + EPSILON:
            job = self._coming.pop()
            self._here[job.name] = _State(job, self._speed_of(job), changed=job.submitted, batch=job.batch)
            self.changes.append(ScheduleChange(job.submitted, job.name, "submit", {}, job.batch))

    def _speed_of(self, job: SimulatedTrainingJob) -> MeasuredSpeed | MistakenSpeed:
        key = (job.model.name, job.batch)
        if key not in self._speeds:
            true = MeasuredSpeed(job.model, job.batch, self.settings.gpu_types)
            error = self.settings.speed_error
            self._speeds[key] = MistakenSpeed(true, error, self._seed) if error else true
        return self._speeds[key]

    def _crowded(self) -> set[str]:
        """Nodes on which two jobs that span nodes stand; empty without interference."""
        if not self.settings.interference:
            return set()
        spanning = [node for state in self._here.values() if len(state.placement) > 1 for node in state.placement]
        return {node for node in spanning if spanning.count(node) > 1}

    def _slowed(self, state: _State, crowded: set[str]) -> float:
        crowds = len(state.placement) > 1 and not crowded.isdisjoint(state.placement)
        return 1.0 - self.settings.interference if crowds else 1.0

    def _work(self, state: _State, since: float, to: float, *, slowed: float) -> None:
        if not state.placement or state.dealt is None:
            return
        gpus, span = sum(state.placement.values()), to - since
        waits = min(state.restart_left, span)
        state.restart_left -= waits
        span -= waits
        convergence = state.job.model.convergence
        per_step = state.step_s / slowed
        needed = convergence.steps_left(state.progress, state.dealt.batch) * per_step
        worked = min(span, needed)
        state.attained_s += gpus * (waits + worked)
        state.ran_s += waits + worked
        if needed > span + EPSILON:
            state.progress = convergence.advance(state.progress, state.dealt.batch, span / per_step)
            return
        state.progress, state.ended = convergence.total, since + waits + worked
        del self._here[state.job.name]
        self._ended.append(_outcome(state))
        self.changes.append(ScheduleChange(state.ended, state.job.name, "end", {}, state.batch))

    def _end_of(self, state: _State) -> float:
        if not state.placement or state.dealt is None:
            return inf
        left = state.job.model.convergence.steps_left(state.progress, state.dealt.batch)
        return self.now + state.restart_left + left * state.step_s / self._slowed(state, self._crowded())

    def _seen(self, state: _State) -> JobObservation:
        job, lag = state.job, self.settings.lag_rounds
        figures = (state.progress, state.attained_s, state.ran_s)
        if lag:
            state.reports.append(figures)
            del state.reports[: -lag - 1]
            figures = state.reports[0]
        progress, attained_s, ran_s = figures
        convergence = job.model.convergence
        dealt = job.model.deal(job.requested, job.batch)
        return JobObservation(
            name=job.name,
            submitted=job.submitted,
            model=job.model.name,
            minimum=job.minimum,
            maximum=job.maximum,
            requested=job.requested,
            batch=job.batch,
            batch_range=job.batch_range,
            restart_s=job.restart_s,
            workers=sum(state.placement.values()),
            placement=dict(state.placement),
            servers=state.servers,
            most_servers=job.model.served.most_servers if job.model.served is not None else 0,
            batch_now=state.batch,
            progress=progress / convergence.total,
            attained_s=attained_s,
            ran_s=ran_s,
            restarts=max(state.restarts, 0),
            since_change_s=self.now - state.changed,
            remaining_samples=convergence.steps_left(progress, dealt.batch) * dealt.batch,
            epochs_left=convergence.epochs_left(progress),
            speed=state.speed,
        )

    def _checked(self, decision: Decision) -> tuple[str, dict[str, _Asked]]:
        """Why it is refused, or what each job that it names is to have."""
        wanted: dict[str, _Asked] = {}
        free: Free = dict(self._gpus)
        for name, state in self._here.items():
            if name not in decision:
                _take(free, state.placement)
        unplaced: list[tuple[str, JobAllocation]] = []
        for name, allocation in decision.items():
            if name not in self._here:
                return f"{name}: no such job is here", {}
            state = self._here[name]
            why = _out_of_bounds(state, allocation)
            if why:
                return f"{name}: {why}", {}
            batch, servers = allocation.batch or state.batch, _servers(state, allocation)
            if allocation.workers == 0:
                wanted[name] = _Asked({}, batch, 0)
            elif allocation.placement is None:
                unplaced.append((name, allocation))
            else:
                placement = {node: count for node, count in allocation.placement.items() if count}
                unknown = [node for node in placement if node not in free]
                if unknown:
                    return f"{name}: no node {unknown[0]!r}", {}
                _take(free, placement)
                wanted[name] = _Asked(placement, batch, servers)
        over = [node for node, left in free.items() if left < 0]
        if over:
            return f"node {over[0]}: {-free[over[0]]} GPUs more than it has", {}
        for name, allocation in unplaced:
            packed = pack(free, allocation.workers)
            if packed is None:
                return f"{name}: no room for {allocation.workers} workers", {}
            state = self._here[name]
            wanted[name] = _Asked(packed, allocation.batch or state.batch, _servers(state, allocation))
        for name, asked in wanted.items():
            if asked.placement and self._step_s(self._here[name].job, asked)[1] == inf:
                ring = "+".join(map(str, asked.placement.values())) + f" with {asked.servers} servers" * (
                    asked.servers > 0
                )
                model = self._here[name].job.model.name
                return f"{name}: {model} was not measured on {ring} with batch {asked.batch}", {}
        return self._crammed(wanted), wanted

    def _crammed(self, wanted: Mapping[str, _Asked]) -> str:
        """Why workers and servers do not fit the nodes' places together, or "". A node's workers fit its places, so
        servers fit wherever the sum does."""
        after = {name: _Asked(state.placement, 0, state.servers) for name, state in self._here.items()} | dict(wanted)
        used = sum(sum(asked.placement.values()) + asked.servers for asked in after.values())
        return f"{used} workers and servers, there is room for {self._places}" if 0 < self._places < used else ""

    def _step_s(self, job: SimulatedTrainingJob, asked: _Asked) -> tuple[DealtBatch, float]:
        placement = asked.placement
        dealt = job.model.deal(sum(placement.values()), asked.batch)
        step_s = job.model.step_s(tuple(placement.values()), dealt, asked.servers)
        factor = min(type_factor(self.settings.gpu_types, job.model.name, self._types[node]) for node in placement)
        return dealt, step_s / factor if step_s else inf

    def _change(self, state: _State, asked: _Asked) -> None:
        placement, batch, _ = asked
        moved = placement != state.placement or asked.servers != state.servers
        if not moved and batch == state.batch:
            return
        event = "batch" if not moved else "move" if placement and state.placement else "start" if placement else "stop"
        state.placement, state.batch, state.servers = asked
        if placement:
            state.dealt, state.step_s = self._step_s(state.job, asked)
        if moved:
            state.changed = self.now
            state.restart_left = state.job.restart_s if placement else 0.0
            state.restarts += bool(placement)
        if moved or placement:
            self.changes.append(ScheduleChange(self.now, state.job.name, event, placement, batch, asked.servers))


def _out_of_bounds(state: _State, allocation: JobAllocation) -> str:
    job, workers = state.job, allocation.workers
    if workers and not job.minimum <= workers <= job.maximum:
        return f"{workers} workers, it takes {job.minimum} to {job.maximum}"
    if workers and allocation.placement is not None and sum(allocation.placement.values()) != workers:
        return f"{workers} workers, but {sum(allocation.placement.values())} are placed"
    if allocation.placement is not None and min(allocation.placement.values(), default=0) < 0:
        return "fewer than no workers on a node"
    if allocation.batch is None or allocation.batch == state.batch:
        return ""
    if job.batch_range is None:
        return f"batch {allocation.batch}, but its batch is fixed"
    low, high = job.batch_range
    return "" if low <= allocation.batch <= high else f"batch {allocation.batch}, it takes {low} to {high}"


def _servers(state: _State, allocation: JobAllocation) -> int:
    """Parameter servers of a job that has any; else 0."""
    served = state.job.model.served
    if served is None or not allocation.workers:
        return 0
    return served.usual(allocation.workers) if allocation.servers is None else allocation.servers


def _take(free: Free, placement: Mapping[str, int]) -> None:
    for node, count in placement.items():
        free[node] -= count


def _outcome(state: _State) -> JobOutcome:
    job = state.job
    return JobOutcome(job.name, job.submitted, state.ended, max(state.restarts, 0), state.attained_s)


def run(
    simulation: Simulation, policy: Policy, seed: int, tick: Callable[[int], None] | None = None
) -> list[JobOutcome]:
    """Play it to its end by ``policy``; ``tick`` is told after each decision how many jobs have not ended."""
    policy.reset(seed)
    while not simulation.done:
        seen = simulation.observe()
        if seen.jobs:
            simulation.apply(policy.decide(seen))
        simulation.advance(simulation.next_moment())
        if tick is not None:
            tick(simulation.left)
    return simulation.outcomes
