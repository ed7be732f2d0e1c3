"""What a policy does, in figures a person can judge: how often it agrees with another, where it differs, what it costs.

A policy places the thesis' pods (targets T3, at random gaps) on a table of nodes that knows requests (``table_run``),
and a baseline is asked what it would have done in the same state. Decisions are put in groups by what the moment looked
like and how full the chosen node was, so that "where it differs" names situations, not pods. The cost is taken from
what the pods really use, replayed in the cluster model. A policy that reads measured utilisation is fed with it as in a
cluster with a metrics server: 15 s late. Pure; k-means is scipy's, which is in the ``evaluate`` extra.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans, vq
from scipy.stats import rankdata

from lab.environments.power import energy_wh
from lab.environments.thesis_workload import NumpyDraws
from lab.evaluation.results import Progress, silent
from lab.traces.workload import arrivals, thesis_nodes
from lab.worlds.placement.measured_world import MeasuredWorld, limits_of
from lab.worlds.placement.table_run import TablePod, TableStep
from shared.kube import objects as api
from shared.kube.pods.convert import pod_class_of
from shared.model.workload_key import workload_key
from shared.policy.observation import Observation, Policy, Rng
from shared.policy.registry import make_policy
from shared.scheduling.state.node_table import IntArray, NodeTable
from twin.model.replay import ReplayedPod, amounts, usage_over_time
from twin.model.usage import USAGE_ANNOTATION, UsageLimits, UsageProfile, profile_from_json

BASELINE = "kube-default"
NODES = 8
"""Twice the thesis' four: enough that "which node" is a question, few enough to be read."""
PODS = 210
"""In proportion to the nodes."""
STEP_S = 5.0
"""Between two looks at what runs."""
SITUATION = (
    "pod cpu, share of a node",
    "pod memory, share of a node",
    "candidates, share of all nodes",
    "mean requested share",
    "deviation of requested share",
    "chosen node's fullness rank",
)
"""One number each per decision; the rank is 0 for the emptiest candidate, 1 for the fullest, ties in the middle."""
GROUPS, STARTS = 4, 20
"""Enough groups to tell early from late and small from large, more would not be read; the best of so many starts."""


@dataclass(frozen=True)
class ComparedChoice:
    """One decision beside what the baseline would have done in the same state.

    ``situation``: the numbers of ``SITUATION``. ``baseline_rank``: the fullness rank of the baseline's node.
    ``agrees``: the chosen node is among those the baseline scores highest. ``regret``: the baseline's highest score
    less its score of the chosen node, in the baseline's own units.
    """

    situation: tuple[float, ...]
    baseline_rank: float
    agrees: bool
    regret: float


@dataclass(frozen=True)
class AlikeDecisions:
    """Decisions that are alike: ``means`` over ``SITUATION``, and how they compare with the baseline's."""

    count: int
    agreement: float
    baseline_rank: float
    means: tuple[float, ...]


@dataclass(frozen=True)
class Behaviour:
    """A policy beside a baseline. ``costs``: figure -> (the policy's, the baseline's), each from its own run.

    ``groups`` are ordered from the least agreement to the most; ``regret`` is the mean over all choices.
    """

    policy: str
    baseline: str
    decisions: int
    agreement: float
    regret: float
    groups: tuple[AlikeDecisions, ...]
    costs: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """One object, with the names of the groups' means beside them."""
        return {
            **asdict(self),
            "groups": [{**asdict(one), "means": dict(zip(SITUATION, one.means, strict=True))} for one in self.groups],
            "costs": {name: {"own": own, "baseline": other} for name, (own, other) in self.costs.items()},
        }


def behaviour_of(
    choices: Sequence[ComparedChoice],
    *,
    policy: str,
    baseline: str,
    costs: Mapping[str, tuple[float, float]],
    seed: int,
) -> Behaviour:
    """Sum up ``choices``; ``seed`` draws the first centres of the groups. Raises ``ValueError`` without a choice."""
    if not choices:
        raise ValueError("no decision to sum up")
    points = np.array([choice.situation for choice in choices], np.float64)
    agrees = np.array([choice.agrees for choice in choices])
    ranks = np.array([choice.baseline_rank for choice in choices])
    labels = group_alike(points, seed=seed)
    groups = [_group(points, agrees, ranks, labels == label) for label in np.unique(labels)]
    return Behaviour(
        policy,
        baseline,
        len(choices),
        float(agrees.mean()),
        float(np.mean([choice.regret for choice in choices])),
        tuple(sorted(groups, key=lambda group: (group.agreement, -group.count))),
        dict(costs),
    )


