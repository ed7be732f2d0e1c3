"""The tidal suite: a day of one pool in four arrangements, on the same hardware, services and jobs.

``online-alone``: the services and nothing else, what violations are measured against. ``two-pools``: services on two
thirds of the nodes, jobs on the third that has the GPUs. ``kube-default``: one pool, jobs ask for plain cores at a
lower priority and are preempted. ``lending``: jobs ask for what the services request and do not use, and give way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from lab.evaluation.results import Goal, Progress, ResultMetric, SuiteResult, silent
from lab.mesh.placement import NamedPolicy
from lab.mesh.tidal.day import ALONE, ARRANGEMENTS, LENT, Arrangement, Day
from lab.mesh.tidal.lending import PLAIN, giving_way
from lab.mesh.tidal.levels import TidalLevels
from lab.mesh.tidal.played import PlayedDay
from lab.mesh.tidal.waits import Which, later
from lab.mesh.world import Agents
from lab.suites.suites import SuiteInput
from lab.traces.tidal import TidalTraces, built_in, read_traces
from shared.errors import ConfigError

ONE_AGENT = Agents(1)
POLICY = "kube-default"
"""Who ranks nodes, in every arrangement."""
PEAK_CPU, DAY_CPU, GPUS, MORE_VIOLATIONS, LOST, WITHIN_S = 60.0, 45.0, 95.0, 0.1, 3.0, 5.0
POINTS_AN_HOUR = 6
UNITS = {
    "cpu_day": "CPU used over the day, percent of the pool",
    "cpu_peak": "in the hour of the highest online demand",
    "online_cpu_day": "of that the services'",
    "gpus": "GPUs allocated, percent of the time of all",
    "violations": "requests beyond the line of the latency proxy, percent",
    "evictions": "workers asked to leave",
    "for_use": "of them because their node lent less",
    "for_jobs": "of them for the sake of another job",
    "broken": "gangs of several workers that broke by it",
    "lost": "offline work lost, percent of what was done",
    "work": "hours that offline workers advanced, less what was lost",
    "wait": "longest wait of an online pod for its Binding, seconds, less the grace of who left for it",
    "gave_way": "longest from when a node lends less than is held to the last request to leave, seconds",
}
"""What each figure says."""
LATER = "later"
UNITS_BESIDE_ALONE = {LATER: "longest that an online pod waited more than the same pod of online-alone, seconds"}
"""Where services alone were played as well."""


@dataclass(frozen=True, slots=True)
class DayFigures:
    """One day in figures, and its course: by name, means of equal parts of an hour. ``waits``: of each online pod."""

    figures: Mapping[str, float]
    course: Mapping[str, tuple[float, ...]]
    waits: Mapping[Which, float]


def run_suite(given: SuiteInput, progress: Progress = silent, agents: Agents = ONE_AGENT) -> SuiteResult:
    """Every arrangement on every seed. ``ConfigError``: no such arrangement, or a trace is missing or malformed."""
    by_name = {one.name: one for one in ARRANGEMENTS}
    for name in given.policies:
        if name not in by_name:
            raise ConfigError(f"--policies: {name!r} is no arrangement of the pool; choose of {', '.join(by_name)}")
    chosen = [by_name[name] for name in given.policies or by_name]
    traces = read_traces(given.files) if given.files else built_in()
    found: dict[str, dict[str, ResultMetric]] = {}
    courses: dict[str, dict[str, tuple[float, ...]]] = {}
    waits: dict[str, list[Mapping[Which, float]]] = {}
    total, done = len(chosen) * len(given.seeds), 0
    for how in chosen:
        played, days = given.each(partial(play, traces, TidalLevels(), how, agents), given.seeds), []
        for seed in given.seeds:
            progress(done, total, f"{how.name}, seed {seed}, {agents} agents")
            days.append(next(played))
            done += 1
        found[how.name] = {name: ResultMetric.of([day.figures[name] for day in days]) for name in days[0].figures}
        waits[how.name] = [day.waits for day in days]
        for name in days[0].course:
            mean = np.mean([day.course[name] for day in days], axis=0)
            courses.setdefault(name, {})[how.name] = tuple(mean.tolist())
    for name, of in waits.items():
        if ALONE.name in waits and name != ALONE.name:
            found[name][LATER] = ResultMetric.of([*map(later, of, waits[ALONE.name])])
    progress(total, total, "done")
    return SuiteResult(
        "tidal", given.command, tuple(given.seeds), found, goals=tuple(goals_of(found)),
        notes=notes_of(traces, agents), over_day=courses,
    )  # fmt: skip


def play(traces: TidalTraces, levels: TidalLevels, how: Arrangement, agents: Agents, seed: int) -> DayFigures:
    """One day."""
    world = NamedPolicy(POLICY).world(levels.pool(), agents, seed, settings=giving_way(levels) if how.lends else PLAIN)
    return told(Day(traces, levels, how, world, seed).play(), levels)


def told(played: PlayedDay, levels: TidalLevels) -> DayFigures:
    """A played day in figures."""
    series, hour = played.series, round(3600 / levels.step_s)
    online, demanded = np.array(series.online), np.array(series.demanded)
    used = online + np.array(series.offline)
    peak = int(np.argmax(np.convolve(demanded, np.ones(min(hour, len(demanded))), "valid")))
    part = hour // POINTS_AN_HOUR
    course = {
        "CPU used, percent": used, "CPU used online, percent": online, "GPUs allocated, percent": np.array(series.gpus),
        "requests violated, percent": np.array(series.violated) / demanded,
    }  # fmt: skip
    figures = {
        "cpu_day": 100 * float(used.mean()),
        "cpu_peak": 100 * float(used[peak : peak + hour].mean()),
        "online_cpu_day": 100 * float(online.mean()),
        "gpus": 100 * float(np.mean(series.gpus)),
        "violations": 100 * sum(series.violated) / float(demanded.sum()),
        "evictions": float(played.evictions),
        "for_use": float(played.for_use),
        "for_jobs": float(played.for_jobs),
        "broken": float(played.broken),
        "lost": 100 * played.lost / played.done if played.done else 0.0,
        "work": (played.done - played.lost) / 3600,
        "wait": max(played.waits.values(), default=0.0),
        "gave_way": max(played.gave_way, default=0.0),
    }
    parts = len(used) // part
    return DayFigures(
        figures,
        {
            name: tuple((100 * values[: parts * part].reshape(parts, part).mean(axis=1)).tolist())
            for name, values in course.items()
        },
        played.waits,
    )


def goals_of(found: Mapping[str, Mapping[str, ResultMetric]]) -> list[Goal]:
    """What lending promises; beside the services alone where they were played."""
    if LENT.name not in found:
        return []
    ours = found[LENT.name]
    goals = [
        Goal.at_least("CPU used at the peak of online demand, percent", ours["cpu_peak"].mean, PEAK_CPU),
        Goal.at_least("CPU used over the day, percent", ours["cpu_day"].mean, DAY_CPU),
        Goal.at_least("GPUs allocated, percent", ours["gpus"].mean, GPUS),
        Goal.at_most("offline work lost, percent", ours["lost"].mean, LOST),
        Goal.at_most("asked to leave after, seconds, the longest", max(ours["gave_way"].values), WITHIN_S),
    ]
    if ALONE.name in found:
        most = max(ours[LATER].values)
        goals.append(Goal.at_most("online pods placed later than alone, seconds, the longest", most, WITHIN_S))
        more = ours["violations"].mean - found[ALONE.name]["violations"].mean
        goals.append(Goal.at_most("online violations above those of online alone, points", more, MORE_VIOLATIONS))
    return goals


def notes_of(traces: TidalTraces, agents: Agents) -> tuple[str, ...]:
    """What a reader must know."""
    told = [
        f"decided by a mesh of agents: {agents}; coordinator, agents and binder are the services' own cores",
        "load levels are those of lab/mesh/tidal/levels.py, alike in every arrangement; docs/tidal.md says how chosen",
        *(f"{name}: {what}" for name, what in {**UNITS, **UNITS_BESIDE_ALONE}.items()),
    ]
    if traces.built_in:
        told.insert(0, "no traces were given: made-up demand and jobs, which say nothing of a real cluster")
    return tuple(told)
