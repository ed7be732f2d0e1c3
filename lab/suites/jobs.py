"""The jobs suite (targets T4, twin B): Pollux' 8 workloads at four loads, by the baselines and by ours.

Gate 0 comes first: Tiresias, Optimus with oracle speed and Pollux must come near the authors' own results on the same
workloads. Which set of workloads belongs to which figure follows from the authors' folders: ``tuned`` is load 1.0, the
others name their load; Pollux chooses batches itself, the other two take the users' tuned ones. A value here is of one
workload, its mean over the seeds; policies that draw nothing are played once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from lab.evaluation.results import Goal, Paired, Progress, ResultMetric, SuiteResult
from lab.jobs.clusters import POLLUX, mixed
from lab.jobs.gavel import ISOLATED_FILE, Isolated
from lab.jobs.playing import PlayedRun, RunOrder, WorkloadSource, play, quantiles
from lab.jobs.workloads import WORKLOADS_FILE
from lab.suites.suites import SuiteInput
from lab.traces.cells import rows
from lab.worlds.training.simulation import SimulationSettings
from shared.errors import ConfigError
from shared.jobs.registry import DRAWS, POLICIES

EXPECTED_FILE = "pollux_expected_results.csv"
EXPECTED_EXPERIMENT = "results-jobload"
LOADS: Mapping[str, str] = {"0.5": "load0.5", "1.0": "tuned", "1.5": "load1.5", "2.0": "load2.0"}
"""Set of workloads by load."""
WORKLOADS = tuple(range(1, 9))
GATED = ("tiresias", "optimus", "pollux")
DEFAULT = (*GATED, "sia", "marginal", "marginal-fixed", "jobs-sets")
TOLERANCE_PERCENT = 10.0
OURS, OURS_FIXED, LEARNED = "marginal", "marginal-fixed", "jobs-sets"
OURS_AT_MOST: Mapping[str, tuple[str, float]] = {
    "adaptive, mean hours": ("avg_jct_h", 0.72),
    "adaptive, p99 hours": ("p99_jct_h", 10.84),
}
FIXED_BELOW_H = 1.0
HOUR_S = 3600.0
KPI = "avg_jct_h"
NOTES = (
    "a value is of one workload, its mean over the seeds: what is called a seed here is the number of a workload",
    "jobs come over 8 hours to 16 nodes of 4 GPUs; rounds of 60 s, each restart costs 30 s, jobs wait for rounds",
    "pollux, sia, marginal and jobs-sets choose batches; the others take the users' tuned ones",
)
SECOND_NOTES = (
    NOTES[0],
    "the same arrivals with NCF's jobs replaced by CIFAR10's, on 6 nodes of 4 T4, 2 of 8 V100 and 3 of 8 P100",
    "speeds of GPU types are Gavel's; pollux, tiresias and optimus take all GPUs for alike",
    NOTES[2],
)


def run_suite(given: SuiteInput, progress: Progress) -> SuiteResult:
    """Every policy on every workload and load. ``ConfigError`` names an unknown one or a missing file."""
    policies = tuple(given.policies) or tuple(name for name in DEFAULT if name in POLICIES)
    loads = tuple(given.loads) or tuple(LOADS)
    workloads = tuple(given.workloads) or WORKLOADS
    unknown = [load for load in loads if load not in LOADS]
    if unknown:
        raise ConfigError(f"--loads: {unknown[0]!r} is not known; choose of {', '.join(LOADS)}")
    if not set(workloads) <= set(WORKLOADS):
        raise ConfigError(f"--workloads: there are {WORKLOADS[0]} to {WORKLOADS[-1]}; give some of these")
    orders = _orders(given, policies, loads, workloads)
    published = _published(given.files)
    runs: dict[tuple[str, str, int], list[PlayedRun]] = {}
    for done, ((load, order), played) in enumerate(
        zip(orders, given.each(play, [one for _, one in orders]), strict=True)
    ):
        runs.setdefault((order.policy, load, order.workload[1]), []).append(played)
        progress(done + 1, len(orders), f"{order.policy}, load {load}, workload {order.workload[1]}")
    found = {
        policy: {
            f"load {load}/{name}": ResultMetric.of([_mean(runs[policy, load, number], name) for number in workloads])
            for load in loads
            for name in runs[policy, load, workloads[0]][0].figures()
        }
        for policy in policies
    }
    return SuiteResult(
        suite="jobs",
        command=given.command,
        seeds=workloads,
        policies=found,
        paired=tuple(_paired(found, loads, len(workloads))),
        goals=tuple(_goals(given, found, loads, workloads, published)),
        notes=(*(SECOND_NOTES if given.second_set else NOTES), *_refusals(runs)),
        distributions={
            f"completion, hours, load {load}": {
                policy: quantiles([one for number in workloads for one in runs[policy, load, number]])
                for policy in policies
            }
            for load in loads
        },
    )


def _goals(
    given: SuiteInput,
    found: Mapping[str, Mapping[str, ResultMetric]],
    loads: Sequence[str],
    workloads: Sequence[int],
    published: Mapping[tuple[str, int], float],
) -> list[Goal]:
    if given.settings not in (None, SimulationSettings()) or given.learned_speeds:
        return []
    if given.second_set:
        return ahead_of(found, loads) if set(workloads) == set(WORKLOADS) else []
    return goals_of(found, loads, workloads, published)


def _orders(
    given: SuiteInput, policies: Sequence[str], loads: Sequence[str], workloads: Sequence[int]
) -> list[tuple[str, RunOrder]]:
    if WORKLOADS_FILE not in given.files:
        raise ConfigError(f"--tables: {WORKLOADS_FILE} is missing; give the folder with Pollux' workloads and tables")
    source = WorkloadSource.of(given.files[WORKLOADS_FILE], WORKLOADS_FILE, given.files)
    cluster, settings = POLLUX, given.settings or SimulationSettings()
    if given.second_set:
        if ISOLATED_FILE not in given.files:
            raise ConfigError(f"--second-set: {ISOLATED_FILE} is missing in --tables; it says how fast other GPUs are")
        cluster = mixed()
        types = frozenset(node.gpu_type for node in cluster.nodes)
        settings = replace(settings, gpu_types=Isolated.parse(given.files[ISOLATED_FILE]).factors(types))
    order = RunOrder(
        source=source,
        workload=("", 0),
        cluster=cluster,
        policy="",
        seed=0,
        settings=settings,
        clock=given.clock,
        second_set=given.second_set,
        learned_speeds=given.learned_speeds,
    )
    return [
        (load, replace(order, workload=(LOADS[load], number), policy=policy, seed=seed))
        for load in loads
        for policy in policies
        for number in workloads
        for seed in (given.seeds if DRAWS in POLICIES.entry(policy).traits else given.seeds[:1])
    ]


def _mean(runs: Sequence[PlayedRun], name: str) -> float:
    return fmean(played.figures()[name] for played in runs)


def _published(files: Mapping[str, str]) -> dict[tuple[str, int], float]:
    """The authors' mean completion in hours, by (policy-load, workload)."""
    if EXPECTED_FILE not in files:
        raise ConfigError(f"--tables: {EXPECTED_FILE} is missing; give the folder with Pollux' workloads and tables")
    found: dict[tuple[str, int], float] = {}
    for row in rows(files[EXPECTED_FILE], EXPECTED_FILE, ("experiment", "config", "workload", "avg_jct_s")):
        if row["experiment"].text == EXPECTED_EXPERIMENT:
            number = int(row["workload"].text.rpartition("-")[2])
            found[row["config"].text, number] = float(row["avg_jct_s"].text) / HOUR_S
    return found


