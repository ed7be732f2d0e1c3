"""Training karma: a tiny run, the same for its seed, resumed exactly; what torch learned numpy plays."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch

from lab.algorithms.ppo import advantages_of_cut
from lab.autoscaling.analysis.analysis import alarms
from lab.autoscaling.analysis.trajectories import trajectory
from lab.autoscaling.episode import Setup
from lab.learner.__main__ import BAD_INPUT, run
from lab.learner.autoscaling import episodes, training
from lab.learner.autoscaling.episodes import Prices
from lab.learner.autoscaling.rollout import play
from lab.learner.autoscaling.training import SCRATCH, KarmaRun, KarmaRunSettings, envelope_of
from lab.worlds.services.attacker import ACTIONS, AttackerTerms
from lab.worlds.services.loads import parse_trace
from lab.worlds.services.topology import default_topology, parse_topology
from shared.autoscaling.networks.agents import KarmaAgents
from shared.autoscaling.networks.features import FEATURES, OF_THE_RULE, STEPS
from shared.autoscaling.networks.karma import NAME, SINGLE, KarmaPolicy, SinglePolicy
from shared.autoscaling.roles.reading import karma_roles, organisation_from
from shared.errors import ConfigError
from shared.policy.weights import Card, WeightsFile, decode, encode

TINY = KarmaRunSettings(
    seed=1000, rounds=2, episodes_per_round=2, taught_episodes=2, taught_epochs=3, epochs=2, batch_size=256,
    hidden=(16,), validate_every=1, seconds=200,
)  # fmt: skip
SHORT = Setup(default_topology(), "mixed", 1.0, seconds=200)


@pytest.fixture(autouse=True)
def short_episodes(monkeypatch):
    torch.set_num_threads(1)  # as the trainer's process does
    monkeypatch.setattr(episodes, "VALIDATION_SEEDS", (100,))


def run_of(settings):
    one = KarmaRun(settings, world=SHORT)
    reports = list(one.run())
    return one, reports


def test_a_run_is_a_function_of_its_settings():
    first, reports = run_of(TINY)
    second, _ = run_of(TINY)
    assert len(reports) == 2
    assert all(np.isfinite(list(report.scalars.values())).all() for report in reports)
    for name, array in first.actor.arrays().items():
        assert (array == second.actor.arrays()[name]).all()


def test_a_run_goes_on_from_its_state_as_if_it_had_not_stopped():
    whole, _ = run_of(TINY)
    half = KarmaRun(TINY, world=SHORT)
    next(half.run())
    rest = KarmaRun(TINY, world=SHORT)
    rest.set_state(half.get_state())
    list(rest.run())
    for name, array in whole.actor.arrays().items():
        assert (array == rest.actor.arrays()[name]).all()


def test_imitation_alone_already_follows_the_rule_mostly():
    one = KarmaRun(replace(TINY, taught_episodes=6, taught_epochs=100, learning_rate=3e-3))
    one._imitate()
    played = play(SHORT, 4242, one.actor.arrays(), karma_roles(), Prices())
    assert (played.taken == played.taught).mean() > 0.6


def test_weights_are_written_read_and_played_by_numpy():
    one, _ = run_of(TINY)
    file = decode(encode(one.weights(version=1)), policy=NAME)
    policy = KarmaPolicy(weights=file)
    policy.reset(1)
    world = SHORT.world(5)
    while not world.over:
        world.apply(policy.decide(world.observe()))
        world.run(10)
    assert set(policy.roles) == set(default_topology().order)


def test_every_step_taken_in_training_is_one_that_roles_and_bounds_allow():
    one = KarmaRun(TINY)
    played = play(SHORT, 4242, one.actor.arrays(), karma_roles(), Prices())
    assert np.take_along_axis(played.masks, played.taken[..., None], axis=2).all()
    assert (played.log_p <= 0).all()


def test_advantages_are_those_of_the_definition():
    rewards, values = np.array([[1.0], [2.0]]), np.array([[0.5], [1.0]])
    found = advantages_of_cut(rewards, values, 0.9, 0.8)
    last = 2.0 + 0.9 * 1.0 - 1.0  # cut, not over: the last state stands for what follows
    assert found[:, 0] == pytest.approx([1.0 + 0.9 * 1.0 - 0.5 + 0.9 * 0.8 * last, last])


def test_seeds_that_are_reported_on_are_refused():
    with pytest.raises(ConfigError, match="--seeds: 42 is kept"):
        KarmaRunSettings(seed=42)


def test_weights_of_another_shape_are_refused_by_name():
    arrays = {"l0.w": np.zeros((3, 5), np.float32), "l0.b": np.zeros(5, np.float32)}
    with pytest.raises(ConfigError, match="3 inputs and 5 steps are not"):
        KarmaPolicy(weights=WeightsFile(arrays, Card(policy=NAME, version=1)))


def test_from_scratch_what_the_rule_wants_is_never_seen():
    one, _ = run_of(replace(TINY, start=SCRATCH))
    hidden = [FEATURES.index(name) for name in OF_THE_RULE]
    assert (one.actor.arrays()["l0.w"][hidden] == 0).all()
    assert (one.critic.arrays()["l0.w"][hidden] == 0).all()
    assert (np.delete(one.actor.arrays()["l0.w"], hidden, axis=0) != 0).any()
    taught, _ = run_of(TINY)
    assert (taught.actor.arrays()["l0.w"][hidden] != 0).any()


def test_from_scratch_and_by_imitation_as_many_episodes_are_played():
    taught, scratch = KarmaRunSettings(), KarmaRunSettings(start=SCRATCH)
    per_round = taught.episodes_per_round
    assert taught.taught_episodes + taught.all_rounds * per_round == scratch.all_rounds * per_round


def test_one_agent_changes_one_service_at_a_decision_in_training_and_after():
    one, _ = run_of(replace(TINY, agents="single", binding="none", missions=False))
    played = play(SHORT, 4242, one.actor.arrays(), one.organisation, Prices(), KarmaAgents.SINGLE)
    services = len(default_topology().services)
    assert played.rows.shape[1:] == (1, services * len(FEATURES))
    assert played.masks.shape[1:] == (1, services * len(STEPS))
    file = decode(encode(one.weights(version=1)), policy=SINGLE)
    policy = SinglePolicy(weights=file)
    policy.reset(1)
    world = SHORT.world(5)
    while not world.over:
        seen = world.observe()
        wanted = policy.decide(seen)
        assert sum(wanted[name] != one.replicas for name, one in seen.services.items()) <= 1
        world.apply(wanted)
        world.run(10)


def test_the_taught_action_of_one_agent_is_the_step_that_the_rule_needs_most():
    single = play(SHORT, 4242, None, karma_roles(), Prices(), KarmaAgents.SINGLE)
    assert np.take_along_axis(single.masks, single.taken[..., None], axis=2).all()
    assert (single.taken == single.taught).all()
    assert (single.taken % len(STEPS) != STEPS.index(0)).any()


def test_roles_without_missions_are_rewarded_as_nobodys():
    def earned(**more):
        settings = replace(TINY, **more)
        return play(SHORT, 4242, None, KarmaRun(settings).organisation, settings.prices).rewards

    assert (earned(missions=False) > earned() - 1e-12).all()
    assert (earned(missions=False) != earned()).any()
    assert (earned(binding="none", missions=True) != earned(binding="none", missions=False)).any()


GRAPH = """
nodes: [{name: n, cpu: 8, memory: 32Gi}]
entries: {front: 1}
services:
  front: {throughput: 90, replicas: {minimum: 1, maximum: 9}, requests: {cpu: 500m}, calls: {cart: 2}}
  cart: {throughput: 120, replicas: {minimum: 1, maximum: 9}, requests: {cpu: 500m}}
