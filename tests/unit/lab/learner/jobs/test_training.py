"""Training on Twin A: small runs to their end, the same again from a checkpoint, and returns by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from lab.algorithms.descent import TrainingDiverged
from lab.algorithms.es import arrays_of, flat_of
from lab.jobs import twin_a
from lab.learner.jobs import dl2_training, playgrounds
from lab.learner.jobs.dl2_training import Dl2Run, Dl2Settings
from lab.learner.jobs.networks import JobsCritic, JobsNetwork, SetNetwork
from lab.learner.jobs.playgrounds import Playground
from lab.learner.jobs.rollout import said_of
from lab.learner.jobs.sets_training import SetsRun, SetsSettings
from lab.learner.jobs.teachers import teacher_of
from lab.learner.training.checkpoint import load_checkpoint, save_checkpoint
from shared.errors import ConfigError
from shared.jobs.policies.learned import dl2 as dl2_policy
from shared.jobs.policies.learned.sets import FEATURES, answer

SMALL = Dl2Settings(
    rounds=2, window=30, hidden=(8,), taught_episodes=2, corrected=1, taught_updates=3, episodes_per_round=2, updates=2,
    batch_size=64, validate_every=1,
)  # fmt: skip
SETS = SetsSettings(rounds=2, hidden=(4,), taught_updates=5, pairs=1, validate_every=1)
TWIN_A = Playground("Twin A", workloads=2, taught=1, validation=(100,))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Small workloads, cut short: what is learned is not the point here."""
    monkeypatch.setattr(twin_a, "LONGEST_RUN_S", 6 * twin_a.SLOT_S)
    monkeypatch.setattr(dl2_training, "VALIDATION_SEEDS", (100,))
    real = playgrounds.TwinOrder
    monkeypatch.setattr(playgrounds, "TwinOrder", lambda **given: real(**{**given, "jobs": 6}))
    real_plays = dl2_training.Plays
    monkeypatch.setattr(dl2_training, "Plays", lambda **given: real_plays(**{**given, "jobs": 6}))


def dl2(**changes):
    return Dl2Run(replace(SMALL, **changes), teacher_of("optimus"))


def sets():
    return SetsRun(SETS, [TWIN_A, replace(TWIN_A, name="again", workloads=1)])


@pytest.mark.parametrize("start", [dl2, sets])
def test_a_run_ends_with_weights_that_its_policy_takes(start):
    run = start()
    reports = list(run.run())
    assert [report.step for report in reports] == [0, 1, 2]
    assert run.finished
    assert run.best_score <= run.warm_score
    assert run.weights(trained={}).card.policy in ("jobs-dl2", "jobs-sets")


def test_a_dl2_run_goes_on_from_its_checkpoints_file_with_the_weights_it_had(tmp_path):
    first = dl2()
    part = first.run()
    next(part), next(part)
    save_checkpoint(tmp_path / "seed.ckpt", first.get_state(), digest="d")
    second = dl2()
    second.set_state(load_checkpoint(tmp_path / "seed.ckpt", digest="d"))
    assert (second.rounds, second.warm_score) == (1, first.warm_score)
    for kept, had in (
        (second.warm, first.warm),
        (second.best, first.best),
        (second.actor.arrays(), first.actor.arrays()),
    ):
        assert all(np.array_equal(kept[name], had[name]) for name in had)
    assert [report.step for report in second.run()] == [2]


def test_a_sets_run_that_went_on_from_a_checkpoint_is_the_same_run():
    whole, first = sets(), sets()
    list(whole.run())
    part = first.run()
    next(part), next(part)
    second = sets()
    second.set_state(first.get_state())
    list(second.run())
    assert np.array_equal(second.theta, whole.theta)


@pytest.mark.parametrize("switch", ["critic", "explores", "replay"])
def test_each_part_can_be_switched_off(switch):
    run = dl2(**{switch: False})
    list(run.run())
    assert run.finished


def test_after_imitation_the_best_action_is_the_best_and_others_are_likelier():
    network, x = JobsNetwork((14, 8, dl2_policy.OUTPUTS), seed=3), torch.from_numpy(of_jobs())
    with torch.no_grad():
        before = network(x)
        network.soften(4.0)
        after = network(x)
    assert torch.allclose(after * 4.0, before, atol=1e-6)


