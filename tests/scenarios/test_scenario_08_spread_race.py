"""Scenario 8: rules between pods under concurrency: every agent sees the same empty nodes, and only one may have each.

50 pods with required anti-affinity by hostname over 60 nodes stand on 50 nodes; a spread of maxSkew 1 by zone holds
after every single bind. Gödel's binder has no hook for either.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.invariants import sharing_a_node, skewed
from tests.scenarios.world import world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

NODES_THERE, PODS = 60, 50
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def apart(app: str) -> dict[str, Any]:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def even(app: str) -> dict[str, Any]:
    rule = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**rule, "labelSelector": {"matchLabels": {"app": app}}}]}


async def test_anti_affinity_and_spread_hold_though_all_agents_are_busy(tmp_path: Path) -> None:
    async with world(tmp_path, agents=4, coordinators=1, binders=1) as cluster:
        for number in range(NODES_THERE):
            await cluster.add_node(f"n{number:02}", labels={ZONE: f"z{number % 3}"})
        names = await cluster.add_pods(
            (f"apart-{n:02}" for n in range(PODS)), labels={"app": "apart"}, **apart("apart")
        )
        names |= await cluster.add_pods((f"even-{n:02}" for n in range(PODS)), labels={"app": "even"}, **even("even"))
        names |= await cluster.add_pods(
            (f"both-{n:02}" for n in range(30)), labels={"app": "both"}, **apart("both"), **even("both")
        )
        names |= await cluster.add_pods((f"plain-{n:02}" for n in range(PODS)), cpu="10m")
        await cluster.until(lambda c: c.bound(*names), within_s=60, what="all are placed")
        assert len({cluster.node(name) for name in names if name.startswith("apart")}) == PODS
    history = cluster.history
    assert sharing_a_node(history, app="apart") + sharing_a_node(history, app="both") == []
    assert skewed(history, ZONE, 1, app="even") + skewed(history, ZONE, 1, app="both") == []


async def test_a_pod_too_many_stays_pending_and_says_why(tmp_path: Path) -> None:
    async with world(tmp_path, agents=2) as cluster:
        for number in range(3):
            await cluster.add_node(f"n{number}")
        names = await cluster.add_pods((f"p{n}" for n in range(4)), labels={"app": "a"}, **apart("a"))
        await cluster.until(
            lambda c: len(c.bound_names()) == 3 and any(map(c.told, names)), within_s=20, what="3 and 1"
        )
        (left,) = names - cluster.bound_names()
        assert "3 node(s) didn't match pod anti-affinity rules" in cluster.told(left)
        gone = min(cluster.bound_names())
        node = cluster.node(gone)
        await cluster.delete_pod(gone)
        await cluster.until(lambda c: c.node(left) == node, within_s=5, what="the freed node is its")
    assert sharing_a_node(cluster.history, app="a") == []
