"""The merge: accepted before rejected, higher score first, ties by the seed, only what fits, then the next best."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from services.coordinator.core.instructions import SendOffer
from services.coordinator.core.state import CoordinatorState, CoreSettings
from services.coordinator.cycle import cycle as rounds
from services.coordinator.cycle.assign import PlainSeats, RejudgedSeats
from services.coordinator.cycle.candidates import Candidates
from services.coordinator.cycle.classes import AgentAnswers
from services.coordinator.cycle.failures import ConflictTracker
from shared.agent.core import AgentCore
from shared.model.constraints import NO_NORMS
from shared.model.units.unit import Unit
from shared.policy.observation import Observation, Verdicts
from shared.wire.messages import Answer
from tests.builders import make_node, make_pod
from tests.unit.services.coordinator.core.test_core import (
    test_where_every_round_is_slow_nobody_is_called_silent_for_it as slow_rounds,
)
from tests.unit.services.coordinator.scene import Scene

SPREAD = {
    "maxSkew": 8, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}  # fmt: skip


def state_with(*nodes: str, seed: int = 0) -> CoordinatorState:
    state = CoordinatorState(7, "conclave", "kube-default", CoreSettings(), Random(seed))
    for name in nodes:
        state.cache.upsert_node(make_node(name).node())
    return state


def answers(state: CoordinatorState, *items: tuple[str, int, bool], cut: bool = False) -> AgentAnswers:
    table = state.cache.table
    return AgentAnswers(
        [Answer(1, table.row_of[n], ok, score, int(table.generation[table.row_of[n]]), 1) for n, score, ok in items],
        [name for name, _, _ in items],
        cut,
    )


def units(count: int, cpu: str = "1") -> list[Unit]:
    return [Unit(number, make_pod(f"p{number}").cpu(cpu).pod(), 0.0) for number in range(1, count + 1)]


def place(state: CoordinatorState, wanted: list[Unit], *lists: AgentAnswers) -> tuple[list[str], list[int], bool]:
    seats = PlainSeats(state, ConflictTracker(state), wanted[0].pod.pod_class, lists)
    left = [unit.number for unit in wanted if not seats.take(unit)]
    return [choice.node for choice in seats.choices()], left, seats.dry


def test_the_highest_score_of_all_agents_wins() -> None:
    state = state_with("a", "b", "c")
    nodes, left, _ = place(
        state, units(2), answers(state, ("a", 50, True), ("b", 10, True)), answers(state, ("c", 40, True))
    )
    assert (nodes, left) == (["a", "c"], [])


def test_a_list_that_was_cut_and_rises_keeps_no_node_back() -> None:
    """Where packing counts, a further unit on a node is worth more than the first one."""
    state = state_with("a", "b")
    rising = answers(state, ("a", 80, True), ("a", 90, True), ("a", 95, True), cut=True)
    wanted = units(4)
    found = Candidates(state, wanted[0].pod.pod_class, NO_NORMS, [rising, answers(state, ("b", 70, True))])
    seats = RejudgedSeats(state, ConflictTracker(state), wanted[0].pod.pod_class, found)
    assert seats.take(wanted[0])
    assert [choice.node for choice in seats.choices()] == ["a"]


def test_who_is_taken_back_leaves_the_node_worth_what_it_was() -> None:
    state = state_with("a", "b")
    said = answers(state, ("a", 90, True), ("b", 80, True), ("a", 60, False))
    first, second = units(2)
    found = Candidates(state, first.pod.pod_class, NO_NORMS, [said])
    seats = RejudgedSeats(state, ConflictTracker(state), first.pod.pod_class, found)
    mark = seats.mark()
    assert seats.take(first)
    seats.undo(mark)
    state.cluster.forget(first.pod.uid)
    assert seats.take(second)
    assert [choice.node for choice in seats.choices()] == ["a"]


def test_a_node_is_worth_to_the_next_unit_what_the_agent_said_of_that() -> None:
    state = state_with("a", "b")
    said = answers(state, ("a", 90, True), ("b", 80, True), ("a", 60, False), ("b", 70, True))
    found = Candidates(state, make_pod("p").pod().pod_class, NO_NORMS, [said])
    worth = []
    for _ in range(4):
        at = found.ranked(np.arange(2))[0]
        worth.append((found.head(at).name, found.head(at).answer.score, bool(found.accept[at])))
        found.take(at)
    assert worth[:3] == [("a", 90, True), ("b", 80, True), ("b", 70, True)]
    assert worth[3] == ("b", 70, True)  # nobody said what comes after
    for at in (1, 1, 1, 0):
        found.take(at, -1)
    assert (found.own.tolist(), found.accept.tolist()) == ([90, 80], [True, True])


def test_of_two_agents_that_answer_for_a_node_as_it_changes_hands_the_first_is_heard() -> None:
    """The other one's answer is about a first unit as well: it is not what the node is worth to the next."""
    state = state_with("a", "b")
    before, after = answers(state, ("a", 90, True), ("a", 50, True)), answers(state, ("a", 80, True), ("b", 70, True))
    found = Candidates(state, make_pod("p").pod().pod_class, NO_NORMS, [before, after])
    taken = []
    for _ in range(2):
        at = found.ranked(np.arange(2))[0]
        taken.append(found.name(at))
        found.take(at)
    assert taken == ["a", "b"]


