"""``core``: the shapes through the cores alone, in this process and virtual time (``world.py``); many preemptors."""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
from pathlib import Path
from random import Random
from typing import Any

from bench.gangs import load
from bench.gangs.load import LARGEST_GANG, SHAPES, GangShape
from bench.gangs.world import GangWorld
from bench.saturation.core_run import figures
from bench.stand.figures import lines, quantile
from shared.model.units.pod_group import GroupSource, GroupTopology, PodGroup, group_key
from shared.runtime.process.garbage import keep_pauses_short

PREEMPTORS = "preemptors"
STANDING_PER_NODE = 8
"""Pods of low priority that fill a node, each as large as a preemptor."""

URGENT = 1000
LONGEST_S = 600.0


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="python -m bench.gangs core", description=__doc__)
    known = [shape.name for shape in (*SHAPES, LARGEST_GANG)]
    made.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(known)}, {PREEMPTORS}; all")
    made.add_argument("--nodes", type=int, default=5000)
    made.add_argument("--racks", type=int, default=load.RACKS)
    made.add_argument("--agents", type=int, default=2)
    made.add_argument("--scale", type=float, default=1.0, help="the shapes in small: this share of their pods")
    made.add_argument("--rate", type=float, default=1000.0, help="pods created per virtual second; 0: all at once")
    made.add_argument("--gangs", type=int, default=1250, help=f"{PREEMPTORS}: gangs that must preempt")
    made.add_argument("--members", type=int, default=8, help=f"{PREEMPTORS}: members of each")
    made.add_argument("--grace-s", type=float, default=1.0, help=f"{PREEMPTORS}: virtual seconds that victims take")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--profile", metavar="FILE", default="", help="cProfile of both cores' turns into FILE")
    made.add_argument("--json", metavar="FILE", default="", help="the figures, also as JSON")
    return made


def main(arguments: list[str]) -> None:
    """Run it and print it."""
    made = parser()
    options = made.parse_args(arguments)
    known = {shape.name: shape for shape in (*SHAPES, LARGEST_GANG)}
    names = options.shapes or [*known, PREEMPTORS]
    if unknown := [name for name in names if name not in known and name != PREEMPTORS]:
        made.error(f"{unknown[0]}: no such shape; take of {', '.join(known)}, {PREEMPTORS}")
    found: dict[str, Any] = {"machine_load": round(os.getloadavg()[0], 2), "seed": options.seed}
    for name in names:
        found[name] = preempt(options) if name == PREEMPTORS else place(options, known[name].scaled(options.scale))
    print("\n".join(lines(found)))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")


def place(options: argparse.Namespace, shape: GangShape) -> dict[str, Any]:
    """One shape on empty nodes: everything created at the rate, until all is bound and seen bound."""
    world = _world(options, options.nodes, options.racks)
    sizes = shape.sizes(Random(options.seed))
    made = list(load.members(shape, sizes))
    if shape.size != 1:
        for number, size in enumerate(sizes):
            world.add_group(_group(f"{shape.name}-{number:04}", size, racks=shape.racks))
    world.run(world.now + 1)
    profile = _begin(world, options)
    began, uids, gangs = world.now, list[str](), dict[str, list[str]]()
    for number, (gang, body) in enumerate(made):
        if options.rate:
            world.run(began + number / options.rate)
        body["metadata"]["namespace"] = "default"
        uids.append(world.add_pod(body, at=world.now))
        gangs.setdefault(gang or uids[-1], []).append(uids[-1])
    while world.now < began + LONGEST_S and not all(world.confirmed(uid) for uid in uids):
        world.run(world.now + 0.2)
    world.run(world.now + 1)
    _write(profile, options)
    bound = [world.bound[uid] for uid in uids if uid in world.bound]
    whole = [[world.bound[uid] for uid in members] for members in gangs.values() if world.bound.keys() >= set(members)]
    spans = [max(one) - min(one) for one in whole]
    last_created = max(world.created.values())
    return {
        "pods": len(made), "bound": len(bound), "patches": world.patches,
        "first_bind_s": round(min(bound, default=began) - began, 3),
        "all_bound_s_after_last_created": round(max(bound, default=began) - last_created, 3),
        "first_to_last_s": {"p50": quantile(spans, 50), "p99": quantile(spans, 99)},
        **_figures(world, len(bound)),
    }  # fmt: skip


