"""A capture with holes: days and nodes that are missing, pods without an end, clocks that jump. It is learned from all
the same, on what is left, with finite costs and rewards; what contradicts itself is refused in one line."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from lab.learner.deepsets.training import policy_of
from lab.learner.marl import training
from lab.learner.marl.settings import settings_on
from lab.learner.marl.training import Ground
from lab.workers import Workers
from lab.worlds.placement.captured_cluster import CapturedCluster, cluster_of
from lab.worlds.placement.captured_placement import CapturedPlacement, cost_of, judged
from shared.errors import ConfigError
from shared.policy.weights import shipped
from tests.captures import day_capture, make_capture, node, pod
from twin.model.capture import Capture, CapturedPod, decode, encode

Spoil = Callable[[Capture], Capture]


def _pods(change: Callable[[int, CapturedPod], CapturedPod]) -> Spoil:
    return lambda capture: replace(capture, pods=[change(number, one) for number, one in enumerate(capture.pods)])


def _values(change: Callable[[int, float], float | None]) -> Spoil:
    """Of the series of the first node."""
    return lambda capture: replace(
        capture,
        series=capture.series
        | {
            "n1": {
                part: [change(at, float(v or 0)) for at, v in enumerate(vs)]
                for part, vs in capture.series["n1"].items()
            }
        },
    )


def _nodes(*more: object) -> Spoil:
    return lambda capture: replace(capture, nodes=[*capture.nodes, *more])


def _gone(number: int, one: CapturedPod) -> CapturedPod:
    spec = replace(one.pod.spec, node_name="gone") if number % 3 == 0 else one.pod.spec
    return replace(one, pod=replace(one.pod, spec=spec))


def _late(number: int, one: CapturedPod) -> CapturedPod:
    """Its clock was an hour ahead, or a year back."""
    if number % 5 == 0:
        return replace(one, arrived_s=one.arrived_s + 3600, started_s=one.arrived_s + 3600, ended_s=None)
    return replace(one, arrived_s=one.arrived_s - 3.2e7) if number % 5 == 1 else one


SPOILED: dict[str, Spoil] = {
    "pods without an end": _pods(lambda number, one: replace(one, ended_s=None) if number % 2 else one),
    "no pod ends": _pods(lambda _, one: replace(one, ended_s=None)),
    "pods that ended as they came": _pods(
        lambda number, one: replace(one, ended_s=one.started_s) if number % 2 else one
    ),
    "pods that nobody bound": lambda capture: replace(
        capture, pods=[*capture.pods, *(CapturedPod(pod(f"w{n}", "web", ""), 10.0 * n, None, None) for n in range(9))]
    ),
    "pods of a node that is gone": _pods(_gone),
    "clocks that jump": _pods(_late),
    "a node that came last": _nodes(node("n3", "64", "128Gi")),
    "a node that offers nothing": _nodes(node("n3", "0", "0")),
    "a node that was never measured": lambda capture: replace(capture, series={"n2": capture.series["n2"]}),
    "half of the series": _values(lambda at, value: None if at < 40 else value),
    "a series that stands still": _values(lambda *_: 7.0),
    "a series that jumps a thousandfold": _values(lambda at, value: value * 1000 if at % 7 == 0 else value),
    "nothing measured": lambda capture: replace(capture, series={}, step_s=0.0),
}  # fmt: skip


def _finite(found: CapturedCluster) -> None:
    held = found.validation(episodes=2, arrivals=15, most_nodes=16)
    assert held
    for name in ("ee", "el", "lb"):
        assert math.isfinite(cost_of(policy_of(name, dict(shipped(name).arrays)), name, held)), name
    settings = settings_on("marl-dqn", 1000, 1, nodes=found.nodes, cluster="sha256:c", algorithm="")
    assert math.isfinite(Ground(settings, found).imbalance(dict(shipped("marl-dqn").arrays), Workers()))
    for seed in range(3):
        drawn = found.drawn(np.random.default_rng(seed), arrivals=15, most_nodes=16)
        for name in ("ee", "el", "lb"):
            env = CapturedPlacement(drawn, seed)
            while not env.finished:
                worth = judged(name, env, int(env.rows()[0]))
                assert 0.0 <= worth.reward <= 10.0 + 1e-9, (name, worth)


@pytest.mark.parametrize("name", SPOILED)
def test_a_capture_with_holes_is_learned_from_on_what_is_left(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "VALIDATED", 1)
    monkeypatch.setattr(training, "ARRIVALS", 10)
    _finite(cluster_of(decode(encode(SPOILED[name](make_capture(pods=160))), "c"), "c"))


def test_days_on_which_no_pod_came_are_told() -> None:
    capture = day_capture(4, each=8)
    without = [one for one in capture.pods if not 86_400.0 <= one.arrived_s < 2 * 86_400.0]
    assert cluster_of(capture, "c").told == ("no metrics: pods are taken to use what they request",)
    assert cluster_of(replace(capture, pods=without), "c").told == (
        "no metrics: pods are taken to use what they request", "no pod came in 1 of 4 days",
    )  # fmt: skip


def test_times_that_do_not_ascend_are_refused_in_one_line() -> None:
    capture = make_capture()
    one = capture.pods[3]
    spoiled = replace(capture, pods=[*capture.pods[:3], replace(one, ended_s=(one.started_s or 0.0) - 1)])
    with pytest.raises(ConfigError, match=r"^capture: pod default/job-3: its times do not ascend; correct or drop it$"):
        encode(spoiled)
