"""The safeguards between a policy's answer and what is written: each by an example, switched off, and all at random.

What must hold is written down in ``safety/check.py``, apart from the safeguards. Each example breaks a rule of it when
its safeguard is off, and none with all of them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from shared.autoscaling.observation import Bounds, ServiceObservation
from shared.autoscaling.safety.chain import SAFEGUARDS, judge
from shared.autoscaling.safety.check import violations
from shared.autoscaling.safety.scene import FreeNode, ReplicaChange, SafetyScene, ServiceCase
from shared.model.controllers.autoscaler import ScalerLimits

NOW = 1000.0
FAST = ScalerLimits(up_pods=100, down_pods=100)
"""Rates that hold nobody back, so that another safeguard is seen alone."""


def case(
    replicas: int, wanted: object, *, ready: int | None = None, low: int = 1, high: int = 50, pending: int = 0,
    held: tuple[str, ...] = (), rule: int | None = None, bad: tuple[str, ...] = (), changes: tuple[ReplicaChange,
    ...] = (),
    floor: int | None = None, disruptions: int | None = None, cpu: float = 1.0, foreign: int | None = None,
    lacking: str = "",
) -> ServiceCase:  # fmt: skip
    seen = ServiceObservation(
        replicas=replicas, ready=replicas if ready is None else ready, pending=pending, bounds=Bounds(low, high),
        held=held, requests={"cpu": cpu},
    )  # fmt: skip
    return ServiceCase(
        seen=seen, wanted=wanted, rule=rule, bad=bad, changes=changes, floor=floor, disruptions=disruptions,
        foreign=foreign, lacking=lacking, takes={"cpu": cpu},
    )  # fmt: skip


def scene(one: ServiceCase, *, limits: ScalerLimits = FAST, **more: object) -> SafetyScene:
    return SafetyScene(now=NOW, services={"front": one}, limits=limits, **more)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Example:
    safeguard: str
    rule: str
    scene: SafetyScene
    allowed: int


EXAMPLES = (
    Example("bounds", "bounds", scene(case(5, 80)), 50),
    Example("bounds", "bounds", scene(case(5, 1, low=3)), 3),
    Example("rates", "rate-up", scene(case(5, 40), limits=ScalerLimits()), 10),
    Example("rates", "rate-down", scene(case(30, 2), limits=ScalerLimits()), 27),
    Example("pending", "pending", scene(case(5, 9, ready=3, pending=2)), 5),
    Example("room", "room", scene(case(5, 20), nodes=(FreeNode(4.0, 0, 110), FreeNode(2.5, 0, 110))), 11),
    Example("cost", "cost", scene(case(5, 20), cost_limit=8), 8),
    Example("cost", "cost", scene(case(9, 20), cost_limit=8), 9),
    Example("readings", "readings", scene(case(5, 1, bad=("cpu: 300 s old",))), 5),
    Example("held", "held", scene(case(5, 1, held=("a rollout",))), 5),
    Example("foreign", "foreign", scene(case(12, 1, foreign=10)), 10),
    Example("foreign", "foreign", scene(case(5, 1, foreign=9)), 5),
    Example("fallback", "fallback", scene(case(5, 1, rule=2, lacking="no arrivals")), 5),
    Example("fallback", "fallback", scene(case(5, 6, rule=9, lacking="no arrivals")), 9),
    Example("nobody-ready", "nobody-ready", scene(case(5, 1, ready=0)), 5),
    Example("budget", "budget", scene(case(10, 2, disruptions=1)), 9),
    Example("budget", "budget", scene(case(10, 2, ready=4, disruptions=0)), 4),
    Example("fallback", "fallback", scene(case(5, None, rule=9), policy_failed="it took 3 s"), 9),
    Example("fallback", "fallback", scene(case(5, None, rule=2), policy_failed="it took 3 s"), 5),
    Example("drift", "drift", scene(case(5, 2, rule=9), drifting="unlike its training"), 9),
    Example("unfinished", "unfinished", scene(case(5, 5, floor=8)), 8),
    Example("off", "off", scene(case(0, 7, low=2)), 0),
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: f"{one.safeguard}-{one.allowed}")
def test_each_safeguard_gives_what_its_rule_says(example: Example):
    verdict = judge(example.scene)
    assert verdict.allowed == {"front": example.allowed}
    assert violations(example.scene, verdict.allowed) == []


@pytest.mark.parametrize(
    "example", [one for one in EXAMPLES if one.allowed != 5 or one.safeguard != "fallback"],
    ids=lambda one: f"{one.safeguard}-{one.allowed}",
)  # fmt: skip
def test_a_safeguard_that_is_off_is_missed_by_the_checker(example: Example):
    found = violations(example.scene, judge(example.scene, without={example.safeguard}).allowed)
    assert [line.split(":")[0] for line in found] == [example.rule]


def test_every_safeguard_has_an_example():
    assert {one.safeguard for one in EXAMPLES} == {name for name, _ in SAFEGUARDS}


@pytest.mark.parametrize("answer", [True, -1, 2.5, float("nan"), "7", None, 10**9])
def test_an_answer_that_is_no_number_of_replicas_keeps_what_runs(answer: object):
    assert judge(scene(case(5, answer))).allowed == {"front": 5}


def test_bad_readings_rise_with_hpas_rule_and_say_why():
    verdict = judge(scene(case(5, 1, rule=7, bad=("cpu: no value",))))
    assert verdict.allowed == {"front": 7}
    assert verdict.notes["front"] == (("readings", "cpu: no value"),)


def test_a_service_that_fell_in_this_period_falls_no_further():
    changes = (ReplicaChange(NOW - 30, -1),)
    assert judge(scene(case(9, 1, changes=changes), limits=ScalerLimits())).allowed == {"front": 9}
    assert judge(scene(case(9, 1, changes=(ReplicaChange(NOW - 61, -1),)), limits=ScalerLimits())).allowed == {
        "front": 8
    }


def test_growth_beyond_the_cost_goes_to_whom_lacks_the_largest_share():
    both = SafetyScene(now=NOW, services={"a": case(2, 12), "b": case(4, 6)}, limits=FAST, cost_limit=12)
    verdict = judge(both)
    assert verdict.allowed == {"a": 7, "b": 5}
    assert violations(both, verdict.allowed) == []


def test_what_falls_does_not_pay_for_what_rises_in_one_decision():
    both = SafetyScene(now=NOW, services={"a": case(6, 1), "b": case(4, 9)}, limits=FAST, cost_limit=10)
    assert judge(both).allowed == {"a": 1, "b": 4}


def test_pods_of_another_service_take_the_same_room():
    both = SafetyScene(
        now=NOW, services={"a": case(1, 4), "b": case(1, 9)}, limits=FAST, nodes=(FreeNode(5.0, 0, 110),)
    )
    assert judge(both).allowed == {"a": 4, "b": 3}


@pytest.mark.parametrize("seed", range(8))
def test_no_verdict_breaks_a_rule_whatever_is_seen(seed: int):
    rng = random.Random(seed)
    for _ in range(400):
        one = random_scene(rng)
        verdict = judge(one)
        assert violations(one, verdict.allowed) == [], (one, verdict)


def random_scene(rng: random.Random) -> SafetyScene:
    """Anything that can be seen, sensible or not."""

    def some(chance: float, value: object) -> object:
        return value if rng.random() < chance else None

    def one() -> ServiceCase:
        replicas, low = rng.randrange(0, 40), rng.randrange(0, 10)
        return case(
            replicas, rng.choice([None, rng.randrange(0, 90), rng.randrange(0, 90), float("nan"), -3]),
            ready=rng.randrange(0, replicas + 1), low=low, high=max(1, low + rng.randrange(0, 60)),
            pending=rng.choice([0, 0, 2]), held=rng.choice([(), (), ("a drain",)]), rule=rng.choice([None, 3, 30]),
            bad=rng.choice([(), (), ("cpu: NaN",)]), disruptions=rng.choice([None, 0, 1, 5]),
            changes=tuple(ReplicaChange(NOW - rng.uniform(0, 90), rng.randrange(-5,
            6)) for _ in range(rng.randrange(3))),
            floor=rng.choice([None, None, replicas + rng.randrange(1, 5)]), cpu=rng.choice([0.0, 0.5, 2.0]),
        )  # fmt: skip

    return SafetyScene(
        now=NOW,
        services={f"s{number}": one() for number in range(rng.randrange(1, 5))},
        limits=rng.choice([FAST, ScalerLimits(), ScalerLimits(up_percent=10, down_percent=0, down_pods=0)]),
        cost_limit=some(0.4, rng.randrange(0, 120)),  # type: ignore[arg-type]
        nodes=some(0.4, tuple(FreeNode(rng.uniform(0, 30), 0, 20) for _ in range(3))),  # type: ignore[arg-type]
        policy_failed=rng.choice(["", "", "it raised"]),
        drifting=rng.choice(["", "", "unlike its training"]),
    )
