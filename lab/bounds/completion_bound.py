"""How soon any scheduler could have ended the jobs of a cluster in slots: a bound on mean completion time.

**What is bounded.** Jobs with parameter servers come at slots' beginnings. In each slot a job has w workers and u
servers or none; these take w + u places, and keep them to the slot's end also where the job ends within it. Let r(p)
be the most work that a job does in a slot with p places, by the best w + u = p.

**The relaxation** (Lagrange's). For prices y[t] >= 0 of a place in slot t, every schedule that keeps within the places
satisfies

    sum_j C[j]  >=  sum_j (C[j] + sum_t y[t] p[j, t])  -  places · sum_t y[t]
                >=  sum_j  min over schedules of j alone (C[j] + sum_t y[t] p[j, t])  -  places · sum_t y[t]

with C[j] the time from submission to end: the first line since no slot has more than ``places`` in use, the second
since what a schedule gives one job is a schedule of that job alone. So any prices give a bound, and it holds for a
scheduler that knows all jobs in advance.

**One job alone** ends in some slot k, with p places there, after a part f of it: C = k + f - arrival. Before k it did
the rest of its work, W - f r(p), which costs G(W - f r(p)) at least. Here it may also divide a slot between several p,
so what a slot does for its price is the concave envelope of r, and the cheapest way takes the pieces of the envelopes
of all slots before k in the order of their price for work: G is convex and piecewise linear. Then for each k and p the
best f follows, since a piece is worth taking while it costs less than the 1 / r(p) slots that its work saves in k.
After the last priced slot all is free, and a job does the most it can.

What is dropped (that a slot has one p; GPUs, nodes and restarts; that nobody knows the future) can only lower it. The
prices are looked for by subgradient ascent; wherever it stops, the bound holds. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from lab.bounds.gpu_bound import BoundFailed
from lab.worlds.training.servers import ServerTimes
from lab.worlds.training.simulation import SimulatedTrainingJob

Floats = NDArray[np.float64]
SLOTS = 60
"""That have a price; of Twin A's 20 minutes: 20 hours."""
STEPS = 60
"""Four times as many raise the bound on Twin A's seeds 100 and 109 by less than 0.0001 h."""
LEVEL, LEAST_LEVEL = 0.1, 1e-5
"""A step aims so much above the best bound yet, as a part of it: less after one that raised nothing."""
MEMORY = 0.5
"""Of the last direction."""


@dataclass(frozen=True, slots=True)
class AlikeJobs:
    """Jobs of one model and batch that come in one slot."""

    arrival: int
    rates: Floats
    """[places + 1]: work in a slot, rising."""
    pieces: Floats
    """[pieces, 2]: places and work of each piece of the envelope, the best work for its places first."""
    work: Floats
    """[jobs]."""


def completion_bound(
    jobs: Sequence[SimulatedTrainingJob], *, places: float, slot_s: float, slots: int = SLOTS, steps: int = STEPS
) -> float:
    """Mean seconds from submission to end that no scheduler is below. ``BoundFailed``: a job has no parameter
    servers."""
    groups = groups_of(jobs, slot_s)
    best, kept = -np.inf, np.zeros(slots)
    prices, direction, level = kept, np.zeros(slots), LEVEL
    for _ in range(steps):
        value, used = bound_at(groups, prices, places)
        if value > best:
            best, kept, level = value, prices, min(level * 1.3, LEVEL)
        else:
            level, direction = max(level * 0.6, LEAST_LEVEL), np.zeros(slots)
            if value < best * (1.0 - level):
                prices = kept
                continue
        over = np.where((prices <= 0.0) & (used < places), 0.0, used - places)
        direction = MEMORY * direction + (1.0 - MEMORY) * over
        square = float(direction @ direction)
        if not square:
            break
        prices = np.maximum(prices + (best * (1.0 + level) - value) / square * direction, 0.0)
    return best * slot_s / max(len(jobs), 1)


