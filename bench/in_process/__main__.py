"""Pods a second through the whole mesh in one process, with no HTTP: by nodes and agents, and where each goes.

    .venv/bin/python -m bench.in_process [--nodes 1000,5000,20000] [--agents 1] [--pods 5000] [--json FILE]

CPU of this one thread, so that a machine that others use tells the same; the best of the rounds, as others only add.
``pods/s``: of one core that does everything. ``busiest``: pods a second of the process that has most to do, were each
on a core of its own (agents share their work evenly). The API server and etcd in memory are not counted.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import argparse
import cProfile
import gc
import json
import os
from pathlib import Path
from typing import Any

from bench.in_process.meters import OTHERS, CpuMeter
from bench.in_process.switches import add_argument, settings_of
from bench.in_process.world import InProcessWorld
from bench.stand.contest import conditions, numbers
from bench.stand.figures import table
from bench.stand.proc import calibration_ms

WARM = 64
Figures = dict[str, Any]


def measured(nodes: int, agents: int, pods: int, options: argparse.Namespace) -> Figures:
    """One drain of a warm mesh."""
    meter = CpuMeter()
    core, binder = settings_of(options.set)
    world = InProcessWorld(
        nodes=nodes, agents=agents, meter=meter, seed=options.seed, policy=options.policy, settings=core,
        binder_settings=binder,
    )  # fmt: skip
    world.start()
    world.create((f"warm-{number:03}" for number in range(WARM)), options.shapes)
    world.run()
    gc.collect()
    gc.freeze()
    meter.spent.clear()
    world.bytes.clear()
    conflicts, placed = world.core.state.stats.conflicts, world.core.state.stats.placements
    world.create((f"pod-{number:06}" for number in range(pods)), options.shapes)
    meter.spent.clear()
    profile = cProfile.Profile() if options.profile else None
    if profile is not None:
        profile.runcall(world.run)
        profile.dump_stats(options.profile)
    else:
        world.run()
    gc.unfreeze()
    us = {stage: round(spent / 1000 / pods, 1) for stage, spent in sorted(meter.spent.items()) if stage not in OTHERS}
    stats, whole = world.core.state.stats, sum(us.values())
    return {
        "nodes": nodes, "agents": agents, "pods": pods, "unbound": world.unbound(), "us_per_pod": us,
        "us_per_pod_whole": round(whole, 1), "pods_per_s": round(1e6 / whole),
        "busiest_pods_per_s": round(1e6 / max(of_processes(us, agents).values())),
        "conflicts_percent": round(100 * (stats.conflicts - conflicts) / max(1, stats.placements - placed), 2),
        "bytes_per_pod": {kind: round(count / pods, 1) for kind, count in sorted(world.bytes.items())},
    }  # fmt: skip


def of_processes(us: dict[str, float], agents: int) -> dict[str, float]:
    """Microseconds per pod of each process; of one agent."""
    found: dict[str, float] = {}
    for stage, spent in us.items():
        process = stage.split()[0]
        found[process] = found.get(process, 0.0) + spent / (agents if process == "agent" else 1)
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.in_process", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=numbers, default=[1000, 5000, 20_000], help="1000,5000,20000")
    parser.add_argument("--agents", type=numbers, default=[1], help="1; several, such as 1,2,4,8: one by one")
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--shapes", type=int, default=1, help="kinds of pods by what they ask for (1)")
    parser.add_argument("--policy", default="kube-default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--profile", metavar="FILE", default="", help="cProfile of the last round; it distorts the figures"
    )
    parser.add_argument("--json", metavar="FILE", default="", help="the figures, also as JSON")
    add_argument(parser)
    options = parser.parse_args()
    before, loop_ms, found = os.getloadavg()[0], calibration_ms(), []
    for nodes in options.nodes:
        for agents in options.agents:
            runs = [measured(nodes, agents, options.pods, options) for _ in range(options.rounds)]
            found.append(min(runs, key=lambda one: float(one["us_per_pod_whole"])))
    stages = list(dict.fromkeys(stage for one in found for stage in one["us_per_pod"]))
    head = ("nodes", "agents", "pods/s", "busiest", "conflicts", "us per pod", *stages)
    rows = [
        [f"{one['nodes']:,}", str(one["agents"]), f"{one['pods_per_s']:,}", f"{one['busiest_pods_per_s']:,}",
         f"{one['conflicts_percent']} %", f"{one['us_per_pod_whole']:.0f}",
         *(f"{one['us_per_pod'].get(stage, 0.0):.1f}" for stage in stages)]
        for one in found
    ]  # fmt: skip
    print(f"{options.pods:,} pods of {options.shapes} shapes, {options.policy}")
    print(conditions([{"load_before": before, "calibration_ms": loop_ms}]))
    print("\n".join(table(head, rows)))
    print(f"bytes per pod: {found[0]['bytes_per_pod']}")
    if any(one["unbound"] for one in found):
        print(f"NOT BOUND: {[one['unbound'] for one in found]}")
    if options.json:
        Path(options.json).write_text(
            json.dumps({"load_before": before, "calibration_ms": loop_ms, "runs": found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