def test_what_has_imitated_does_not_imitate_again(monkeypatch):
    first = dl2()
    next(first.run())
    second = dl2()
    second.set_state(first.get_state())
    monkeypatch.setattr(second, "_imitate", lambda: pytest.fail("it imitates again"))
    assert [report.step for report in second.run()] == [1, 2]


def test_without_replay_a_round_learns_from_its_own_samples_alone():
    kept, alone = dl2(), dl2(replay=False)
    list(kept.run())
    list(alone.run())
    assert len(kept._buffer.actions) > len(alone._buffer.actions)


def test_a_loss_that_is_no_number_ends_the_run():
    run = dl2()
    with pytest.raises(TrainingDiverged, match="the loss is nan"):
        run._descend(torch.tensor(float("nan"), requires_grad=True), run._optimiser)


def test_seeds_kept_for_tests_are_no_training_seeds():
    with pytest.raises(ConfigError, match="kept for validation and tests"):
        Dl2Settings(seed=42)


def test_a_playground_whose_figures_scatter_more_does_not_drown_another(monkeypatch):
    """Ranks are taken on each by itself: how large its differences are changes nothing."""

    def learned(factor):
        run = SetsRun(replace(SETS, rounds=1, pairs=3), [TWIN_A, replace(TWIN_A, name="wide")])
        real = Playground.number

        def number(self, policy, seed):
            return 1.0 + factor * real(self, policy, seed) if self.name == "wide" else real(self, policy, seed)

        with monkeypatch.context() as patched:
            patched.setattr(Playground, "number", number)
            list(run.run())
        return run.theta

    assert np.array_equal(learned(1.0), learned(50.0))


def test_what_is_kept_is_the_best_of_both_playgrounds_beside_marginal(monkeypatch):
    run = sets()
    run._marginal = (2.0, 4.0)
    monkeypatch.setattr(run, "_reached", lambda arrays: (1.0, 4.0))
    assert run._validate() == {"validation/beside": 0.75, "validation/Twin A": 1.0, "validation/again": 4.0}
    assert run.best_score == 0.75
    monkeypatch.setattr(run, "_reached", lambda arrays: (2.0, 3.0))
    run._validate()
    assert run.best_score == 0.75


def test_torch_and_numpy_give_the_same_answers_over_a_set():
    network = SetNetwork((len(FEATURES), 8, 8, 2), seed=3)
    x = np.random.default_rng(0).normal(size=(5, len(FEATURES)))
    padded = torch.zeros((1, 7, len(FEATURES)))
    padded[0, :5] = torch.from_numpy(x)
    present = torch.tensor([[1.0] * 5 + [0.0] * 2])
    found = network(padded, present)[0, :5].detach().numpy()
    assert found == pytest.approx(answer(network.arrays(), x, 3), abs=1e-5)


def of_jobs():
    x = np.random.default_rng(0).normal(size=(2, 7, 14)).astype(np.float32)
    x[..., -1] = 0.5
    x[0, 5:] = 0.0
    return x


def test_torch_and_numpy_give_the_same_answers_of_jobs():
    network, x = JobsNetwork((14, 8, 8, dl2_policy.OUTPUTS), seed=3), of_jobs()
    found = network(torch.from_numpy(x)).detach().numpy()
    wanted = dl2_policy.answer(network.arrays(), x, 3)
    here = np.repeat(x[..., -1] > 0, 3, axis=1)
    assert found[:, :-1][here] == pytest.approx(wanted[:, :-1][here], abs=1e-5)
    assert found[:, -1] == pytest.approx(wanted[:, -1], abs=1e-5)


def test_torch_and_numpy_say_the_same_of_what_is_still_to_be_paid():
    network, x = JobsCritic((14, 8, 1), seed=3), of_jobs()
    assert network(torch.from_numpy(x)).detach().numpy() == pytest.approx(said_of(network.arrays(), x), abs=1e-5)


def test_weights_in_a_row_are_the_weights():
    arrays = SetNetwork((3, 4, 2), seed=0).arrays()
    again = arrays_of(flat_of(arrays), {name: array.shape for name, array in arrays.items()})
    assert all(np.array_equal(arrays[name], again[name]) for name in arrays)
