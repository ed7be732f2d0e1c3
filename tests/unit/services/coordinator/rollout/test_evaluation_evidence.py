"""What counts as evidence in a rollout: only what the policies compared have done themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from services.coordinator.core.events import NodeSample, NodesMeasured, PointerSeen
from services.coordinator.core.instructions import KeepWindow, SendOffer, WritePointer
from shared.decide.stages import Stage
from shared.policy.registry import make_policy, ref_of
from shared.policy.rollout.rollout import first_pointer, publish, to_stage
from shared.wire.codec import decode, encode
from shared.wire.messages import (
    VERSION,
    Decisions,
    LaneReport,
    Offer,
    Outcome,
    Placement,
    PlacementResult,
    Plan,
    PlanResult,
)
from shared.wire.records import PolicyPointer, PolicyRef
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.rollout import test_evaluation
from tests.unit.services.coordinator.rollout.test_evaluation import BY_HAND, NEW, OLD, SETTINGS, Rolled
from tests.unit.services.coordinator.scene import Scene

SOFT = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "nobody"}},
}
OTHER = PolicyRef("learned", 3, "c" * 64)


@pytest.mark.parametrize("percent", [0, 50])
def test_a_candidate_that_no_agent_has_loaded_never_advances(percent):
    scene = Rolled(agents=1)
    scene.shadow()
    if percent:
        scene.canary(percent)
    before = scene.pointer
    for agent in scene.agents.values():
        agent.lanes.withdraw()
    scene.pods_come(60)
    assert scene.pointer == before
    assert scene.of(WritePointer) == []
    assert len(scene.bindings) == 60


def decisions(*lanes: LaneReport) -> Decisions:
    return Decisions(VERSION, 1, 1, 7, 1, [], lanes=list(lanes))


def test_reports_of_a_policy_that_is_no_longer_compared_are_not_the_candidates():
    scene = Rolled()
    scene.shadow()
    scene.core.evaluation.heard("a", decisions(LaneReport(OTHER.title, True, 40, 1, [1] * 40)))
    assert scene.core.evaluation._open.candidate.kpi(0.0).decisions == 0
    scene.core.evaluation.heard("a", decisions(LaneReport(NEW.title, True, 2, 1), LaneReport(OLD.title, False, 3, 1)))
    assert scene.core.evaluation._open.candidate.kpi(0.0).decisions == 2
    assert scene.core.evaluation._open.active.kpi(0.0).decisions == 3


def test_a_refused_placement_counts_against_the_policy_that_chose_it():
    scene = Rolled()
    scene.shadow()
    scene.canary(100)

    def placed(policy: str, version: int) -> Placement:
        return Placement(1, "u", "ns", "p", "1", "n0", [], policy, version, 0, 0)

    conflict = PlanResult(VERSION, 1, 1, 7, 1, [PlacementResult(1, Outcome.CONFLICT)])

    def answered(policy: str, version: int) -> None:
        scene.core.evaluation.answered(Plan(VERSION, 1, 0, 7, 1, [placed(policy, version)]), conflict, [0.0])

    answered("kube-default", 1)
    assert scene.core.evaluation._open.candidate.kpi(0.0).rejected == 0
    assert scene.core.evaluation._open.active.kpi(0.0).rejected == 1
    answered("learned", 2)
    assert scene.core.evaluation._open.candidate.kpi(0.0).rejected == 1


@pytest.mark.parametrize("odd", ["memory", "cpu"])
def test_a_node_without_amounts_that_is_measured_stops_no_offer(odd):
    scene = Scene(agents=1, settings=SETTINGS)
    scene.add_node(make_node("n0").allocatable(cpu="8", memory="16Gi", pods="10").node())
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "10"}
    amounts[odd] = "0"
    scene.add_node(make_node("odd").allocatable(**amounts).node())
    scene.begin()
    scene.run()
    learned = PolicyRef("marl-dqn", 1, "a" * 64)
    scene.inbox.append(PointerSeen(first_pointer(learned)))
    samples = NodeSample("n0", 1.0, 4000, 2**33), NodeSample("odd", 1.0, 10**12, 2**62)
    scene.inbox.append(NodesMeasured(samples))
    scene.run()
    scene.add_pod(make_pod("p").cpu("1").memory("1Gi").pod())
    scene.run()
    offers = [send.offer for send in scene.of(SendOffer)]
    assert offers
    assert any(offer.samples for offer in offers)
    for offer in offers:
        assert decode(encode(offer), Offer) == offer
    assert len(scene.bindings) == 1


def test_pods_on_a_node_that_says_it_has_no_memory_stop_no_offer():
    scene = Scene(agents=1, settings=SETTINGS)
    scene.add_node(make_node("n0").allocatable(cpu="8", memory="16Gi", pods="10").node())
    scene.add_node(make_node("odd").allocatable(cpu="8", memory="0", pods="10").node())
    scene.begin()
    scene.run()
    scene.inbox.append(PointerSeen(first_pointer(PolicyRef("marl-dqn", 1, "a" * 64))))
    scene.add_pod(make_pod("theirs").memory("9Gi").on("odd").pod())
    scene.add_pod(make_pod("p").cpu("1").memory("1Gi").pod())
    scene.run()
    assert max(scene.of(SendOffer)[-1].offer.cluster) > 1
    assert len(scene.bindings) == 1


def test_what_agents_were_told_is_not_remembered_for_those_that_are_gone():
    scene = Rolled()
    lanes = scene.core.variants
    for number in range(50):
        lanes.measured([NodeSample("n0", 0.0, 1, 1)])
        lanes.samples_for(f"agent-{number}", 1, {0: "n0"})
    assert lanes._telling.agents <= 3


def test_a_round_full_of_classes_has_no_place_for_a_probe():
    scene = Rolled(settings=replace(SETTINGS, batch_units=1024))
    scene.shadow()
    scene.trace.clear()
    for number in range(1030):
        scene.add_pod(make_pod(f"q{number}").cpu(f"{1 + number}m").memory("1Mi").pod())
    scene.run(until_s=0.25)
    offers = [send.offer for send in scene.of(SendOffer)]
    assert max(len(offer.groups) for offer in offers) > 1000
    for offer in offers:
        assert decode(encode(offer), Offer).groups


@pytest.mark.parametrize("guided", [False, True])
def test_an_agent_that_judges_by_the_fallback_does_not_get_every_pod(guided):
    """Scores of two policies do not compare: kube-default counts to hundreds, a Q-value hardly to one."""
    scene = Rolled(agents=2, nodes=6)
    scene.put(PolicyPointer(active=NEW, previous=OLD, number=9))
    resting = scene.agents["agent-0"]
    resting.lanes.active.guard._guard.resting = 10**6
    theirs = set(resting.replica.table.row_of)
    for number in range(40):
        pod = make_pod(f"p{number}").cpu("1").memory("4Gi")
        if guided:
            pod.json["spec"]["topologySpreadConstraints"] = [SOFT]
        scene.add_pod(pod.pod())
        scene.run(until_s=0.25)
    nodes = [placement.node for plan in scene.plans for placement in plan.placements]
    assert len(nodes) == 40
    assert 8 <= sum(node in theirs for node in nodes) <= 32


def test_frag_does_not_win_by_packing_where_nobody_asked_for_packing(monkeypatch):
    """It was measured by the goal of its own name: 0.538 to 0.034 against a policy that spreads, and never the same
    node."""
    monkeypatch.setattr(test_evaluation, "NEW", ref_of("frag"))
    monkeypatch.setattr(test_evaluation, "Learned", lambda _: make_policy("frag"))
    values = {}
    for goal in ("", "packing"):
        scene = Rolled(settings=BY_HAND, nodes=12)
        published = publish(scene.pointer, ref_of("frag"), by="olga").after
        shadow = to_stage(published, Stage.SHADOW, 0, reason="by hand", by="olga").after
        scene.put(structs.replace(shadow, goal=goal))
        scene.pods_come(60)
        told = [value for kept in scene.of(KeepWindow) for value in kept.window.values if kept.window.candidate]
        for name in ("neutral", "packing"):
            pairs = [(value.candidate, value.active) for value in told if value.goal == name]
            values[goal, name] = [sum(side) / len(pairs) for side in zip(*pairs, strict=True)] if pairs else []
        assert (scene.pointer.candidate is None) is (goal == "")
    assert values["packing", "packing"][0] > values["packing", "packing"][1] + 0.3  # by its own scale it wins
    assert values["", "neutral"][0] < values["", "neutral"][1] - 0.1
