"""Watches a policy place the thesis' pods, beside a baseline: where their choices differ, and what each run costs.

The pods are those of targets T3, at random gaps, on a table of nodes that knows requests (``table_run``); the cost is
taken from what the pods really use, replayed in the cluster model. A policy that reads measured utilisation is fed with
it as it would be in a cluster with a metrics server: 15 s late. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from shared.experiments.environments.power import energy_wh
from shared.experiments.environments.thesis_workload import Draws
from shared.experiments.evaluation.behaviour.behaviour import Behaviour, Choice, behaviour_of
from shared.experiments.evaluation.results import Progress, silent
from shared.experiments.evaluation.statistics import mean
from shared.experiments.evaluation.worlds.measured_world import MeasuredWorld, named_policy
from shared.experiments.evaluation.worlds.table_run import Job, PolicyChooser, Step, TableRun
from shared.experiments.traces.workload import arrivals, thesis_nodes
from shared.kube import objects as api
from shared.kube.convert import node_from_api, pod_class_of
from shared.model.workload_key import workload_key
from shared.policy.observation import Observation, Policy, Rng
from shared.policy.registry import make_policy
from shared.scheduling.state.node_table import IntArray, NodeTable
from shared.twin.replay import Placed, usage_over_time
from shared.twin.usage import LIMITS_ANNOTATION, USAGE_ANNOTATION, Limits, limits_from_json, profile_from_json

BASELINE = "kube-default"
NODES = 8
"""Twice the thesis' four: enough that "which node" is a question, few enough to be read."""
PODS = 210
"""In proportion to the nodes."""
STEP_S = 5.0
"""Between two looks at what runs."""


@dataclass(frozen=True)
class Scene:
    """Nodes and pods of one seed. ``used``: what each pod really uses, by uid."""

    nodes: list[api.Node]
    jobs: list[Job]
    used: dict[str, Placed]


@dataclass(frozen=True)
class Outcome:
    """One policy's run over a scene. ``choices`` are beside the baseline's, empty for the baseline itself."""

    choices: list[Choice]
    costs: dict[str, float]


def thesis_scene(seed: int) -> Scene:
    """The random workload of targets T3, at twice its size."""
    nodes = [msgspec.convert(node, api.Node) for node in thesis_nodes(NODES)]
    jobs, used = [], {}
    for arrival in arrivals("random", Draws(seed), count=PODS):
        pod = msgspec.convert(arrival.pod, api.Pod)
        profile = profile_from_json((pod.metadata.annotations or {})[USAGE_ANNOTATION])
        uid = pod.metadata.name
        key = workload_key(pod.metadata.namespace or "", labels=pod.metadata.labels or {}, images=())
        pod_class = msgspec.structs.replace(pod_class_of(pod), workload=key)
        jobs.append(Job(uid, arrival.at_s, pod_class, profile.duration_s))
        used[uid] = Placed(uid, "", arrival.at_s, None, profile)
    return Scene(nodes, jobs, used)


def watch(name: str, seeds: Sequence[int], *, baseline: str = BASELINE, progress: Progress = silent) -> Behaviour:
    """The behaviour of a policy over all ``seeds``; costs are means over them."""
    choices: list[Choice] = []
    own: dict[str, list[float]] = {}
    other: dict[str, list[float]] = {}
    for done, seed in enumerate(seeds):
        progress(done, len(seeds), f"behaviour of {name}, seed {seed}")
        scene = thesis_scene(seed)
        found = run_scene(scene, name, baseline, seed)
        choices += found.choices
        for figures, costs in ((own, found.costs), (other, run_scene(scene, baseline, None, seed).costs)):
            for figure, value in costs.items():
                figures.setdefault(figure, []).append(value)
    both = {figure: (mean(values), mean(other[figure])) for figure, values in own.items()}
    return behaviour_of(choices, policy=name, baseline=baseline, costs=both, seed=min(seeds))


