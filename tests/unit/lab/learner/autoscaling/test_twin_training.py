"""Networks of a learned twin: they learn what was recorded, runs repeat and resume, and a policy trains in the twin."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from pettingzoo.test import parallel_api_test

from lab.autoscaling.episode import Setup
from lab.learner.autoscaling.environment import ServiceGraphEnv
from lab.learner.autoscaling.training import KarmaRun, KarmaRunSettings
from lab.learner.autoscaling.twin_training import TwinRun, TwinSettings
from lab.worlds.learned.errors import one_step
from lab.worlds.learned.model import LearnedTwin, TwinMode, decode, encode
from lab.worlds.learned.series import RecordedSeries
from lab.worlds.services.topology import default_topology
from shared.errors import ConfigError
from tests.learned_twins import recorded

TOPOLOGY = default_topology()
SMALL = TwinSettings(epochs=3, members=2, hidden=(24,), batch_size=64)


def run(settings: TwinSettings = SMALL, *, stop_after: int | None = None) -> TwinRun:
    found = TwinRun(settings, recorded(seconds=1000), TOPOLOGY)
    for report in found.run():
        if report.step == stop_after:
            break
    return found


@pytest.fixture(scope="module")
def trained() -> TwinRun:
    return run()


def test_training_makes_the_held_out_steps_likelier_and_keeps_the_best_epoch(trained):
    losses = [report.scalars["validation/loss"] for report in TwinRun(SMALL, recorded(seconds=1000), TOPOLOGY).run()]
    assert losses[-1] < losses[0]
    assert trained.best_loss == min(losses)


def test_networks_in_numpy_say_what_those_in_torch_say(trained):
    """The exported arrays are run by other code: both give the held-out loss."""
    lesson, held = trained.lesson, np.flatnonzero(trained.lesson.held_out)
    twin = LearnedTwin(*parts(trained), mode=TwinMode.NETWORKS)
    recorded_ = lesson.recorded
    said = twin.predict(
        recorded_.state.at(held), recorded_.replicas[held], recorded_.loads[held], recorded_.scenario[held]
    )
    classes = lesson.classes[held]
    known = classes >= 0
    shares = np.concatenate(
        [
            np.take_along_axis(said.change, classes[..., :1], -1),
            np.take_along_axis(said.pending, classes[..., 1:2], -1),
            np.take_along_axis(said.levels, np.maximum(classes[..., 2:], 0)[..., None], -1)[..., 0],
        ],
        axis=-1,
    )
    assert -np.log(shares[known]).mean() == pytest.approx(trained.best_loss, rel=1e-3)


def parts(trained: TwinRun):
    twin = trained.twin({})
    return twin.header, twin.arrays


def test_a_run_repeats_and_one_that_was_cut_goes_on_to_the_same_end(trained):
    half = run(stop_after=1)
    later = TwinRun(SMALL, recorded(seconds=1000), TOPOLOGY)
    later.set_state(half.get_state())
    for _ in later.run():
        pass
    for name, array in trained.best.items():
        np.testing.assert_array_equal(later.best[name], array)


def test_the_file_gives_the_errors_of_the_twin_that_was_written(trained):
    twin = trained.twin({"command": "test"})
    again = decode(encode(twin), "t.npz")
    assert again.header.trained == {"command": "test"}
    assert one_step(again, trained.lesson.recorded).twin == one_step(twin, trained.lesson.recorded).twin


def test_too_little_and_silent_series_are_refused():
    with pytest.raises(ConfigError, match="steps are too few to learn from"):
        TwinRun(SMALL, recorded(("calm",), 300), TOPOLOGY)
    series = recorded(seconds=1000)
    for one in series.episodes:
        one.measures[:, 1, 0] = np.nan
    with pytest.raises(ConfigError, match="no arrivals of service 'b' were read"):
        TwinRun(SMALL, RecordedSeries(series.services, series.step_s, series.episodes), TOPOLOGY)


def test_a_twin_is_trained_on_a_training_seed():
    with pytest.raises(ConfigError, match="42 is kept for validation and tests"):
        TwinSettings(seed=42)


def test_the_environment_of_a_learned_twin_passes_the_official_conformance_test(trained):
    setup = Setup(TOPOLOGY, "mixed", seconds=300, twin=trained.twin({}))
    parallel_api_test(ServiceGraphEnv(setup), num_cycles=40)
    with pytest.raises(ConfigError, match="a learned twin has no attacker"):
        ServiceGraphEnv(setup, attacker=True).reset(seed=1)


def test_a_policy_is_trained_in_a_learned_twin(trained):
    settings = KarmaRunSettings(
        rounds=1,
        episodes_per_round=1,
        taught_episodes=1,
        taught_epochs=1,
        validate_every=1,
        seconds=100,
        files={"twin": "0" * 64},
    )
    one = KarmaRun(settings, world=Setup(TOPOLOGY, seconds=100, twin=trained.twin({})))
    (report,) = one.run()
    assert np.isfinite(report.scalars["validation/score"])
    assert settings.as_json()["files"] == {"twin": "0" * 64}
    assert "files" not in KarmaRunSettings().as_json()  # a run in the service twin keeps its checkpoint's digest


def test_a_twin_of_a_live_graph_alone_trains_a_policy_on_what_was_recorded(trained):
    twin = trained.twin({})
    header = msgspec.structs.replace(twin.header, scenarios=("live", "night"), missing={"live": 0.0, "night": 0.0})
    live = LearnedTwin(header, twin.arrays)
    settings = KarmaRunSettings(rounds=1, episodes_per_round=2, taught_episodes=1, taught_epochs=1, seconds=100)
    (report,) = KarmaRun(settings, world=Setup(TOPOLOGY, seconds=100, twin=live)).run()
    assert np.isfinite(report.scalars["validation/score"])
