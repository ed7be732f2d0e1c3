"""The autoscaler's Role against an autoscaler that works with nothing but it: each request allowed, each rule used.

The same run shows that its alerts ask for metrics that it shows. Bounds move every target, so no metrics are needed.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.manifests.rbac_rules import grants, mismatches
from tests.manifests.rendering import NAMESPACE, needs_kubectl, rendered
from tests.process.mesh import Mesh
from tests.process.test_autoscaler_process import CRD, Cluster, deployment
from tests.process.test_rbac_of_a_run import OPEN, account_kubeconfig, asked_in, shown_metrics, wanted_metrics
from tests.scenarios.world import World

pytestmark = [pytest.mark.process, pytest.mark.etcd, needs_kubectl]

Json = dict[str, Any]
BUILD = "partition-agents+autoscaler"
ACCOUNT = "conclave-autoscaler"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
APPS = "/apis/apps/v1/namespaces/default"
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
OBJECTS = "/apis/conclave.io/v1alpha1/namespaces/default/resilientautoscalers"
PLACES = {"ClusterRole": f"{RBAC}/clusterroles", "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
          "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"}  # fmt: skip


def of_kind(kind: str, name: str) -> Json:
    return {**deployment(name, 1), "kind": kind}


def scaler(name: str, mode: str, targets: dict[str, str]) -> Json:
    found = [
        {"name": name, "scaleTargetRef": {"kind": kind, "name": name}, "minReplicas": 3, "maxReplicas": 9}
        for name, kind in targets.items()
    ]
    return {
        "apiVersion": "conclave.io/v1alpha1", "kind": "ResilientAutoscaler", "metadata": {"name": name},
        "spec": {"mode": mode, "targets": found},
    }  # fmt: skip


async def approve(cluster: Cluster, name: str) -> None:
    async def told() -> bool:
        found = await cluster.call("GET", f"{OBJECTS}/{name}")
        return found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]

    await cluster.until(told)
    digest = (await cluster.call("GET", f"{OBJECTS}/{name}"))["status"]["digest"]
    await cluster.call("PATCH", f"{OBJECTS}/{name}", {"spec": {"go": {"by": "ada", "digest": digest}}})


async def test_an_autoscaler_works_with_its_role_and_uses_every_rule_of_it(tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    flags = ["--kubeconfig-scheme", "https", "--requests", str(requests)]
    async with Mesh(tmp_path, coordinators=0, agents=0, binders=0, kinds=(CRD,), twin_flags=flags) as mesh:
        cluster = Cluster(mesh)
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        await mesh.create("/api/v1/namespaces", space)
        for document in rendered(BUILD):
            if document["kind"] in PLACES and document["metadata"]["name"] == ACCOUNT:
                await mesh.create(PLACES[document["kind"]], document)
        kinds = {"front": "Deployment", "store": "StatefulSet", "odd": "ReplicaSet"}
        for name, kind in kinds.items():
            await mesh.create(f"{APPS}/{kind.lower()}s", of_kind(kind, name))
        await mesh.create(f"{APPS}/deployments", deployment("bounded", 1))
        ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "bounded"}
        hpa = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "bounded"},
               "spec": {"scaleTargetRef": ref, "maxReplicas": 4}}  # fmt: skip
        await mesh.create(HPAS, hpa)
        kubeconfig = await account_kubeconfig(World(mesh), "autoscaler")
        mesh._flags["autoscaler"] = [
            "--kubeconfig",
            str(kubeconfig),
            "--decide-every-s",
            "0.3",
            "--tell-every-s",
            "0.1",
        ]
        await mesh.add("autoscaler", 0)
        await mesh.create(OBJECTS, scaler("graph", "act-on-scale", kinds))
        await mesh.create(OBJECTS, scaler("bounded", "act-on-hpa-bounds", {"bounded": "Deployment"}))
        await asyncio.gather(approve(cluster, "graph"), approve(cluster, "bounded"))

        async def moved() -> bool:
            found = [(await cluster.call("GET", f"{APPS}/{kinds[name].lower()}s/{name}"))["spec"] for name in kinds]
            bounds = (await cluster.call("GET", f"{HPAS}/bounded"))["spec"]
            return [one["replicas"] for one in found] == [3, 3, 3] and bounds["minReplicas"] == 3

        await cluster.until(moved)
        metrics = await shown_metrics(mesh)
    granted = {ACCOUNT: grants(rendered(BUILD))[ACCOUNT]}
    asked = {account: found for account, found in asked_in(requests).items() if account == ACCOUNT}
    assert mismatches(asked, granted, everybody=OPEN) == []
    assert {name for name in wanted_metrics() if name.startswith("conclave_autoscaler")} <= metrics