def groups_of(jobs: Sequence[SimulatedTrainingJob], slot_s: float) -> list[AlikeJobs]:
    """The jobs by model, batch and slot of arrival."""
    found: dict[tuple[ServerTimes | None, int, int, int], list[float]] = {}
    for job in jobs:
        key = (job.model.served, job.batch, job.maximum, int(job.submitted // slot_s))
        found.setdefault(key, []).append(job.model.convergence.steps_left(0.0, job.batch))
    groups = []
    for (times, _, most_workers, arrival), work in found.items():
        rates = rates_of(times, most_workers, slot_s)
        groups.append(AlikeJobs(arrival, rates, envelope(rates), np.array(work)))
    return groups


def rates_of(times: ServerTimes | None, most_workers: int, slot_s: float) -> Floats:
    """float64 [places + 1]: steps in a slot by places, no fewer with more. ``BoundFailed``: no parameter servers."""
    if times is None:
        raise BoundFailed("bound: a job has no parameter servers, of which this bound knows nothing; leave --bound out")
    rates = np.zeros(most_workers + times.most_servers + 1)
    for workers, servers in product(range(1, most_workers + 1), range(1, times.most_servers + 1)):
        step_s = times.step_s(workers, servers)
        if step_s is not None:
            rates[workers + servers] = max(rates[workers + servers], slot_s / step_s)
    rising: Floats = np.maximum.accumulate(rates)
    return rising[: int(rising.argmax()) + 1]


def envelope(rates: Floats) -> Floats:
    """float64 [pieces, 2]: (places, work) of each piece of the least concave function above ``rates``."""
    at, found = 0, []
    while at < len(rates) - 1:
        slopes = (rates[at + 1 :] - rates[at]) / np.arange(1, len(rates) - at)
        more = len(slopes) - int(slopes[::-1].argmax())
        found.append((float(more), float(rates[at + more] - rates[at])))
        at += more
    return np.array(found)


def bound_at(groups: Sequence[AlikeJobs], prices: Floats, places: float) -> tuple[float, Floats]:
    """The bound by these prices, the sum over jobs in slots, and float64 [slots]: places that the jobs would take."""
    total, used = -places * float(prices.sum()), np.zeros(len(prices))
    for group in groups:
        for cost, taken in _alone(group, prices):
            total += cost
            used += taken
    return total, used


def _alone(group: AlikeJobs, prices: Floats) -> list[tuple[float, Floats]]:
    """Of each job: its least time and price, in slots, and float64 [slots] the places that it takes for that."""
    slots, arrival = len(prices), min(group.arrival, len(prices))
    widths, works = group.pieces.T
    cost = (prices[arrival:, None] * widths).ravel()
    order = np.argsort(cost / np.tile(works, slots - arrival), kind="stable")
    slot = np.repeat(np.arange(arrival, slots), len(widths))[order]
    cost, work = cost[order], np.tile(works, slots - arrival)[order]
    width = np.tile(widths, slots - arrival)[order]
    # the slot in which it ends, [ends, 1]; slots: in any after the priced ones
    last = np.arange(arrival, slots + 1)[:, None]
    before = slot < last
    zeros = np.zeros((len(last), 1))
    done = np.concatenate((zeros, np.cumsum(work * before, axis=1)), axis=1)
    paid = np.concatenate((zeros, np.cumsum(cost * before, axis=1)), axis=1)
    counts = np.flatnonzero(group.rates)
    rates = group.rates[counts]
    # a piece is worth taking up to the price of the time that its work saves in the last slot
    wanted = done[:, np.searchsorted(cost / work, 1.0 / rates)]
    final = np.concatenate((prices, [0.0]))[last] * counts
    row = float(group.work.max(initial=0.0) + done.max() + 1.0) * np.arange(len(last))[:, None]
    found = []
    for whole in group.work.tolist():
        least = np.where(last < slots, np.maximum(whole - rates, 0.0), 0.0)
        earlier = np.clip(wanted, least, np.maximum(np.minimum(done[:, -1:], whole), least))
        price = np.interp((earlier + row).ravel(), (done + row).ravel(), paid.ravel()).reshape(earlier.shape)
        time = np.maximum(last, group.arrival) + (whole - earlier) / rates - group.arrival + price + final
        time = np.where(least > done[:, -1:], np.inf, time)
        end, at = np.unravel_index(int(time.argmin()), time.shape)
        found.append((float(time[end, at]), _taken(earlier[end, at], done[end], width * before[end], slot, slots)))
        if end < slots - arrival:
            found[-1][1][arrival + end] += counts[at]
    return found


def _taken(work: float, done: Floats, width: Floats, slot: NDArray[np.int64], slots: int) -> Floats:
    """float64 [slots]: the places of the pieces that come first up to this much work."""
    share = np.clip((work - done[:-1]) / np.maximum(np.diff(done), 1e-12), 0.0, 1.0)
    found: Floats = np.bincount(slot, weights=share * width, minlength=slots).astype(float)
    return found