def test_of_two_policies_who_names_nodes_again_is_worth_no_less_for_it() -> None:
    state = state_with("a", "b", "c", "d")
    ahead = answers(state, ("a", 9, True), ("a", 8, True), ("a", 7, True), ("b", 6, True))
    plain = answers(state, ("c", 1, True), ("d", 1, True))
    ahead.policy, plain.policy = "frag@1", "kube-default@1"
    found = Candidates(state, make_pod("p").pod().pod_class, NO_NORMS, [ahead, plain])
    worth = {found.name(at): int(found.own[at]) for at in range(4)}
    assert worth["a"] == worth["c"] > worth["b"] == worth["d"]


@pytest.mark.parametrize(("agents", "most"), [(1, 40), (4, 2 * 40 // 4 + 1)])
def test_agents_look_ahead_for_so_many_units_as_they_may_be_dealt(agents: int, most: int) -> None:
    scene = Scene(agents=agents, policy="frag")
    for number in range(8):
        scene.add_node(make_node(f"n{number}").label(**{"kubernetes.io/hostname": f"n{number}"}).node())
    for number in range(40):
        pod = make_pod(f"p{number}").cpu("100m").set(labels={"app": "web"})
        pod.json["spec"]["topologySpreadConstraints"] = [SPREAD]
        scene.add_pod(pod.pod())
    scene.begin()
    scene.run(until_s=0.25)
    asked = [group for sent in scene.of(SendOffer) for group in sent.offer.groups if group.guidance is not None]
    assert max(len(group.units) for group in asked) == most
    scene.run()
    assert len(scene.bindings) == 40


def test_an_accepted_node_goes_before_a_rejected_one_with_a_higher_score() -> None:
    state = state_with("a", "b")
    nodes, _, _ = place(state, units(2), answers(state, ("a", 90, False)), answers(state, ("b", 10, True)))
    assert nodes == ["b", "a"]
    assert state.stats.all_rejected == 1


def test_a_head_that_does_not_fit_any_more_is_skipped() -> None:
    state = state_with("a", "b")
    lists = answers(state, ("a", 90, True), ("b", 10, True))
    state.cache.assume("other", "a", make_pod().cpu("4").pod().pod_class, 0.0)
    nodes, _, _ = place(state, units(1), lists)
    assert nodes == ["b"]
    assert (state.stats.misfits, state.stats.stale_answers) == (1, 0)


def test_a_node_cordoned_or_gone_since_the_view_is_not_taken() -> None:
    state = state_with("a", "b", "c")
    lists = answers(state, ("a", 90, True), ("b", 80, True), ("c", 10, True))
    state.cache.upsert_node(make_node("a").cordon().node())
    state.cache.remove_node("b")
    assert place(state, units(1), lists)[0] == ["c"]


def test_a_row_that_another_node_has_taken_over_is_not_mistaken_for_the_old_one() -> None:
    state = state_with("a", "b")
    lists = answers(state, ("a", 90, True), ("b", 10, True))
    state.cache.remove_node("a")
    state.cache.upsert_node(make_node("new").node())
    assert state.cache.table.row_of["new"] == lists.answers[0].slot
    assert place(state, units(1), lists)[0] == ["b"]


def test_alternatives_are_the_next_best_other_nodes() -> None:
    state = state_with("a", "b", "c", "d")
    lists = answers(state, ("a", 90, True), ("a", 80, True), ("b", 70, True), ("c", 60, True), ("d", 50, True))
    [unit] = units(1)
    seats = PlainSeats(state, ConflictTracker(state), unit.pod.pod_class, [lists])
    assert seats.take(unit)
    assert next(seats.choices()).alternatives == ("b", "c")


def test_ties_fall_by_the_seed_and_not_by_the_agents_order() -> None:
    def first(seed: int) -> str:
        state = state_with("a", "b", seed=seed)
        return place(state, units(1), answers(state, ("a", 5, True)), answers(state, ("b", 5, True)))[0][0]

    assert {first(seed) for seed in range(20)} == {"a", "b"}
    assert [first(seed) for seed in range(20)] == [first(seed) for seed in range(20)]


def test_where_a_cut_list_runs_dry_nothing_worse_is_taken() -> None:
    state = state_with("a", "b")
    nodes, left, dry = place(
        state, units(3, "100m"), answers(state, ("a", 90, True), cut=True), answers(state, ("b", 10, True))
    )
    assert (nodes, left, dry) == (["a"], [2, 3], True)


class RejectsAll:
    """A policy that would rather have nothing."""

    name, version, row_local = "rejects-all", 1, True

    def decide(self, observation: Observation, rng: np.random.Generator) -> Verdicts:
        count = len(observation.rows)
        return Verdicts(np.arange(count, dtype=np.float64), np.zeros(count, np.bool_))


def test_rejecting_is_advice_a_pod_that_fits_is_placed_all_the_same() -> None:
    scene = Scene(agents=2)
    for agent in scene.agents:
        scene.agents[agent] = AgentCore(RejectsAll(), np.random.default_rng(0))
    for number in range(3):
        scene.add_node(make_node(f"n{number}").node())
    scene.begin()
    scene.add_pod(make_pod("a").pod())
    scene.run()
    assert len(scene.bindings) == 1
    assert scene.core.state.stats.all_rejected == 1


def test_without_patience_slow_rounds_make_everybody_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation of the moving deadline."""
    monkeypatch.setattr(rounds, "PATIENCE", 0.0)
    with pytest.raises(AssertionError):
        slow_rounds()
