"""Rollouts on Twin A: what is noted, by whom it was done, and what safeguards are for."""

from __future__ import annotations

import numpy as np
import pytest

from services.learner.jobs.rollout import Plays, log_softmax, play
from services.learner.jobs.teachers import teacher_of
from shared.errors import ConfigError
from shared.experiments.jobs.schedules import HEADER, SERVERS, schedule_rows
from shared.experiments.jobs.twin_a import KINDS as MODELS
from shared.experiments.jobs.twin_a import TwinOrder, play_twin
from shared.jobs.policies.learned.dl2 import shapes_of

WINDOW = 8
TYPES = tuple(MODELS)


def plays(**changes):
    return Plays(**{"seeds": (1, 2), "window": WINDOW, "types": TYPES, "kept": 1.0, "jobs": 10, **changes})


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    shapes = shapes_of(len(TYPES), (8,))
    return {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}


def test_a_teachers_rounds_end_as_they_end_without_a_learner():
    found = play(plays(teacher=teacher_of("optimus").of), None)
    alone = [play_twin(TwinOrder(policy="optimus", seed=seed, jobs=10)).figures()["avg_jct_h"] for seed in (1, 2)]
    assert found.completion_h == pytest.approx(alone)


def test_the_rewards_of_a_run_are_its_jobs():
    found = play(plays(), drawn())
    assert [found.rewards[found.runs == run].sum() for run in (0, 1)] == pytest.approx([10.0, 10.0], rel=1e-4)


def test_every_action_that_was_taken_was_allowed():
    found = play(plays(explore=0.4), drawn())
    assert found.masks[np.arange(len(found.actions)), found.actions].all()
    assert (found.log_p <= 0.0).all()


def test_what_a_teacher_would_do_is_allowed_and_never_nothing():
    found = play(plays(teacher=teacher_of("drf").of), None)
    assert found.taught.any(axis=1).all()
    assert not (found.taught & ~found.masks).any()


def poor(found):
    """Share of the inferences after which some job has workers and no server: two of its inputs."""
    return float(((found.inputs[..., -3] > 0) & (found.inputs[..., -2] == 0)).any(axis=1).mean())


def test_poor_states_are_left_sooner_with_job_aware_exploration_than_without():
    assert poor(play(plays(explore=0.9), drawn())) < 0.7 * poor(play(plays(), drawn()))


def test_the_same_seeds_are_the_same_rollout():
    one, other = play(plays(), drawn()), play(plays(), drawn())
    assert np.array_equal(one.actions, other.actions)


def test_neither_weights_nor_a_teacher_is_refused():
    with pytest.raises(ValueError, match="neither weights nor a teacher"):
        play(plays(), None)


def test_probabilities_sum_to_one():
    assert np.exp(log_softmax(np.array([[1.0, 2.0, -1e9]], np.float32))).sum() == pytest.approx(1.0)


def test_a_schedules_file_is_a_teacher(tmp_path):
    changes = play_twin(TwinOrder(policy="drf", seed=1003)).changes
    file = tmp_path / "s.csv"
    file.write_text("\n".join([f"{HEADER},{SERVERS}", *schedule_rows(1003, changes, servers=True)]))
    teacher = teacher_of(str(file))
    assert (teacher.name, teacher.seeds, teacher.live) == ("s.csv", (1003,), False)
    file.write_text(file.read_text().replace("1003,", "1004,"))
    with pytest.raises(ConfigError, match="is not in Twin A's workload of seed 1004"):
        teacher_of(str(file))


def test_who_is_neither_a_policy_nor_a_file_is_no_teacher():
    with pytest.raises(ConfigError, match="'gold' is no schedule that can be read, and none of drf, "):
        teacher_of("gold")
