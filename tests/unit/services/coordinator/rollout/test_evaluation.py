"""Rollouts in a whole mesh without I/O: what each pod is placed by, what ends a rollout, what it costs nobody."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from services.coordinator.core.events import ControlSeen, PointerSeen
from services.coordinator.core.instructions import KeepWindow, SendOffer, WritePointer
from services.coordinator.core.state import CoreSettings
from shared.decide.guard import Failure
from shared.decide.stages import Stage
from shared.model.scheduling_profile import SchedulingProfile
from shared.policy.observation import Verdicts
from shared.policy.rollout.judging import RolloutSettings
from shared.policy.rollout.rollout import candidate_for, first_pointer, promote, publish, to_stage
from shared.scheduling.profiles import Profiles
from shared.turns import Log
from shared.wire.messages import VERSION, Decisions, PolicyFailure
from shared.wire.records import PolicyPointer, PolicyRef, PolicyWindow
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.scene import Scene

OLD, NEW = PolicyRef("kube-default", 1), PolicyRef("learned", 2, "b" * 64)
SETTINGS = CoreSettings(rollout=RolloutSettings(window_s=1.0, min_samples=3, promotion="auto"))
BY_HAND = CoreSettings(rollout=RolloutSettings(window_s=1.0, min_samples=3))


class Learned:
    """The emptiest node by cpu and memory, without the rounding of the active one; or what ``mode`` says."""

    name, version, row_local = "learned", 2, False

    def __init__(self, mode="good"):
        self.mode = mode

    def decide(self, observation, rng):
        table, rows = observation.table, observation.rows
        free = 1.0 - (table.requested[:2, rows] / np.maximum(table.allocatable[:2, rows], 1)).mean(axis=0)
        match self.mode:
            case "terrible":
                return Verdicts(-free)
            case "nan":
                return Verdicts(free * np.nan)
            case "exception":
                raise ValueError("weights of another network")
        return Verdicts(free)


class Rolled(Scene):
    """A scene whose etcd takes pointers: every ``WritePointer`` is written and seen."""

    def __init__(self, mode="good", *, agents=2, settings=SETTINGS, nodes=6, lose_writes=0):
        super().__init__(agents=agents, settings=settings)
        self.mode, self.pods_made, self.lose_writes = mode, 0, lose_writes
        for number in range(nodes):
            self.add_node(make_node(f"n{number}").allocatable(cpu="96", memory="384Gi", pods="500").node())
        self.begin()
        self.run()
        self.put(first_pointer(OLD))

    @property
    def pointer(self) -> PolicyPointer:
        pointer = self.core.variants.pointer
        assert pointer is not None
        return pointer

    def put(self, pointer: PolicyPointer) -> None:
        for agent in self.agents.values():
            if pointer.active == NEW:
                agent.lanes.use(NEW, Learned(self.mode))
            else:
                agent.lanes.use(OLD, agent.lanes.active.guard.fallback)
            if pointer.candidate is not None and pointer.stage in (Stage.SHADOW, Stage.CANARY):
                agent.lanes.try_out(pointer.candidate, Learned(self.mode))
            else:
                agent.lanes.withdraw()
        self.inbox.append(PointerSeen(pointer))
        self.run()

    def shadow(self) -> None:
        published = publish(self.pointer, NEW, by="learner").after
        self.put(to_stage(published, Stage.SHADOW, 0, reason="gate passed", by="learner").after)

    def canary(self, percent: int) -> None:
        self.put(to_stage(self.pointer, Stage.CANARY, percent, reason="by hand", by="operator").after)

    def pods_come(self, count: int) -> list[str]:
        """One after the other, a quarter of a second apart."""
        uids = []
        for _ in range(count):
            self.pods_made += 1
            pod = make_pod(f"p{self.pods_made}").cpu(f"{1 + self.pods_made % 3}").memory("4Gi").pod()
            uids.append(pod.uid)
            self.add_pod(pod)
            self.run(until_s=0.25)
        return uids

    def _carry_out(self, instruction):
        if isinstance(instruction, WritePointer):
            if self.lose_writes:
                self.lose_writes -= 1
            elif instruction.change.before == self.pointer:
                self.put_later(instruction.change.after)
            return
        super()._carry_out(instruction)

    def put_later(self, pointer):
        self.inbox.append(PointerSeen(pointer))
        for agent in self.agents.values():
            if pointer.active == NEW:
                agent.lanes.use(NEW, Learned(self.mode))
            if pointer.candidate is None:
                agent.lanes.withdraw()

    def placed_by(self) -> dict[str, str]:
        return {p.uid: f"{p.policy}@{p.policy_version}" for plan in self.plans for p in plan.placements}


def test_an_active_policy_that_some_agents_refuse_stays_until_none_judges_by_it():
    scene = Rolled(agents=3)
    active = PolicyRef("learned", 1, "a" * 64)
    scene.put(PolicyPointer(active=active, previous=OLD, number=9))
    first, *others = scene.agents.values()
    first.lanes.refuse(active, Failure.DIGEST)
    scene.pods_come(4)
    assert scene.pointer.active == active
    for agent in others:
        agent.lanes.refuse(active, Failure.RELEASE)
    scene.pods_come(4)
    assert scene.pointer.active == OLD


def test_without_a_rollout_nothing_is_asked_twice():
    scene = Rolled()
    scene.trace.clear()
    scene.pods_come(5)
    assert all(len(send.offer.groups) == 1 for send in scene.of(SendOffer))
    assert set(scene.placed_by().values()) == {"kube-default@1"}


def test_in_shadow_the_candidate_is_asked_and_places_nothing():
    scene = Rolled()
    scene.shadow()
    scene.trace.clear()
    scene.pods_come(4)
    assert all(len(send.offer.groups) == 2 for send in scene.of(SendOffer))
    assert set(scene.placed_by().values()) == {"kube-default@1"}
    assert len(scene.bindings) == 4


def test_in_the_canary_each_pod_is_placed_by_its_own_policy():
    scene = Rolled()
    scene.shadow()
    scene.canary(50)
    uids = scene.pods_come(12)
    expected = {u: "learned@2" if candidate_for(u, scene.pointer) else "kube-default@1" for u in uids}
    assert set(expected.values()) == {"learned@2", "kube-default@1"}
    assert scene.placed_by() == expected


def test_a_good_candidate_becomes_active_by_itself():
    scene = Rolled()
    scene.shadow()
    scene.pods_come(160)
    assert (scene.pointer.active, scene.pointer.previous, scene.pointer.candidate) == (NEW, OLD, None)
    steps = [(w.change.after.stage, w.change.after.percent) for w in scene.of(WritePointer)]
    assert steps == [("canary", 1), ("canary", 10), ("canary", 50), ("canary", 100), ("active", 0)]
    assert len(scene.bindings) == 160


@pytest.mark.parametrize("percent", [0, 50, 100])
def test_a_candidate_with_terrible_scores_is_withdrawn_by_itself(percent):
    scene = Rolled("terrible")
    scene.shadow()
    if percent:
        scene.canary(percent)
    uids = scene.pods_come(40)
    assert (scene.pointer.active, scene.pointer.candidate, scene.pointer.percent) == (OLD, None, 0)
    assert "worse in 3 windows in a row: value" in scene.pointer.reason
    assert len(scene.bindings) == len(uids)


@pytest.mark.parametrize("mode", ["nan", "exception"])
@pytest.mark.parametrize("percent", [0, 50])
def test_a_candidate_that_fails_is_withdrawn_after_one_decision_and_every_pod_is_placed(mode, percent):
    scene = Rolled(mode)
    scene.shadow()
    if percent:
        scene.canary(percent)
    scene.pods_come(4)
    assert scene.pointer.candidate is None
    assert scene.pointer.reason == f"learned@2 failed: {mode}"
    assert len(scene.of(WritePointer)) == 1
    assert set(scene.placed_by().values()) == {"kube-default@1"}
    assert len(scene.bindings) == 4


PROFILED = CoreSettings(
    rollout=RolloutSettings(window_s=1000.0, min_samples=3),
    profiles=Profiles.of([SchedulingProfile("packed", policy="kube-default")]),
)


def test_what_a_profiles_own_policy_places_counts_for_neither_variant():
    scene = Rolled(settings=PROFILED)
    scene.shadow()
    for number in range(4):
        pod = make_pod(f"packed-{number}").cpu("1").memory("4Gi")
        pod.json["spec"]["schedulerName"] = "packed"
        scene.add_pod(pod.pod())
        scene.run(until_s=0.25)
    opened = scene.core.evaluation._open
    assert (len(scene.bindings), opened.active.placements, opened.candidate.placements) == (4, 0, 0)
    scene.pods_come(1)
    assert (opened.active.placements, opened.candidate.placements) == (1, 0)


def test_a_failure_of_a_profiles_own_policy_withdraws_no_candidate_of_the_same_name():
    scene = Rolled(settings=PROFILED)
    scene.shadow()
    written = []
    for own in ("learned", ""):
        told = PolicyFailure(NEW.title, NEW.sha256, "nan", 1, own)
        scene.core.evaluation.heard("agent-0", Decisions(VERSION, 1, 1, scene.core.state.term, 1, [], failures=[told]))
        written.append([one.change.after.candidate for one in scene.core.state.out if isinstance(one, WritePointer)])
    assert written == [[], [None]]


def test_an_active_policy_that_fails_gives_way_to_the_previous_one():
    scene = Rolled("nan")
    scene.put(PolicyPointer(active=NEW, previous=OLD, number=9))
    scene.pods_come(3)
    assert (scene.pointer.active, scene.pointer.number) == (OLD, 10)
    assert len(scene.bindings) == 3
    assert set(scene.placed_by().values()) == {"kube-default@1"}


def test_with_the_comparison_off_a_terrible_candidate_is_promoted():
    """The safeguard is what withdraws it, nothing else."""
    blind = CoreSettings(rollout=RolloutSettings(window_s=1.0, min_samples=3, margin=10.0, promotion="auto"))
    scene = Rolled("terrible", settings=blind)
    scene.shadow()
    scene.pods_come(100)
    assert scene.pointer.active == NEW


def test_a_change_whose_write_was_lost_is_written_again():
    scene = Rolled("nan", lose_writes=1)
    scene.shadow()
    scene.pods_come(12)
    assert scene.pointer.candidate is None
    assert len(scene.of(WritePointer)) == 2


def test_an_agent_that_has_not_loaded_the_candidate_judges_by_the_active_policy_and_says_so():
    scene = Rolled(agents=1)
    scene.shadow()
    scene.canary(100)
    scene.agents["agent-0"].lanes.withdraw()
    scene.pods_come(2)
    assert set(scene.placed_by().values()) == {"kube-default@1"}


def test_windows_are_told_with_both_values():
    scene = Rolled("terrible")
    scene.shadow()
    scene.pods_come(20)
    figures = scene.core.evaluation.figures()
    assert (figures["active"], figures["candidate"]) == ("kube-default@1", "")
    assert figures["windows"] >= 3
    assert figures["last_window"]["value"] < figures["last_window"]["active_value"]
    told = [dict(log.facts) for log in scene.of(Log) if log.event == "policy_window"]
    assert told
    assert all(window["value"] < 0.5 < window["active_value"] for window in told)


def windows(scene: Rolled) -> list[PolicyWindow]:
    return [kept.window for kept in scene.of(KeepWindow)]


def test_a_good_candidate_stays_at_its_step_until_it_is_promoted():
    scene = Rolled(settings=BY_HAND)
    scene.shadow()
    scene.pods_come(60)
    assert (scene.pointer.stage, scene.of(WritePointer)) == ("shadow", [])
    scene.put(promote(scene.pointer, reason="by hand", by="olga").after)
    scene.pods_come(60)
    assert (scene.pointer.stage, scene.pointer.percent, scene.of(WritePointer)) == ("canary", 1, [])


def test_a_candidate_that_waits_for_its_operator_is_withdrawn_when_it_is_worse():
    scene = Rolled("terrible", settings=BY_HAND)
    scene.shadow()
    scene.pods_come(40)
    assert scene.pointer.candidate is None


def test_what_comes_next_is_told_with_its_rule_and_its_time():
    scene = Rolled()
    scene.shadow()
    scene.pods_come(7)
    view = scene.core.evaluation.view()
    assert view is not None
    on, off = view.rules
    assert (view.promotion, view.goal, view.good) == ("auto", "neutral", 1)
    assert (on.then, on.automatic, on.needed, on.so_far) == ("canary 1 %", True, 3, 1)
    assert on.in_s == pytest.approx(view.closes_in_s + 1.0)  # the window that is open, and one more
    assert "3 good windows in a row" in on.rule
    assert (off.kind, off.automatic, off.needed, off.so_far) == ("withdraw", True, 3, 0)
    assert "NaN" in off.rule


def test_by_hand_the_rule_says_whether_the_windows_speak_for_it():
    scene = Rolled(settings=BY_HAND)
    scene.shadow()
    scene.pods_come(60)
    view = scene.core.evaluation.view()
    assert view is not None
    assert (view.promotion, view.rules[0].automatic) == ("manual", False)
    assert (view.rules[0].so_far, view.rules[0].in_s) == (3, 0.0)


def packer(goal: str = "") -> Rolled:
    """A candidate that packs (``most-allocated`` by another name) against a policy that spreads."""
    scene = Rolled("terrible", settings=BY_HAND)
    published = publish(scene.pointer, NEW, by="olga").after
    scene.put(msgspec.structs.replace(to_stage(published, Stage.SHADOW, 0, reason="", by="").after, goal=goal))
    scene.pods_come(40)
    return scene


def test_a_candidate_does_not_win_by_a_scale_of_its_own():
    scene = packer()
    assert scene.pointer.candidate is None
    assert "by the goal neutral" in scene.pointer.reason


def test_the_operators_goal_decides_and_the_neutral_one_is_told_beside_it():
    scene = packer("packing")
    assert scene.pointer.candidate == NEW
    last = windows(scene)[-1]
    packing, neutral = last.values
    assert (packing.goal, neutral.goal, last.verdict) == ("packing", "neutral", "good")
    assert packing.candidate > packing.active
    assert neutral.candidate < neutral.active
    view = scene.core.evaluation.view()
    assert view is not None
    assert view.last_window is not None
    assert (view.last_window.goal, view.last_window.value) == ("packing", packing.candidate)
    assert view.last_window.neutral_value == neutral.candidate


def test_each_window_is_kept_with_what_both_were_worth():
    scene = Rolled("terrible", settings=BY_HAND)
    scene.shadow()
    scene.pods_come(20)
    kept = [window for window in windows(scene) if window.candidate]
    assert len(kept) == scene.core.evaluation.windows
    assert {(window.active, window.candidate, window.stage) for window in kept} == {
        ("kube-default@1", "learned@2", "shadow")
    }
    for window in kept:
        (value,) = window.values
        assert 0 <= value.candidate < value.active <= 1
        assert window.samples >= 3


def test_without_a_rollout_the_active_policys_value_is_kept_all_the_same():
    scene = Rolled()
    scene.trace.clear()
    scene.pods_come(30)
    kept = windows(scene)
    assert len(kept) >= 3
    for window in kept:
        assert (window.active, window.candidate, window.verdict) == ("kube-default@1", "", "")
        (value,) = window.values
        assert value.candidate is None
        assert value.active > 0.5


def test_a_successor_goes_on_at_the_same_step():
    scene = Rolled(settings=BY_HAND)
    scene.shadow()
    scene.canary(10)
    scene.pods_come(20)
    successor = Rolled(settings=BY_HAND)
    successor.put(scene.pointer)
    successor.pods_come(60)
    assert successor.pointer == scene.pointer
    assert successor.of(WritePointer) == []


def test_by_another_goal_the_windows_are_counted_anew():
    scene = Rolled(settings=BY_HAND)
    scene.shadow()
    scene.pods_come(20)
    before = scene.core.evaluation.view()
    assert before is not None
    assert before.good > 0
    settings = replace(BY_HAND, rollout=replace(BY_HAND.rollout, goal="packing"))
    scene.inbox.append(ControlSeen(settings=settings, settings_number=1))
    scene.run()
    after = scene.core.evaluation.view()
    assert after is not None
    assert (after.goal, after.good, after.samples) == ("packing", 0, 0)
