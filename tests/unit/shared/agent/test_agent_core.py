"""The agent's decisions: views, offers, terms. Pure; no loop, no mocks."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from shared.agent.core import CLASS_LIMIT, AgentCore
from shared.errors import WireError
from shared.model.constraints import PodClass
from shared.model.resources import CPU, MEMORY
from shared.policy.heuristics import KubeDefault
from shared.policy.observation import Observation, Rng, Verdicts
from shared.wire.codec import decode, encode
from shared.wire.messages import (
    VERSION,
    ClassDefinition,
    Decisions,
    NodeRow,
    NodeUsage,
    Offer,
    UnitGroup,
    View,
    ViewUpdate,
)

RESOURCES = [CPU, MEMORY, "pods"]
SMALL = PodClass(requests=((CPU, 1000), (MEMORY, 1 << 30)), score_cpu_millis=1000, score_memory_bytes=1 << 30)
HUGE = PodClass(requests=((CPU, 64_000),), score_cpu_millis=64_000)


def usage(slot: int, *, cpu: int = 0, pods: int = 0, generation: int = 7) -> NodeUsage:
    return NodeUsage(slot, generation, [cpu, 0, pods], cpu, 0)


def row(slot: int, *, name: str = "", cpu: int = 4000, used: int = 0, generation: int = 7) -> NodeRow:
    allocatable = {CPU: cpu, MEMORY: 8 << 30, "pods": 10}
    return NodeRow(name or f"n{slot}", {}, [], False, allocatable, usage(slot, cpu=used, generation=generation))


def full_view(*rows: NodeRow, epoch: int = 1, revision: int = 1) -> View:
    return View(epoch, 0, revision, RESOURCES, list(rows))


def offer(
    *units: int, term: int = 5, epoch: int = 1, view: View | None = None, pod_class: PodClass = SMALL, extra: int = 0
) -> Offer:
    groups = [UnitGroup(1, list(units))] if units else []
    return Offer(VERSION, 9, 0, term, epoch, view, groups, [ClassDefinition(1, pod_class)], extra=extra)


def make_agent(*rows: NodeRow) -> AgentCore:
    core = AgentCore(KubeDefault(), Random(1))
    if rows:
        core.update(ViewUpdate(VERSION, 1, 0, 5, full_view(*rows)))
    return core


def slots(decisions: Decisions) -> list[int]:
    return [answer.slot for answer in decisions.answers]


def test_a_full_view_is_acknowledged_with_its_revision() -> None:
    ack = make_agent().update(ViewUpdate(VERSION, 3, 0, 5, full_view(row(0), revision=4)))
    assert (ack.revision, ack.follows, ack.term) == (4, 3, 5)


def test_a_view_comes_in_pages_and_each_continues_the_last() -> None:
    core = make_agent(row(0))
    ack = core.update(ViewUpdate(VERSION, 2, 0, 5, View(1, 1, 2, [], [row(1)])))
    assert ack.revision == 2
    assert sorted(core.replica.row_of_slot) == [0, 1]


def test_a_delta_on_another_base_is_a_gap_and_asks_for_everything() -> None:
    core = make_agent(row(0))
    assert core.update(ViewUpdate(VERSION, 2, 0, 5, View(1, 3, 4, [], [], [usage(0)]))).revision == 0
    assert core.decide(offer(1)).revision == 0
    assert core.update(ViewUpdate(VERSION, 3, 0, 5, full_view(row(0), revision=9))).revision == 9


def test_usage_of_an_unknown_slot_is_a_gap() -> None:
    core = make_agent(row(0))
    assert core.decide(offer(1, view=View(1, 1, 2, [], [], [usage(5)]))).revision == 0
    assert core.resyncs == 1


def test_the_same_full_view_twice_changes_nothing() -> None:
    core = make_agent(row(0, used=1000), row(1))
    before = core.decide(offer(1)).answers
    core.update(ViewUpdate(VERSION, 1, 0, 5, full_view(row(0, used=1000), row(1))))
    assert core.decide(offer(1)).answers == before


def test_the_emptier_node_is_offered_with_the_coordinators_slot_and_generation() -> None:
    core = make_agent(row(30, used=3000, generation=11), row(40, generation=12))
    [answer] = core.decide(offer(77)).answers
    assert (answer.unit, answer.slot, answer.generation, answer.accept) == (77, 40, 12, True)
    assert answer.policy_version == KubeDefault.version


def test_a_delta_in_the_offer_counts_before_the_units_are_judged() -> None:
    core = make_agent(row(0), row(1))
    decisions = core.decide(offer(1, view=View(1, 1, 2, [], [], [usage(0, cpu=3500)])))
    assert (decisions.revision, slots(decisions)) == (2, [1])


def test_a_refusal_tells_drained_nodes_from_cordoned_ones() -> None:
    cordoned = replace(row(0), unschedulable=True)
    drained = replace(row(1), unschedulable=True, drained=True)
    core = make_agent(cordoned, drained)
    [refusal] = core.decide(offer(1)).refusals
    assert refusal.reasons == {
        "node(s) were drained from scheduling by Conclave": 1,
        "node(s) were unschedulable": 1,
    }
    [answer] = core.decide(offer(2, view=View(1, 1, 2, RESOURCES, [row(1)]))).answers
    assert answer.slot == 1


def test_a_removed_slot_may_name_another_node_at_once() -> None:
    core = make_agent(row(0), row(1, used=4000))
    decisions = core.decide(offer(1, view=View(1, 1, 2, [], [row(0, name="new", cpu=2000)], [], [0])))
    assert slots(decisions) == [0]
    assert set(core.replica.table.row_of) == {"new", "n1"}


def test_one_node_under_two_slots_is_refused_and_leaves_a_gap() -> None:
    core = make_agent(row(0))
    with pytest.raises(WireError, match="slots 0 and 9"):
        core.update(ViewUpdate(VERSION, 2, 0, 5, View(1, 1, 2, [], [row(9, name="n0")])))
    assert core.decide(offer(1)).revision == 0


def test_more_amounts_than_resources_are_refused() -> None:
    core = make_agent()
    bad = NodeUsage(0, 1, [1, 2, 3, 4], 0, 0)
    with pytest.raises(WireError, match="4 amounts for 3 resources"):
        core.update(ViewUpdate(VERSION, 2, 0, 5, full_view(NodeRow("n", {}, [], False, {}, bad))))


def test_slots_of_a_group_are_greedy_one_per_unit_and_extras_answer_for_the_last() -> None:
    core = make_agent(row(0, cpu=2000), row(1, cpu=2000))
    decisions = core.decide(offer(1, 2, 3, extra=1))
    assert [a.unit for a in decisions.answers] == [1, 2, 3, 3]
    assert sorted(slots(decisions)) == [0, 0, 1, 1]
    assert {a.generation for a in decisions.answers} == {7}


def test_a_class_that_fits_nowhere_is_refused_with_the_reasons_of_all_nodes() -> None:
    decisions = make_agent(row(0), row(1)).decide(offer(1, pod_class=HUGE))
    [refusal] = decisions.refusals
    assert (refusal.nodes, refusal.reasons, refusal.plugins) == (2, {"Insufficient cpu": 2}, ["NodeResourcesFit"])
    assert decisions.answers == []


def test_an_agent_without_nodes_refuses_with_none_looked_at() -> None:
    core = make_agent()
    core.update(ViewUpdate(VERSION, 1, 0, 5, full_view()))
    [refusal] = core.decide(offer(1)).refusals
    assert refusal.nodes == 0


def test_an_unknown_class_is_named_and_the_other_groups_are_judged() -> None:
    core = make_agent(row(0))
    message = Offer(
        VERSION, 9, 0, 5, 1, None, [UnitGroup(8, [1]), UnitGroup(1, [2])], [ClassDefinition(1, SMALL)]
    )  # fmt: skip
    decisions = core.decide(message)
    assert decisions.unknown_classes == [8]
    assert [a.unit for a in decisions.answers] == [2]


def test_classes_are_bounded_and_can_be_forgotten() -> None:
    core = make_agent(row(0))
    many = [ClassDefinition(i, SMALL) for i in range(CLASS_LIMIT + 1)]
    core.decide(Offer(VERSION, 9, 0, 5, 1, None, [], many))
    assert core.decide(Offer(VERSION, 9, 0, 5, 1, None, [UnitGroup(0, [1])])).unknown_classes == [0]
    last = UnitGroup(CLASS_LIMIT, [1])
    assert core.decide(Offer(VERSION, 9, 0, 5, 1, None, [last])).unknown_classes == []
    assert core.decide(Offer(VERSION, 9, 0, 5, 1, None, [last], forget_classes=True)).unknown_classes == [CLASS_LIMIT]


def test_another_epoch_drops_view_and_classes() -> None:
    core = make_agent(row(0))
    core.decide(offer(1))
    assert core.decide(Offer(VERSION, 9, 0, 5, 2, None, [UnitGroup(1, [1])])).revision == 0
    core.update(ViewUpdate(VERSION, 1, 0, 5, full_view(row(0), epoch=2)))
    assert core.decide(Offer(VERSION, 9, 0, 5, 2, None, [UnitGroup(1, [1])])).unknown_classes == [1]


def test_a_lower_term_is_refused_and_changes_nothing() -> None:
    core = make_agent(row(0))
    with pytest.raises(WireError) as refused:
        core.decide(offer(1, term=4))
    assert refused.value.code == "stale_term"
    with pytest.raises(WireError):
        core.update(ViewUpdate(VERSION, 1, 0, 4, full_view()))
    assert slots(core.decide(offer(1))) == [0]


def test_a_new_term_starts_from_nothing() -> None:
    core = make_agent(row(0))
    assert core.decide(offer(1, term=6)).revision == 0
    assert core.term == 6


def test_what_a_deposed_coordinator_told_of_the_cluster_is_forgotten() -> None:
    core = make_agent(row(0))
    core.decide(replace(offer(7), cluster=[0.5] * 14))
    assert core.lanes.store.cluster is not None
    core.decide(offer(7))
    assert core.lanes.store.cluster is not None
    core.decide(offer(8, term=6, view=full_view(row(0))))  # one that tells nothing
    assert core.lanes.store.cluster is None


def test_an_offer_may_carry_the_whole_view() -> None:
    decisions = make_agent().decide(offer(1, view=full_view(row(3))))
    assert slots(decisions) == [3]


def test_same_seed_same_offers_same_decisions() -> None:
    def run() -> list[Decisions]:
        core = make_agent(*(row(i) for i in range(8)))
        return [core.decide(offer(*range(k, k + 3), extra=2)) for k in range(5)]

    assert run() == run()


def test_a_policy_that_answers_nan_is_replaced_by_the_heuristic_and_counted() -> None:
    class Broken:
        name, version, row_local = "broken", 3, True

        def decide(self, observation: Observation, rng: Rng) -> Verdicts:
            return Verdicts(np.full(len(observation.rows), np.nan))

    core = AgentCore(Broken(), Random(1))
    core.update(ViewUpdate(VERSION, 1, 0, 5, full_view(row(0, used=3000), row(1))))
    assert slots(core.decide(offer(1))) == [1]
    assert core.policy_fallbacks == 1
    core.decide(offer(1, term=6))
    assert core.policy_fallbacks == 1


def test_decisions_stay_below_42_bytes_per_answer() -> None:
    core = make_agent(*(row(i, generation=1_000_000 + i) for i in range(300)))
    decisions = core.decide(offer(*range(1_000_000, 1_000_064), extra=2))
    body = encode(decisions)
    assert decode(body, Decisions) == decisions
    assert len(decisions.answers) == 66
    assert len(body) / len(decisions.answers) <= 42


def swap_slots(core: AgentCore) -> None:
    core.replica.row_of_slot[0], core.replica.row_of_slot[1] = core.replica.row_of_slot[1], core.replica.row_of_slot[0]


def lose_a_slot(core: AgentCore) -> None:
    del core.replica.slot_of_row[0], core.replica.row_of_slot[0]


def forget_the_epoch(core: AgentCore) -> None:
    core.replica.epoch = 0


def judge_by_another_table(core: AgentCore) -> None:
    core.lanes.feasibility.table = AgentCore(KubeDefault(), Random(1)).replica.table


def remember_too_much(core: AgentCore) -> None:
    known = next(iter(core._classes.values()))
    core._classes.update(dict.fromkeys(range(CLASS_LIMIT + 1), known))


def misplace_a_node(core: AgentCore) -> None:
    core.replica.table.names[0] = "other"


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("agent-slots", swap_slots),
        ("agent-slots", lose_a_slot),
        ("agent-view", forget_the_epoch),
        ("agent-table", judge_by_another_table),
        ("agent-classes", remember_too_much),
        ("node-rows", misplace_a_node),
    ],
)
def test_what_is_broken_in_an_agent_is_named(name: str, harm: Callable[[AgentCore], None]) -> None:
    core = make_agent(row(0), row(1))
    core.decide(offer(1))
    assert core.validate() == []
    harm(core)
    assert name in {problem.partition(":")[0] for problem in core.validate()}


class Told(KubeDefault):
    """Wants to know what it is asked for next."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[tuple[PodClass, list[int]]]] = []

    def prepare(self, _table, asked) -> None:
        self.calls.append([(pod_class, rows.tolist()) for pod_class, rows in asked])


def test_a_policy_that_wants_to_know_is_told_at_once_what_an_offer_asks_for() -> None:
    policy = Told()
    core = AgentCore(policy, Random(1))
    core.update(ViewUpdate(VERSION, 1, 0, 5, full_view(row(0, cpu=96_000), row(1))))
    two = offer(1)
    two.groups.append(UnitGroup(2, [2]))
    two.classes.append(ClassDefinition(2, HUGE))
    core.decide(two)
    assert policy.calls == [[(SMALL, [0, 1]), (HUGE, [0])]]
    core.decide(offer(3))  # one class: there is nothing to put together
    assert len(policy.calls) == 1
