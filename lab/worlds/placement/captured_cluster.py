"""A captured cluster to train and judge placement on: its nodes, and episodes of what its pods did and used.

    capture --what pods use is estimated (``replaying``)--> nodes, pods --cut by days--> training | held back
    training:  a random moment of a training day; what stood then comes first, then arrivals at the moments of that
               day, each a pod drawn from those that came at the same time of any training day; nodes may die
    held back: moments spread evenly over the days held back, pods as they came, no faults

A large cluster is thinned for an episode: some of its nodes, and that share of its pods. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lab.environments.node_load import FloatArray
from lab.environments.thesis import NodeFault, ThesisCluster
from lab.environments.thesis_workload import EnvPod
from lab.worlds.placement.measured_world import limits_of
from lab.worlds.placement.replaying import Lives, lives_of
from shared.errors import ConfigError, ObjectError
from shared.kube.pods.convert import node_from_api
from shared.model.node import Node
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.cycle.profile import UNMEASURED
from shared.scheduling.state.node_table import NodeTable
from twin.model.believable import believable
from twin.model.capture import Capture
from twin.model.replay import measured, references
from twin.model.usage import UsageNow

DAY_S, HOUR_S = 86_400.0, 3_600.0
FEWEST_DAYS = 3
"""Of a shorter capture not days are held back but the last of ``SHORT_SPANS`` equal stretches."""
SHORT_SPANS = 4
HELD_BACK = 0.25
"""Share of the days, the last ones; at least one."""
FEWEST_TRAINING, FEWEST_HELD_BACK = 40, 10
"""Pods that must come in the days of each kind."""
NEAR_S = 1_800.0
"""A pod may stand for one that came so much earlier or later in the day."""
BEGIN_S = 600.0
"""Over which comes, at random moments, what stood when an episode begins."""
END_S = 300.0
"""An episode goes on for so long after the last arrival."""
FAULTS, FAULT_S = 0.3, (120.0, 900.0)
"""How many episodes have a node that dies, and for how long."""
FEWEST_LEFT = 2
"""Of nodes; fewer do not die: what is left would have to take all."""
VALIDATION_SEED = 500


@dataclass(frozen=True, slots=True)
class DrawnEpisode:
    """One episode."""

    cluster: ThesisCluster
    pods: tuple[EnvPod, ...]
    faults: tuple[NodeFault, ...] = ()


@dataclass(frozen=True)
class CapturedCluster:
    """``lives``: the pods, by arrival. ``spans``: (from, until) in seconds of the capture, the last ``held`` of them
    held back. ``told``: what is missing or was left out, a line each."""

    cluster: ThesisCluster
    lives: Lives
    fits: NDArray[np.bool_]
    """[pods, nodes]: whether the empty node takes the pod."""
    spans: tuple[tuple[float, float], ...]
    held: int
    told: tuple[str, ...] = ()

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len(self.cluster.nodes)

    @cached_property
    def training(self) -> tuple[tuple[float, float], ...]:
        """The stretches to learn from."""
        return self.spans[: -self.held]

    @cached_property
    def held_back(self) -> tuple[tuple[float, float], ...]:
        """The stretches to validate on."""
        return self.spans[-self.held :]

    def describe(self) -> dict[str, object]:
        """What it is, for a card."""
        return {
            "nodes": self.nodes,
            "kinds of nodes": len({tuple(sorted(node.allocatable.items())) for node in self.cluster.nodes}),
            "pods": len(self.lives.at_s),
            "days trained on": round(sum(until - since for since, until in self.training) / DAY_S, 2),
            "days held back": round(sum(until - since for since, until in self.held_back) / DAY_S, 2),
            "missing": list(self.told),
        }

    def drawn(self, rng: np.random.Generator, *, arrivals: int, most_nodes: int) -> DrawnEpisode:
        """An episode of training, of at most so many arrivals beside what stood, on at most so many nodes."""
        share = min(1.0, most_nodes / self.nodes)
        while True:
            kept = self._kept(rng, most_nodes)
            first = int(rng.choice(self._by_time[0]))
            begin_s = float(self.lives.at_s[first])
            until = next(until for since, until in self.training if since <= begin_s < until)
            came = [first, *self._thinned(rng, self.between(np.nextafter(begin_s, np.inf), until), share)][:arrivals]
            stood = self._thinned(rng, self._standing(begin_s), share)
            drawn = self._episode(begin_s, stood, [(at, self._another(rng, at)) for at in came], kept, rng)
            if drawn.pods:
                break
        if len(kept) <= FEWEST_LEFT or rng.random() >= FAULTS:
            return drawn
        at_s = float(rng.uniform(0, drawn.pods[-1].at_s + 1))
        return DrawnEpisode(
            drawn.cluster, drawn.pods, (NodeFault(int(rng.integers(len(kept))), at_s, float(rng.uniform(*FAULT_S))),)
        )

    def validation(self, *, episodes: int, arrivals: int, most_nodes: int) -> list[DrawnEpisode]:
        """The same episodes each time: of the days held back, pods as they came."""
        share, found = min(1.0, most_nodes / self.nodes), []
        total_s = sum(until - since for since, until in self.held_back)
        for number in range(episodes):
            rng = np.random.default_rng((VALIDATION_SEED + number, self.nodes))
            left_s = total_s * number / episodes
            for since, until in self.held_back:
                if left_s < until - since:
                    break
                left_s -= until - since
            kept, begin_s = self._kept(rng, most_nodes), since + left_s
            came = self._thinned(rng, self.between(begin_s, until), share)[:arrivals]
            stood = self._thinned(rng, self._standing(begin_s), share)
            drawn = self._episode(begin_s, stood, [(at, at) for at in came], kept, rng)
            if drawn.pods:
                found.append(drawn)
        return found

    def _kept(self, rng: np.random.Generator, most: int) -> NDArray[np.int64]:
        """The nodes of an episode."""
        return np.sort(rng.permutation(self.nodes)[:most])

    @staticmethod
    def _thinned(rng: np.random.Generator, pods: list[int], share: float) -> list[int]:
        return pods if share == 1.0 else [at for at in pods if rng.random() < share]

    def between(self, since_s: float, until_s: float) -> list[int]:
        """The pods that came in a stretch of time."""
        at_s = self.lives.at_s
        return list(range(int(np.searchsorted(at_s, since_s)), int(np.searchsorted(at_s, until_s))))

    def _standing(self, moment_s: float) -> list[int]:
        lives = self.lives
        return np.flatnonzero((lives.at_s < moment_s) & (lives.at_s + lives.length_s > moment_s)).tolist()

    def _another(self, rng: np.random.Generator, at: int) -> int:
        """A pod of the training days that came at about the time of day at which ``at`` did, maybe itself."""
        order, times = self._by_time
        moment = self.lives.at_s[at] % DAY_S
        low, high = np.searchsorted(times, (moment - NEAR_S, moment + NEAR_S))
        return int(order[rng.integers(low, high)]) if high > low else at

    @cached_property
    def _by_time(self) -> tuple[NDArray[np.int64], FloatArray]:
        """(pods of the training days by their time of day, these times)."""
        at_s = self.lives.at_s
        inside = np.zeros(len(at_s), np.bool_)
        for since, until in self.training:
            inside |= (at_s >= since) & (at_s < until)
        rows = np.flatnonzero(inside)
        order = rows[np.argsort(at_s[rows] % DAY_S, kind="stable")]
        return order, at_s[order] % DAY_S

    def _episode(
        self, begin_s: float, stood: Sequence[int], came: Sequence[tuple[int, int]], kept: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> DrawnEpisode:  # fmt: skip
        """``came``: (whose moment, whose use, requests and length)."""
        lives = self.lives
        last_s = max((float(lives.at_s[when]) for when, _ in came), default=begin_s)
        end_s = last_s - begin_s + BEGIN_S + END_S
        pods = []
        for at in stood:
            if self.fits[at, kept].any():
                at_s = float(rng.uniform(0, BEGIN_S))
                left_s = float(lives.at_s[at] + lives.length_s[at]) - begin_s + BEGIN_S - at_s
                pods.append(self._pod(at, at_s, min(left_s, end_s - at_s)))
        for when, who in came:
            if self.fits[who, kept].any():
                at_s = float(lives.at_s[when]) - begin_s + BEGIN_S
                pods.append(self._pod(who, at_s, min(float(lives.length_s[who]), end_s - at_s)))
        pods.sort(key=lambda pod: pod.at_s)
        whole = self.cluster
        cluster = ThesisCluster(tuple(whole.nodes[row] for row in kept.tolist()), whole.limits[kept], whole.own[kept])
        return DrawnEpisode(cluster, tuple(pods))

    def _pod(self, at: int, at_s: float, length_s: float) -> EnvPod:
        usage = UsageNow(*(round(value) for value in self.lives.use[at].tolist()))
        return EnvPod(at_s, max(length_s, 1.0), usage, self.lives.classes[at])


def cluster_of(capture: Capture, name: str) -> CapturedCluster:
    """The cluster in the capture of the file ``name``. Raises ``ConfigError`` naming what cannot be learned from."""
    try:
        limits = limits_of(capture.nodes)
        capture, doubts = believable(capture, limits)
        lives = lives_of(capture)
    except ObjectError as error:
        raise ConfigError(f"{name}: {error}; correct the capture, or capture the cluster again") from None
    if len(capture.nodes) < 2:
        raise ConfigError(f"{name}: one node; there is nothing to decide between, capture a cluster of two or more")
    nodes = tuple(node_from_api(node) for node in capture.nodes)
    fits = _fits(nodes, lives)
    takes = np.atleast_1d(fits.any(axis=1))
    told = [*_unusable(lives), *doubts]
    if not takes.all():
        told.append(f"{int((~takes).sum())} of {len(takes)} pods fit no node of the capture and are left out")
        lives, fits = lives.of(np.flatnonzero(takes)), fits[takes]
    seen = measured(capture, list(limits))
    reference = references(limits, seen)
    spans = _spans(capture.length_s)
    told += _empty(spans, lives)
    held = max(1, round(len(spans) * HELD_BACK))
    found = CapturedCluster(
        ThesisCluster(nodes, np.where(reference > 0, reference, np.inf), lives.own),
        lives,
        fits,
        spans,
        held,
        tuple(told),
    )
    for which, parts, fewest in (
        ("to learn from", found.training, FEWEST_TRAINING), ("held back", found.held_back, FEWEST_HELD_BACK),
    ):  # fmt: skip
        came = sum(len(found.between(since, until)) for since, until in parts)
        if came < fewest:
            raise ConfigError(
                f"{name}: {came} pods came in the {_told(parts)} {which}, at least {fewest} must; capture for longer"
            )
    return found


def _told(spans: Sequence[tuple[float, float]]) -> str:
    hours = sum(until - since for since, until in spans) / HOUR_S
    return f"{hours:.3g} hours"


def _spans(length_s: float) -> tuple[tuple[float, float], ...]:
    """Whole days, what is left over with the last of them; of a short capture equal stretches."""
    days = int(length_s // DAY_S)
    if days < FEWEST_DAYS:
        cuts = np.linspace(0.0, length_s, SHORT_SPANS + 1)
    else:
        cuts = np.append(np.arange(days) * DAY_S, length_s)
    return tuple((float(since), float(until)) for since, until in pairwise(cuts.tolist()))


def _empty(spans: Sequence[tuple[float, float]], lives: Lives) -> list[str]:
    """A line where there are stretches in which nobody saw a pod come."""
    cuts = np.searchsorted(lives.at_s, [since for since, _ in spans] + [spans[-1][1]])
    without = int((np.diff(cuts) == 0).sum())
    what = "days" if len(spans) >= FEWEST_DAYS and spans[0][1] >= DAY_S else "stretches"
    return [f"no pod came in {without} of {len(spans)} {what}"] if without else []


def _fits(nodes: Sequence[Node], lives: Lives) -> NDArray[np.bool_]:
    """[pods, nodes]: by the filters, on empty nodes."""
    table = NodeTable(len(nodes))
    for node in nodes:
        table.upsert(node)
    feasibility = FeasibilityCache(table, profile=UNMEASURED)
    by_class = {one: feasibility.of(one).mask[: len(nodes)].copy() for one in dict.fromkeys(lives.classes)}
    return np.array([by_class[one] for one in lives.classes]).reshape(len(lives.classes), len(nodes))


def _unusable(lives: Lives) -> list[str]:
    if not lives.unusable:
        return []
    more = f" and {len(lives.unusable) - 1} others" if len(lives.unusable) > 1 else ""
    return [f"pod {lives.unusable[0]}{more}: cannot be used and is left out"]
