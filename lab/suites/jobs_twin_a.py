"""The suite jobs-twin-a (targets T4): DL2's shape of cluster, by the rules that it was compared with and by what
learned.

Beside the plain figures each policy is played with speeds that are up to 20 % off, and on workloads half of whose jobs
train models that nothing was trained on. Seeds are workloads. With ``bound`` what no scheduler's mean is below, one
that knows all jobs in advance included, stands beside them (``completion_bound``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from lab.bounds.completion_bound import completion_bound
from lab.bounds.gpu_bound import BOUND
from lab.evaluation.results import Goal, Paired, Progress, ResultMetric, SuiteResult
from lab.jobs.playing import PlayedRun
from lab.jobs.twin_a import HOUR_S, NODES, PLACES_PER_NODE, SLOT_S, TwinOrder, draw, play_twin
from lab.suites.suites import SuiteInput, check_used
from lab.worlds.training.simulation import SimulationSettings
from shared.jobs.observation import Policy
from shared.jobs.policies.learned.dl2 import Dl2
from shared.jobs.policies.learned.sets import Sets
from shared.jobs.registry import POLICIES
from shared.policy.weights import WeightsFile

NAME = "jobs-twin-a"
DEFAULT = ("drf", "tetris", "srtf", "fifo", "optimus", "marginal", "jobs-dl2", "jobs-sets")
MAKERS: Mapping[str, Callable[[WeightsFile | None], Policy]] = {"jobs-dl2": Dl2, "jobs-sets": Sets}
"""Those that play given weights, else what is shipped. jobs-dl2 is no policy by name elsewhere: it learned Twin A's
models alone."""
OURS, LEARNED = "jobs-sets", ("jobs-dl2", "jobs-sets")
BELOW_PERCENT: Mapping[str, float] = {"drf": 45.0, "optimus": 18.0}
KPI = "avg_jct_h"
PLAIN, MISTAKEN, UNSEEN = "", "speeds 20 % off/", "models never seen/"
NOTES = (
    "48 nodes of 2 GPUs, 120 jobs, slots of 20 minutes; speeds by a formula: docs/policies/jobs.md has what is assumed",
    "fifo, srtf and tetris give what users ask for; the others choose workers, optimus and ours parameter servers too",
)


def run_suite(given: SuiteInput, progress: Progress) -> SuiteResult:
    """Every policy on every seed, in three worlds. ``ConfigError`` names an unknown one, or weights that nobody
    plays."""
    policies = tuple(given.policies) or DEFAULT
    check_used(given.weights, [name for name in policies if name in MAKERS])
    made: dict[str, Policy] = {name: MAKERS[name](given.weights.get(name)) for name in policies if name in MAKERS}
    for name in policies:
        if name not in made:
            POLICIES.entry(name)
    own = given.settings or SimulationSettings()
    plain = TwinOrder(policy="", seed=0, speed_error=own.speed_error, lag_rounds=own.lag_rounds, clock=given.clock)
    worlds = {PLAIN: plain}
    if own == SimulationSettings():
        worlds |= {MISTAKEN: replace(plain, speed_error=0.2), UNSEEN: replace(plain, unseen=True)}
    orders = [
        (world, policy, replace(order, policy=made.get(policy, policy), seed=seed))
        for world, order in worlds.items()
        for policy in policies
        for seed in given.seeds
    ]
    bounded = [(world, seed) for world in (PLAIN, UNSEEN) if given.bound and world in worlds for seed in given.seeds]
    total = len(orders) + len(bounded)
    runs: dict[tuple[str, str], list[PlayedRun]] = {}
    for done, ((world, policy, order), played) in enumerate(
        zip(orders, given.each(play_twin, [one for *_, one in orders]), strict=True)
    ):
        runs.setdefault((world, policy), []).append(played)
        progress(done + 1, total, f"{world}{policy}, seed {order.seed}")
    found = {
        policy: {
            world + name: ResultMetric.of([one.figures()[name] for one in runs[world, policy]])
            for world in worlds
            for name in runs[world, policy][0].figures()
        }
        for policy in policies
    }
    bounds: dict[str, list[float]] = {}
    for done, ((world, seed), hours) in enumerate(zip(bounded, given.each(bound_h, bounded), strict=True)):
        bounds.setdefault(f"{world}{KPI}", []).append(hours)
        progress(len(orders) + done + 1, total, f"bound, {world}seed {seed}")
    if bounds:
        found[BOUND] = {name: ResultMetric.of(hours) for name, hours in bounds.items()}
    return SuiteResult(
        suite=NAME,
        command=given.command,
        seeds=tuple(given.seeds),
        policies=found,
        paired=tuple(_paired(found)) if len(given.seeds) > 1 else (),
        goals=tuple(goals_of(found)) if own == SimulationSettings() else (),
        notes=(*NOTES, *possible(found), *_refusals(runs)),
    )


def bound_h(order: tuple[str, int]) -> float:
    """Mean hours that no scheduler is below in a world's workload of this seed."""
    world, seed = order
    jobs = draw(seed, unseen=world == UNSEEN)
    return completion_bound(jobs, places=NODES * PLACES_PER_NODE, slot_s=SLOT_S) / HOUR_S


def possible(found: Mapping[str, Mapping[str, ResultMetric]]) -> list[str]:
    """How far below each of the goals' policies any scheduler can be on these seeds; nothing without a bound."""
    if BOUND not in found:
        return []
    least = found[BOUND][KPI].mean
    notes = []
    below = {name: 100.0 * (1.0 - least / found[name][KPI].mean) for name in BELOW_PERCENT if name in found}
    if below:
        most = " or ".join(f"{percent:.1f} % below {name}" for name, percent in below.items())
        notes.append(f"bound: on these seeds no scheduler is more than {most}")
    if OURS in found:
        notes.append(f"{OURS} is {100.0 * (found[OURS][KPI].mean / least - 1.0):.1f} % above the bound")
    return notes


def goals_of(found: Mapping[str, Mapping[str, ResultMetric]]) -> list[Goal]:
    """What is promised of ours beside DRF and Optimus, and how long a decision may take."""
    goals = []
    for other, wanted in BELOW_PERCENT.items():
        if OURS in found and other in found:
            below = 100.0 * (1.0 - found[OURS][KPI].mean / found[other][KPI].mean)
            goals.append(Goal.at_least(f"{OURS} below {other}, percent of mean hours", below, wanted))
    if OURS in found and "decide_ms" in found[OURS]:
        # one inference a decision: the whole decision is more than it
        decide_ms = found[OURS]["decide_ms"].mean
        goals.append(Goal.at_most(f"{OURS}, CPU milliseconds of a decision", decide_ms, 50.0))
    return goals


def _paired(found: Mapping[str, Mapping[str, ResultMetric]]) -> list[Paired]:
    pairs = [(name, other) for name in LEARNED for other in ("drf", "optimus", "marginal")]
    return [Paired.of(KPI, found, a=ours, b=other) for ours, other in pairs if ours in found and other in found]


def _refusals(runs: Mapping[tuple[str, str], list[PlayedRun]]) -> list[str]:
    return [
        f"{world}{policy}: {len(played.refused)} decisions refused; {played.refused[0]}"
        for (world, policy), several in runs.items()
        for played in several
        if played.refused
    ]
