"""Rounds of DL2's kind on Twin A, several runs side by side: by the network of the moment, or by a teacher.

The reward of a slot is the sum over jobs of the share of their whole work that was done in it (section 4.3 of the
paper); every inference of the slot gets it. numpy alone, so that workers need no torch. A share of the inferences is
kept: those of one slot are much alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shared.experiments.jobs.twin_a import GAP_S, JOBS, NODES, cluster, draw, settings
from shared.jobs.observation import Decision, Observation, Policy
from shared.jobs.policies.learned.dl2 import FORBIDDEN, answer
from shared.jobs.policies.learned.increments import KINDS, Bools, Floats, Increments, Ints, towards
from shared.policy.networks import layer_count
from shared.twin.training.simulation import Simulation

ACTION_STREAM = 41


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
    jobs: int = JOBS
    gap_s: float = GAP_S
    nodes: int = NODES
    teacher: Callable[[int], Policy] | None = None
    """A new one, by seed; of a module's top level."""
    followed: float = 0.0


@dataclass(slots=True)
class Rollout:
    """What was seen, as arrays: of inferences that were kept, and of slots.

    ``inputs`` float16 [kept, jobs, inputs], ``masks`` bool [kept, actions], ``actions`` int64 [kept], ``log_p`` float32
    [kept] by which they were taken, ``slots`` int64 [kept]: rows of the slots. ``firsts`` float16 [slots, jobs,
    inputs]: the first inference of each, ``rewards`` float32 [slots], ``runs`` int64 [slots]; a run's slots are in
    order, and it ends.
    """

    inputs: NDArray[np.float16]
    masks: Bools
    actions: Ints
    log_p: Floats
    slots: Ints
    firsts: NDArray[np.float16]
    rewards: Floats
    runs: Ints
    taught: Bools
    """bool [kept, actions]: those on the way to the teacher's decision; [0, actions] without one."""
    completion_h: list[float] = field(default_factory=list)
    """By run: mean hours from submission to end."""


@dataclass(slots=True)
class _Book:
    """Rows of a rollout, while it is played."""

    inputs: list[Floats] = field(default_factory=list)
    masks: list[Bools] = field(default_factory=list)
    actions: list[Ints] = field(default_factory=list)
    log_p: list[Floats] = field(default_factory=list)
    slots: list[Ints] = field(default_factory=list)
    taught: list[Bools] = field(default_factory=list)


def play(plays: Plays, params: Mapping[str, Floats] | None) -> Rollout:
    """Play every seed to its end. ``params`` None: by the teacher alone."""
    rng = np.random.default_rng([*plays.seeds[:1], len(plays.seeds), ACTION_STREAM])
    simulations = [
        Simulation(draw(seed, jobs=plays.jobs, gap_s=plays.gap_s), cluster(plays.nodes).nodes, settings(), seed)
        for seed in plays.seeds
    ]
    teachers = [plays.teacher(seed) for seed in plays.seeds] if plays.teacher is not None else []
    for seed, teacher in zip(plays.seeds, teachers, strict=False):
        teacher.reset(seed)
    book = _Book()
    firsts: list[Floats] = []
    rewards: list[float] = []
    runs: list[int] = []
    while live := [run for run, one in enumerate(simulations) if not one.done]:
        seen = [_next_seen(simulations[run]) for run in live]
        increments = Increments(seen, window=plays.window, types=plays.types)
        first = increments.inputs()
        base = len(rewards)
        if teachers:
            wanted = [teachers[run].decide(one) for run, one in zip(live, seen, strict=True)]
            student = rng.random(len(live)) < plays.followed if params is not None else np.zeros(len(live), bool)
            _taught_round(increments, wanted, plays, params, student, book, base, rng)
        elif params is not None:
            wanted = []
            _drawn_round(increments, plays, params, book, base, rng)
        else:
            raise ValueError("neither weights nor a teacher")
        for at, run in enumerate(live):
            simulation = simulations[run]
            by_student = not teachers or student[at]
            simulation.apply(increments.decision(at) if by_student else wanted[at])
            rewards.append(_advance(simulation, seen[at]))
            runs.append(run)
        firsts.append(first)
    return Rollout(
        np.concatenate(book.inputs).astype(np.float16),
        np.concatenate(book.masks),
        np.concatenate(book.actions),
        np.concatenate(book.log_p),
        np.concatenate(book.slots),
        np.concatenate(firsts).astype(np.float16),
        np.array(rewards, np.float32),
        np.array(runs),
        np.concatenate(book.taught) if book.taught else np.zeros((0, KINDS * plays.window + 1), bool),
        [_mean_hours(simulation) for simulation in simulations],
    )


