"""Rounds of DL2's kind on Twin A, several runs side by side: by the network of the moment, or by a teacher.

What is paid for is the time that jobs are there, counted against. The critic says of each job how long it will still
be there; so an increment's advantage is what the critic makes of the jobs before and after it, and jobs that come
later, whom nobody chose, are no noise in it. (DL2 pays the part of each job's work that was done in a slot, section
4.3, the same to all inferences of the slot. That sum is the same for every way to the end; only its discount says
when.) numpy alone, so that workers need no torch. A share of the inferences is kept: those of one slot are much alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lab.jobs.twin_a import GAP_S, JOBS, NODES, SLOT_S, cluster, draw, settings
from lab.worlds.training.simulation import Simulation
from shared.jobs.observation import Decision, JobsObservation, Policy
from shared.jobs.policies.learned.dl2 import FORBIDDEN, answer, layered
from shared.jobs.policies.learned.increments import (
    BOTH,
    KINDS,
    SERVER,
    WORKER,
    Bools,
    Floats,
    Increments,
    Ints,
    Steps,
    TeacherSteps,
    steps_of,
)
from shared.policy.networks import layer_count

ACTION_STREAM = 41
PAID = 0.1
"""For a job that is there for a whole slot, counted against."""


@runtime_checkable
class Ordered(Protocol):
    """A teacher that says in which order it gives: (job, (workers, servers) more)."""

    def steps(self, seen: JobsObservation) -> Sequence[tuple[int, tuple[int, int]]]: ...


@dataclass(frozen=True, slots=True)
class Credit:
    """How what is paid goes to the increments. ``slot``: all of a slot's share its return, as in DL2."""

    trace: float = 0.6
    """Lambda of the advantages (Schulman et al. 2016) from slot to slot. Nothing is discounted: what is paid for ends
    with the jobs."""
    within: float = 0.6
    """And from increment to increment of one slot. At 0.9 what the ends of slots bring is four times the noise
    that 0.3 leaves, which rests on the critic instead."""
    slot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plays:
    """Which runs, and how. ``teacher``: acts, in place of the network, and ``followed`` says with which probability the
    network acts for a whole round all the same, while the teacher only says what it would do (DAgger)."""

    seeds: tuple[int, ...]
    window: int
    types: tuple[str, ...]
    explore: float = 0.0
    """Probability of mending a poor state (job-aware exploration)."""
    kept: float = 0.25
    best: bool = False
    """The best action is taken; else one is drawn."""
    credit: Credit = Credit()
    jobs: int = JOBS
    gap_s: float = GAP_S
    nodes: int = NODES
    compute: float = 1.0
    """Of a GPU beside Twin A's: ``twin_a.draw``."""
    teacher: Callable[[int], Policy] | None = None
    """A new one, by seed; of a module's top level."""
    followed: float = 0.0


@dataclass(slots=True)
class JobsRollout:
    """What was seen of the inferences that were kept, as arrays.

    ``inputs`` float16 [kept, jobs, inputs], ``masks`` bool [kept, actions], ``actions`` int64 [kept] (with a teacher:
    those that it would take), ``log_p`` float32 [kept] by which they were taken, ``returns`` float32 [kept, jobs]: what
    was paid for each from then on, ``advantages`` float32 [kept]. ``completion_h``: by run, mean hours from submission
    to end.
    """

    inputs: NDArray[np.float16]
    masks: Bools
    actions: Ints
    log_p: Floats
    returns: Floats
    advantages: Floats
    completion_h: list[float]


@dataclass(slots=True)
class _Book:
    """Rows of a rollout, while it is played; and, of every inference, its slot and what the critic said: of all jobs,
    and of those (``carried``) that were there a slot before."""

    inputs: list[NDArray[np.float16]] = field(default_factory=list)
    masks: list[Bools] = field(default_factory=list)
    actions: list[Ints] = field(default_factory=list)
    log_p: list[Floats] = field(default_factory=list)
    slots: list[Ints] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)
    carried: list[Floats] = field(default_factory=list)
    kept: list[Bools] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Slot:
    """One slot of one run: when it began, the jobs that were there, and what was paid in it."""

    run: int
    began: float
    names: tuple[str, ...]
    paid: float


Params = Mapping[str, Floats]


