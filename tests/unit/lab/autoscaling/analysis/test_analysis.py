"""What is told of a policy's decisions, on short episodes of the shipped one; each reason can turn a go into no go."""

from __future__ import annotations

import json

import numpy as np
import pytest
from msgspec import UNSET
from msgspec import json as msgspec_json
from msgspec.structs import replace

from lab.autoscaling.analysis.alignment import alignment
from lab.autoscaling.analysis.analysis import Analysis, Findings, Thresholds, alarms, analyse
from lab.autoscaling.analysis.counterfactuals import WISH, counterfactuals
from lab.autoscaling.analysis.page import encode, render
from lab.autoscaling.analysis.trajectories import LONGEST, role_of, stretches, trajectory
from lab.autoscaling.analysis.trees import DEPTH, trees
from lab.autoscaling.episode import Setup, play
from lab.autoscaling.policies import make
from lab.worlds.services.scenarios import intensity_of
from lab.worlds.services.topology import default_topology
from shared.autoscaling.networks import karma
from shared.autoscaling.networks.features import FEATURES, STEPS
from shared.autoscaling.networks.karma import NAME, KarmaPolicy
from shared.autoscaling.roles.organisation import NOBODY
from shared.autoscaling.roles.reading import organisation_of
from shared.errors import ConfigError
from shared.policy.weights import WeightsFile, shipped_beside

SHORT = Setup(default_topology(), "mixed", intensity_of("mixed"), seconds=600)


@pytest.fixture(scope="module")
def policy():
    return KarmaPolicy()


@pytest.fixture(scope="module")
def episodes(policy):
    return [trajectory(SHORT, policy, seed) for seed in (110, 111, 112)]


@pytest.fixture(scope="module")
def found(policy):
    return analyse(policy, SHORT, seeds=(113, 114), taught_seeds=(115,), thresholds=Thresholds(), command="<b>me</b>")


@pytest.fixture(scope="module")
def findings(policy, episodes):
    other = [play(SHORT, make("hpa"), episode.seed).figures for episode in episodes]
    return Findings(policy, episodes[:1], episodes, other)


def contrary():
    """The shipped weights with the last layer turned round: it prefers what it would avoid."""
    shipped = shipped_beside(karma.__file__, NAME)
    last = {name: -array for name, array in shipped.arrays.items() if name.startswith("l2.")}
    return KarmaPolicy(weights=WeightsFile({**shipped.arrays, **last}, shipped.card))


def test_stretches_are_all_decisions_once_and_each_of_one_role(policy, episodes):
    cut = stretches(episodes, policy.eyes.organisation)
    decisions = sum(len(one.signals) for episode in episodes for one in episode.moments)
    assert sum(len(one.series) for one in cut) == decisions
    assert max(len(one.series) for one in cut) == LONGEST
    first = episodes[0].moments[0]
    assert cut[0].role == role_of(first, cut[0].service)
    assert cut[0].series[0, -1] == first.steps[cut[0].service]


def test_a_policy_that_wants_the_contrary_of_its_roles_is_not_aligned(policy, episodes):
    own = alignment(policy, episodes)
    other = alignment(contrary(), episodes)
    assert own.acted == 1.0  # hard roles: the mask sees to it
    assert own.by_itself > 0.9 > other.by_itself
    assert sum(one.decisions for one in own.roles.values()) == sum(
        len(moment.signals) for episode in episodes for moment in episode.moments
    )


def test_soft_roles_let_the_steps_that_they_do_not_allow_show():
    soft = KarmaPolicy(weights=contrary().weights, organisation=organisation_of("soft"))
    assert alignment(soft, [trajectory(SHORT, soft, 110)]).acted < 1.0


def test_a_counterfactual_changes_the_step_and_the_wish_of_the_rule_changes_most(policy, episodes):
    told = counterfactuals(policy, episodes)
    assert told.decisions > 20
    assert told.examples
    assert all(one.step != one.other_step and one.was != one.would_be for one in told.examples)
    assert all(one.change > 0 for one in told.examples)
    assert max(told.signals, key=lambda name: told.signals[name].share) == WISH


