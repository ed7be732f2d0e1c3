"""What somebody else writes: risen over where it is too few, a floor otherwise, corrected where that is asked for."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from services.autoscaler.core.events import HpaFact, HpaSeen, ScalerGone, ScalerSeen
from services.autoscaler.core.instructions import Announce
from shared.autoscaling.safety.foreign import GRACE_S, LOOP_S
from shared.model.controllers.autoscaler import TargetRef
from tests.unit.services.autoscaler.scaler_world import KEY, World, scaler_of, spec_of

GRACE_ROUNDS = int(GRACE_S / 10) + 1


def acting(*, replicas: int = 4, wanted: int = 4, **more: Any) -> World:
    world = World(spec=spec_of("front", **more))
    world.serve("front", replicas)
    world.policy.wanted = {"front": wanted}
    world.elect()
    world.run()
    world.approve()
    world.run()
    return world


@pytest.mark.parametrize("answer", [{}, {"foreignWriter": "hold"}, {"foreignWriter": "correct"}])
def test_an_applied_manifest_with_too_few_replicas_is_risen_over_after_a_grace(answer: dict[str, str]):
    """kubectl apply, Helm, Argo CD and CI all write the replicas of the manifest with every change."""
    world = acting(**answer)
    world.scale("front", 2, writer="kubectl-client-side-apply")
    world.run()
    assert world.accepted == []
    assert world.condition("ForeignWriter")[0] == "True"
    assert "kubectl-client-side-apply" in world.condition("ForeignWriter")[2]
    world.run(GRACE_ROUNDS)
    assert world.accepted == [("front", 2, 4, 1)]
    assert world.condition("ForeignWriter")[0] == "False"
    # and it is ours again: what is wanted next is written at once
    world.policy.wanted = {"front": 3}
    world.run()
    assert world.accepted[-1] == ("front", 4, 3, 1)


def test_what_somebody_set_above_need_is_not_lowered_until_a_go():
    world = acting()
    world.scale("front", 9)
    world.run(GRACE_ROUNDS + 5)
    assert world.accepted == []
    status, reason, message = world.condition("ForeignWriter")
    assert (status, reason) == ("True", "ForeignWriter")
    assert "nothing falls below it until it is approved again" in message
    world.policy.wanted = {"front": 12}
    world.run()
    world.policy.wanted = {"front": 1}
    world.run(3)
    assert world.accepted == [("front", 9, 12, 1), ("front", 12, 9, 1)]
    world.approve(at="tuesday")
    world.run(2)
    assert world.accepted[-1] == ("front", 9, 1, 1)
    assert world.condition("ForeignWriter")[0] == "False"


def test_of_what_was_switched_off_nobody_says_that_it_is_risen_over():
    world = acting()
    world.scale("front", 0)
    for rounds in (1, GRACE_ROUNDS + 2):
        world.run(rounds)
        status, _, message = world.condition("ForeignWriter")
        assert (status, world.accepted) == ("True", [])
        assert "switches it off; scale it up by hand" in message
        assert "risen over" not in message
    world.scale("front", 3)
    world.run(GRACE_ROUNDS + 1)
    assert world.accepted == [("front", 3, 4, 1)]


def test_with_correct_it_is_lowered_too():
    world = acting(foreignWriter="correct")
    world.scale("front", 9)
    world.run()
    assert world.accepted == []
    world.run(GRACE_ROUNDS)
    assert world.accepted == [("front", 9, 4, 1)]
    assert world.condition("ForeignWriter")[0] == "False"


@pytest.mark.parametrize("kept", [True, False])
def test_a_new_leader_knows_what_others_wrote_and_when(kept: bool):
    world = acting()
    world.scale("front", 9 if kept else 2)
    world.run(GRACE_ROUNDS + 2 if kept else 1)
    world.elect()
    world.run(1)
    assert world.accepted == []
    world.run(GRACE_ROUNDS)
    assert world.accepted == ([] if kept else [("front", 2, 4, 2)])


def test_a_loop_of_applies_is_told_with_its_number_and_its_remedy():
    world = acting(foreignWriter="correct")
    for _ in range(3):
        world.scale("front", 2, writer="argocd-controller")
        world.run(GRACE_ROUNDS + 1)
    assert [(before, after) for _, before, after, _ in world.accepted] == [(2, 4)] * 3
    world.scale("front", 2, writer="argocd-controller")
    world.run()
    assert "(4 such writes so far); it stands for 30 s" in world.condition("ForeignWriter")[2]
    assert "take replicas out of what is applied" in world.condition("ForeignWriter")[2]


def looping(*numbers: int, every_s: float = 10.0, **more: Any) -> tuple[World, list[int]]:
    """Somebody applies these numbers one after the other; how many replicas there were at the end of each round."""
    world, shown = acting(**more), []
    for number in numbers:
        world.scale("front", number, writer="argocd-controller")
        world.run(1, step_s=every_s)
        shown.append(world.deployments["front"].replicas)
    return world, shown


@pytest.mark.parametrize("answer", ["hold", "correct"])
def test_a_loop_that_applies_too_few_has_no_grace_from_the_third_time_on(answer: str):
    world, shown = looping(*[2] * 30, foreignWriter=answer)
    short = [number for number in shown if number < 4]
    assert len(short) <= 2 * GRACE_ROUNDS, "two graces, and none after that"
    assert shown[-10:] == [4] * 10
    status, _, message = world.condition("ForeignWriter")
    assert status == "True"
    assert "too few are risen over at once after 2 such writes within 10 min" in message
    assert "take replicas out of what is applied" in message
    # it is told no more, and no floor is left, when the loop has ended
    world.run(GRACE_ROUNDS + 1)
    assert world.condition("ForeignWriter")[0] == "False"
    world.policy.wanted = {"front": 1}
    world.run(3)
    assert world.deployments["front"].replicas == 1


def test_a_loop_whose_numbers_differ_does_not_renew_its_grace():
    _, shown = looping(*[2, 3] * 10)
    assert shown[3:] == [4] * len(shown[3:])


def test_writes_that_are_far_apart_have_their_grace_each():
    world = acting()
    for _ in range(4):
        world.scale("front", 2)
        world.run()
        assert world.deployments["front"].replicas == 2
        world.run(1, step_s=LOOP_S / 2)
        assert world.deployments["front"].replicas == 4


def test_a_loop_that_applies_too_many_is_not_fought_at_once():
    """Pods would come and go with each round."""
    world, _ = looping(*[9, 8] * 6, foreignWriter="correct")
    assert world.accepted == []
    world.run(GRACE_ROUNDS)
    assert world.accepted == [("front", 8, 4, 1)]


def test_a_loop_is_answered_once_a_round_at_most():
    world, _ = looping(*[2] * 100, every_s=2.0)
    at = len(world.accepted)
    world.run(10, step_s=1.0)
    assert len(world.accepted) <= at + 1


def test_nobody_raises_what_was_switched_off_by_hand():
    world = acting()
    world.scale("front", 0)
    world.run(GRACE_ROUNDS + 3)
    assert world.accepted == []


def with_hpa(**spec: Any) -> World:
    hpa = HpaFact(
        namespace="shop", name="h", uid="h-uid", resource_version="1", ref=TargetRef("apps/v1", "Deployment", "front"),
        minimum=2, maximum=20,
    )  # fmt: skip
    world = World(spec=spec_of("front", mode="act-on-hpa-bounds", **spec), hpas={"h": hpa})
    world.serve("front", 4)
    world.policy.wanted = {"front": 4}
    world.elect()
    world.run()
    world.approve()
    world.run(2)
    assert (world.hpas["h"].minimum, world.hpas["h"].maximum) == (4, 20)
    return world


def apply_hpa(world: World, minimum: int, maximum: int) -> None:
    """Somebody applies the HPA's manifest."""
    old = world.hpas["h"]
    world.hpas["h"] = msgspec.structs.replace(
        old, minimum=minimum, maximum=maximum, writer="kubectl", resource_version=str(int(old.resource_version) + 1)
    )
    world.tell(HpaSeen(world.hpas["h"]))


