"""What people are told of nodes whose kubelets would refuse a pod."""

from __future__ import annotations

from services.cli.explain.text import lines_of
from shared.scheduling.cycle.feasibility import FeasibilityCache
from shared.scheduling.explain.pod_answer import add_verdicts, pod_answer
from tests.unit.shared.scheduling.numa.make import cluster, needs, pod, topology


def test_a_node_that_refuses_is_named_with_what_its_zones_have_free() -> None:
    state, zones = cluster(topology(), topology("n1"))
    for uid in "ab":
        state.assume(pod(uid, needs(5)), "n0", 0.0)
    zones.refused("n1", needs(6), "TopologyAffinityError")
    asked = pod("asked", needs(6))
    answer = pod_answer(asked, {}, "pending", "nobody has said why")
    add_verdicts(answer, state, FeasibilityCache(state.table), asked)
    lines = list(lines_of(answer))
    assert "  1 x NodeResourceTopologyMatch: cannot align container" in lines
    at = lines.index(
        "  zones of n0 (single-numa-node, by container): TopologyAffinityError: "
        "Resources cannot be allocated with Topology locality"
    )
    assert lines[at + 1 : at + 3] == [
        "    node-0 has free cpu 3 of 8, memory 31Gi of 32Gi",
        "    node-1 has free cpu 3 of 8, memory 31Gi of 32Gi",
    ]
    assert any("the kubelet refused a pod like this one" in line for line in lines)


def test_a_pod_that_nothing_aligns_is_told_nothing_of_zones() -> None:
    state, _ = cluster(topology())
    asked = pod("asked", None)
    answer = pod_answer(asked, {}, "pending", "nobody has said why")
    add_verdicts(answer, state, FeasibilityCache(state.table), asked)
    assert "zones" not in answer
