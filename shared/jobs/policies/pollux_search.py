"""Pollux' genetic search: a state is workers by job and node; states are crossed, mutated, repaired and selected.

The operators are those that section 4.2.2 of the paper names: crossover at one point of the list of jobs; mutation that
puts jobs back to what stands, takes workers away, or adds some where GPUs are free; repair of what is not allowed.
Everything is an array operation over the whole population, so a round is bounded by population times generations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shared.jobs.policies.goodput import Floats

States = NDArray[np.int16]
"""[population, jobs, nodes]: workers."""
RESET_SHARE = 0.1
"""Of jobs that are put back to what stands."""
TAKE_SHARE = 0.1
"""Of jobs that lose workers, and of their nodes on which they do."""
SMALLEST = 1e-3


@dataclass(frozen=True, slots=True)
class Problem:
    """One round. ``base`` int16 [jobs, nodes]: what stands; ``gpus`` [nodes]; ``most``, ``least`` [jobs]: workers;
    ``worth`` float64 [jobs, nodes + 1, workers + 1]: a job's scaled speedup; ``factor`` [jobs]: if it restarts."""

    base: NDArray[np.int16]
    gpus: NDArray[np.int16]
    most: NDArray[np.int16]
    least: NDArray[np.int16]
    worth: Floats
    factor: Floats

    def fitness(self, states: States) -> Floats:
        """float64 [population]: the power mean with p = -1 of all jobs' speedups."""
        nodes, workers = np.count_nonzero(states, axis=2), states.sum(axis=2)
        worth = self.worth[np.arange(len(self.base)), nodes, workers]
        worth = np.where((states != self.base).any(axis=2), worth * self.factor, worth)
        fitness: Floats = len(self.base) / (1.0 / (worth + SMALLEST)).sum(axis=1)
        return fitness

    def repair(self, states: States, rng: np.random.Generator) -> States:
        """The states, made into allowed ones by taking workers away; jobs earlier in the list lose last."""
        spanning = (np.count_nonzero(states, axis=2) > 1)[:, :, None] & (states > 0)
        states = np.where(spanning & (np.cumsum(spanning, axis=1, dtype=np.int16) > 1), 0, states)
        order = rng.permuted(np.tile(np.arange(states.shape[2]), (len(states), 1)), axis=1)[:, None, :]
        shuffled = np.take_along_axis(states, order, axis=2)
        reached = np.minimum(np.cumsum(shuffled, axis=2, dtype=np.int16), self.most[:, None])
        shuffled = np.diff(reached, axis=2, prepend=np.int16(0))
        states = np.empty_like(states)
        np.put_along_axis(states, order, shuffled, axis=2)
        reached = np.minimum(np.cumsum(states, axis=1, dtype=np.int16), self.gpus)
        states = np.diff(reached, axis=1, prepend=np.int16(0))
        states[states.sum(axis=2) < self.least] = 0
        return states

    def mutate(self, states: States, rng: np.random.Generator) -> States:
        """The states, changed at random; to be repaired."""
        draw = rng.random(states.shape[:2], np.float32)
        states = np.where((draw < RESET_SHARE)[:, :, None], self.base, states)
        losing = rng.random(states.shape[:2], np.float32) < TAKE_SHARE
        if losing.any():
            rows = states[losing]
            rows[rng.random(rows.shape, np.float32) < TAKE_SHARE] = 0
            states[losing] = rows
        free = (states.sum(axis=1) < self.gpus)[:, None, :]
        there = (states > 0) & free
        # one job in expectation grows on each node with free GPUs, and one more of those that stand there
        anyone = free / np.float32(states.shape[1])
        one_of_them = there / np.maximum(there.sum(axis=1, keepdims=True), 1).astype(np.float32)
        grows = rng.random(states.shape, np.float32) < anyone + one_of_them - anyone * one_of_them
        at = np.nonzero(grows)
        states[at] = rng.integers(states[at], self.gpus[at[2]], endpoint=True, dtype=np.int16)
        return states


def search(problem: Problem, states: States, population: int, generations: int, rng: np.random.Generator) -> States:
    """The population after so many generations, fittest first. What stands is always among those compared."""
    states = problem.repair(states.astype(np.int16), rng)
    states, fitness = _fittest(states, problem.fitness(states), population)
    for _ in range(generations):
        parents = _tournament(fitness, population, rng)
        children = _cross(states[parents], rng)
        children = problem.repair(problem.mutate(children, rng), rng)
        states = np.concatenate([states, children])
        fitness = np.concatenate([fitness, problem.fitness(children)])
        states, fitness = _fittest(states, fitness, population)
    return states


def _fittest(states: States, fitness: Floats, count: int) -> tuple[States, Floats]:
    """The fittest, one of each fitness first: equal states would crowd all others out."""
    order = np.argsort(-fitness, kind="stable")
    ordered = fitness[order]
    again = np.append(False, ordered[1:] >= ordered[:-1] - 1e-12)
    order = np.concatenate([order[~again], order[again]])[:count]
    return states[order], fitness[order]


def _tournament(fitness: Floats, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Of each of ``count`` pairs drawn, the fitter; states lie fittest first, so that is the smaller index."""
    drawn: NDArray[np.int64] = rng.integers(len(fitness), size=(count, 2)).min(axis=1)
    return drawn


def _cross(states: States, rng: np.random.Generator) -> States:
    """Neighbours swap what follows a point in the list of jobs."""
    pairs = len(states) // 2
    first, second = states[:pairs], states[pairs : 2 * pairs]
    points = rng.integers(states.shape[1], size=(pairs, 1))
    head = (np.arange(states.shape[1]) < points)[:, :, None]
    return np.concatenate([np.where(head, first, second), np.where(head, second, first), states[2 * pairs :]])