def test_an_applied_hpa_with_too_low_a_minimum_is_risen_over():
    world = with_hpa()
    apply_hpa(world, 2, 20)
    world.run()
    assert world.hpas["h"].minimum == 2
    world.run(GRACE_ROUNDS)
    assert (world.hpas["h"].minimum, world.hpas["h"].maximum) == (4, 20)


@pytest.mark.parametrize(("answer", "maximum"), [("hold", 30), ("correct", 20)])
def test_anothers_maximum_is_left_or_corrected(answer: str, maximum: int):
    world = with_hpa(foreignWriter=answer)
    apply_hpa(world, 4, 30)
    world.run(GRACE_ROUNDS + 3)
    assert (world.hpas["h"].minimum, world.hpas["h"].maximum) == (4, maximum)


# --- several objects on one target -----------------------------------------------------------------------------------


def another(mode: str, *, uid: str = "other") -> ScalerSeen:
    found = scaler_of(spec_of("front", mode=mode), uid=uid)
    return ScalerSeen(msgspec.structs.replace(found, name="other"))


@pytest.mark.parametrize("mode", ["observe", "recommend", "act-on-scale"])
def test_an_object_that_writes_nothing_is_in_nobodys_way(mode: str):
    """One that may act and has no go writes nothing either."""
    world = acting(wanted=7)
    world.accepted.clear()
    world.tell(another(mode))
    world.policy.wanted = {"front": 9}
    world.run()
    assert world.accepted == [("front", 7, 9, 1)]
    assert world.condition("ForeignWriter")[:2] == ("False", "None")


