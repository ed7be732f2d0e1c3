"""Each algorithm that is compared is the one that its name says, at the length asked for."""

from __future__ import annotations

from bench.policies.algorithms import AGENTS, DECIDERS, RunRow, lines_of
from lab.learner.deepsets.heads import QuantileLearner
from lab.learner.deepsets.ppo import PpoRun
from lab.learner.deepsets.settings import settings_for
from lab.learner.deepsets.training import DeepSetsRun
from lab.learner.marl.ippo import IppoRun
from lab.learner.marl.training import MarlRun


def test_deciders_differ_in_what_their_names_say():
    settings = settings_for("el", 1001, 2_000)
    runs = {name: make(settings) for name, make in DECIDERS.items()}
    assert {run.length for run in runs.values()} == {2_000}
    assert isinstance(runs["PPO"], PpoRun)
    learners = {name: run.learner for name, run in runs.items() if isinstance(run, DeepSetsRun)}
    assert {name: learner.settings.double for name, learner in learners.items() if not learner.settings.double} == {
        "DQN": False
    }
    assert isinstance(learners["distributional (QR), double"], QuantileLearner)


def test_teams_differ_in_what_their_names_say():
    runs = {name: make(1001, 3) for name, make in AGENTS.items()}
    assert {run.settings.rounds for run in runs.values()} == {3}
    assert type(runs["IPPO"]) is IppoRun
    mixing = {name: run.settings.agents.mixing for name, run in runs.items() if isinstance(run, MarlRun)}
    assert {name for name in mixing if mixing[name] == "sum"} == {"VDN"}
    assert {name for name in mixing if mixing[name] == "monotonic"} == {"QMIX"}
    assert runs["independent, a network each"].settings.kind == "per-node"


def test_the_table_gives_mean_and_deviation_over_training_seeds():
    lines = list(lines_of("a title", "regret", {"PPO": [RunRow(0.1, 0.2, 10.0), RunRow(0.3, 0.2, 20.0)]}))
    assert lines[-1] == "| PPO | 0.2000 ± 0.1414 | 0.2000 ± 0.0000 | 15 |"
