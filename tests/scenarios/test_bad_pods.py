"""Pods that cannot be placed as they are written: each says exactly why, in kube-scheduler's words, and delays nobody.

Through the whole mesh: constraints that contradict themselves, topology keys that no node has, selectors that match
nothing, claims and storage classes that do not exist, amounts out of range, victims that the API server will not evict.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.invariants import evictions_above
from tests.scenarios.world import World, world

pytestmark = [pytest.mark.process, pytest.mark.etcd]

Json = dict[str, Any]
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
HOSTNAME, REQUIRED = "kubernetes.io/hostname", "requiredDuringSchedulingIgnoredDuringExecution"
NODES = 2
NOT_HELPFUL = f"preemption: 0/{NODES} nodes are available: {NODES} Preemption is not helpful for scheduling."


def node_affinity(**term: Any) -> Json:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}}


def pod_term(app: str, key: str = HOSTNAME) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def names(*nodes: str) -> list[Json]:
    return [{"key": "metadata.name", "operator": "In", "values": [node]} for node in nodes]


def spread(**rule: Any) -> Json:
    rule = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule", **rule}
    return {"topologySpreadConstraints": [{"labelSelector": {"matchLabels": {"app": "x"}}, **rule}]}


def using(claim: str) -> Json:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}


def all_nodes(reason: str) -> str:
    return f"0/{NODES} nodes are available: {NODES} {reason}. {NOT_HELPFUL}"


def the_pod(reason: str) -> str:
    return f"0/{NODES} nodes are available: {reason}. {NOT_HELPFUL}"


SELECTOR = all_nodes("node(s) didn't match Pod's node affinity/selector")
AFFINITY = all_nodes("node(s) didn't match pod affinity rules")
NO_LABEL = all_nodes("node(s) didn't match pod topology spread constraints (missing required label)")

BAD: dict[str, tuple[Json, str]] = {
    "selector-against-affinity": (
        {
            "nodeSelector": {"role": "a"},
            **node_affinity(matchExpressions=[{"key": "role", "operator": "NotIn", "values": ["a"]}]),
        },
        SELECTOR,
    ),
    "two-names-at-once": (node_affinity(matchFields=names("n0", "n1")), the_pod("pod affinity terms conflict")),
    "name-of-no-node": (
        node_affinity(matchFields=names("ghost")),
        all_nodes("node(s) didn't satisfy plugin(s) [NodeAffinity]"),
    ),
    "selects-nothing": ({"nodeSelector": {"disk": "none"}}, SELECTOR),
    "near-and-apart": (
        {"affinity": {"podAffinity": {REQUIRED: [pod_term("y")]}, "podAntiAffinity": {REQUIRED: [pod_term("y")]}}},
        AFFINITY,
    ),
    "near-nobody": ({"affinity": {"podAffinity": {REQUIRED: [pod_term("nobody")]}}}, AFFINITY),
    "near-by-unknown-key": ({"affinity": {"podAffinity": {REQUIRED: [pod_term("x", "no/such")]}}}, AFFINITY),
    "spread-by-unknown-key": (spread(topologyKey="no/such"), NO_LABEL),
    "spread-over-more-domains-than-there-are": (
        {**spread(minDomains=9), "nodeSelector": {"disk": "none"}},
        SELECTOR,
    ),
    "no-claim": (using("none"), the_pod('persistentvolumeclaim "none" not found')),
    "no-storage-class": (using("classless"), the_pod("pod has unbound immediate PersistentVolumeClaims")),
    "too-much-cpu": ({"cpu": "9223372036854775807"}, all_nodes("Insufficient cpu")),
    "too-much-of-everything": (
        {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1E", "memory": "7Ei"}}}]},
        f"0/{NODES} nodes are available: {NODES} Insufficient cpu, {NODES} Insufficient memory. {NOT_HELPFUL}",
    ),
    "no-such-resource": (
        {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "resources": {"requests": {"example.com/x": "1"}, "limits": {"example.com/x": "1"}},
                }
            ]
        },
        all_nodes("Insufficient example.com/x"),
    ),
}
"""Per name: what the pod's spec has, and all that it is told."""

ODD_BUT_FINE: dict[str, Json] = {
    "apart-by-unknown-key": {"affinity": {"podAntiAffinity": {REQUIRED: [pod_term("x", "no/such")]}}},
    "apart-from-nobody": {"affinity": {"podAntiAffinity": {REQUIRED: [pod_term("nobody")]}}},
    "spread-of-nobody": {
        "topologySpreadConstraints": [
            {"maxSkew": 2147483647, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"}
        ]
    },
}
"""What looks wrong and is not: kube-scheduler places these."""


async def test_each_is_told_why_in_kube_schedulers_words_and_delays_nobody(tmp_path: Path) -> None:
    async with world(tmp_path, agents=2, coordinators=1, binders=1) as cluster:
        for number in range(NODES):
            await cluster.add_node(f"n{number}", labels={"role": "ab"[number]})
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        await cluster.create(
            CLAIMS, "PersistentVolumeClaim", "classless", spec={**spec, "storageClassName": "no-such-class"}
        )
        for name, (wanted, _) in BAD.items():
            await cluster.add_pod(name, **wanted)
        await cluster.until(
            lambda c: all(c.told(name) == says for name, (_, says) in BAD.items()),
            within_s=30,
            what=f"each says why: { {name: says for name, (_, says) in BAD.items()} }",
        )
        fine = await cluster.add_pods((f"plain-{number}" for number in range(20)), cpu="10m")
        for name, wanted in ODD_BUT_FINE.items():
            await cluster.add_pod(name, cpu="10m", labels={"app": "x"}, **wanted)
        await cluster.until(lambda c: c.bound(*fine, *ODD_BUT_FINE), within_s=10, what="the others are placed")
        assert not cluster.bound_names() & BAD.keys()
    for name in BAD:
        writes = [entry for entry in cluster.history if (entry.name, entry.verb) == (name, "patch")]
        assert len(writes) <= 2, f"{name} is written {len(writes)} times though nothing changed for it"


@pytest.mark.parametrize("kind", ["forbid", "error"])
async def test_a_victim_that_the_api_server_does_not_evict_stays_and_the_pod_says_why_it_waits(
    tmp_path: Path, kind: str
) -> None:
    async with world(tmp_path, agents=2, coordinators=1, binders=1) as cluster:
        await cluster.create(PRIORITIES, "PriorityClass", "high", api="scheduling.k8s.io/v1", value=1000)
        await cluster.add_node("n0", cpu="1")
        await cluster.add_pod("low", cpu="1")
        await cluster.until(lambda c: c.bound("low"), within_s=20, what="the node is full")
        await cluster.faults({"kind": kind, "path": "/low$", "method": "DELETE"})
        await cluster.add_pod("high", cpu="1", priorityClassName="high")
        await cluster.until(lambda c: bool(c.told("high")), within_s=10, what="it says why it waits")
        await cluster.add_node("n1", cpu="500m")
        others = await cluster.add_pods((f"other-{number}" for number in range(5)), cpu="50m")
        await cluster.until(lambda c: c.bound(*others), within_s=10, what="the others go on")
        assert cluster.bound("low"), "nobody goes round the refusal"
        assert told_insufficient(cluster)
        await cluster.faults()
        await cluster.until(lambda c: c.node("high") == "n0", within_s=30, what="it is tried again")
    assert evictions_above(cluster.history, 1) == []


def told_insufficient(cluster: World) -> bool:
    """Whether the pod that may not preempt still says what it lacks."""
    return cluster.told("high").startswith("0/1 nodes are available: 1 Insufficient cpu.")