def test_a_policy_that_looks_at_nothing_has_no_counterfactual_but_by_its_roles(episodes):
    """All weights zero but the preference for holding: no signal matters beside those that roles go by."""
    shipped = shipped_beside(karma.__file__, NAME)
    arrays = {name: np.zeros_like(array) for name, array in shipped.arrays.items()}
    arrays["l2.b"] = np.array([float(step == 0) for step in STEPS], np.float32)
    blind = KarmaPolicy(weights=WeightsFile(arrays, shipped.card), organisation=NOBODY)
    told = counterfactuals(blind, [trajectory(SHORT, blind, 110)])
    assert told.unmoved == 1.0
    assert not told.examples


def test_trees_are_shallow_named_and_judged_on_other_seeds(episodes):
    learned = trees(episodes[:2], episodes[2:])
    assert [one.service for one in learned] == list(default_topology().order)
    for one in learned:
        assert one.leaves <= 2**DEPTH
        assert 0.8 < one.fidelity <= 1.0
        assert any(name in one.text for name in FEATURES)


def test_the_guard_would_not_have_stepped_in_here_and_would_where_the_envelope_is_too_narrow(policy, episodes):
    assert alarms(episodes, policy.envelope) == 0.0
    assert alarms(episodes, {"utilisation": (5.0, 6.0)}) > 0.9
    assert alarms(episodes, None) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("alignment", 1.0), ("purity", 1.0), ("stability", 1.0), ("fidelity", 1.0), ("success", 100.0), ("cost", 0.01)],
)
def test_each_reason_can_turn_a_go_into_no_go(findings, name, value):
    lenient = Thresholds(alignment=0, purity=0, stability=0, fidelity=0, success=-100, cost=100, alarms=1)
    assert [one.name for one in findings.checks(lenient)] == list(Thresholds.__struct_fields__)
    assert all(one.met for one in findings.checks(lenient))
    assert [one.name for one in findings.checks(replace(lenient, **{name: value})) if not one.met] == [name]


def test_weights_without_an_envelope_are_no_go(policy):
    card = replace(policy.weights.card, envelope=UNSET)
    bare = KarmaPolicy(weights=WeightsFile(policy.weights.arrays, card))
    setup = Setup(SHORT.topology, SHORT.scenario, SHORT.intensity, seconds=100)
    told = analyse(bare, setup, seeds=(113,), taught_seeds=(115,), thresholds=Thresholds())
    assert [one.met for one in told.checks if one.name == "alarms"] == [False]
    assert not told.go


def test_the_page_and_the_json_say_the_same_and_escape_what_comes_in(found):
    page, document = render(found), json.loads(encode(found))
    assert document["go"] == found.go
    assert f'met">{"go" if found.go else "no go"}' in page
    assert "&lt;b&gt;me&lt;/b&gt;" in page
    assert "<b>me" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert msgspec_json.decode(encode(found), type=Analysis) == found


def test_what_cannot_be_analysed_is_refused_by_name(policy):
    with pytest.raises(ConfigError, match="--seeds: 115"):
        analyse(policy, SHORT, seeds=(115,), taught_seeds=(115,), thresholds=Thresholds())
    with pytest.raises(ConfigError, match="no roles"):
        analyse(KarmaPolicy(organisation=NOBODY), SHORT, seeds=(1,), thresholds=Thresholds())


def test_a_tree_asks_nothing_that_changes_no_step(episodes):
    for one in trees(episodes[:2], episodes[2:]):
        lines = one.text.splitlines()
        steps = [line.strip() for line in lines if line.strip() in {f"{step:+d}" for step in STEPS}]
        assert len(steps) == one.leaves
        assert len(lines) == one.leaves + 2 * (one.leaves - 1)
        assert len(set(steps)) > 1