def goals_of(
    found: Mapping[str, Mapping[str, ResultMetric]],
    loads: Sequence[str],
    workloads: Sequence[int],
    published: Mapping[tuple[str, int], float],
) -> list[Goal]:
    """Gate 0 over the workloads that were played, then what is promised of ours over all eight."""
    goals: list[Goal] = []
    for load in loads:
        metric = f"load {load}/{KPI}"
        for policy in (one for one in GATED if one in found):
            figure = fmean(published[f"{policy}-{load}", number] for number in workloads)
            off = 100.0 * abs(found[policy][metric].mean / figure - 1.0)
            over = "" if set(workloads) == set(WORKLOADS) else f" over workloads {', '.join(map(str, workloads))}"
            what = f"gate 0: {policy} at load {load}, percent off the published {figure:.3f} h{over}"
            goals.append(Goal.at_most(what, off, TOLERANCE_PERCENT))
        if set(workloads) != set(WORKLOADS):
            continue
        goals += ahead_of(found, [load])
    if set(workloads) == set(WORKLOADS) and "1.0" in loads:
        if OURS in found:
            goals += [
                Goal.at_most(f"{OURS} at load 1.0, {what}", found[OURS][f"load 1.0/{name}"].mean, bound)
                for what, (name, bound) in OURS_AT_MOST.items()
            ]
        if OURS_FIXED in found:
            mean = found[OURS_FIXED][f"load 1.0/{KPI}"].mean
            goals.append(Goal.at_most(f"{OURS_FIXED} at load 1.0, mean hours", mean, FIXED_BELOW_H))
    return goals


def ahead_of(found: Mapping[str, Mapping[str, ResultMetric]], loads: Sequence[str]) -> list[Goal]:
    """Ours is not behind the strongest of the others."""
    return [
        Goal.at_most(
            f"{OURS} less {other} at load {load}, hours",
            found[OURS][f"load {load}/{KPI}"].mean - found[other][f"load {load}/{KPI}"].mean,
            0.0,
        )
        for load in loads
        for other in ("pollux", "sia")
        if OURS in found and other in found
    ]


def _paired(found: Mapping[str, Mapping[str, ResultMetric]], loads: Sequence[str], workloads: int) -> list[Paired]:
    if workloads < 2:
        return []
    pairs = [(OURS, "pollux"), (OURS, "sia"), (OURS_FIXED, "tiresias"), (OURS_FIXED, "optimus")]
    pairs += [(LEARNED, "pollux"), (LEARNED, "sia"), (LEARNED, OURS)]
    return [
        Paired.of(f"load {load}/{KPI}", found, a=ours, b=other)
        for load in loads
        for ours, other in pairs
        if ours in found and other in found
    ]


def _refusals(runs: Mapping[tuple[str, str, int], Sequence[PlayedRun]]) -> list[str]:
    return [
        f"{policy}, load {load}, workload {number}: {len(played.refused)} decisions refused; {played.refused[0]}"
        for (policy, load, number), several in runs.items()
        for played in several
        if played.refused
    ]
