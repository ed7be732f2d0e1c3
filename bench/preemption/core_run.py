"""``core``: preemptors onto full nodes, by the cores alone, in this process and virtual time: what one more costs.

Pods of one GPU and high priority, lone or in gangs of four, all created at once, onto nodes of eight GPUs that are full
of pods of low priority. The cores of coordinator, agents and binder run; etcd, the API server and the way between
services take fixed times (``gangs/world.py``), so a rate here is no rate of a cluster; CPU, victims and searches are.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
from pathlib import Path
from typing import Any

from bench.gangs.world import GangWorld
from bench.preemption import load
from bench.preemption.load import GANGS, MEMBERS, PLAIN
from bench.saturation.core_run import figures
from bench.stand.figures import lines
from shared.model.units.pod_group import GroupSource, PodGroup, group_key
from shared.runtime.process.garbage import keep_pauses_short

LONGEST_S = 600.0


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="python -m bench.preemption core", description=__doc__)
    made.add_argument("--preemptors", type=int, nargs="+", default=[100, 400, 1000, 4000])
    made.add_argument("--scene", choices=[PLAIN, GANGS], default=PLAIN)
    made.add_argument("--nodes", type=int, default=500)
    made.add_argument("--agents", type=int, default=1)
    made.add_argument("--grace-s", type=float, default=0.0, help="virtual seconds that victims take")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--profile", metavar="FILE", default="", help="cProfile of both cores' turns into FILE")
    made.add_argument("--json", metavar="FILE", default="", help="the figures, also as JSON")
    return made


def preempt(options: argparse.Namespace, count: int) -> dict[str, Any]:
    """One burst."""
    world = GangWorld(agents=options.agents, seed=options.seed, grace_s=options.grace_s)
    world.phase = "fill"
    for number in range(options.nodes):
        world.add_node(load.node(number))
    for body in load.standing(options.nodes):
        _add(world, body)
    wanting = list(load.wanting(options.scene, "urgent", count))
    for gang in dict.fromkeys(gang for gang, _ in wanting if gang):
        key = group_key(GroupSource.NATIVE, "default", gang)
        world.add_group(PodGroup(key, GroupSource.NATIVE, "default", gang, gang=True, min_count=MEMBERS))
    world.begin()
    world.run(world.now + 30)
    world.phase = "load"
    keep_pauses_short()  # as a service does once it is ready
    world.profile = cProfile.Profile() if options.profile else None
    began, before = world.now, world.core.state.stats.preemption_searches
    uids = [_add(world, body) for _, body in wanting]
    while world.now < began + LONGEST_S and not all(uid in world.bound for uid in uids):
        world.run(world.now + 0.2)
    if world.profile is not None:
        world.profile.dump_stats(options.profile)
        pstats.Stats(world.profile).sort_stats("cumulative").print_stats(60)
    bound = [world.bound[uid] for uid in uids if uid in world.bound]
    took_s = max(bound, default=began) - began
    found: dict[str, Any] = {
        "bound": len(bound), "evicted": len(world.evicted), "virtual_s": round(took_s, 2),
        "searches": world.core.state.stats.preemption_searches - before, "patches": world.patches,
    }  # fmt: skip
    for name, turns in (("coordinator", world.turns["load"]), ("binder", world.binder_turns["load"])):
        report = figures(turns)
        report["cpu_us_per_preemptor"] = round(1e6 * report["cpu_s"] / max(1, len(bound)))
        found[name] = report
    return found


def _add(world: GangWorld, body: load.Json) -> str:
    body["metadata"]["namespace"] = "default"
    body["metadata"]["labels"].pop(load.QUEUE_LABEL, "")  # there are no Queues here
    return world.add_pod(body)


def main(arguments: list[str]) -> None:
    """Run it and print it."""
    options = parser().parse_args(arguments)
    found: dict[str, Any] = {"machine_load": round(os.getloadavg()[0], 2), "nodes": options.nodes}
    for count in options.preemptors:
        found[str(count)] = preempt(options, count)
        print(f"{count} preemptors\n  " + "\n  ".join(lines(found[str(count)])), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
