"""``conclave evaluate --agents``: the placement suites through a mesh, the same figures whatever the number of agents
where the policy agrees with itself; what no mesh plays is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest

from lab.environments.placement_scenarios import replacing
from lab.mesh import measured, openb, suites, thesis, unlike_use
from lab.mesh.measured import METRICS, NOBODY, SENSORS
from lab.mesh.placement import MeshDecider, NamedPolicy
from lab.mesh.world import Agents, MeshWorld
from lab.suites import deepsets
from lab.suites.suites import SuiteInput
from lab.worlds.placement.placement_rollout import policy_decider, roll_out
from services.cli.__main__ import run
from shared.errors import ConfigError
from shared.policy.heuristics import MostAllocated
from tests.builders import make_node, make_pod
from tests.small_trace import small_trace

ONE, FOUR, PER_NODE = Agents(1), Agents(4), Agents(0)


@pytest.mark.parametrize("agents", [ONE, FOUR, PER_NODE], ids=str)
def test_a_mesh_plays_a_whole_experiment_as_one_decider_does(agents):
    scenario = replacing(6, 90, pods=40)
    alone = roll_out(scenario, 42, policy_decider(MostAllocated(), np.random.default_rng(1)), deepsets.REWARDS["ee"])
    mesh = roll_out(scenario, 42, MeshDecider(NamedPolicy("most-allocated"), agents, 42), deepsets.REWARDS["ee"])
    assert mesh.decisions == alone.decisions == 90
    assert mesh.infeasible == 0
    assert mesh.active_nodes == pytest.approx(alone.active_nodes)


def test_latencies_that_change_reach_the_agents():
    scenario = next(one.scenario for one in deepsets.experiments((3,), share=0.02, objectives=["el"]))
    found = roll_out(scenario, 42, MeshDecider(NamedPolicy("el"), FOUR, 42), deepsets.REWARDS["el"])
    assert (found.within_soft, found.hard_avoidable, found.decisions_to_move) == (1.0, 0, 1)
    blind = roll_out(scenario, 42, MeshDecider(NamedPolicy("kube-default"), FOUR, 42), deepsets.REWARDS["el"])
    assert blind.within_soft < 0.6


def test_a_late_view_is_not_for_a_mesh_whose_own_accounting_is_never_late():
    decider = MeshDecider(NamedPolicy("lb"), ONE, 42)
    with pytest.raises(ConfigError, match="neither late nor noisy"):
        roll_out(replacing(3, 20).seen_late(1, 0.0), 42, decider, deepsets.REWARDS["lb"])


def test_the_suites_promises_are_kept_by_four_agents_in_small(monkeypatch):
    monkeypatch.setattr(suites, "MOST_NODES", 10)
    monkeypatch.setattr(suites, "SHARE", 0.02)
    monkeypatch.setattr(unlike_use, "ARRIVALS", 150)
    result = suites.run_suite("deepsets", SuiteInput((42,), ""), FOUR)
    assert not result.unmet
    assert {"ee/few-20/active_ratio", "lb/uneven-12/load_spread", "el/test2-10/within_soft"} <= {
        name for metrics in result.policies.values() for name in metrics
    }
    assert result.notes[0].startswith("decided by a mesh of agents: 4;")


def test_by_measured_use_real_use_is_evener_than_by_requests():
    by_use, by_requests = (unlike_use.episode(NamedPolicy("lb"), FOUR, how, 500) for how in (METRICS, NOBODY))
    assert by_use.use_spread < 0.9 * by_requests.use_spread
    assert by_use.load_spread > by_requests.load_spread
    assert by_use.unplaced == by_requests.unplaced == 0


@pytest.mark.parametrize(("start_s", "bound"), [(10.0, 0.9), (30.0, 1.05)])
def test_of_pods_that_are_slow_to_start_real_use_is_no_less_even_than_by_requests(start_s, bound, monkeypatch):
    monkeypatch.setattr(measured, "START_DELAY_S", start_s)
    by_use, by_requests = (
        np.mean([unlike_use.episode(NamedPolicy("lb"), ONE, how, seed).use_spread for seed in (500, 501)])
        for how in (SENSORS, NOBODY)
    )
    assert by_use < bound * by_requests


def test_of_a_workload_that_comes_again_each_time_is_told_apart():
    once, twice = (
        thesis.episode(NamedPolicy("kube-default"), "uniform", ONE, thesis.METRICS, 42, times=times) for times in (1, 2)
    )
    assert len(once.each) == 1
    assert len(twice.each) == 2
    assert twice.each[0] == pytest.approx(once.each[0])
    assert twice.each[0] != twice.each[1]


def test_of_the_thesis_one_agent_and_four_tell_the_imbalance():
    one, four = (
        thesis.episode(NamedPolicy("kube-default"), "uniform", agents, thesis.METRICS, 42) for agents in (ONE, FOUR)
    )
    assert 0.02 < one.imbalance < 0.2
    assert 0.02 < four.imbalance < 0.2
    assert four.offer_bytes > one.offer_bytes


@pytest.mark.parametrize(("name", "others"), [("best-fit", (FOUR, PER_NODE)), ("fgd", (FOUR,))])
def test_gpus_are_allocated_alike_by_one_agent_and_by_several(name, others):
    """An agent of one node sees of the demand what its node could take: fgd is no more than near there."""
    trace = small_trace()
    alone = openb.allocated(trace, NamedPolicy(name), ONE, 500)
    assert 50 < alone <= 100
    assert {openb.allocated(trace, NamedPolicy(name), agents, 500) for agents in others} == {alone}


def test_a_pod_that_no_node_takes_stays_pending_and_is_bound_when_there_is_room():
    world = NamedPolicy("kube-default").world(
        [make_node("n0").allocatable(cpu="1", memory="1Gi", pods="9").node()], ONE, 1
    )
    world.add([make_pod("a").cpu("1").pod(), make_pod("b").cpu("1").pod()])
    world.rest(for_s=5.0)
    bound = [uid for uid, pod in world.pods.items() if pod.node_name]
    assert len(bound) == 1
    world.remove(bound[0])
    world.rest(for_s=30.0)
    assert all(pod.node_name for pod in world.pods.values())
    assert len(world.bindings) == 2


def test_a_binding_of_a_pod_that_changed_is_refused_as_an_api_server_would():
    """The check of the binder's precondition can fail: the pod is shown anew between plan and Binding."""
    world = NamedPolicy("kube-default").world([make_node("n0").node()], ONE, 1)
    pod = make_pod("a").cpu("1").pod()
    shown = MeshWorld._bound
    meddled = []

    def meddling(self, instruction):
        if not meddled:
            meddled.append(instruction)
            self.add([self.pods[pod.uid]])
        shown(self, instruction)

    world._bound = meddling.__get__(world)
    world.add([pod])
    world.rest(for_s=30.0)
    assert meddled
    assert [node for _, node in world.bindings] == ["n0"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--suite", "jobs", "--agents", "4"], "--agents: a mesh plays deepsets, openb, thesis, tidal, not jobs"),
        (["--suite", "thesis", "--agents", "0"], "--agents: '0' is neither a number of 1 to 1000 nor per-node"),
        (["--suite", "thesis", "--agents", "four"], "--agents: 'four' is neither"),
        (["--suite", "openb", "--agents", "1", "--bound"], "--bound: not of a mesh"),
        (["--behaviour", "lb", "--agents", "1"], "--agents: only --suite uses it"),
        (["--suite", "thesis", "--agents", "1", "--policies", "greedy"], "'greedy' is none that agents decide by"),
        (["--suite", "deepsets", "--agents", "1", "--policies", "frag"], "'frag' is not compared here"),
    ],
)
def test_what_a_mesh_does_not_play_is_refused_in_one_line(flags, words, capsys):
    assert run(["evaluate", *flags]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert len(told.strip().splitlines()) == 1


def test_a_pod_that_is_evicted_is_terminating_until_somebody_removes_it_and_its_room_is_given_then():
    """Preemption through the mesh: the victim is asked once, and the preemptor is bound once it is gone."""
    world = NamedPolicy("kube-default").world(
        [make_node("n0").allocatable(cpu="1", memory="1Gi", pods="9").node()], ONE, 1
    )
    world.add([make_pod("low").cpu("1").pod()])
    world.rest(for_s=1.0)
    world.add([make_pod("high").cpu("1").priority(10).pod()])
    world.rest(for_s=5.0)
    low, high = world.pods["uid-low"], world.pods["uid-high"]
    assert [asked.uid for asked in world.asked] == [low.uid]
    assert world.pods[low.uid].terminating
    assert not world.node_of(high.uid)
    world.remove(low.uid)
    world.rest(for_s=5.0)
    assert world.node_of(high.uid) == "n0"