def test_two_objects_that_may_write_one_target_both_stop_until_one_is_gone():
    world = acting(wanted=7)
    world.accepted.clear()
    go = world.scaler().go
    twin = msgspec.structs.replace(world.scaler(), name="other", uid="other", go=go)
    world.tell(ScalerSeen(twin))
    world.policy.wanted = {"front": 9}
    world.run()
    assert world.accepted == []
    assert world.condition("ForeignWriter")[:2] == ("True", "SharedTarget")
    world.tell(ScalerGone("shop/other"))
    world.run()
    assert world.accepted == [("front", 7, 9, 1)]


# --- events ----------------------------------------------------------------------------------------------------------


class Listening(World):
    """A world that keeps the events of the object under test."""

    def carry_out(self, process: Any, index: int = 0, *, answer: bool = True) -> Any:
        found = super().carry_out(process, index, answer=answer)
        if isinstance(found, Announce) and found.scaler.key == KEY:
            self.events.append((self.now, found.kind, found.reason, found.note))
        return found

    @property
    def events(self) -> list[tuple[float, str, str, str]]:
        return self.__dict__.setdefault("_events", [])


def listening(**more: Any) -> Listening:
    world = Listening(spec=spec_of("front", **more))
    world.serve("front", 4)
    world.policy.wanted = {"front": 4}
    world.elect()
    world.run()
    world.approve()
    world.run()
    world.events.clear()
    return world


def test_each_scaling_is_an_event_with_size_and_reason():
    world = listening()
    world.policy.wanted = {"front": 7}
    world.run()
    [(_, kind, reason, note)] = world.events
    assert (kind, reason) == ("Normal", "SuccessfulRescale")
    assert note == "New size: 7; front (Deployment/front) had 4; test decided"


