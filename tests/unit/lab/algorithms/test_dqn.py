"""Masks bind both the action and the bootstrap, Double DQN splits choice from value, and a run resumes exactly."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from lab.algorithms.descent import TrainingDiverged
from lab.algorithms.dqn import DqnLearner, DqnLearnerSettings, bootstrap_value, epsilon_greedy
from lab.learner.training.checkpoint import load_checkpoint, save_checkpoint, settings_digest
from lab.learner.training.dqn_run import LinearSchedule
from shared.errors import ConfigError

torch.set_num_threads(1)


class Linear(nn.Module):
    """Q of a flat state: the smallest network of the learner's shape."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layer = nn.Linear(4, 3)

    def forward(self, s: torch.Tensor, present: torch.Tensor | None = None) -> torch.Tensor:
        return self.layer(s)


def batch(seed: int, count: int = 32) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    mask = rng.random((count, 3)) < 0.7
    mask[:, 0] = True
    return {
        "s_tm1": rng.random((count, 4), np.float32),
        "a_tm1": np.zeros(count, np.int64),
        "r_t": rng.random(count, np.float32),
        "discount_t": np.full(count, 0.9, np.float32),
        "s_t": rng.random((count, 4), np.float32),
        "mask_tm1": mask,
        "mask_t": mask,
    }


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_a_masked_action_is_never_chosen(epsilon):
    rng = np.random.default_rng(7)
    q = rng.normal(size=(5000, 6)).astype(np.float32)
    mask = rng.random(q.shape) < 0.4
    mask[np.arange(5000), rng.integers(6, size=5000)] = True
    actions = epsilon_greedy(q, mask, epsilon, rng)
    assert mask[np.arange(5000), actions].all()


def test_without_exploration_the_best_allowed_action_is_chosen():
    q = np.array([[1.0, 9.0, 3.0]], np.float32)
    rng = np.random.default_rng(1)
    assert epsilon_greedy(q, np.array([[True, False, True]]), 0.0, rng)[0] == 2
    assert epsilon_greedy(q, None, 0.0, rng)[0] == 1


def test_exploration_is_uniform_over_the_allowed_actions():
    rng = np.random.default_rng(1)
    q = np.tile(np.array([5.0, 0.0, 1.0, 9.0], np.float32), (9000, 1))
    mask = np.tile(np.array([True, True, True, False]), (9000, 1))
    share = np.bincount(epsilon_greedy(q, mask, 1.0, rng), minlength=4) / 9000
    assert share[3] == 0
    assert np.abs(share[:3] - 1 / 3).max() < 0.02


def test_a_state_without_an_allowed_action_cannot_be_acted_in():
    with pytest.raises(ValueError, match="without any allowed action"):
        epsilon_greedy(np.zeros((1, 2), np.float32), np.zeros((1, 2), np.bool_), 0.1, np.random.default_rng(1))


def test_bootstrap_takes_the_best_allowed_action():
    q = torch.tensor([[1.0, 9.0, 3.0]])
    mask = torch.tensor([[True, False, True]])
    assert bootstrap_value(q, q, mask).item() == 3.0


def test_a_next_state_without_allowed_action_is_worth_nothing():
    q = torch.tensor([[4.0, 9.0]])
    assert bootstrap_value(q, q, torch.zeros(1, 2, dtype=torch.bool)).item() == 0.0


def test_double_dqn_values_the_online_choice_by_the_target_network():
    online, target = torch.tensor([[2.0, 1.0]]), torch.tensor([[0.5, 7.0]])
    assert bootstrap_value(online, target, None, double=True).item() == 0.5
    assert bootstrap_value(online, target, None, double=False).item() == 7.0


def test_terminal_transitions_learn_the_reward_alone():
    learner = DqnLearner(Linear(), DqnLearnerSettings(learning_rate=0.02, target_period=10))
    data = batch(1)
    data["discount_t"][:] = 0
    data["r_t"][:] = 0.25
    for _ in range(1500):
        learner.update(data)
    assert np.abs(learner.q_values(data["s_tm1"])[:, 0] - 0.25).max() < 0.02