def run_scene(scene: Scene, name: str, baseline: str | None, seed: int) -> Outcome:
    """Let a policy place the scene's pods; each choice beside what ``baseline`` would have done there."""
    limits = {node.metadata.name: _limits(node) for node in scene.nodes}
    world = MeasuredWorld(limits, {uid: pod.profile for uid, pod in scene.used.items()})
    choose = PolicyChooser(named_policy(name, world.store), np.random.default_rng(seed))

    def informed(job: Job, observation: Observation) -> int:
        world.advance(run.now_s)
        return choose(job, observation)

    run = TableRun([node_from_api(node) for node in scene.nodes], scene.jobs, informed)
    beside = None if baseline is None else make_policy(baseline)
    rng = np.random.default_rng(seed)
    choices = []
    for step in run:
        if beside is not None and len(step.observation.rows) > 1:
            choices.append(choice_of(step, beside, rng))
        world.bound(step)
    return Outcome(choices, _costs(scene, world.placed, len(run.unplaced)))


def choice_of(step: Step, baseline: Policy, rng: Rng) -> Choice:
    """The step beside the baseline. Its rank is the mean over its equally best nodes."""
    seen = step.observation
    ranks = fullness_ranks(seen.table, seen.rows)
    score = baseline.decide(Observation(seen.table, seen.pod_class, seen.rows), rng).score
    best = score == score.max()
    requested, allocatable = seen.table.requested[:2, seen.rows], seen.table.allocatable[:2, seen.rows]
    shares = requested / np.maximum(allocatable, 1)
    wanted = dict(seen.pod_class.requests)
    whole = allocatable.mean(axis=1)
    situation = (
        wanted.get("cpu", 0) / max(float(whole[0]), 1.0),
        wanted.get("memory", 0) / max(float(whole[1]), 1.0),
        len(seen.rows) / max(len(seen.table.row_of), 1),
        float(shares.mean()),
        float(shares.mean(axis=0).std()),
        float(ranks[step.chosen]),
    )
    return Choice(
        situation, float(ranks[best].mean()), bool(best[step.chosen]), float(score.max() - score[step.chosen])
    )


def fullness_ranks(table: NodeTable, rows: IntArray) -> NDArray[np.float64]:
    """[candidates]: 0 for the emptiest, 1 for the fullest by requested cpu and memory; equals share their middle."""
    load = (table.requested[:2, rows] / np.maximum(table.allocatable[:2, rows], 1)).mean(axis=0)
    below = (load[None, :] < load[:, None]).sum(axis=1)
    equal = (load[None, :] == load[:, None]).sum(axis=1) - 1
    found: NDArray[np.float64] = (below + equal / 2) / max(len(rows) - 1, 1)
    return found


def _costs(scene: Scene, placed: Sequence[Placed], unplaced: int) -> dict[str, float]:
    limits = {node.metadata.name: _limits(node) for node in scene.nodes}
    last_s = max((pod.end_s or pod.start_s for pod in placed), default=STEP_S)
    times = np.arange(0.0, last_s + STEP_S, STEP_S)
    used = usage_over_time(limits, placed, times.tolist())
    whole = np.array(
        [
            (one.cpu_millis, one.memory_bytes, one.disk_write_bytes_per_s, one.network_bits_per_s)
            for one in limits.values()
        ],
        np.float64,
    )
    shares = used / np.maximum(whole, 1.0)[:, None, :]
    highest = shares.max(axis=2)
    empty = ~used.any(axis=2)
    return {
        "imbalance of true use": float(highest.std(axis=0).mean()),
        "highest use of a node": float(highest.max()),
        "nodes in use": float((~empty).sum(axis=0).mean()),
        "energy, Wh, all nodes on": energy_wh(shares[:, :, 0], times),
        "energy, Wh, empty nodes off": energy_wh(shares[:, :, 0], times, empty=empty),
        "pods without a node": float(unplaced),
    }


def _limits(node: api.Node) -> Limits:
    allocatable = node_from_api(node).allocatable
    text = (node.metadata.annotations or {}).get(LIMITS_ANNOTATION, "")
    return limits_from_json(text, cpu_millis=allocatable.get("cpu", 0), memory_bytes=allocatable.get("memory", 0))
