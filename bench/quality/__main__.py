"""What bursts, settings and policies cost in quality of placement, through the cores of coordinator and agents.

    python -m bench.quality [--scene unlike,deployments,affinity] [--agents 0,1,4] [--nodes 5000] [--pods 5000]
    python -m bench.quality --scene openb [--set NAME=VALUE[,NAME=VALUE] ...] [--agents 2] [--policy kube-default]
        [--claims]

Per scene (``scenes.py``, ``openb.py``) and number of agents a line; each ``--set`` is a line beside the one in which
nothing is set, on the same seeds. *Regret* (``world.py``): how far each pod's node lies below the best at its commit,
in points of 100, its mean and the 99th percentile. ``fullest``: pods on the fullest node, ``empty``: nodes without any;
CPU per pod; pods a second of virtual time (a turn takes what CPU it used, an agent 3 ms, a plan 8 ms). All pods are
there at once, no process.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from bench.in_process.switches import settings_of
from bench.quality.openb import REST_S, Openb
from bench.quality.scenes import SCENES, fill
from bench.quality.world import QualityWorld
from bench.stand.contest import numbers
from bench.stand.figures import quantile, table
from services.coordinator.core.state import CoreSettings

OPENB = "openb"
Json = dict[str, Any]
FIGURES = {
    "regret": 2, "regret_p99": 2, "misplaced": 0, "fullest": 0, "empty": 0, "allocated": 2, "coordinator_us": 0,
    "agents_us": 0, "virtual_pods_per_s": 0,
}  # fmt: skip


def played(
    scene: str, agents: int, seed: int, settings: CoreSettings, options: argparse.Namespace, openb: Openb | None
) -> Json:
    """One episode."""
    world = QualityWorld(policy=options.policy, agents=agents, seed=seed, settings=settings)
    if openb is not None:
        openb.fill(world, seed, claims=options.claims)
    else:
        fill(world, scene, options.nodes, options.pods)
    began = world.now
    at_rest, placed, turns = world.rest(REST_S), len(world.bound), world.turns["load"]
    nodes = len(world.judge.state.table.row_of)
    return {
        "seed": seed, "at_rest": at_rest, "placed": placed, "misplaced": len(world.judge.misplaced),
        "regret": fmean(world.judge.regrets), "regret_p99": quantile(world.judge.regrets, 99),
        "regret_max": max(world.judge.regrets), "fullest": max(world.on.values()), "empty": nodes - len(world.on),
        "allocated": 0.0 if openb is None else 100 * world.allocated / openb.nodes.capacity,
        "virtual_pods_per_s": placed / (max(world.bound.values()) - began),
        "coordinator_us": 1000 * sum(turns.cpu_ms) / placed, "agents_us": 1e6 * turns.agents_cpu_s / placed,
    }  # fmt: skip


def row_of(name: str, episodes: Sequence[Json]) -> Sequence[str]:
    """A line."""
    return name, *(told([one[figure] for one in episodes], digits) for figure, digits in FIGURES.items())


def told(values: Sequence[float], digits: int) -> str:
    """Mean ± sample standard deviation, where there are several."""
    mean = f"{fmean(values):.{digits}f}"
    return f"{mean} ± {stdev(values):.{digits}f}" if len(values) > 1 else mean


def scenes(text: str) -> list[str]:
    """Names of scenes. ``argparse.ArgumentTypeError``: there is no such one."""
    names = text.split(",")
    for name in names:
        if name not in (OPENB, *SCENES):
            raise argparse.ArgumentTypeError(f"{name!r} is no scene; there are {', '.join((OPENB, *SCENES))}")
    return names


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.quality", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--set", metavar="NAME=VALUE[,...]", action="append", default=[], help="one variant; again: more"
    )
    parser.add_argument("--scene", type=scenes, default=[OPENB], help=f"{OPENB}, {', '.join(SCENES)}; several by comma")
    parser.add_argument("--trace", default="default", help="openb's list of pods")
    parser.add_argument("--claims", action="store_true", help="openb's GPUs by ResourceClaims")
    parser.add_argument("--policy", default="kube-default")
    parser.add_argument("--agents", type=partial(numbers, least=0), default=[2])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--seeds", type=numbers, default=[1])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, list[Json]] = {}
    for scene in options.scene:
        openb = Openb(options.trace) if scene == OPENB else None
        for agents in options.agents:
            for variant in ("", *options.set):
                settings, _ = settings_of([text for text in variant.split(",") if text])
                name = f"{scene}, {agents} agents{', ' if variant else ''}{variant}"
                episodes = [played(scene, agents, seed, settings, options, openb) for seed in options.seeds]
                found[name] = episodes
                print(*row_of(name, episodes), sep="  ", flush=True)
    print(*table(("", *FIGURES), [row_of(name, episodes) for name, episodes in found.items()]), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
