"""Rollouts on Twin A: what is noted, by whom it was done, and what safeguards are for."""

from __future__ import annotations

import numpy as np
import pytest

from lab.jobs.schedules import HEADER, SERVERS, schedule_rows
from lab.jobs.twin_a import KINDS as MODELS
from lab.jobs.twin_a import SLOT_S, TwinOrder, play_twin
from lab.learner.jobs.dl2_training import _play_one
from lab.learner.jobs.rollout import PAID, Credit, Plays, _advantages, _Slot, log_softmax, play
from lab.learner.jobs.teachers import teacher_of
from lab.workers import Workers
from shared.errors import ConfigError
from shared.jobs.policies.learned import increments
from shared.jobs.policies.learned.dl2 import Dl2, features_of, shapes_of
from shared.jobs.policies.learned.increments import OF_JOB
from shared.policy.networks import deep_sets_shapes
from shared.policy.weights import Card, WeightsFile

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


def critic(seed=1, bias=0.0):
    rng = np.random.default_rng(seed)
    shapes = deep_sets_shapes([len(TYPES) + len(OF_JOB), 8, 1])
    found = {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    return found | {"l1.b": np.array([bias], np.float32)}


def test_what_is_paid_for_a_job_is_its_time_until_its_end_and_nothing_for_nobody():
    found = play(plays(seeds=(1,), window=10), drawn())
    there = found.inputs[..., -1] > 0
    assert (found.returns[~there] == 0.0).all()
    assert (found.returns[there] < 0.0).all()


def test_what_is_paid_for_a_job_that_is_alone_is_its_completion_time():
    found = play(plays(seeds=(1,), jobs=1, best=True), drawn())
    assert -found.returns[0, 0] / PAID * SLOT_S / 3600.0 == pytest.approx(found.completion_h[0], rel=1e-5)


def test_without_a_critic_an_advantage_is_all_that_is_paid_from_then_on():
    found = play(plays(), drawn())
    assert found.advantages == pytest.approx(found.returns.sum(axis=1), rel=1e-5)


def slots(*paid):
    return [_Slot(0, SLOT_S * at, ("a",), one) for at, one in enumerate(paid)]


SLOT_OF = np.array([0, 0, 1])
VALUES, CARRIED = np.array([-5.0, -4.0, -2.0]), np.array([0.0, 0.0, -1.0])


def test_an_increment_is_judged_by_what_the_critic_makes_of_it_and_newcomers_are_no_ones_doing():
    found = _advantages(slots(-1.0, -1.0), SLOT_OF, VALUES, CARRIED, Credit(trace=0.0, within=0.0))
    # it saved 1.0; the slot was paid 1.0 and left 1.0 of the jobs that were there, not the 2.0 of all; then the end
    assert found.tolist() == [1.0, 2.0, 1.0]


def test_traces_carry_what_came_later_back():
    found = _advantages(slots(-1.0, -1.0), SLOT_OF, VALUES, CARRIED, Credit(trace=0.5, within=0.25))
    assert found.tolist() == [1.0 + 0.25 * 2.5, 2.5, 1.0]


def test_with_credit_by_slot_all_its_increments_share_one_advantage():
    found = _advantages(slots(-1.0, -1.0), SLOT_OF, VALUES, CARRIED, Credit(trace=0.0, slot=True))
    assert found.tolist() == [3.0, 3.0, 1.0]


def test_every_action_that_was_taken_was_allowed():
    found = play(plays(explore=0.4), drawn())
    assert found.masks[np.arange(len(found.actions)), found.actions].all()
    assert (found.log_p <= 0.0).all()


def test_what_a_teacher_would_do_is_allowed():
    for name in ("drf", "optimus"):
        found = play(plays(teacher=teacher_of(name).of), None)
        assert found.masks[np.arange(len(found.actions)), found.actions].all()


def test_validation_by_runs_side_by_side_is_what_the_policy_does_alone():
    params = drawn()
    card = Card(policy="jobs-dl2", version=1, features=features_of(list(TYPES)))
    found = play(plays(window=10, kept=0.0, best=True), params)
    alone = [TwinOrder(policy=Dl2(WeightsFile(params, card)), seed=seed, jobs=10) for seed in (1, 2)]
    assert found.completion_h == pytest.approx([play_twin(one).figures()["avg_jct_h"] for one in alone])


def test_a_critic_changes_nothing_of_what_is_done():
    one, other = play(plays(), drawn()), play(plays(), drawn(), critic())
    assert np.array_equal(one.actions, other.actions)
    assert not np.array_equal(one.advantages, other.advantages)


def poor(found):
    """Share of the inferences after which some job has workers and no server: two of its inputs."""
    of_job = found.inputs[..., len(TYPES) :]
    return float(((of_job[..., increments.WORKERS] > 0) & (of_job[..., increments.SERVERS] == 0)).any(axis=1).mean())


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


@pytest.mark.process
@pytest.mark.filterwarnings("default")  # of Ray's own making
def test_a_ray_cluster_plays_what_this_process_plays(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else it writes a token to the home folder
    pytest.importorskip("ray", reason="ray is not installed: the extra ray")
    jobs = [(plays(seeds=(seed,), jobs=3), drawn(), None) for seed in (1, 2)]
    with Workers(ray="local") as pool:
        there = list(pool.map(_play_one, jobs))
    for one, (order, params, _) in zip(there, jobs, strict=True):
        here = play(order, params)
        assert np.array_equal(one.actions, here.actions)
        assert one.completion_h == here.completion_h
