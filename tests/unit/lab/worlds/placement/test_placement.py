"""An episode places every pod that any node holds, nothing else, and says so row by row."""

from __future__ import annotations

import numpy as np
import pytest

from lab.evaluation.results import ResultMetric
from lab.evaluation.seeds import TEST_SEEDS
from lab.suites import openb
from lab.suites.openb import PUBLISHED, goals_of, read_traces, run_suite
from lab.suites.suites import SuiteInput
from lab.worlds.placement.trace_run import PLACEMENTS_HEADER, placement_rows, play, scorer_of
from shared.errors import ConfigError
from shared.policy.frag.features import FEATURES
from shared.policy.frag.value import SHAPES
from shared.policy.rehearsal.episode import run_episode
from shared.policy.rehearsal.rehearsal import Rehearsal
from shared.policy.weights import Card, WeightsFile
from tests.elsewhere import elsewhere
from tests.placements_check import recompute
from tests.small_trace import node_list, pod_list, small_trace

HEURISTICS = ("random", "best-fit", "fgd", "kube-default")


def some_weights() -> WeightsFile:
    rng = np.random.default_rng(3)
    arrays = {name: rng.normal(0, 0.4, shape).astype(np.float32) for name, shape in SHAPES.items()}
    return WeightsFile(arrays, Card(policy="frag", version=1, features=list(FEATURES)))


def placements(policy: str, seed: int = 42, nodes: int = 24) -> tuple[str, float]:
    trace = small_trace(nodes=nodes)
    episode = play(trace, policy, seed, weights=some_weights())
    return "\n".join([PLACEMENTS_HEADER, *placement_rows(trace, episode)]) + "\n", episode.allocation()


@pytest.mark.parametrize("policy", [*HEURISTICS, "frag"])
def test_the_figures_can_be_recomputed_from_the_placements(policy):
    text, allocation = placements(policy)
    assert recompute(text, pod_list(), node_list(24)) == {42: pytest.approx(allocation)}


def test_a_placed_pod_that_is_reported_as_unplaced_is_seen():
    lines = placements("fgd")[0].splitlines()
    seed, order, row, _, _ = lines[1].split(",")
    lines[1] = f"{seed},{order},{row},,"
    with pytest.raises(AssertionError, match="a node had room"):
        recompute("\n".join(lines), pod_list(), node_list(24))


def test_a_pod_on_a_full_device_is_seen():
    lines = placements("fgd")[0].splitlines()
    first = next(line for line in lines if line.endswith(":1000") and ";" not in line)
    at = lines.index(first)
    for later, line in enumerate(lines[at + 1 :], start=at + 1):
        seed, order, row, _, devices = line.split(",")
        if devices and ";" not in devices and devices.split(":")[1] == "1000":
            lines[later] = ",".join((seed, order, row, *first.split(",")[3:]))
            break
    with pytest.raises(AssertionError):
        recompute("\n".join(lines), pod_list(), node_list(24))


@pytest.mark.parametrize("policy", [*HEURISTICS, "frag"])
def test_the_same_seed_gives_the_same_placements_and_another_seed_others(policy):
    assert placements(policy) == placements(policy)
    assert placements(policy)[0] != placements(policy, seed=43)[0]


def test_every_submitted_pod_has_a_row():
    trace = small_trace(nodes=24)
    episode = play(trace, "best-fit", 42)
    assert len(list(placement_rows(trace, episode))) == len(episode.row) == len(episode.devices)


def test_allocation_at_100_percent_counts_the_pods_submitted_until_then():
    episode = play(small_trace(nodes=24), "best-fit", 42)
    until = int((episode.arrived <= episode.capacity).sum())
    assert episode.allocation(1.0) == 100 * episode.allocated[until - 1] / episode.capacity
    assert episode.allocation(0.0) == 0


def test_a_scorer_that_gives_nan_is_refused():
    class Broken:
        random_ties = False

        def score(self, states, request):
            return np.full(len(states), np.nan), np.full(len(states), -1)

    trace = small_trace()
    with pytest.raises(ValueError, match="finite score"):
        run_episode(trace.nodes, trace.pods, Broken(), 42)


