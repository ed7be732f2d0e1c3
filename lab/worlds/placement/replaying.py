"""Replays a capture: how far the twin's utilisation is from the recorded one, and what another policy would have done.

What a pod uses is not recorded. Three sources, the first that has it counts: the pod's usage annotation, an estimate
from the first half of the capture (``twin.usage_fit``), its requests. The error is taken over the second half alone, so
that the estimate is judged on what it has not seen; the error of the requests stands beside it. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from lab.environments.power import energy_wh
from lab.worlds.placement.measured_world import MeasuredWorld, limits_of
from lab.worlds.placement.table_run import TablePod
from shared.errors import ObjectError
from shared.kube import objects as api
from shared.kube.pods.convert import owner_of, pod_class_of
from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY
from shared.model.workload_key import workload_key
from shared.policy.observation import Rng
from twin.model.capture import PARTS, Capture, CapturedPod
from twin.model.replay import (
    Array,
    ReplayedPod,
    ReplayError,
    amounts,
    measured,
    references,
    replay_error,
    usage_over_time,
)
from twin.model.usage import (
    FOREVER,
    USAGE_ANNOTATION,
    UsageLimits,
    UsageNow,
    UsageProfile,
    profile_from_json,
)
from twin.model.usage_fit import fit

MOST_ROWS, MOST_GROUPS = 20_000, 200
"""Of an estimate from a whole capture: moments of nodes, and groups of pods. Of more some, and the largest, count."""
LOOKS = 16
"""Moments of a run at which its use is looked at."""
FEWEST_STEPS = 8
"""With fewer there is nothing to estimate from: the requests count."""


@dataclass(frozen=True)
class ReplayedLoad:
    """What a placement makes of the cluster, over the whole capture.

    ``imbalance``: time mean of the deviation over nodes of each node's highest utilisation (targets T3). ``highest``:
    the highest utilisation of any node at any moment. ``energy_wh``: by the default power curve, all nodes on.
    """

    imbalance: float
    highest: float
    energy_wh: float


@dataclass(frozen=True)
class Replay:
    """``fitted`` None: too few steps. ``other``: under the policy that was asked for, with the same usage per pod.

    ``annotated``, ``estimated``, ``requested``: how many pods' usage came from where. ``moved``: pods the policy put
    elsewhere, of ``decided``. ``unplaced``: pods it found no node for. ``unusable``: pods whose spec cannot be read.
    """

    requests: ReplayError
    fitted: ReplayError | None
    recorded: ReplayedLoad
    other: ReplayedLoad | None = None
    annotated: int = 0
    estimated: int = 0
    requested: int = 0
    decided: int = 0
    moved: int = 0
    unplaced: int = 0
    unusable: tuple[str, ...] = ()


def group_of(pod: CapturedPod) -> str:
    """What the pod is a copy of (``workload_key``), else the pod alone: pods of one group are taken to use alike."""
    meta = pod.pod.metadata
    images = [container.image for container in pod.pod.spec.containers or () if container.image]
    key = workload_key(meta.namespace or "", owner=owner_of(meta), labels=meta.labels or {}, images=images)
    return key or f"{meta.namespace}/{meta.name}"


def uid_of(pod: CapturedPod) -> str:
    """The uid, or the name of an object that has none."""
    meta = pod.pod.metadata
    return meta.uid or f"{meta.namespace}/{meta.name}"


def jobs_of(capture: Capture) -> tuple[list[TablePod], tuple[str, ...]]:
    """(the pods as jobs, names of those whose spec cannot be used).

    Pods that ran before the capture began keep their node; those that came during it are to be decided about. What was
    bound but never taken by its kubelet used nothing and is left out.
    """
    jobs, unusable = [], []
    for one in capture.pods:
        spec, meta = one.pod.spec, one.pod.metadata
        try:
            asked = pod_class_of(api.KubePod(meta, msgspec.structs.replace(spec, node_name=None)))
        except ObjectError as error:
            unusable.append(f"{meta.namespace}/{meta.name}: {error}")
            continue
        node = spec.node_name or ""
        if one.started_s is None and node:
            continue
        began_s = one.arrived_s if one.started_s is None else one.started_s
        length_s = None if one.ended_s is None else max(one.ended_s - began_s, 0.0)
        stood = began_s < 0 and bool(node)
        pod_class = msgspec.structs.replace(asked, workload=group_of(one))
        job = TablePod(uid_of(one), began_s if stood else max(one.arrived_s, 0.0), pod_class, length_s)
        jobs.append(replace(job, node=node if stood else "", was_on=node))
    return jobs, tuple(unusable)


@dataclass(frozen=True)
class Lives:
    """The pods of a capture by arrival. ``use`` float64 [pods, parts]: the mean of what each is believed to use;
    ``own`` [nodes, parts]: what nodes use by themselves; ``unusable``: names of pods whose spec cannot be used."""

    at_s: Array
    length_s: Array
    use: Array
    classes: tuple[PodClass, ...]
    own: Array
    unusable: tuple[str, ...] = ()

    def of(self, rows: NDArray[np.int64]) -> Lives:
        """Some of the pods."""
        classes = tuple(self.classes[row] for row in rows.tolist())
        return replace(self, at_s=self.at_s[rows], length_s=self.length_s[rows], use=self.use[rows], classes=classes)


def lives_of(capture: Capture) -> Lives:
    """When each pod came, how long it ran and what it used, by its annotation, an estimate from the whole capture, or
    its requests. Raises ``ObjectError`` for an annotation that cannot be read."""
    limits = limits_of(capture.nodes)
    jobs, unusable = jobs_of(capture)
    jobs.sort(key=lambda job: (job.at_s, job.uid))
    spans, given = _recorded_spans(capture, {job.uid: job for job in jobs})
    own = np.zeros((len(limits), len(PARTS)))
    every = -(-len(limits) * capture.steps // MOST_ROWS) if capture.steps else 1
    if capture.has_metrics and capture.steps >= FEWEST_STEPS:
        times_s = [step * capture.step_s for step in range(0, capture.steps, every)]
        largest = {group for group, _ in Counter(span.group for span in spans).most_common(MOST_GROUPS)}
        known = given | {span.uid for span in spans if span.group not in largest}
        seen = measured(capture, list(limits))[:, ::every]
        spans, own, _ = _with_estimates(limits, spans, frozenset(known), times_s, seen, len(times_s))
    found = {span.uid: span.profile for span in spans}
    lengths = [
        max(capture.length_s - job.at_s, 0.0) if job.duration_s is None else job.duration_s for job in jobs
    ]  # fmt: skip
    use = [
        _mean_use(found.get(job.uid) or _requested(job.pod_class), length)
        for job, length in zip(jobs, lengths, strict=True)
    ]
    return Lives(
        np.array([job.at_s for job in jobs]), np.array(lengths), np.array(use).reshape(-1, len(PARTS)),
        tuple(job.pod_class for job in jobs), own, unusable,
    )  # fmt: skip


def _mean_use(profile: UsageProfile, length_s: float) -> Array:
    """float64 [parts]: over a run of so many seconds."""
    at = (np.arange(LOOKS) + 0.5) / LOOKS * max(length_s, 1.0)
    whole = replace(profile, duration_s=None)
    found: Array = np.mean(
        [amounts(whole.at(float(one))) for one in (at if len(profile.steps) > 1 else at[:1])], axis=0
    )
    return found


def _requested(pod_class: PodClass) -> UsageProfile:
    requests = dict(pod_class.requests)
    return UsageProfile(((0.0, UsageNow(requests.get(CPU, 0), requests.get(MEMORY, 0))),))


def replay(capture: Capture, *, policy: str = "", rng: Rng | None = None) -> Replay:
    """Replay a capture that has metrics. ``policy`` (with ``rng`` for its ties): also what it would have made of it.

    A policy that reads measurements gets those its own placement would have brought. Raises ``ObjectError`` for an
    annotation of a node or pod that cannot be read, ``ConfigError`` for a policy that is not known.
    """
    limits = limits_of(capture.nodes)
    names, times_s = list(limits), [step * capture.step_s for step in range(capture.steps)]
    seen = measured(capture, names)
    reference = references(limits, seen)
    jobs, unusable = jobs_of(capture)
    classes = {job.uid: job for job in jobs}
    spans, annotated = _recorded_spans(capture, classes)
    half = capture.steps // 2 if capture.steps >= FEWEST_STEPS else 0
    by_requests = usage_over_time(limits, spans, times_s)
    plain = replay_error(names, by_requests, seen, reference, half)
    fitted, base, estimated = None, np.zeros((len(names), len(PARTS))), 0
    if half:
        spans, base, estimated = _with_estimates(limits, spans, annotated, times_s, seen, half)
        expected = usage_over_time(limits, spans, times_s) + base[:, None, :]
        fitted = replay_error(names, expected, seen, reference, half)
    recorded = _load(limits, spans, times_s, base, reference)
    found = Replay(
        plain,
        fitted,
        recorded,
        annotated=len(annotated),
        estimated=estimated,
        requested=len(spans) - len(annotated) - estimated,
        unusable=unusable,
    )
    if not policy or rng is None:
        return found
    return _under_policy(capture, found, jobs, spans, times_s, base, policy, rng)


def _recorded_spans(capture: Capture, classes: dict[str, TablePod]) -> tuple[list[ReplayedPod], frozenset[str]]:
    """(where each pod stood and what it is believed to use: its annotation or its requests; uids of the annotated)."""
    spans, annotated = [], set()
    for one in capture.pods:
        job = classes.get(uid_of(one))
        if job is None or one.started_s is None or not job.was_on:
            continue
        text = (one.pod.metadata.annotations or {}).get(USAGE_ANNOTATION, "")
        if text:
            profile = profile_from_json(text)
            annotated.add(job.uid)
        else:
            profile = _requested(job.pod_class)
        spans.append(ReplayedPod(job.uid, job.was_on, one.started_s, one.ended_s, profile, group_of(one)))
    return spans, frozenset(annotated)


def _with_estimates(
    limits: dict[str, UsageLimits],
    spans: list[ReplayedPod],
    annotated: frozenset[str],
    times_s: list[float],
    seen: Array,
    half: int,
) -> tuple[list[ReplayedPod], Array, int]:
    """(spans with estimated usage, what each node uses by itself [nodes, parts], how many were estimated)."""
    early = times_s[:half]
    known = usage_over_time(limits, [span for span in spans if span.uid in annotated], early)
    open_spans = [span for span in spans if span.uid not in annotated]
    groups = sorted({span.group for span in open_spans})
    counts, prior = np.zeros((len(groups), len(limits), half)), np.zeros((len(groups), len(PARTS)))
    rows = {name: row for row, name in enumerate(limits)}
    at = np.array(early)
    for span in open_spans:
        group = groups.index(span.group)
        prior[group] = amounts(span.profile.at(0.0))
        if span.node in rows:
            there = (at >= span.start_s) & (at < (np.inf if span.end_s is None else span.end_s))
            counts[group, rows[span.node]] += there
    base, use = fit(counts, seen[:, :half] - known, prior)
    seen_groups = {group for number, group in enumerate(groups) if counts[number].any()}
    estimates = {
        group: UsageProfile(((0.0, UsageNow(*(round(value) for value in use[number]))),))
        for number, group in enumerate(groups)
        if group in seen_groups
    }
    changed = [
        span if span.uid in annotated else replace(span, profile=estimates.get(span.group, span.profile))
        for span in spans
    ]
    return changed, base, sum(span.group in estimates for span in open_spans)


def _under_policy(
    capture: Capture,
    found: Replay,
    jobs: Sequence[TablePod],
    spans: Sequence[ReplayedPod],
    times_s: list[float],
    base: Array,
    policy: str,
    rng: Rng,
) -> Replay:
    """The same pods placed by ``policy``: they use and last what they did where they were."""
    limits = limits_of(capture.nodes)
    known = {span.uid: span for span in spans}
    # a pod that never ran where it was bound used nothing that is known
    profiles = {job.uid: known[job.uid].profile if job.uid in known else FOREVER for job in jobs}
    world = MeasuredWorld(limits, profiles, base=base)
    for job in jobs:
        if job.node and job.uid in known:
            world.stood(known[job.uid], job.pod_class.workload)
    run = world.run(capture.nodes, jobs, policy, rng)
    placed = {}
    for step in run:
        placed[step.job.uid] = (step.node, step.at_s)
        world.bound(step)
    other = []
    moved = 0
    for job in jobs:
        span = known.get(job.uid)
        if span is None:
            continue
        if job.node:
            other.append(span)
        elif job.uid in placed:
            node, at_s = placed[job.uid]
            moved += node != span.node
            end_s = None if job.duration_s is None else at_s + job.duration_s
            other.append(replace(span, node=node, start_s=at_s, end_s=end_s))
    reference = references(limits, measured(capture, list(limits)))
    return replace(
        found,
        other=_load(limits, other, times_s, base, reference),
        decided=len(placed),
        moved=moved,
        unplaced=len(run.unplaced),
    )


def _load(
    limits: dict[str, UsageLimits], spans: Sequence[ReplayedPod], times_s: list[float], base: Array, reference: Array
) -> ReplayedLoad:
    used = usage_over_time(limits, spans, times_s) + base[:, None, :]
    whole = reference[:, None, :]
    shares = np.divide(used, whole, out=np.zeros_like(used), where=whole > 0)
    highest = shares.max(axis=2)
    return ReplayedLoad(
        float(highest.std(axis=0).mean()), float(highest.max(initial=0.0)), energy_wh(shares[:, :, 0], times_s)
    )
