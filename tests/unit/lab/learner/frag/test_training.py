"""Training of frag: the loops play what the suite plays, the search climbs, and a resumed run equals a whole one."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from lab.learner.__main__ import main
from lab.learner.frag import training as frag_training
from lab.learner.frag.cases import FragCase, kind_of, part_of, pools_of, variant
from lab.learner.frag.fit import FragExperience, arrays_of, fit, scales_of
from lab.learner.frag.search import Search
from lab.learner.frag.trainer import train_frag, write_best
from lab.learner.frag.training import FragRun, FragSettings
from lab.learner.training.checkpoint import load_checkpoint, save_checkpoint
from lab.learner.training.runner import TrainRequest
from lab.worlds.placement.trace_run import play
from shared.errors import ConfigError
from shared.policy.frag.features import FEATURES, model_share
from shared.policy.frag.scorers import Frag
from shared.policy.frag.value import SHAPES, UNPRICED, CostNet
from shared.policy.rehearsal.episode import run_episode
from shared.policy.weights import Card, WeightsFile, decode
from tests.small_trace import small_trace

torch.set_num_threads(1)

COUNT = sum(int(np.prod(shape)) for shape in SHAPES.values())


def some_weights(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.3, COUNT)


def weights_file(weights: np.ndarray) -> WeightsFile:
    return WeightsFile(arrays_of(weights), Card(policy="frag", version=1, features=list(FEATURES)))


def test_the_loops_play_fgd_as_the_suite_does():
    trace = small_trace(nodes=16)
    case = FragCase(trace.nodes, trace.pods)
    for seed in (42, 43, 44):
        assert case.play(None, seed) == pytest.approx(play(trace, "fgd", seed).allocation())


def test_the_loops_play_the_learned_policy_as_the_suite_does():
    trace, weights = small_trace(nodes=16), some_weights()
    case, file = FragCase(trace.nodes, trace.pods), weights_file(weights)
    for seed in (42, 43, 44):
        scorer = Frag(file, trace.demand, model_share(trace.nodes.states))
        expected = run_episode(trace.nodes, trace.pods, scorer, seed)
        late, early = case.play_both(weights, seed)
        assert late == case.play(weights, seed) == pytest.approx(expected.allocation())
        assert early == pytest.approx(expected.allocation(1.0))


def test_training_learns_the_waste_without_prices(tiny):
    trace, weights = small_trace(nodes=16), some_weights()
    unpriced = FragCase(trace.nodes, trace.pods, UNPRICED)
    assert unpriced.play_both(weights, 42) != FragCase(trace.nodes, trace.pods).play_both(weights, 42)
    assert not any(tiny._draw(np.random.default_rng(0)).__closure__[0].cell_contents.constants[:2])


def test_snapshots_know_what_stayed_idle():
    trace = small_trace(nodes=16)
    x, idle, end = FragCase(trace.nodes, trace.pods).learn(None, 1000, 0.1)
    assert x.shape == (len(idle), len(FEATURES))
    assert (end <= idle).all()
    assert (idle > 0).all()
    assert x[:, 0] * 8 == pytest.approx(idle)


def test_the_fit_learns_a_waste_that_the_features_tell_and_numpy_computes_it_as_torch_did():
    trace = small_trace(nodes=16)
    case = FragCase(trace.nodes, trace.pods)
    parts = [case.learn(None, seed, 0.1) for seed in range(1000, 1004)]
    x, idle = (np.concatenate([part[field] for part in parts]).astype(np.float32) for field in (0, 1))
    end = (0.5 * idle).astype(np.float32)
    weights, relative = fit(FragExperience(x, idle, end), None, updates=300, seed=1)
    assert relative < 0.05
    net = CostNet(weights_file(weights), trace.demand, model_share(trace.nodes.states), UNPRICED)
    waste = net.cost(trace.nodes.states)
    assert waste == pytest.approx(0.5 * trace.nodes.states.devices, abs=0.8)


def test_variants_change_the_mix_they_name():
    pools = pools_of({"default": small_trace(pods=400).pods, "more": small_trace(pods=400, seed=5).pods})
    rng = np.random.default_rng(0)
    shares = variant(pools, rng, "share", 1.0)
    assert {kind_of(request) for request in shares.classes} <= {0, 1}
    several = variant(pools, rng, "several", 0.9)
    gpu = several.gpu
    devices = np.array([request.devices for request in several.classes])[several.of]
    assert gpu[devices > 1].sum() / gpu.sum() == pytest.approx(0.9, abs=0.1)
    named = variant(pools, rng, "model", 0.5)
    models = np.array([request.models for request in named.classes])[named.of]
    assert 0.2 < (models != -1).mean() < 0.7


def test_a_part_of_the_nodes_has_that_size():
    nodes = small_trace(nodes=40).nodes
    assert len(part_of(nodes, 0.5, np.random.default_rng(0)).names) == 20
    assert part_of(nodes, 1.0, np.random.default_rng(0)) is nodes


def test_the_search_climbs_a_known_hill():
    goal = np.full(COUNT, 0.1)
    search = Search(some_weights() * 0.1, 3)

    def draw(rng):
        return lambda weights: -float(((weights - goal) ** 2).sum())

    before = ((search.weights - goal) ** 2).sum()
    for _ in range(300):
        search.step(draw)
    assert ((search.weights - goal) ** 2).sum() < 0.9 * before


def test_without_its_reward_the_search_does_not_climb():
    goal = np.full(COUNT, 0.1)
    search = Search(some_weights() * 0.1, 3)
    before = ((search.weights - goal) ** 2).sum()
    for _ in range(300):
        search.step(lambda rng: lambda weights: 0.0)
    assert ((search.weights - goal) ** 2).sum() >= 0.99 * before


def test_noise_is_scaled_to_each_layer():
    scales = scales_of(np.concatenate((np.full(24 * 32, 2.0), np.zeros(COUNT - 24 * 32))))
    assert scales[0] == 2.0
    assert scales[-1] == 0.05


@pytest.fixture
def tiny(monkeypatch) -> FragRun:
    """A run that takes seconds: a few nodes, one round, one pair."""
    trace = small_trace(nodes=4, pods=40)
    monkeypatch.setattr(frag_training, "VALIDATE_EVERY", 2)
    monkeypatch.setattr(frag_training, "VALIDATION_SEEDS", (500,))
    monkeypatch.setattr("lab.learner.frag.search.PAIRS", 1)
    settings = FragSettings(seed=1000, steps=4, rounds=1, episodes=2, updates=20)
    return FragRun(trace.nodes, {"default": trace.pods}, settings)


def test_a_resumed_run_equals_the_whole_one(tiny, tmp_path):
    whole = replace(tiny)
    reports = list(whole.run())
    assert [report.step for report in reports] == [0, 1, 2, 3, 4]
    first = replace(tiny, settings=replace(tiny.settings, steps=2))
    list(first.run())
    save_checkpoint(tmp_path / "c", first.get_state(), digest="d")
    second = replace(tiny)
    second.set_state(load_checkpoint(tmp_path / "c", digest="d"))
    list(second.run())
    assert np.array_equal(second.search.weights, whole.search.weights)
    assert np.array_equal(second.best, whole.best)
    assert second.best_step == whole.best_step


def test_the_weights_written_are_the_best_and_say_how_they_came_about(tiny, tmp_path):
    list(tiny.run())
    write_best(TrainRequest("frag", tmp_path), tiny)
    file = decode((tmp_path / "frag.npz").read_bytes(), policy="frag", expect_shapes=SHAPES)
    assert np.allclose(file.arrays["l0.w"].ravel(), tiny.best[: 24 * 32], atol=1e-7)
    card = json.loads((tmp_path / "frag.json").read_text())
    assert "--steps 4" in card["trained"]["command"]
    assert tuple(card["features"]) == FEATURES


def test_test_seeds_are_refused_for_training(tmp_path):
    with pytest.raises(ConfigError, match="--seeds: 42 is kept"):
        train_frag(TrainRequest("frag", tmp_path, seeds=(42,)))


def test_a_missing_trace_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("CONCLAVE_SHARED", str(tmp_path))
    with pytest.raises(ConfigError, match=r"openb_node_list_gpu_node\.csv"):
        train_frag(TrainRequest("frag", tmp_path / "out"))


def test_a_finished_folder_is_not_overwritten(tmp_path):
    (tmp_path / "seed-1000.ckpt").write_bytes(b"")
    refused = CliRunner().invoke(main, ["train", "frag", "--out", str(tmp_path)])
    assert refused.exit_code == 2
    assert "--resume" in refused.output
