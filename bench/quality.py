"""What a setting costs in quality of placement: openb at 130 % demand through the cores of coordinator and agents.

    python -m bench.quality [--set NAME=VALUE[,NAME=VALUE] ...] [--agents 2] [--policy kube-default] [--seeds 1,2,3]

Each ``--set`` is a line beside the one in which nothing is set, on the same seeds: GPUs allocated (%, and the
difference seed by seed), *regret* (how far the score of the node that a pod got lies below the best of all nodes that
would have taken it then, in % of that best), CPU per pod, and pods a second of virtual time (a turn takes what CPU it
used, an agent 3 ms, a plan 8 ms). All pods are there at once, no process.
The traces lie in ``$CONCLAVE_SHARED/data/openb``.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any

import msgspec
import numpy as np

from bench.in_process.switches import settings_of
from bench.saturation.world import CoreWorld, settle_garbage
from bench.stand.contest import numbers
from bench.stand.figures import table
from services.coordinator.core.state import CoreSettings
from shared.experiments.traces.gpu_trace import GpuNodes, GpuPods, parse_gpu_nodes, parse_gpu_pods, submission
from shared.experiments.traces.openb import parse_nodes, parse_pods
from shared.kube import objects as api
from shared.kube.convert import node_from_api
from shared.model.constraints import gpu_milli_of
from shared.policy.observation import Observation
from shared.policy.registry import make_policy
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.state.node_table import NodeTable
from shared.wire.messages import Plan

DATA = Path(os.environ.get("CONCLAVE_SHARED", "../shared")) / "data" / "openb"
NODE_LIST = "openb_node_list_gpu_node.csv"
REST_S = 600.0
Json = dict[str, Any]


class QualityWorld(CoreWorld):
    """Judges each placement against all nodes as they are when its plan comes."""

    def __init__(self, *, policy: str, agents: int, seed: int, settings: CoreSettings) -> None:
        super().__init__(agents=agents, seed=seed, policy=policy, settings=settings)
        self.regrets: list[float] = []
        self.allocated = 0
        """Thousandths of a GPU that were given to pods."""
        self._table = NodeTable(64)
        self._feasible = FeasibilityCache(self._table)
        self._judge, self._rng = make_policy("kube-default"), Random(seed)
        self._devices: dict[str, tuple[int, ...]] = {}

    def add_node(self, body: Json) -> None:
        """See ``CoreWorld``."""
        super().add_node(body)
        self._table.upsert(node_from_api(msgspec.convert(body, api.Node)))

    def _bind(self, plan: Plan) -> None:
        for placement in plan.placements:
            if (pod := self.pods.get(placement.uid)) is not None:
                self._place(pod.pod_class, self._table.row_of[placement.node], placement.uid)
        super()._bind(plan)

    def _place(self, pod_class: Any, row: int, uid: str) -> None:
        rows = np.flatnonzero(self._feasible.of(pod_class).mask)
        where = np.flatnonzero(rows == row)
        if where.size:
            score = self._judge.decide(Observation(self._table, pod_class, rows), self._rng).score
            self.regrets.append(100.0 * float(1 - score[where[0]] / max(float(score.max()), 1e-9)))
        milli = gpu_milli_of(pod_class)
        self._devices[uid] = devices = self._table.pick_devices(row, milli)
        self._table.add_usage(row, pod_class, devices)
        self.allocated += milli

    def _change(self, uid: str, after_s: float = 0.0, **changes: Any) -> None:
        if "node_name" in changes:
            changes["devices"] = self._devices.get(uid, ())
        super()._change(uid, after_s, **changes)


def played(nodes: GpuNodes, pods: GpuPods, seed: int, bodies: tuple[list[Json], list[Json]], **of: Any) -> Json:
    """One episode."""
    world = QualityWorld(seed=seed, **of)
    for body in bodies[0]:
        world.add_node(msgspec.json.decode(msgspec.json.encode(body)))
    world.begin()
    world.rest(30)
    settle_garbage()
    world.phase = "load"
    for number, row in enumerate(submission(pods, nodes.capacity, seed).tolist()):
        body = msgspec.json.decode(msgspec.json.encode(bodies[1][row]))
        body["metadata"]["name"] = f"{body['metadata']['name']}-{number:06}"
        world.add_pod(body)
    began = world.now
    at_rest, placed, turns = world.rest(REST_S), len(world.bound), world.turns["load"]
    return {
        "seed": seed, "at_rest": at_rest, "placed": placed, "allocated": 100 * world.allocated / nodes.capacity,
        "virtual_pods_per_s": placed / (max(world.bound.values()) - began),
        "regret": fmean(world.regrets), "coordinator_us": 1000 * sum(turns.cpu_ms) / placed,
        "agents_us": 1e6 * turns.agents_cpu_s / placed,
    }  # fmt: skip


def rows_of(found: dict[str, list[Json]]) -> list[Sequence[str]]:
    """A line a variant; the first is what the others are compared with."""
    first = next(iter(found.values()))
    lines: list[Sequence[str]] = []
    for name, episodes in found.items():
        apart = [one["allocated"] - base["allocated"] for one, base in zip(episodes, first, strict=True)]
        lines.append(
            (
                name,
                *(told([one[figure] for one in episodes], digits) for figure, digits in FIGURES.items()),
                told(apart, 2) if episodes is not first else "",
            )
        )
    return lines


FIGURES = {"allocated": 2, "regret": 2, "coordinator_us": 0, "agents_us": 0, "virtual_pods_per_s": 0}


def told(values: Sequence[float], digits: int) -> str:
    """Mean ± sample standard deviation."""
    sd = stdev(values) if len(values) > 1 else 0.0
    return f"{fmean(values):.{digits}f} ± {sd:.{digits}f}"


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.quality", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--set", metavar="NAME=VALUE[,...]", action="append", default=[], help="one variant; again: more"
    )
    parser.add_argument("--trace", default="default")
    parser.add_argument("--policy", default="kube-default")
    parser.add_argument("--agents", type=int, default=2)
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    texts = [(DATA / name).read_text() for name in (NODE_LIST, f"openb_pod_list_{options.trace}.csv")]
    nodes = parse_gpu_nodes(texts[0], NODE_LIST)
    pods = parse_gpu_pods(texts[1], options.trace, nodes)
    bodies = parse_nodes(texts[0], NODE_LIST), parse_pods(texts[1], options.trace)
    found: dict[str, list[Json]] = {}
    for variant in ("", *options.set):
        settings, _ = settings_of([text for text in variant.split(",") if text])
        of = {"policy": options.policy, "agents": options.agents, "settings": settings}
        found[variant or "as it is"] = [played(nodes, pods, seed, bodies, **of) for seed in options.seeds]
        print(*("  ".join(row) for row in rows_of(found)[-1:]), flush=True)
    print(
        *table(
            ("", "GPUs allocated %", "regret %", "coordinator us", "agents us", "pods/s", "difference"), rows_of(found)
        ),
        sep="\n",
    )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
