"""The agents' learning: what a step aims at, that numpy acts as torch learned, that a run is a function of its seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from lab.algorithms.dqn import DqnLearnerSettings
from lab.learner.__main__ import main
from lab.learner.marl import training as marl_training
from lab.learner.marl.learner import AgentsLearner, AgentsSettings
from lab.learner.marl.networks import AgentsNetwork, MonotonicMixer, SingleNetwork
from lab.learner.marl.rollout import EpisodeTask, gains, play, reward_of
from lab.learner.marl.settings import MarlSettings, settings_for
from lab.learner.marl.training import MarlRun
from lab.workers import Workers
from shared.errors import ConfigError
from shared.policy.marl.features import FEATURES
from shared.policy.networks import mlp

INPUTS = len(FEATURES)
SMALL = MarlSettings("marl-dqn", rounds=2, episodes_per_round=2, updates_per_round=4, hidden=(8,), validate_every=50)


@pytest.fixture(autouse=True)
def _one_validation_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marl_training, "VALIDATION_SEEDS", range(500, 501))


def batch(*, size: int = 16, nodes: int = 3, features: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "s_tm1": rng.normal(size=(size, nodes, features)).astype(np.float32),
        "a_tm1": rng.integers(0, nodes, size),
        "r_t": rng.normal(size=(size, nodes)).astype(np.float32),
        "discount_t": np.full(size, 0.9, np.float32),
        "s_t": rng.normal(size=(size, nodes, features)).astype(np.float32),
        "mask_tm1": np.ones((size, nodes), np.bool_),
        "mask_t": rng.random((size, nodes)) < 0.7,
    }


@pytest.mark.parametrize("kind", ["shared", "per-node", "single"])
def test_numpy_acts_as_torch_learned(kind: str) -> None:
    rng = np.random.default_rng(1)
    if kind == "single":
        network: torch.nn.Module = SingleNetwork((26, 32, 4), seed=2)
        state = rng.normal(size=26).astype(np.float32)
        with torch.no_grad():
            wanted = network(torch.from_numpy(state[None]))[0].numpy()
    else:
        network = AgentsNetwork((INPUTS, 32, 32, 2), nodes=4 if kind == "per-node" else None, seed=2)
        state = rng.normal(size=(4, INPUTS)).astype(np.float32)
        with torch.no_grad():
            q = network.per_agent(torch.from_numpy(state[None]))[0].numpy()
        wanted = q[:, 1] - q[:, 0]
    np.testing.assert_allclose(gains(kind, network.stack.arrays(), state), wanted, atol=1e-5)  # type: ignore[arg-type]


def test_the_most_willing_agent_is_the_best_joint_action() -> None:
    network = AgentsNetwork((5, 8, 2), seed=3)
    s = torch.from_numpy(batch()["s_tm1"])
    with torch.no_grad():
        q = network.per_agent(s)
        joint = network(s)
    gain = q[..., 1] - q[..., 0]
    assert (joint.argmax(dim=1) == gain.argmax(dim=1)).all()
    by_hand = torch.stack([torch.stack([q[:, i, int(i == k)] for i in range(3)]).mean(dim=0) for k in range(3)], dim=1)
    torch.testing.assert_close(joint, by_hand)


def test_per_node_networks_do_not_share_and_shared_ones_do() -> None:
    s = torch.ones((1, 3, 5))
    with torch.no_grad():
        shared = AgentsNetwork((5, 8, 2), seed=3).per_agent(s)[0]
        own = AgentsNetwork((5, 8, 2), nodes=3, seed=3).per_agent(s)[0]
    assert torch.equal(shared[0], shared[1])
    assert not torch.equal(own[0], own[1])


@pytest.mark.parametrize("bootstrap", ["joint", "own"])
def test_an_infeasible_node_is_no_part_of_the_bootstrap(bootstrap: str) -> None:
    def value(*, mask_bootstrap: bool) -> torch.Tensor:
        settings = DqnLearnerSettings(mask_bootstrap=mask_bootstrap)
        learner = AgentsLearner(AgentsNetwork((5, 8, 2), seed=3), settings, AgentsSettings(bootstrap=bootstrap))  # type: ignore[arg-type]
        with torch.no_grad():
            return learner._next_value(s_t, mask if mask_bootstrap else None)

    s_t = torch.from_numpy(batch()["s_t"])
    with torch.no_grad():
        q = AgentsNetwork((5, 8, 2), seed=3).per_agent(s_t)
    best = (q[..., 1] - q[..., 0]).argmax(dim=1)
    mask = torch.ones(q.shape[:2], dtype=torch.bool)
    mask[torch.arange(len(best)), best] = False
    masked = value(mask_bootstrap=True)
    rejected = q[torch.arange(len(best)), best, 0]
    torch.testing.assert_close(masked[torch.arange(len(best)), best], rejected)
    assert not torch.allclose(masked, value(mask_bootstrap=False))  # switched off, the checker sees it


def test_where_nothing_is_feasible_everybody_rejects() -> None:
    learner = AgentsLearner(AgentsNetwork((5, 8, 2), seed=3), DqnLearnerSettings(), AgentsSettings())
    s_t = torch.from_numpy(batch()["s_t"])
    with torch.no_grad():
        value = learner._next_value(s_t, torch.zeros(s_t.shape[:2], dtype=torch.bool))
        torch.testing.assert_close(value, learner.target.per_agent(s_t)[..., 0])


@pytest.mark.parametrize("mixing", ["independent", "sum"])
def test_learning_lowers_the_loss_and_copies_the_target_each_period(mixing: str) -> None:
    settings = DqnLearnerSettings(learning_rate=1e-2, target_period=100)
    learner = AgentsLearner(AgentsNetwork((5, 16, 2), seed=3), settings, AgentsSettings(mixing=mixing))  # type: ignore[arg-type]
    data = batch() | {"discount_t": np.zeros(16, np.float32)}
    first = learner.update(data).loss
    before = [p.clone() for p in learner.target.parameters()]
    for _ in range(98):
        last = learner.update(data).loss
    assert all(torch.equal(a, b) for a, b in zip(before, learner.target.parameters(), strict=True))
    learner.update(data)
    assert all(torch.equal(a, b) for a, b in zip(learner.online.parameters(), learner.target.parameters(), strict=True))
    assert last < 0.2 * first


def test_each_agents_reward_moves_its_own_value_alone_when_independent() -> None:
    data = batch() | {"discount_t": np.zeros(16, np.float32)}
    network = AgentsNetwork((5, 8, 2), nodes=3, seed=3)
    learner = AgentsLearner(network, DqnLearnerSettings(), AgentsSettings())
    with torch.no_grad():
        q = network.per_agent(torch.from_numpy(data["s_tm1"]))
        taken = torch.zeros(q.shape[:2], dtype=torch.int64).scatter_(1, torch.from_numpy(data["a_tm1"])[:, None], 1)
        data["r_t"] = q.gather(2, taken[..., None]).squeeze(2).numpy().copy()
    data["r_t"][:, 1] += 1.0  # only agent 1 is surprised
    learner.update(data)
    gradients = [float(p.grad[node].abs().sum()) for p in network.parameters() for node in (0, 2)]  # type: ignore[index]
    assert max(gradients) < 1e-6
    assert float(network.stack.weights[0].grad[1].abs().sum()) > 0  # type: ignore[index]


def test_transitions_of_an_episode_line_up() -> None:
    network = AgentsNetwork((INPUTS, 8, 2), seed=1)
    played = play(EpisodeTask(1000, epsilon=0.5), network.stack.arrays())
    t = played.transitions
    assert t["s_tm1"].shape == (104, 4, INPUTS)
    np.testing.assert_array_equal(t["s_t"][:-1], t["s_tm1"][1:])
    assert t["r_t"].max() <= 0
    assert t["mask_tm1"][np.arange(104), t["a_tm1"]].all()


def test_shaping_by_a_potential_pays_the_way_there_and_takes_it_back() -> None:
    even, odd = np.full((4, 4), 0.6), np.array([[0.7] * 4, [0.5] * 4, [0.6] * 4, [0.6] * 4])
    there = reward_of("band+balance", even, odd, 1.0) - reward_of("band", even, odd, 1.0)
    back = reward_of("band+balance", odd, even, 1.0) - reward_of("band", odd, even, 1.0)
    np.testing.assert_allclose(there + back, 0.0, atol=1e-5)
    assert there[0] > 0


def run_of(settings: MarlSettings, workers: int = 1) -> MarlRun:
    with Workers(workers) as pool:
        run = MarlRun(settings, pool)
        for _ in run.run():
            pass
    return run


def test_the_number_of_workers_changes_nothing() -> None:
    alone, together = run_of(SMALL), run_of(SMALL, 2)
    for name, array in alone.averaged.items():
        np.testing.assert_array_equal(array, together.averaged[name])
    assert alone.best_imbalance == together.best_imbalance


def test_a_resumed_run_equals_the_whole_one() -> None:
    whole = run_of(SMALL)
    first = MarlRun(SMALL)
    next(first.run())
    second = MarlRun(SMALL)
    second.set_state(first.get_state())
    for _ in second.run():
        pass
    for name, array in whole.averaged.items():
        np.testing.assert_array_equal(array, second.averaged[name])


def test_the_command_leaves_weights_card_and_curves(tmp_path: Path) -> None:
    command = ["train", "single-dqn", "--seeds", "1000", "--steps", "1", "--out", str(tmp_path)]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert {"single-dqn.npz", "single-dqn.json", "curves-1000.jsonl", "seed-1000.ckpt"} <= {
        path.name for path in tmp_path.iterdir()
    }
    again = CliRunner().invoke(main, command)
    assert again.exit_code == 2
    assert "--resume" in again.output


def test_test_seeds_and_other_policies_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="seeds: 42"):
        settings_for("marl-dqn", 42)
    with pytest.raises(ConfigError, match="policy: 'gold'"):
        MarlSettings("gold")
    with pytest.raises(ConfigError, match="workers: 0"):
        Workers(0)


def test_shipped_shapes_run_in_the_agents_own_inference() -> None:
    network = AgentsNetwork((INPUTS, 8, 2), seed=1)
    state = np.zeros((4, INPUTS), np.float32)
    assert mlp(network.stack.arrays(), state, 2).shape == (4, 2)


def test_the_mixture_rises_with_every_agents_value() -> None:
    mixer, rng = MonotonicMixer(3, 5, seed=1), np.random.default_rng(1)
    state = torch.from_numpy(rng.normal(size=(50, 3, 5)).astype(np.float32))
    q = torch.from_numpy(rng.normal(size=(50, 3)).astype(np.float32)).requires_grad_()
    (gradient,) = torch.autograd.grad(mixer(q, state).sum(), q)
    assert bool((gradient >= 0).all())
    assert bool((gradient > 0).any(dim=0).all())


def test_mixed_agents_learn_a_reward_that_the_team_gets() -> None:
    network = AgentsNetwork((5, 16, 2), mixed=3, seed=1)
    learner = AgentsLearner(network, DqnLearnerSettings(learning_rate=0.01), AgentsSettings("monotonic"))
    given = batch() | {"discount_t": np.zeros(16, np.float32)}
    losses = [learner.update(given).loss for _ in range(150)]
    assert losses[-1] < 0.2 * losses[0]


def test_agents_that_draw_their_nodes_try_others_than_those_that_take_the_most_wanted() -> None:
    params = AgentsNetwork((INPUTS, 8, 2), seed=1).stack.arrays()
    drawn = play(EpisodeTask(1000, sampled=True), params).transitions["a_tm1"]
    taken = play(EpisodeTask(1000), params).transitions["a_tm1"]
    assert len(set(drawn.tolist())) == 4
    assert drawn.tolist() != taken.tolist()
