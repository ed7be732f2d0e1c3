"""``core``: these loads, and pods that come one by one, through the core of the coordinator alone (``world.py``)."""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import resource
from random import Random
from typing import Any

from bench.saturation import load
from bench.saturation.world import LONG_MS, CoreWorld, PhaseTurns, settle_garbage
from bench.stand.figures import quantile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("load", choices=["full", "churn", "both", "lone"], nargs="?", default="both")
    parser.add_argument("--nodes", type=int, help="nodes of the load (full: 300, churn: 5000)")
    parser.add_argument("--others", type=int, default=0, help="full: more nodes that the pods may not use")
    parser.add_argument("--waiting", type=int, help="pods that fit nowhere (full: 2000, churn: 10000)")
    parser.add_argument("--classes", type=int, help="classes of them (full: 150, churn: 500)")
    parser.add_argument("--guided", type=float, default=0.2, help="churn: share of the classes with spread or affinity")
    parser.add_argument("--preempting", type=float, default=0.1, help="churn: share of the classes that would preempt")
    parser.add_argument("--rate", type=float, default=50.0, help="churn: arrivals, and departures, a second")
    parser.add_argument("--bind-ms", type=float, default=8.0, help="lone: what a plan takes at the binder")
    parser.add_argument("--seconds", type=float, default=60.0, help="virtual seconds of the load itself")
    parser.add_argument("--told-s", type=float, default=120.0, help="most virtual seconds to wait till all are told")
    parser.add_argument("--grace-s", type=float, default=0.0, help="virtual seconds that victims take to leave")
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="churn: leave out the run with nobody waiting")
    parser.add_argument("--profile", metavar="FILE", default="", help="cProfile of the core's turns into FILE")
    parser.add_argument("--profile-phase", default="", help="profile this phase only (fill, telling, load)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Both loads, as asked."""
    found: dict[str, Any] = {"machine_load": os.getloadavg()[0], "seed": options.seed}
    if options.load in ("full", "both"):
        found["full"] = full(options)
    if options.load == "lone":
        found["lone"] = lone(options)
    if options.load in ("churn", "both"):
        waiting = 10_000 if options.waiting is None else options.waiting
        alone = None if options.alone or not waiting else churn(options, 0)
        found["churn"] = churn(options, waiting)
        if alone is not None:
            found["churn_nobody_waiting"] = alone
            before, now = alone["load"]["cpu_us_per_placement"], found["churn"]["load"]["cpu_us_per_placement"]
            found["churn_more_cpu_percent"] = round(100 * (now / before - 1), 1)
    found["rss_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    return found


class _Profiled:
    """One world, and its profile where one is asked for."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._file, self._only = options.profile, options.profile_phase
        self._profile = cProfile.Profile() if self._file else None
        self.world = CoreWorld(agents=options.agents, seed=options.seed, grace_s=options.grace_s)
        self.phase("fill")

    def phase(self, name: str) -> None:
        self.world.phase = name
        self.world.profile = self._profile if self._only in ("", name) else None

    def write(self) -> None:
        if self._profile is not None:
            self._profile.dump_stats(self._file)
            pstats.Stats(self._profile).sort_stats("cumulative").print_stats(45)
            pstats.Stats(self._profile).sort_stats("tottime").print_stats(25)


def full(options: argparse.Namespace) -> dict[str, Any]:
    """Full nodes, pods that fit nowhere; then each second a filler leaves and an urgent pod comes."""
    nodes, waiting, shapes = options.nodes or 300, options.waiting or 2000, options.classes or 150
    profiled, rng = _Profiled(options), Random(options.seed)
    world = profiled.world
    for number in range(nodes):
        world.add_node(load.node(f"node-{number:05}", number))
    for number in range(options.others):
        world.add_node(load.node(f"other-{number:05}", number, other=True))
    fillers = [
        world.add_pod(load.filler(number, f"node-{number % nodes:05}"))
        for number in range(nodes * load.FILLERS_PER_NODE)
    ]
    world.begin()
    world.rest(30)
    settle_garbage()
    profiled.phase("telling")
    lows = [world.add_pod(load.low(number, shapes)) for number in range(waiting)]
    world.rest(options.told_s)
    told = {uid: world.told[uid] - world.created[uid] for uid in lows if uid in world.told}
    profiled.phase("load")
    rng.shuffle(fillers)
    began, urgent = world.now, []
    for second in range(round(options.seconds)):
        world.run(began + second)
        gone = next((uid for uid in iter(fillers.pop, None) if uid in world.pods), None) if fillers else None
        if gone is not None:
            world.remove_pod(gone)
        urgent.append(world.add_pod(load.urgent(second), at=began + second))
    world.run(began + options.seconds + 30)
    profiled.write()
    waited = [world.bound[uid] - world.created[uid] for uid in urgent if uid in world.bound]
    return {
        "nodes": nodes, "others": options.others, "waiting": waiting, "shapes": shapes,
        "told": len(told), "told_s": {"p50": quantile(told.values(), 50), "p99": quantile(told.values(), 99)},
        "urgent": len(urgent), "urgent_bound": len(waited),
        "urgent_s": {"p50": quantile(waited, 50), "p99": quantile(waited, 99)},
        "evicted": len(world.evicted), "let_in": sum(uid in world.bound for uid in lows), "patches": world.patches,
        **{name: figures(turns) for name, turns in world.turns.items()},
    }  # fmt: skip


def churn(options: argparse.Namespace, waiting: int) -> dict[str, Any]:
    """Small pods come and go beside ``waiting`` ones that fit nowhere."""
    nodes, classes = options.nodes or 5000, options.classes or 500
    profiled, rng = _Profiled(options), Random(options.seed)
    world = profiled.world
    for number in range(nodes):
        world.add_node(load.node(f"node-{number:05}", number))
    for number in range(nodes * (load.FILLERS_PER_NODE - 1)):
        world.add_pod(load.filler(number, f"node-{number % nodes:05}"))
    world.begin()
    world.rest(30)
    count = 2 * nodes // 5
    standing = [world.add_pod(load.small(number, rng)) for number in range(count)]
    world.rest(60)
    settle_garbage()
    profiled.phase("telling")
    lost = [
        world.add_pod(load.hopeless(n, classes, guided=options.guided, preempting=options.preempting))
        for n in range(waiting)
    ]
    all_told = world.rest(options.told_s)
    told = [world.told[uid] - world.created[uid] for uid in lost if uid in world.told]
    settle_garbage()
    profiled.phase("load")
    began, patches, steps = world.now, world.patches, round(options.seconds * options.rate)
    before = len(world.bound)
    for step in range(steps):
        world.run(began + step / options.rate)
        count += 1
        standing.append(world.add_pod(load.small(count, rng)))
        place = next((p for p in (rng.randrange(len(standing)) for _ in range(8)) if standing[p] in world.bound), 0)
        standing[place], standing[-1] = standing[-1], standing[place]
        world.remove_pod(standing.pop())
    world.run(began + options.seconds + 1)
    profiled.write()
    placed = len(world.bound) - before
    report = figures(world.turns["load"])
    report["cpu_us_per_placement"] = round(report["cpu_s"] * 1e6 / max(1, placed))
    report["cpu_share_of_core"] = round(report["cpu_s"] / options.seconds, 3)
    return {
        "nodes": nodes, "waiting": waiting, "classes": classes, "rate": options.rate, "at_rest_before": all_told,
        "told": len(told), "told_s": {"p50": quantile(told, 50), "p99": quantile(told, 99)},
        "placed": placed, "wrongly_placed": sum(uid in world.bound for uid in lost),
        "patches_during_load": world.patches - patches,
        **({"telling": figures(world.turns["telling"])} if "telling" in world.turns else {}),
        "load": report,
    }  # fmt: skip


def lone(options: argparse.Namespace) -> dict[str, Any]:
    """Small pods come by themselves, at random moments: how long one takes from the watch to its node."""
    rng, nodes = Random(options.seed), options.nodes or 500
    world = CoreWorld(agents=options.agents, seed=options.seed, bind_s=options.bind_ms / 1000)
    for number in range(nodes):
        world.add_node(load.node(f"node-{number:05}", number))
    world.begin()
    world.rest(30)
    settle_garbage()
    world.phase = "load"
    at, plans, uids = world.now, world.core.state.stats.plans, []
    for number in range(round(options.seconds * options.rate)):
        at += rng.expovariate(options.rate)
        world.run(at)
        uids.append(world.add_pod(load.small(number, rng), at=at))
    world.run(at + 5)
    waited = [1000 * (world.bound[uid] - world.created[uid]) for uid in uids if uid in world.bound]
    return {
        "nodes": nodes, "pods": len(uids), "placed": len(waited), "plans": world.core.state.stats.plans - plans,
        "ms": {f"p{percent}": quantile(waited, percent) for percent in (50, 90, 99)}, **figures(world.turns["load"]),
    }  # fmt: skip


def figures(turns: PhaseTurns) -> dict[str, Any]:
    """One phase's turns."""
    return {
        "turns": len(turns.cpu_ms),
        "events": turns.events,
        "cpu_s": round(sum(turns.cpu_ms) / 1000, 3),
        "cpu_us_per_event": round(1000 * sum(turns.cpu_ms) / max(1, turns.events), 1),
        "agents_cpu_s": round(turns.agents_cpu_s, 3),
        "turn_cpu_ms": {"p50": quantile(turns.cpu_ms, 50), "p99": quantile(turns.cpu_ms, 99),
                        "max": quantile(turns.cpu_ms, 100)},
        "turn_wall_ms_max": quantile(turns.wall_ms, 100),
        f"turns_above_{LONG_MS:.0f}_ms": sum(ms > LONG_MS for ms in turns.cpu_ms),
        "longest": turns.longest,
    }  # fmt: skip
