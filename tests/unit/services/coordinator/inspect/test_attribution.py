"""Why the active policy chooses a node: judged on the nodes as they stand, a bound pod taken off its own."""

from __future__ import annotations

import numpy as np
import pytest

from services.cli.explain.text import lines_of
from services.coordinator.core.events import NodeSample, NodesMeasured, PointerSeen
from services.coordinator.core.state import CoreSettings
from services.coordinator.inspect.attribution import reasons
from services.coordinator.usage.measured import OLD_S
from shared.model.power import CURVE_LABEL, parse_power_curves
from shared.policy.heuristics import KubeDefault
from shared.policy.marl.policy import MarlDqn
from shared.policy.registry import make_policy, ref_of
from shared.scheduling.cycle.profile import PluginSet
from shared.wire.records import PolicyPointer
from tests.builders import make_node, make_pod
from tests.marl_weights import weights, with_networks
from tests.unit.services.coordinator.scene import Scene


def scene() -> Scene:
    made = Scene(agents=2)
    for number, load in enumerate((0, 3, 1)):
        made.add_node(make_node(f"n{number}").allocatable(cpu="10", memory="10Gi").node())
        for index in range(load):
            pod = make_pod(f"old-{number}-{index}").cpu("1").memory("1Gi")
            pod.json["spec"]["nodeName"] = f"n{number}"
            made.add_pod(pod.pod())
    made.begin()
    made.run()
    return made


def test_a_pending_pods_best_node_and_what_moved_it() -> None:
    made = scene()
    told = reasons(made.core, make_pod("p").cpu("1").memory("1Gi").pod(), MarlDqn(weights()))
    assert told is not None
    assert (told["policy"], told["chosen"]["node"], told["runner_up"]["node"]) == ("marl-dqn@1", "n0", "n2")
    assert told["ahead_by"] > 0
    assert [moved["feature"] for moved in told["moved"]] == ["requested_above_mean"]


def test_where_classes_of_nodes_have_networks_it_is_told_which_of_them_judged() -> None:
    made = scene()
    made.add_node(make_node("n3").allocatable(cpu="10", memory="10Gi").label(pool="large").node())
    made.run()
    file = with_networks(weights(), {"large": 1, "huge": 1}, {1: weights()})
    told = reasons(made.core, make_pod("p").cpu("1").memory("1Gi").pod(), MarlDqn(file))
    assert told is not None
    by_node = {told[one]["node"]: told[one]["network"] for one in ("chosen", "runner_up")}
    assert by_node == {"n0": "shared", "n3": "pool in (huge, large)"}
    assert {moved["feature"] for moved in (*told["moved"], *told["decisive"])} == {"requested_above_mean"}
    lines = "\n".join(lines_of({"pod": "a/p", "state": "pending", "summary": "waits", "reasons": told}))
    assert "; by the network of pool in (huge, large)" in lines
    assert "; by the network of shared" not in lines
    assert "; by the shared network" in lines


def test_a_bound_pod_is_judged_as_if_it_were_not_on_its_node_yet() -> None:
    made = scene()
    placed = make_pod("p").cpu("1").memory("1Gi")
    made.add_pod(placed.pod())
    made.run()
    bound = made.pods["uid-p"]
    before = made.core.state.cache.table.requested.copy()
    told = reasons(made.core, bound, MarlDqn(weights()))
    fresh = reasons(scene().core, placed.pod(), MarlDqn(weights()))
    assert told is not None
    assert fresh is not None
    assert bound.node_name == "n0"
    assert told["chosen"] == fresh["chosen"]
    np.testing.assert_array_equal(made.core.state.cache.table.requested, before)


def test_a_policy_asked_for_the_first_time_tells_what_the_users_curves_add() -> None:
    curves = parse_power_curves("[nodes.old]\nwatts = [9, 90]\n[nodes.new]\nwatts = [2, 20]\n")
    made = Scene(settings=CoreSettings(profile=PluginSet(power=curves), validate=True))
    for name, curve in (("a", "old"), ("b", "new")):
        node = make_node(name).allocatable(cpu="10", memory="10Gi").label(**{CURVE_LABEL: curve})
        made.add_node(node.node())
    made.begin()
    made.run()
    told = reasons(made.core, make_pod("p").cpu("1").memory("1Gi").pod(), make_policy("ee"))
    assert told is not None
    assert told["chosen"]["node"] == "b"
    assert "inefficiency" in {moved["feature"] for moved in told["moved"]}