def preempt(options: argparse.Namespace) -> dict[str, Any]:
    """Gangs that find every node full of pods of lower priority, all there at once."""
    wanted = options.gangs * options.members
    nodes = max(1, round(wanted * 2 / STANDING_PER_NODE))
    world = _world(options, nodes, options.racks, full=True)
    for number in range(options.gangs):
        world.add_group(_group(f"urgent-{number:05}", options.members))
    world.run(world.now + 1)
    profile = _begin(world, options)
    began, uids = world.now, []
    for number in range(options.gangs):
        for member in range(options.members):
            name = f"urgent-{number:05}"
            uids.append(world.add_pod(_pod(f"{name}-{member:03}", in_group=name, priority=URGENT)))
    while world.now < began + LONGEST_S and not all(uid in world.bound for uid in uids):
        world.run(world.now + 0.5)
    _write(profile, options)
    bound = [world.bound[uid] for uid in uids if uid in world.bound]
    took_s = max(bound, default=began) - began
    return {
        "nodes": nodes, "gangs": options.gangs, "members": options.members, "bound": len(bound),
        "evicted": len(world.evicted), "virtual_s": round(took_s, 1),
        "resolved_per_s": round(len(bound) / took_s, 1) if bound else 0.0, "patches": world.patches,
        **_figures(world, len(bound)),
    }  # fmt: skip


def _world(options: argparse.Namespace, nodes: int, racks: int, *, full: bool = False) -> GangWorld:
    world = GangWorld(agents=options.agents, seed=options.seed, grace_s=options.grace_s)
    world.phase = "fill"
    for number in range(nodes):
        world.add_node(load.node(number, racks))
        for standing in range(STANDING_PER_NODE if full else 0):
            body = _pod(f"low-{number:05}-{standing}", priority=0)
            body["spec"]["nodeName"] = f"node-{number:05}"
            world.add_pod(body)
    world.begin()
    world.run(world.now + 30)
    return world


def _pod(name: str, *, priority: int, in_group: str = "") -> dict[str, Any]:
    """One that takes an eighth of a node's cores."""
    body = load.pod(name, in_group=in_group, app="urgent" if priority else "low")
    body["metadata"]["namespace"] = "default"
    body["spec"]["priority"] = priority
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    return body


def _group(name: str, size: int, *, racks: bool = False) -> PodGroup:
    topology = GroupTopology(load.RACK) if racks else None
    return PodGroup(
        group_key(GroupSource.NATIVE, "default", name), GroupSource.NATIVE, "default", name, gang=True, min_count=size,
        topology=topology,
    )  # fmt: skip


def _begin(world: GangWorld, options: argparse.Namespace) -> cProfile.Profile | None:
    world.phase = "load"
    keep_pauses_short()  # as a service does once it is ready
    world.profile = cProfile.Profile() if options.profile else None
    return world.profile


def _write(profile: cProfile.Profile | None, options: argparse.Namespace) -> None:
    if profile is not None:
        profile.dump_stats(options.profile)
        pstats.Stats(profile).sort_stats("cumulative").print_stats(70)
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)


def _figures(world: GangWorld, pods: int) -> dict[str, Any]:
    """CPU of each core, by pod and by turn."""
    found: dict[str, Any] = {}
    for name, turns in (("coordinator", world.turns["load"]), ("binder", world.binder_turns["load"])):
        report = figures(turns)
        report["cpu_us_per_pod"] = round(1e6 * report["cpu_s"] / max(1, pods))
        found[name] = report
    found["agents_cpu_us_per_pod"] = round(1e6 * world.turns["load"].agents_cpu_s / max(1, pods))
    return found