"""


def test_a_run_trains_on_the_graph_and_the_load_that_it_is_given():
    load = parse_trace("\n".join(str(50 + at % 40) for at in range(300)), "--trace")
    files = {"topology": "sha256:1", "trace": "sha256:2"}
    one = KarmaRun(replace(TINY, files=files), world=replace(SHORT, topology=parse_topology(GRAPH, "g"), trace=load))
    assert one.setup(0).topology.order == ("front", "cart")
    assert one.setup(0).trace is load
    assert one.settings.as_json()["files"] == files
    assert "files" not in TINY.as_json()  # an older checkpoint's digest is as it was
    next(one.run())
    assert one.best.score > float("-inf")


def test_one_agent_is_trained_for_the_graph_that_it_is_given():
    one = KarmaRun(replace(TINY, agents="single"), world=replace(SHORT, topology=parse_topology(GRAPH, "g")))
    list(one.run())
    assert SinglePolicy(weights=one.weights(version=1)).services == 2


def test_the_envelope_holds_all_that_the_policy_sees_on_the_episodes_of_its_training(monkeypatch):
    monkeypatch.setattr(training, "ENVELOPE_EPISODES", 3)
    one = KarmaRun(TINY)
    policy = KarmaPolicy()
    found = envelope_of(one, policy.weights)
    assert found == envelope_of(one, policy.weights)
    seen = [trajectory(one.setup(at), policy, TINY.seed * training.EPISODES_OF_A_SEED + at) for at in range(3)]
    assert alarms(seen, found) == 0.0
    assert all(low <= high for low, high in found.values())
    assert set(found) == set(FEATURES)


@pytest.mark.parametrize("policy", ["lb", "dqn"])
def test_a_policy_that_is_trained_on_no_graph_of_ones_own_takes_none(policy, tmp_path, capsys):
    graph = tmp_path / "graph.yaml"
    graph.write_text(GRAPH)
    with pytest.raises(SystemExit) as ended:
        run(["train", policy, "--out", str(tmp_path / "out"), "--topology", str(graph)])
    assert ended.value.code == BAD_INPUT
    assert f"--topology: {policy} takes no graph of yours" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def attacked(**terms):
    return replace(TINY, attacker=AttackerTerms(**{"share": 1.0, **terms}))


def test_an_attacker_trains_along_within_its_moves_and_earns_what_the_others_lose():
    run = KarmaRun(attacked(budget=0.2, rate=1.0, dearer=False))
    played = run.play(0, 1)[0]
    attack = played.attack
    assert attack.masks.shape == (len(played.rewards), ACTIONS)
    assert {int(one) for one in attack.taken} <= {0, 3, 6}  # to rest, half and once the genuine requests, none dearer
    before = [one.clone() for one in run.opponent._actor.parameters()]
    told = run.learn([played])
    assert told["train/attack_reward"] < 0
    assert any((one != now).any() for one, now in zip(before, run.opponent._actor.parameters(), strict=True))


def test_a_run_with_an_attacker_goes_on_from_its_state_and_without_one_plays_as_before():
    run, other = KarmaRun(attacked()), KarmaRun(attacked())
    run.learn(run.play(0, 1))
    other.set_state(run.get_state())
    assert (run.play(1, 1)[0].attack.taken == other.play(1, 1)[0].attack.taken).all()
    assert KarmaRun(TINY).play(0, 1)[0].attack is None
    assert "attacker" not in TINY.as_json()


def test_terms_of_an_attacker_that_mean_nothing_are_refused():
    with pytest.raises(ConfigError, match=r"--attacker-rate: 9\.0 is out of range"):
        AttackerTerms(rate=9.0)
    with pytest.raises(ConfigError, match=r"--attacker: 0\.0 is out of range"):
        AttackerTerms(share=0.0)


def test_roles_of_a_users_own_are_trained_under_and_go_with_the_weights():
    own = organisation_from({"name": "own", "roles": [
        {"name": "up", "when": {"all": [{"signal": "waiting_s", "above": 0.1}]}, "allow": [1, 2]}]})  # fmt: skip
    run = KarmaRun(replace(TINY, organisation=msgspec.to_builtins(own)))
    assert [role.name for role in run.organisation.roles] == ["up"]
    assert [role.name for role in KarmaPolicy(weights=run.judged()).eyes.organisation.roles] == ["up"]