def _mean_hours(simulation: Simulation) -> float:
    """From submission to end; a job that did not end counts as long as the run lasted."""
    most_s = simulation.settings.most_s
    return float(np.mean([min(one.completion_s, most_s - one.submitted) for one in simulation.outcomes])) / 3600.0


def _next_seen(simulation: Simulation) -> Observation:
    """What is seen at the next moment with a job; the last one where there is none any more."""
    while not simulation.done and not (seen := simulation.observe()).jobs:
        simulation.advance(simulation.next_moment())
    return seen


def _advance(simulation: Simulation, seen: Observation) -> float:
    """Let the slot pass; the reward."""
    before = {job.name: job.progress or 0.0 for job in seen.jobs}
    simulation.advance(simulation.next_moment())
    after = {job.name: job.progress or 0.0 for job in simulation.observe().jobs}
    return sum(after.get(name, 1.0) - progress for name, progress in before.items())


def _drawn_round(
    increments: Increments, plays: Plays, params: Mapping[str, Floats], book: _Book, base: int, rng: np.random.Generator
) -> None:
    """Actions drawn from the network's probabilities, poor states mended with probability ``explore``."""
    layers = layer_count(params)
    while increments.active.any():
        inputs, mask = increments.inputs(), increments.mask()
        log_all = log_softmax(np.where(mask, answer(params, inputs, layers), FORBIDDEN))
        actions = (log_all + rng.gumbel(size=log_all.shape)).argmax(axis=1)
        rows = np.arange(len(actions))
        log_p = log_all[rows, actions]
        if plays.explore:
            mending = increments.poor()
            poor = mending >= 0
            actions = np.where(poor & (rng.random(len(actions)) < plays.explore), mending, actions)
            # by what it was really taken: a mixture of the network and the mending action
            own = (1.0 - plays.explore) * np.exp(log_all[rows, actions])
            log_p = np.where(poor, np.log(own + plays.explore * (actions == mending) + 1e-12), log_all[rows, actions])
        _keep(book, increments, inputs, mask, actions, log_p, base, plays.kept, rng)
        increments.give(actions)


def _taught_round(
    increments: Increments, wanted: Sequence[Decision], plays: Plays,
    params: Mapping[str, Floats] | None, student: Bools, book: _Book, base: int, rng: np.random.Generator,
) -> None:  # fmt: skip
    """The teacher's actions are noted; where ``student`` holds, the network's best ones are carried out."""
    layers = layer_count(params) if params is not None else 0
    while increments.active.any():
        inputs, mask = increments.inputs(), increments.mask()
        taught = np.array([towards(increments, at, one) for at, one in enumerate(wanted)])
        # in any order: the network is to find its way from whatever was given first
        actions = (taught * rng.random(taught.shape)).argmax(axis=1)
        kept = _keep(book, increments, inputs, mask, actions, np.zeros(len(taught)), base, plays.kept, rng)
        book.taught.append(taught[kept])
        if params is not None and student.any():
            own = np.where(mask, answer(params, inputs, layers), FORBIDDEN).argmax(axis=1)
            actions = np.where(student, own, actions)
        increments.give(actions)


def _keep(
    book: _Book, increments: Increments, inputs: Floats, mask: Bools, actions: Ints,
    log_p: NDArray[np.float64], base: int, kept: float, rng: np.random.Generator,
) -> Ints:  # fmt: skip
    """Notes a share of the runs that are active; which."""
    rows = np.nonzero(increments.active & (rng.random(len(actions)) < kept))[0]
    book.inputs.append(inputs[rows])
    book.masks.append(mask[rows])
    book.actions.append(actions[rows])
    book.log_p.append(log_p[rows].astype(np.float32))
    book.slots.append(base + rows)
    return rows


def log_softmax(logits: Floats) -> Floats:
    """Logarithms of probabilities over the last axis."""
    top = logits.max(axis=-1, keepdims=True)
    shifted = logits - top
    found: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found