def test_an_unknown_policy_is_refused_by_name():
    with pytest.raises(ConfigError, match="'tetris' does not place GPU traces"):
        scorer_of("tetris", small_trace())


def test_an_episode_can_be_stopped_from_outside():
    def stop() -> None:
        raise KeyboardInterrupt

    trace = small_trace()
    with pytest.raises(KeyboardInterrupt):
        play(trace, "random", 42, tick=stop)


FILES = {"openb_node_list_gpu_node.csv": node_list(24), "openb_pod_list_default.csv": pod_list()}


def suite(**given):
    return SuiteInput((42, 43), "conclave evaluate --suite openb", files=given.pop("files", FILES), **given)


def test_in_the_suite_too_frag_places_as_its_rehearsal_says(monkeypatch):
    asked = []

    def worse(trace, *_, **__):
        asked.append(trace)
        return Rehearsal(-1.0, 0.0, played=2)

    monkeypatch.setattr(openb, "rehearse", worse)
    result = run_suite(suite(policies=("frag", "fgd")), lambda *_: None)
    assert result.policies["frag"] == result.policies["fgd"]
    assert [note for note in result.notes if "FGD places" in note] == list(result.notes[-len(asked) :])


def test_the_suite_gives_each_policy_its_figures_per_trace():
    seen = []
    result = run_suite(suite(policies=("best-fit", "fgd")), lambda done, total, doing: seen.append((done, total)))
    assert set(result.policies) == {"best-fit", "fgd"}
    assert len(result.policies["fgd"]["default/allocated_130"].values) == 2
    assert seen[-1] == (4, 4)
    assert result.goals == ()


def test_the_suite_tells_the_bound_when_asked_and_nobody_is_above_it():
    seen = []
    result = run_suite(suite(policies=("fgd",), bound=True), lambda done, total, doing: seen.append((done, total)))
    found, bound = result.policies["fgd"], result.policies["bound"]
    pairs = zip(found["default/allocated_130"].values, bound["default/allocated_130"].values, strict=True)
    assert all(reached <= most + 1e-6 for reached, most in pairs)
    assert set(bound) == {"default/allocated_130", "default/may_refuse_130"}
    assert seen[-1] == (4, 4)
    assert any(note.startswith("bound: ") for note in result.notes)
    assert "bound" not in run_suite(suite(policies=("fgd",)), lambda *_: None).policies


def test_the_suite_refuses_a_folder_without_its_lists():
    with pytest.raises(ConfigError, match=r"openb_node_list_gpu_node\.csv is missing"):
        read_traces({})
    with pytest.raises(ConfigError, match="no openb_pod_list"):
        read_traces({"openb_node_list_gpu_node.csv": node_list()})


def figures(**means: float):
    return {policy: {"default/allocated_130": ResultMetric.of([mean] * 10)} for policy, mean in means.items()}


def test_gate_and_promises_are_goals_on_the_test_seeds_alone():
    published = PUBLISHED["default"]
    found = figures(fgd=published["fgd"] + 0.2, frag=95.9)
    goals = {goal.goal: goal.met for goal in goals_of(found, ("default",), TEST_SEEDS)}
    assert len(goals) == 3
    assert all(goals.values())
    assert len(goals_of(found, ("default",), (500, 501))) == 1


def test_a_figure_off_the_published_or_below_fgd_is_not_met():
    published = PUBLISHED["default"]
    found = figures(fgd=published["fgd"] - 0.4, frag=published["fgd"] - 0.6)
    assert not any(goal.met for goal in goals_of(found, ("default",), TEST_SEEDS))


def test_runs_that_are_played_elsewhere_give_the_same_figures():
    here, there = (
        run_suite(suite(policies=("fgd",), bound=True, each=each), lambda *_: None) for each in (map, elsewhere)
    )
    assert here.to_json() == there.to_json()