def test_the_target_network_changes_only_each_period():
    learner = DqnLearner(Linear(), DqnLearnerSettings(target_period=3))
    before = learner.target.state_dict()["layer.weight"].clone()
    for count in range(1, 4):
        learner.update(batch(count))
        moved = not torch.equal(before, learner.target.state_dict()["layer.weight"])
        assert moved == (count == 3)


def test_a_loss_that_is_not_finite_stops_the_run():
    learner = DqnLearner(Linear(), DqnLearnerSettings())
    data = batch(1)
    data["r_t"][0] = np.nan
    with pytest.raises(TrainingDiverged, match="learning_rate"):
        learner.update(data)
    assert np.isfinite(learner.q_values(data["s_tm1"])).all()


def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path):
    whole, first = (DqnLearner(Linear(seed=3), DqnLearnerSettings(target_period=4)) for _ in range(2))
    for step in range(10):
        whole.update(batch(step))
    for step in range(5):
        first.update(batch(step))
    digest = settings_digest({"lr": 1e-3})
    state = {"learner": first.get_state(), "draw": np.arange(3), "rng": np.random.default_rng(4).bit_generator.state}
    save_checkpoint(tmp_path / "run.ckpt", state, digest=digest)
    saved = load_checkpoint(tmp_path / "run.ckpt", digest=digest)
    resumed = DqnLearner(Linear(seed=8), DqnLearnerSettings(target_period=4))
    resumed.set_state(saved["learner"])
    for step in range(5, 10):
        resumed.update(batch(step))
    for name, value in whole.online.state_dict().items():
        assert torch.equal(value, resumed.online.state_dict()[name])
    assert (saved["draw"] == np.arange(3)).all()
    assert saved["rng"] == state["rng"]


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    save_checkpoint(path, {}, digest=settings_digest({"lr": 1}))
    with pytest.raises(ConfigError, match="other settings"):
        load_checkpoint(path, digest=settings_digest({"lr": 2}))


def test_a_broken_or_missing_checkpoint_is_refused_by_name(tmp_path):
    path = tmp_path / "run.ckpt"
    with pytest.raises(ConfigError, match="does not exist"):
        load_checkpoint(path, digest="")
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ConfigError, match=r"run\.ckpt is not readable"):
        load_checkpoint(path, digest="")


def test_a_schedule_is_flat_outside_its_line():
    epsilon = LinearSchedule(1.0, 0.1, 10, 20)
    assert [epsilon(step) for step in (0, 10, 15, 20, 99)] == pytest.approx([1.0, 1.0, 0.55, 0.1, 0.1])
    with pytest.raises(ConfigError, match="end_step"):
        LinearSchedule(1.0, 0.1, 10, 10)


def test_a_million_batched_choices_never_leave_the_mask():
    rng = np.random.default_rng(11)
    broken = 0
    for _ in range(10):
        q = rng.normal(scale=100, size=(100_000, 8)).astype(np.float32)
        mask = rng.random(q.shape) < 0.3
        mask[np.arange(len(q)), rng.integers(8, size=len(q))] = True
        q[~mask] += 1_000  # what is forbidden looks best
        actions = epsilon_greedy(q, mask, 0.05, rng)
        broken += int((~mask[np.arange(len(q)), actions]).sum())
    assert broken == 0
    unmasked = epsilon_greedy(q, None, 0.05, rng)
    assert not mask[np.arange(len(q)), unmasked].all()


FILL = """
import resource, sys
import numpy as np
from pathlib import Path
from lab.learner.training.checkpoint import load_checkpoint, save_checkpoint
path = Path(sys.argv[1])
save_checkpoint(path, {"a": np.zeros(4)}, digest="d")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    save_checkpoint(path, {"a": np.zeros(100_000)}, digest="d")
except OSError as error:
    left = [file.name for file in path.parent.iterdir()]
    print(type(error).__name__, len(load_checkpoint(path, digest="d")["a"]), left)
"""


def test_a_checkpoint_that_finds_no_room_is_an_os_error_and_leaves_the_one_before(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FILL, tmp_path / "run.ckpt"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "OSError 4 ['run.ckpt']\n"