def play(plays: Plays, params: Params | None, critic: Params | None = None) -> JobsRollout:
    """Play every seed to its end. ``params`` None: by the teacher alone. ``critic`` None: returns are what was paid."""
    rng = np.random.default_rng([*plays.seeds[:1], len(plays.seeds), ACTION_STREAM])
    simulations = [
        Simulation(
            draw(seed, jobs=plays.jobs, gap_s=plays.gap_s, compute=plays.compute),
            cluster(plays.nodes).nodes,
            settings(),
            seed,
        )
        for seed in plays.seeds
    ]
    teachers = [plays.teacher(seed) for seed in plays.seeds] if plays.teacher is not None else []
    for seed, teacher in zip(plays.seeds, teachers, strict=False):
        teacher.reset(seed)
    if params is None and not teachers:
        raise ValueError("neither weights nor a teacher")
    book = _Book()
    slots: list[_Slot] = []
    left = np.zeros(len(simulations), int)
    while live := [run for run, one in enumerate(simulations) if not one.done]:
        seen = [_next_seen(simulations[run]) for run in live]
        most = min(plays.window, max(len(one.jobs) for one in seen))
        increments = Increments(seen, window=most, types=plays.types)
        wanted, lessons = _taught(teachers, live, seen, most)
        drawn = rng.random(len(live)) < plays.followed
        student = drawn if teachers and params is not None else np.full(len(live), not teachers)
        _round(increments, plays, (params, critic), lessons, student, book, (len(slots), left[live]), rng)
        for at, run in enumerate(live):
            simulation = simulations[run]
            simulation.apply(increments.decision(at) if student[at] else wanted[at])
            names = tuple(job.name for job in seen[at].jobs)
            began, known = simulation.now, len(simulation.changes)
            simulation.advance(simulation.next_moment())
            ended = [change.time for change in simulation.changes[known:] if change.event == "end"]
            spent_s = (len(names) - len(ended)) * (simulation.now - began) + sum(end - began for end in ended)
            left[run] = len(names) - len(ended)
            slots.append(_Slot(run, began, names, -PAID * spent_s / SLOT_S))
    slot_of, kept = np.concatenate(book.slots), np.concatenate(book.kept)
    returns = _paid_for(slots, simulations, plays.window)
    values = np.concatenate(book.values).astype(float)
    carried = np.concatenate(book.carried).astype(float)
    advantages = _advantages(slots, slot_of, values, carried, plays.credit) if critic is not None else None
    return JobsRollout(
        np.concatenate(book.inputs),
        np.concatenate(book.masks),
        np.concatenate(book.actions),
        np.concatenate(book.log_p),
        returns[slot_of[kept]],
        (advantages[kept] if advantages is not None else returns[slot_of[kept]].sum(axis=1)).astype(np.float32),
        [_mean_hours(simulation) for simulation in simulations],
    )


def _taught(
    teachers: Sequence[Policy], live: Sequence[int], seen: Sequence[JobsObservation], window: int
) -> tuple[list[Decision], list[TeacherSteps]]:
    wanted = [teachers[run].decide(one) for run, one in zip(live, seen, strict=True)] if teachers else []
    lessons = [
        TeacherSteps(one, order_of(teachers[run], one, decision), window)
        for run, one, decision in zip(live, seen, wanted, strict=False)
    ]
    return wanted, lessons


def order_of(teacher: Policy, seen: JobsObservation, wanted: Decision) -> Steps:
    """The increments of a teacher's decision, in its own order where it has one."""
    if not isinstance(teacher, Ordered):
        return steps_of(seen, wanted)
    kinds = ((at, BOTH if more[0] and more[1] else WORKER if more[0] else SERVER) for at, more in teacher.steps(seen))
    return list(kinds)


def _mean_hours(simulation: Simulation) -> float:
    """From submission to end; a job that did not end counts as long as the run lasted."""
    most_s = simulation.settings.most_s
    return float(np.mean([min(one.completion_s, most_s - one.submitted) for one in simulation.outcomes])) / 3600.0


def _next_seen(simulation: Simulation) -> JobsObservation:
    """What is seen at the next moment with a job; the last one where there is none any more."""
    while not simulation.done and not (seen := simulation.observe()).jobs:
        simulation.advance(simulation.next_moment())
    return seen