def test_a_heuristic_or_a_pod_that_fits_nowhere_has_no_reasons() -> None:
    made = scene()
    assert reasons(made.core, make_pod("p").cpu("1").pod(), KubeDefault()) is None
    assert reasons(made.core, make_pod("p").cpu("99").pod(), MarlDqn(weights())) is None


def test_people_are_told_in_words() -> None:
    told = reasons(scene().core, make_pod("p").cpu("1").memory("1Gi").pod(), MarlDqn(weights()))
    answer = {"pod": "a/p", "state": "pending", "summary": "waits", "reasons": told}
    lines = list(lines_of(answer))
    assert lines[1].startswith("  as the nodes stand, marl-dqn@1 gives n0 ")
    assert "requested_above_mean" in lines[2]
    assert any(line.startswith("    best alternative: n2, ") for line in lines)


def measured_scene(policy: str) -> Scene:
    """Cpu is measured by a sensor, three seconds ago; memory nobody measures."""
    made = scene()
    ref = ref_of(policy)
    for agent in made.agents.values():
        agent.lanes.use(ref, make_policy(policy))
    made.inbox.append(PointerSeen(PolicyPointer(active=ref, number=1)))
    made.run()
    samples = (NodeSample(name, 1.0, cpu, None, source="sensor") for name, cpu in CPU.items())
    made.deliver(NodesMeasured(tuple(samples)))
    made.now += 2.0
    made.deliver()
    return made


CPU, MEMORY = {"n0": 100, "n1": 500, "n2": 200}, {"n0": 0.0, "n1": 0.3, "n2": 0.1}
"""Milli-cores in use of ten cores; shares requested."""


@pytest.mark.parametrize("policy", ["lb", "ee", "el", "lb=0.5,kube-default=0.5", "el=0.5,ee=0.5"])
def test_of_what_a_policy_goes_by_it_is_told_what_was_measured_when_and_by_whom(policy: str) -> None:
    made = measured_scene(policy)
    told = reasons(made.core, make_pod("p").cpu("1").memory("1Gi").pod(), make_policy(policy))
    assert told is not None
    assert list(told["use"]) == [told["chosen"]["node"], told["runner_up"]["node"]]
    lines = list(lines_of({"pod": "a/p", "state": "pending", "summary": "waits", "reasons": told}))
    for node, (cpu, memory) in told["use"].items():
        share = CPU[node] / 10_000
        assert cpu == {"part": "cpu", "share": share, "how": "measured", "age_s": 3.0, "source": "sensor"}
        requested = {"part": "memory", "share": MEMORY[node], "how": "requested", "age_s": None, "source": ""}
        assert memory == requested
        told_as = f"cpu {share:.1%} (measured 3.0 s ago by sensor), memory {MEMORY[node]:.1%} (requested)"
        assert f"    in use on {node}: {told_as}" in lines


def test_a_policy_that_goes_by_what_it_learned_of_workloads_is_not_said_to_go_by_loads() -> None:
    made = measured_scene("lb")
    told = reasons(made.core, make_pod("p").cpu("1").memory("1Gi").pod(), MarlDqn(weights()))
    assert told is not None
    assert "use" not in told


def test_pods_are_counted_and_a_measurement_that_ended_is_not_told_as_one() -> None:
    made = Scene(settings=CoreSettings(profile=PluginSet(load_parts=("disk", "pods")), validate=True))
    made.add_node(make_node("n0").allocatable(cpu="10", memory="10Gi").node())
    made.begin()
    made.inbox.append(PointerSeen(PolicyPointer(active=ref_of("lb"), number=1)))
    made.run()
    pod = make_pod("p").cpu("1").memory("1Gi").pod()
    made.deliver(NodesMeasured((NodeSample("n0", 0.0, 1, 1, 0.7, source="agent"),)))
    for how, age_s in (("measured", 0.0), ("requested", None)):
        told = reasons(made.core, pod, make_policy("lb"))
        assert told is not None
        disk, pods = told["use"]["n0"]
        assert (disk["how"], disk["age_s"]) == (how, age_s)
        assert pods["how"] == "counted"
        made.now += OLD_S
        made.deliver()
