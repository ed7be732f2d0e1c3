"""The thesis suite: same pods for all, bounds that bound, goals that can fail, verdicts that are checked."""

from __future__ import annotations

import numpy as np
import pytest

from lab.environments.thesis import NodeFault, ThesisSettings
from lab.evaluation.deciders.thesis import DecisionTally, clairvoyant, greedy, pick, policy_decider
from lab.suites.suites import SuiteInput
from lab.suites.thesis import CONDITIONS, POLICIES, ThesisCondition, episode, run_suite
from lab.worlds.placement.thesis_session import Session
from shared.errors import ConfigError
from shared.policy.heuristics import KubeDefault
from shared.policy.observation import Observation, Rng, Verdicts
from tests.elsewhere import elsewhere

AS_FIXED = CONDITIONS[:1]
SEEDS = (42, 43, 44)


class Scripted:
    """Answers what it is told to."""

    name, version, row_local = "scripted", 1, False

    def __init__(self, score: list[float], accept: list[bool] | None = None) -> None:
        self.answer = Verdicts(np.array(score), None if accept is None else np.array(accept))

    def decide(self, observation: Observation, rng: Rng) -> Verdicts:
        return self.answer


def first_node(policy: Scripted) -> tuple[int, DecisionTally]:
    tally = DecisionTally()
    session = Session.of("uniform", 42)
    return policy_decider(policy, tally)(session, np.random.default_rng(0)), tally


def test_who_sees_more_balances_better() -> None:
    result = run_suite(SuiteInput(SEEDS, "", ("random", "kube-default", "greedy", "clairvoyant")), conditions=AS_FIXED)
    imbalance = {name: metrics["uniform/imbalance"].mean for name, metrics in result.policies.items()}
    assert imbalance["clairvoyant"] < imbalance["greedy"] < imbalance["kube-default"] < imbalance["random"]


def test_the_same_seeds_give_the_same_figures() -> None:
    first, second = (run_suite(SuiteInput(SEEDS[:2], "", ("kube-default",)), conditions=AS_FIXED) for _ in range(2))
    assert first.to_json() == second.to_json()


def test_every_policy_meets_the_same_pods() -> None:
    sessions = [Session.of("random", 42) for _ in range(2)]
    for step in range(30):
        pending = [session.env.pending for session in sessions]
        assert pending[0] == pending[1]
        sessions[0].place(step % 4)
        sessions[1].place(0)


def test_a_node_that_rejects_comes_after_all_that_accept() -> None:
    node, tally = first_node(Scripted([9.0, 1.0, 2.0, 0.0], [False, True, True, False]))
    assert (node, tally.all_rejected) == (2, 0)


def test_if_all_reject_the_best_scored_takes_it_and_it_is_counted() -> None:
    node, tally = first_node(Scripted([9.0, 1.0, 2.0, 0.0], [False] * 4))
    assert (node, tally.all_rejected) == (0, 1)


@pytest.mark.parametrize("score", [[1.0, float("nan"), 2.0, 0.0], [1.0, 2.0]])
def test_a_verdict_that_cannot_be_used_is_counted(score: list[float]) -> None:
    node, tally = first_node(Scripted(score))
    assert tally.unusable == 1
    assert node == 0


def test_ties_fall_by_lot() -> None:
    rng = np.random.default_rng(0)
    assert {pick(np.array([1.0, 1.0, 0.5]), rng) for _ in range(50)} == {0, 1}


@pytest.mark.parametrize("bound", [greedy, clairvoyant])
def test_bounds_keep_to_nodes_that_are_feasible(bound: object) -> None:
    session = Session.of("uniform", 42, ThesisSettings(faults=(NodeFault(0, 0.0, 1e4),)))
    rng = np.random.default_rng(0)
    session.place(1)
    for _ in range(20):
        node = bound(session, rng)  # type: ignore[operator]
        assert node != 0
        session.place(node)


def test_decisions_are_timed_only_by_a_clock_that_is_handed_in() -> None:
    ticks = iter(range(100_000))
    condition = ThesisCondition("", ThesisSettings())
    _, tally = episode("kube-default", "uniform", 42, condition, lambda: float(next(ticks)))
    assert tally.cpu_s == [1.0] * 105
    assert not episode("kube-default", "uniform", 42, condition)[1].cpu_s


def test_goals_are_met_or_not_by_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    from lab.suites import thesis

    monkeypatch.setattr(thesis, "LEARNED", {"marl-dqn": lambda weights, store: KubeDefault()})
    result = run_suite(SuiteInput(SEEDS, "", ("marl-dqn", "kube-default", "greedy")), conditions=AS_FIXED)
    unmet = {goal.goal for goal in result.unmet}
    assert "uniform: imbalance over kube-default's" in unmet
    assert "uniform: imbalance over greedy's" in unmet
    assert "infeasible choices of marl-dqn" not in unmet


def test_a_policy_that_is_not_compared_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="--policies: 'gold'"):
        run_suite(SuiteInput(SEEDS, "test", ("gold",)))
    assert "marl-dqn" in POLICIES


def test_runs_that_are_played_elsewhere_give_the_same_figures() -> None:
    names = ("marl-dqn", "kube-default", "greedy")
    here, there = (
        run_suite(SuiteInput(SEEDS[:2], "", names, each=each), conditions=AS_FIXED) for each in (map, elsewhere)
    )
    assert here.to_json() == there.to_json()
