"""The replay buffer keeps what it is given, draws by its generator, and refuses what would poison training."""

from __future__ import annotations

import numpy as np
import pytest

from lab.learner.training.replay import ReplayBuffer, transition_fields
from shared.errors import ConfigError

FIELDS = transition_fields((3, 2), actions=3, members=3)


def transition(number: float, action: int = 0) -> dict[str, np.ndarray]:
    present = np.array([True, True, False])
    return {
        "s_tm1": np.full((3, 2), number, np.float32),
        "a_tm1": np.int64(action),
        "r_t": np.float32(number),
        "discount_t": np.float32(0.9),
        "s_t": np.full((3, 2), number + 1, np.float32),
        "mask_tm1": present,
        "mask_t": present,
        "present_tm1": present,
        "present_t": present,
    }


def buffer(capacity: int = 4, seed: int = 1) -> ReplayBuffer:
    return ReplayBuffer(FIELDS, capacity=capacity, rng=np.random.default_rng(seed))


def checked(replay: ReplayBuffer) -> None:
    valid, reason = replay.check_valid()
    assert valid, reason


def test_holds_the_newest_transitions_when_full():
    replay = buffer(capacity=4)
    for number in range(7):
        replay.add(transition(number))
        checked(replay)
    assert replay.size == 4
    assert set(replay.sample(200)["r_t"]) == {3.0, 4.0, 5.0, 6.0}


def test_a_sampled_transition_belongs_together():
    replay = buffer(capacity=16)
    for number in range(16):
        replay.add(transition(number, action=number % 2))
    batch = replay.sample(64)
    assert batch["s_tm1"].shape == (64, 3, 2)
    assert (batch["s_tm1"][:, 0, 0] == batch["r_t"]).all()
    assert (batch["s_t"][:, 0, 0] == batch["r_t"] + 1).all()
    assert (batch["a_tm1"] == batch["r_t"] % 2).all()


def test_a_batch_is_kept_like_its_transitions_one_by_one():
    one, many = buffer(seed=3), buffer(seed=3)
    for number in range(6):
        one.add(transition(number))
    for start in (0, 3):
        rows = [transition(number) for number in range(start, start + 3)]
        many.add_many({name: np.stack([row[name] for row in rows]) for name in FIELDS})
    checked(many)
    left, right = one.sample(32), many.sample(32)
    assert all((left[name] == right[name]).all() for name in FIELDS)


def test_a_sample_is_a_copy():
    replay = buffer()
    replay.add(transition(1))
    replay.sample(1)["s_tm1"][:] = 9
    assert (replay.sample(1)["s_tm1"] == 1).all()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        pytest.param("r_t", np.float32("nan"), "'r_t' holds a number that is not finite", id="nan-reward"),
        pytest.param("s_t", np.full((3, 2), np.inf, np.float32), "'s_t' holds a number", id="infinite-state"),
        pytest.param("s_tm1", np.zeros((2, 2), np.float32), "'s_tm1' has shape", id="shape"),
        pytest.param("discount_t", np.float32(1.5), "'discount_t' lies outside", id="discount"),
        pytest.param("a_tm1", np.int64(2), "'a_tm1' names an action that 'mask_tm1' forbids", id="masked-action"),
        pytest.param("a_tm1", np.int64(12), "'a_tm1' names an action", id="action-that-is-not"),
    ],
)
def test_a_bad_field_is_refused_by_name_and_nothing_is_kept(field, value, words):
    replay = buffer()
    with pytest.raises(ConfigError, match=words):
        replay.add(transition(1) | {field: value})
    assert replay.size == 0
    checked(replay)


def test_a_missing_and_an_unknown_field_are_refused():
    replay = buffer()
    lacking = transition(1)
    del lacking["mask_t"]
    with pytest.raises(ConfigError, match="'mask_t' is missing"):
        replay.add(lacking)
    with pytest.raises(ConfigError, match="'weight' is missing or not declared"):
        replay.add(transition(1) | {"weight": np.float32(1)})


def test_sampling_from_nothing_is_refused():
    with pytest.raises(ConfigError, match="nothing to sample"):
        buffer().sample(1)


def test_a_restored_buffer_draws_the_same_samples():
    replay = buffer(seed=5)
    for number in range(6):
        replay.add(transition(number))
    replay.sample(3)
    state = replay.get_state()
    restored = buffer(seed=99)
    restored.set_state(state)
    checked(restored)
    left, right = replay.sample(20), restored.sample(20)
    assert all((left[name] == right[name]).all() for name in FIELDS)


def test_state_of_another_buffer_is_refused():
    with pytest.raises(ConfigError, match="other fields or capacity"):
        buffer(capacity=8).set_state(buffer(capacity=4).get_state())


@pytest.mark.parametrize(
    ("field", "value", "reason"), [("r_t", np.nan, "R3"), ("discount_t", 2.0, "R3"), ("a_tm1", 2, "R4")]
)
def test_the_check_sees_a_poisoned_buffer(field, value, reason):
    replay = buffer()
    replay.add(transition(1))
    replay._arrays[field][0] = value
    valid, why = replay.check_valid()
    assert not valid
    assert why.startswith(reason)