def group_alike(points: NDArray[np.float64], *, seed: int) -> NDArray[np.int32]:
    """[count]: the group of each row of ``points`` [count, features], by k-means on features in units of their s.d.

    At most ``GROUPS`` groups, fewer where fewer rows differ.
    """
    deviation = points.std(axis=0)
    scaled = points / np.where(deviation > 1e-12, deviation, 1.0)
    centres, _ = kmeans(scaled, min(GROUPS, len(points)), iter=STARTS, rng=np.random.default_rng(seed))
    labels: NDArray[np.int32] = vq(scaled, centres)[0]
    return labels


def _group(
    points: NDArray[np.float64], agrees: NDArray[np.bool_], ranks: NDArray[np.float64], inside: NDArray[np.bool_]
) -> AlikeDecisions:
    return AlikeDecisions(
        int(inside.sum()),
        float(agrees[inside].mean()),
        float(ranks[inside].mean()),
        tuple(float(value) for value in points[inside].mean(axis=0)),
    )


@dataclass(frozen=True)
class PlacementScene:
    """Nodes and pods of one seed. ``profiles``: what each pod really uses, by uid."""

    nodes: list[api.KubeNode]
    jobs: list[TablePod]
    profiles: dict[str, UsageProfile]


@dataclass(frozen=True)
class SceneOutcome:
    """One policy's run over a scene. ``choices`` are beside the baseline's, empty for the baseline itself."""

    choices: list[ComparedChoice]
    costs: dict[str, float]


def thesis_scene(seed: int) -> PlacementScene:
    """The random workload of targets T3, at twice its size."""
    nodes = [msgspec.convert(node, api.KubeNode) for node in thesis_nodes(NODES)]
    jobs, profiles = [], {}
    for arrival in arrivals("random", NumpyDraws(seed), count=PODS):
        pod = msgspec.convert(arrival.pod, api.KubePod)
        profile = profile_from_json((pod.metadata.annotations or {})[USAGE_ANNOTATION])
        uid = pod.metadata.name
        key = workload_key(pod.metadata.namespace or "", labels=pod.metadata.labels or {}, images=())
        pod_class = msgspec.structs.replace(pod_class_of(pod), workload=key)
        jobs.append(TablePod(uid, arrival.at_s, pod_class, profile.duration_s))
        profiles[uid] = profile
    return PlacementScene(nodes, jobs, profiles)


def watch(name: str, seeds: Sequence[int], *, baseline: str = BASELINE, progress: Progress = silent) -> Behaviour:
    """The behaviour of a policy over all ``seeds``; costs are means over them."""
    choices: list[ComparedChoice] = []
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
    both = {figure: (fmean(values), fmean(other[figure])) for figure, values in own.items()}
    return behaviour_of(choices, policy=name, baseline=baseline, costs=both, seed=min(seeds))


def run_scene(scene: PlacementScene, name: str, baseline: str | None, seed: int) -> SceneOutcome:
    """Let a policy place the scene's pods; each choice beside what ``baseline`` would have done there."""
    limits = limits_of(scene.nodes)
    world = MeasuredWorld(limits, scene.profiles)
    run = world.run(scene.nodes, scene.jobs, name, np.random.default_rng(seed))
    beside = None if baseline is None else make_policy(baseline)
    rng = np.random.default_rng(seed)
    choices = []
    for step in run:
        if beside is not None and len(step.observation.rows) > 1:
            choices.append(choice_of(step, beside, rng))
        world.bound(step)
    return SceneOutcome(choices, costs_of(limits, world.placed, len(run.unplaced)))


def choice_of(step: TableStep, baseline: Policy, rng: Rng) -> ComparedChoice:
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
    return ComparedChoice(
        situation, float(ranks[best].mean()), bool(best[step.chosen]), float(score.max() - score[step.chosen])
    )


def fullness_ranks(table: NodeTable, rows: IntArray) -> NDArray[np.float64]:
    """[candidates]: 0 for the emptiest, 1 for the fullest by requested cpu and memory; equals share their middle."""
    load = (table.requested[:2, rows] / np.maximum(table.allocatable[:2, rows], 1)).mean(axis=0)
    found: NDArray[np.float64] = (rankdata(load) - 1) / max(len(rows) - 1, 1)
    return found


def costs_of(limits: Mapping[str, UsageLimits], placed: Sequence[ReplayedPod], unplaced: int) -> dict[str, float]:
    """What a run came to, by figure."""
    last_s = max((pod.end_s or pod.start_s for pod in placed), default=STEP_S)
    times = np.arange(0.0, last_s + STEP_S, STEP_S)
    used = usage_over_time(limits, placed, times.tolist())
    whole = np.array([amounts(one) for one in limits.values()], np.float64)
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