def test_a_trouble_is_one_event_however_long_it_lasts_and_one_more_when_it_comes_back_later():
    world = listening()
    world.metrics = "metrics.k8s.io: no answer"
    world.run(30)
    assert [reason for _, _, reason, _ in world.events] == ["FailedGetMetrics"]
    world.metrics = None
    world.run(10)
    world.metrics = "metrics.k8s.io: no answer"
    world.run(2)
    assert len(world.events) == 1  # it was away for less than QUIET_S: flapping is told once
    world.metrics = None
    world.run(40)
    world.metrics = "metrics.k8s.io: no answer"
    world.run(2)
    assert len(world.events) == 2


def test_a_foreign_write_and_what_holds_a_service_are_events():
    world = listening()
    world.scale("front", 9)
    world.run(GRACE_ROUNDS + 1)
    told = [(kind, reason) for _, kind, reason, _ in world.events]
    assert told == [("Warning", "ForeignWriter"), ("Normal", "ScalingHeld")]
    world.policy.wanted = {"front": 1}
    world.deployments["front"].rollout = "a rollout: 1 of 9 pods are of the new template"
    world.run(3)
    assert [note for *_, note in world.events][-1].startswith("front: 9, now 9; held: a rollout")


def test_a_refused_write_is_told_in_status_and_event():
    world = listening()
    world.policy.wanted = {"front": 7}
    world._write = lambda write, term: ("refused", "deployments.apps/scale is forbidden")  # type: ignore[method-assign]
    world.run(2)
    assert ("Warning", "FailedRescale") in [(kind, reason) for _, kind, reason, _ in world.events]
    assert world.condition("Acting") == ("False", "FailedRescale", "front: deployments.apps/scale is forbidden")


def test_events_of_one_object_are_bounded_whatever_happens():
    world = listening()
    for turn in range(400):
        world.policy.wanted = {"front": 5 + turn % 7}
        world.run(1, step_s=1.0 if turn % 2 else 10.0)
    began, ended = world.events[0][0], world.events[-1][0]
    assert len(world.events) <= 25 + (ended - began) / 30 + 1
    process = world.process
    assert process is not None
    assert process.core.state.stats.events_withheld > 0


# --- the rate --------------------------------------------------------------------------------------------------------


def test_growth_goes_on_when_its_period_is_over_and_not_a_round_later():
    world = World(spec=spec_of("front"))
    world.spec["limits"] = {"upPods": 4, "upPercent": 0, "upPeriodSeconds": 15, "nodesGrow": True, "failOverSeconds": 1}
    world.serve("front", 2)
    world.policy.wanted = {"front": 2}
    world.elect()
    world.run()
    world.approve()
    world.run()
    world.policy.wanted = {"front": 20}
    at: list[float] = []
    for _ in range(160):
        before = len(world.accepted)
        world.run(1, step_s=0.5)
        at += [world.now] * (len(world.accepted) - before)
    assert [after for _, _, after, _ in world.accepted] == [6, 10, 14, 18, 20]
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert all(15 <= gap <= 16 for gap in gaps), gaps


# --- signals ---------------------------------------------------------------------------------------------------------


def test_a_policy_without_a_signal_that_it_needs_says_so_and_hpas_rule_may_raise():
    world = listening()
    world.policy.needs = lambda service: frozenset({"arrivals", "cpu"})  # type: ignore[attr-defined]
    world.policy.wanted = {"front": 2}
    world.rule.wanted = {"front": 3}
    world.run()
    told = "front: test needs arrivals: name a source in its metrics"
    assert world.condition("MetricsGood") == ("False", "SignalsMissing", told)
    assert world.condition("PolicySound") == ("False", "SignalsMissing", told)
    assert world.accepted == []
    assert ("Warning", "SignalsMissing") in [(kind, reason) for _, kind, reason, _ in world.events]
    world.rule.wanted = {"front": 6}
    world.run()
    assert world.accepted == [("front", 4, 6, 1)]
    # under the kill switch HPA's rule decides, which needs none of it
    world.apply({**world.spec, "killSwitch": "PlainHPA"})
    world.run()
    assert world.condition("MetricsGood")[1] == "Good"
