"""Counterfactuals: what a policy would have done, had one signal been different; the smallest such difference. Pure.

For decisions drawn evenly from all roles each signal of the service is set, alone, to every value that it had in the
episodes (21 quantiles, nearest first); what follows from it (inputs, role, mask) is made anew, and what the rule by
demand wishes stays, unless it is what is varied. Source of the idea: Wachter et al. 2017, one feature at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lab.autoscaling.analysis.trajectories import Trajectory, TrajectoryStep, role_of
from shared.autoscaling.networks.features import STEPS, features, inputs_of
from shared.autoscaling.networks.karma import KarmaPolicy
from shared.autoscaling.networks.signals import ServiceSignals
from shared.autoscaling.roles.organisation import graph_values

VARIED = ("demand", "trend", "waiting_s", "failing", "utilisation", "latency", "inflation", "stuck", "pending")
WHOLE = ("stuck", "pending")
WISH = "wish"
"""What the rule by demand would do: a change of replicas. The others are fields of ``ServiceSignals``."""
QUANTILES = np.linspace(0.0, 1.0, 21)
EACH_ROLE = 40
"""Decisions drawn of each role."""
EXAMPLES = 2
"""Shown of each role."""
Floats = NDArray[np.float64]


class Example(Struct, frozen=True, kw_only=True):
    """One decision, and the smallest change of one signal (as a share of what was seen of it) that changes its step."""

    seed: int
    at_s: float
    service: str
    role: str
    signal: str
    was: float
    would_be: float
    step: int
    other_step: int
    change: float


class Sensitivity(Struct, frozen=True):
    """One signal: share of the decisions whose step some seen value of it changes; the median of the smallest changes
    that do, as a share of the range that was seen."""

    share: float
    smallest: float | None


class Counterfactuals(Struct, frozen=True, kw_only=True):
    """``unmoved``: share of the decisions that no seen value of any one signal changes."""

    decisions: int
    signals: dict[str, Sensitivity]
    unmoved: float
    examples: list[Example]


def counterfactuals(policy: KarmaPolicy, trajectories: Sequence[Trajectory], *, seed: int = 0) -> Counterfactuals:
    """What would change the policy's steps. ``seed``: of the draw of decisions."""
    grids = _grids(trajectories)
    drawn = _drawn(trajectories, np.random.default_rng(seed))
    smallest: dict[str, list[float]] = {name: [] for name in (WISH, *VARIED)}
    best: list[Example] = []
    for episode, moment, service in drawn:
        changes = _changes(policy, episode.seed, moment, service, grids[service])
        for one in changes:
            smallest[one.signal].append(one.change)
        if changes:
            best.append(min(changes, key=lambda one: one.change))
    count = max(len(drawn), 1)
    return Counterfactuals(
        decisions=len(drawn),
        signals={
            name: Sensitivity(len(found) / count, float(np.median(found)) if found else None)
            for name, found in smallest.items()
        },
        unmoved=1.0 - len(best) / count,
        examples=[
            one
            for role in sorted({one.role for one in best})
            for one in sorted((one for one in best if one.role == role), key=lambda one: one.change)[:EXAMPLES]
        ],
    )


def _drawn(
    trajectories: Sequence[Trajectory], rng: np.random.Generator
) -> list[tuple[Trajectory, TrajectoryStep, str]]:
    by_role: dict[str, list[tuple[Trajectory, TrajectoryStep, str]]] = {}
    for episode in trajectories:
        for moment in episode.moments:
            for service, one in moment.signals.items():
                if not one.missing:
                    by_role.setdefault(role_of(moment, service), []).append((episode, moment, service))
    return [
        found[int(at)]
        for _, found in sorted(by_role.items())
        for at in np.sort(rng.choice(len(found), min(EACH_ROLE, len(found)), replace=False))
    ]


def _grids(trajectories: Sequence[Trajectory]) -> dict[str, dict[str, Floats]]:
    """By service and signal: the values that are tried, each once."""
    seen: dict[str, list[ServiceSignals]] = {}
    for moment in (moment for episode in trajectories for moment in episode.moments):
        for name, one in moment.signals.items():
            seen.setdefault(name, []).append(one)
    return {
        service: {
            **{
                name: np.unique(
                    np.quantile(
                        [getattr(one, name) for one in every],
                        QUANTILES,
                        method="nearest" if name in WHOLE else "linear",
                    )
                )
                for name in VARIED
            },
            WISH: np.array(STEPS, np.float64),
        }
        for service, every in seen.items()
    }


def _changes(
    policy: KarmaPolicy, seed: int, moment: TrajectoryStep, service: str, grid: Mapping[str, Floats]
) -> list[Example]:
    """Of each signal that can change the step, its smallest change."""
    at = list(moment.signals).index(service)
    tried: list[tuple[str, float, float]] = []
    rows, masks = [], []
    for signal, candidates in grid.items():
        was = _value(moment, service, signal)
        for value in candidates.tolist():
            if value != was:
                inputs, mask = _after(policy, moment, service, signal, value)
                rows.append(inputs[at])
                masks.append(mask)
                tried.append((signal, was, value))
    if not tried:
        return []
    steps = policy.chosen(features(np.array(rows)), np.array(masks))
    taken = moment.steps[service]
    found: dict[str, Example] = {}
    for (signal, was, value), chosen in zip(tried, steps.tolist(), strict=True):
        if STEPS[chosen] == taken:
            continue
        change = abs(value - was) / max(float(np.ptp(grid[signal])), 1e-9)
        if signal not in found or change < found[signal].change:
            found[signal] = Example(
                seed=seed, at_s=moment.at_s, service=service, role=role_of(moment, service), signal=signal, was=was,
                would_be=value, step=taken, other_step=STEPS[chosen], change=change,
            )  # fmt: skip
    return list(found.values())


def _value(moment: TrajectoryStep, service: str, signal: str) -> float:
    one = moment.signals[service]
    return float(moment.targets[service] - one.replicas if signal == WISH else getattr(one, signal))


def _after(
    policy: KarmaPolicy, moment: TrajectoryStep, service: str, signal: str, value: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """([services, features], bool [steps] of the service) with one signal of it set to ``value``."""
    one, targets = moment.signals[service], moment.targets
    if signal == WISH:
        targets = {**targets, service: one.replicas + int(value)}
    elif signal == "stuck":  # who is stuck is not Ready
        one = replace(one, stuck=int(value), unready=max(one.unready, int(value)))
    elif signal == "pending":
        one = replace(one, pending=int(value))
    else:
        one = replace(one, **{signal: value})  # type: ignore[arg-type]  # those of VARIED that are no whole numbers
    signals = {**moment.signals, service: one}
    organisation = policy.eyes.organisation
    role = organisation.role(one, graph_values(signals))
    return inputs_of(signals, targets, moment.last, tight=moment.tight), organisation.mask(one, role)