def _round(
    increments: Increments, plays: Plays, networks: tuple[Params | None, Params | None],
    lessons: Sequence[TeacherSteps],
    student: Bools, book: _Book, before: tuple[int, Ints], rng: np.random.Generator,
) -> None:  # fmt: skip
    """One slot of all runs: by the network where ``student`` holds, else by the teacher; what a teacher would do is
    noted in place of what is done. ``before``: the number of slots so far, and by run how many of its jobs were there
    in the last one."""
    params, critic = networks
    base, left = before
    layers = layer_count(params) if params is not None else 0
    while increments.active.any():
        rows = np.nonzero(increments.active)[0]
        inputs, mask = increments.inputs()[rows], increments.mask()[rows]
        actions, log_p = np.zeros(len(rows), int), np.zeros(len(rows))
        if params is not None and student[rows].any():
            logits = np.where(mask, answer(params, inputs, layers), FORBIDDEN)
            if plays.best or lessons:
                actions = logits.argmax(axis=1)
            else:
                actions, log_p = _drawn(logits, increments.poor()[rows], plays.explore, rng)
        noted = actions
        if lessons:
            noted = np.array([lessons[row].next(increments, row, mask[at]) for at, row in enumerate(rows.tolist())])
            actions = np.where(student[rows], actions, noted)
        kept = rng.random(len(rows)) < plays.kept
        _keep(book, increments.window, plays.window, inputs[kept], mask[kept], noted[kept])
        book.log_p.append(log_p[kept].astype(np.float32))
        book.kept.append(kept)
        book.slots.append(base + rows)
        said = said_of(critic, inputs) if critic is not None else np.zeros(inputs.shape[:2], np.float32)
        book.values.append(said.sum(axis=1))
        book.carried.append((said * (np.arange(said.shape[1]) < left[rows, None])).sum(axis=1))
        all_actions = np.full(len(increments.active), KINDS * increments.window)
        all_actions[rows] = actions
        increments.give(all_actions)


def _drawn(logits: Floats, mending: Ints, explore: float, rng: np.random.Generator) -> tuple[Ints, NDArray[np.float64]]:
    """Actions by the network's probabilities, poor states mended with probability ``explore``; and their logarithms."""
    log_all = log_softmax(logits)
    actions = (log_all + rng.gumbel(size=log_all.shape)).argmax(axis=1)
    rows = np.arange(len(actions))
    if not explore:
        return actions, log_all[rows, actions]
    poor = mending >= 0
    actions = np.where(poor & (rng.random(len(actions)) < explore), mending, actions)
    # by what it was really taken: a mixture of the network and the mending action
    own = (1.0 - explore) * np.exp(log_all[rows, actions])
    return actions, np.where(poor, np.log(own + explore * (actions == mending) + 1e-12), log_all[rows, actions])


def said_of(critic: Params, inputs: Floats) -> Floats:
    """float32 [runs, jobs]: what is still to be paid for each job; 0 where there is none."""
    x, present = layered(critic, inputs, layer_count(critic))
    found: Floats = (x * present)[..., 0]
    return found


def _keep(book: _Book, window: int, widest: int, inputs: Floats, mask: Bools, actions: Ints) -> None:
    """Notes inferences, as wide as the widest window."""
    wider = np.zeros((len(inputs), widest, inputs.shape[2]), np.float16)
    wider[:, :window] = inputs
    masks = np.zeros((len(inputs), KINDS * widest + 1), bool)
    masks[:, : KINDS * window], masks[:, -1] = mask[:, :-1], mask[:, -1]
    book.inputs.append(wider)
    book.masks.append(masks)
    book.actions.append(np.where(actions == KINDS * window, KINDS * widest, actions))


def _paid_for(slots: Sequence[_Slot], simulations: Sequence[Simulation], window: int) -> Floats:
    """float32 [slots, window]: what each job was paid from the slot's begin to its end."""
    ends = [
        {one.name: one.ended if one.ended is not None else simulation.settings.most_s for one in simulation.outcomes}
        for simulation in simulations
    ]
    found = np.zeros((len(slots), window), np.float32)
    for row, slot in zip(found, slots, strict=True):
        until = [ends[slot.run][name] for name in slot.names[:window]]
        row[: len(until)] = -PAID * (np.array(until) - slot.began) / SLOT_S
    return found


def _advantages(
    slots: Sequence[_Slot], slot_of: Ints, values: NDArray[np.float64], carried: NDArray[np.float64], credit: Credit
) -> NDArray[np.float64]:
    """float64 [inferences]. A slot is paid at its last inference; what follows it is what the next one's first says of
    the jobs that are still there."""
    found = np.zeros(len(values))
    runs = np.array([slot.run for slot in slots])[slot_of]
    for run in np.unique(runs):
        mine = np.nonzero(runs == run)[0]
        gathered, after = 0.0, -1
        for at in mine[::-1]:
            if after >= 0 and slot_of[after] == slot_of[at]:
                paid, following, trace = 0.0, values[after], 1.0 if credit.slot else credit.within
            else:
                paid, following, trace = slots[slot_of[at]].paid, carried[after] if after >= 0 else 0.0, credit.trace
            gathered = paid + following - values[at] + trace * gathered
            found[at], after = gathered, at
        if credit.slot:
            _, first, counts = np.unique(slot_of[mine], return_index=True, return_counts=True)
            found[mine] = np.repeat(found[mine][first], counts)
    return found


def log_softmax(logits: Floats) -> Floats:
    """Logarithms of probabilities over the last axis."""
    top = logits.max(axis=-1, keepdims=True)
    shifted = logits - top
    found: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found
