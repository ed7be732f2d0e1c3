"""What the GPU cluster draws, pod by pod; ``power`` in the experiment, and the goals it is held to."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from lab.evaluation.results import ResultMetric
from lab.mesh import openb as mesh
from lab.mesh.placement import NamedPolicy
from lab.mesh.world import Agents
from lab.suites.openb import power_goals, run_suite
from lab.suites.suites import SuiteInput
from lab.worlds.placement.gpu_power import POINTS, PowerScorer, StateWatts, kilowatts
from lab.worlds.placement.trace_run import play
from shared.model.power import PWR, NodeWatts, PowerCurves
from shared.policy.rehearsal.rehearsal import play as play_by
from shared.policy.weights import shipped
from tests.small_trace import node_list, pod_list, small_trace

FILES = {"openb_node_list_gpu_node.csv": node_list(24), "openb_pod_list_default.csv": pod_list()}
LEAST_SAVED = 2.0
"""Percent of frag's draw, in the mean of some seeds."""


def by_hand(trace, episode, pods: int) -> float:
    """Kilowatts once so many pods were submitted, node by node."""
    nodes, total = trace.nodes, 0.0
    models = {code: name for name, code in nodes.models.items()}
    for index in range(len(nodes.names)):
        cpu, used = 0, set()
        for place in np.flatnonzero(episode.node[:pods] == index).tolist():
            cpu += trace.pods.classes[int(trace.pods.of[episode.row[place]])].cpu
            used |= {device for device in episode.devices[place] if device >= 0}
        model = models[int(nodes.states.model[index])]
        gpu, package = PWR.of_gpu(model), PWR.of_node({}, model)
        size = int(1000 * package.cores)
        packages, busy = -(-int(nodes.states.cpu_total[index]) // size), -(-cpu // size)
        total += package.watts[0] * (packages - busy) + package.watts[1] * busy
        total += gpu.peak * len(used) + gpu.idle * (int(nodes.states.devices[index]) - len(used))
    return total / 1000


@pytest.mark.parametrize("policy", ["fgd", "power", "random"])
def test_what_is_drawn_is_what_every_node_draws_by_itself(policy):
    trace = small_trace(nodes=24)
    episode = play(trace, policy, 42)
    drawn = kilowatts(trace, episode)
    assert len(drawn) == POINTS + 1
    for percent in (0, 1, 37, 100):
        pods = int(np.searchsorted(episode.arrived, percent * episode.capacity / POINTS, side="right"))
        assert drawn[percent] == pytest.approx(by_hand(trace, episode, pods))
    assert (np.diff(drawn) >= 0).all()


def test_a_node_that_is_off_without_pods_draws_nothing_and_then_all_its_devices_do():
    trace = small_trace(nodes=2)
    off = PowerCurves(nodes={}, gpus=PWR.gpus, node=NodeWatts((50, 50), off_when_empty=True), gpu=PWR.gpu)
    watts, states = StateWatts(trace.nodes.models, off), trace.nodes.states.take(np.arange(2))
    assert watts.of(states).tolist() == [0, 0]
    states.cpu[0] -= 1
    first, second = watts.of(states).tolist()
    models = {code: name for name, code in trace.nodes.models.items()}
    idle = off.of_gpu(models[int(states.model[0])]).idle * int(states.devices[0])
    assert (first, second) == (50 + idle, 0)


def saved(trace, episode_of, seed: int) -> tuple[float, float]:
    """Percent of frag's draw on the way, and points of all GPUs allocated beside it."""
    ours, theirs = (episode_of(name, seed) for name in ("power", "frag"))
    drawn = 1 - kilowatts(trace, ours).mean() / kilowatts(trace, theirs).mean()
    return 100 * float(drawn), ours.allocation() - theirs.allocation()


def test_power_draws_clearly_less_than_frag_on_the_way_and_gives_up_little():
    trace = small_trace(nodes=24)
    drawn, lost = np.mean([saved(trace, partial(play, trace), seed) for seed in range(42, 46)], axis=0)
    assert drawn > LEAST_SAVED
    assert lost > -5


def test_at_no_price_it_places_as_the_learned_value_does():
    trace, weights = small_trace(nodes=24), shipped("frag")
    scorer = PowerScorer(trace, weights, price=0.0)
    unpriced = play_by(trace, scorer, 42)
    assert np.array_equal(unpriced.node, play_by(trace, scorer._frag, 42).node)


@pytest.mark.parametrize("agents", ["1", "4"])
def test_a_mesh_of_agents_saves_too(agents):
    trace = small_trace(nodes=24)

    def episode(name: str, seed: int):
        return mesh.episode(trace, NamedPolicy(name), Agents.parse(agents), seed)

    drawn, lost = np.mean([saved(trace, episode, seed) for seed in (42, 43)], axis=0)
    assert drawn > LEAST_SAVED
    assert lost > -5


def test_the_suite_tells_what_every_policy_draws_and_holds_power_to_its_goals():
    given = SuiteInput(
        (42,), "conclave evaluate --suite openb", files=FILES, policies=("power", "frag"), rehearse=False
    )
    result = run_suite(given, lambda *_: None)
    assert {"default/kilowatts", *(f"default/kilowatts_{part}" for part in (25, 50, 75, 100))} <= set(
        result.policies["frag"]
    )
    assert [goal.goal for goal in result.goals] == [
        "power on default, percent saved of frag's draw", "power less frag on default, points allocated",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("draw", "allocated", "met"),
    [(89.9, 95.6, [True, True]), (90.1, 95.6, [False, True]), (80.0, 95.4, [True, False])],
)
def test_too_little_saved_or_too_much_given_up_is_not_met(draw, allocated, met):
    def figures(kilowatts: float, percent: float):
        return {"t/kilowatts": ResultMetric.of([kilowatts] * 2), "t/allocated_130": ResultMetric.of([percent] * 2)}

    goals = power_goals({"power": figures(draw, allocated), "frag": figures(100.0, 96.0)}, "t")
    assert [goal.met for goal in goals] == met
