"""Hard spread holds whatever the order in which decided Bindings land: only what was seen raises the least domain."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from shared.model.pod import Pod
from shared.scheduling.filters import topology_spread
from shared.scheduling.filters.topology_spread import TopologySpread
from shared.scheduling.state.cluster_state import ClusterState
from shared.scheduling.state.releases import Release
from tests.builders import make_node, make_pod

ZONE = "topology.kubernetes.io/zone"


def zoned_cluster(zones: int) -> ClusterState:
    state = ClusterState()
    for number in range(zones * 2):
        state.upsert_node(make_node(f"n{number}").label(**{ZONE: f"z{number % zones}"}).node())
    return state


def spread_pod(name: str, skew: int) -> Pod:
    builder = make_pod(name).set(labels={"app": "web"})
    builder.json["spec"]["topologySpreadConstraints"] = [
        {
            "topologyKey": ZONE,
            "maxSkew": skew,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
    return builder.pod()


def worst_skew(zones: int, skew: int, seed: int, *, trust_assumed: bool) -> int:
    """Decide at random while anything fits, let decided pods land in any order; the worst skew that was ever seen."""
    rng, state = random.Random(seed), zoned_cluster(zones)
    waiting = [spread_pod(f"p{number}", skew) for number in range(40)]
    flying: list[tuple[Pod, str]] = []
    landed = [0] * zones
    worst = 0
    while waiting or flying:
        rule = topology_spread.prepare(state, waiting[0]) if waiting else None
        if rule is not None and trust_assumed:
            rule = rule.settled() or rule
        rows = rule.mask().nonzero()[0] if isinstance(rule, TopologySpread) else ()
        if len(rows) and (not flying or rng.random() < 0.8):
            node = state.table.nodes[rng.choice(list(rows))]
            assert node is not None
            pod = waiting.pop(0)
            state.assume(pod, node.name, 0.0)
            flying.append((pod, node.name))
            continue
        assert flying, "with nothing on its way some domain always takes one more"
        pod, name = flying.pop(rng.randrange(len(flying)))
        state.observe(replace(pod, node_name=name))
        landed[int(name[1:]) % zones] += 1
        worst = max(worst, max(landed) - min(landed))
    assert state.index.assumed == 0
    return worst


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("zones", "skew"), [(3, 1), (3, 2), (2, 1), (5, 3)])
def test_no_order_of_landing_breaks_a_hard_spread(zones: int, skew: int, seed: int) -> None:
    assert worst_skew(zones, skew, seed, trust_assumed=False) <= skew


def test_counting_assumed_pods_for_the_least_domain_breaks_it() -> None:
    """Ablation: what kube-scheduler does."""
    assert max(worst_skew(3, 1, seed, trust_assumed=True) for seed in range(12)) > 1


def test_the_settled_rule_is_the_same_where_nothing_is_on_its_way() -> None:
    rule = topology_spread.prepare(zoned_cluster(3), spread_pod("p", 1))
    assert rule is not None
    assert rule.settled() is None


@pytest.mark.parametrize(("release", "open_zones"), [(Release.V1_38, {"z1"}), (Release.V1_36, {"z0", "z1"})])
def test_an_empty_selector_counts_all_pods_of_the_namespace(release: Release, open_zones: set[str]) -> None:
    """The API's words, and kube-scheduler's since 1.38 (kubernetes#141339); before, it counted nobody."""
    state = ClusterState(release)
    for number in range(2):
        state.upsert_node(make_node(f"n{number}").label(**{ZONE: f"z{number}"}).node())
    state.observe(make_pod("bare").on("n0").pod())
    state.observe(make_pod("elsewhere").set(namespace="other").on("n1").pod())
    builder = make_pod("new")
    builder.json["spec"]["topologySpreadConstraints"] = [
        {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ]
    rule = topology_spread.prepare(state, builder.pod())
    assert rule is not None
    rows = rule.mask().nonzero()[0].tolist()
    assert {f"z{state.table.names[row][-1]}" for row in rows} == open_zones
