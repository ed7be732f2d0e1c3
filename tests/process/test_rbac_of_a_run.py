"""The Roles of k8s/ against a whole mesh that works with nothing but them: each request allowed, each rule used.

The coordinator and the binder get tokens of their own service accounts, as in a cluster, from an API server to which
the overlay was applied; it enforces RBAC itself and writes down who asked for what. The run has what uses rules rarely:
a pod that fits nowhere, preemption against a budget, a volume to reserve and one to provision, a failed Binding, an
intent whose coordinator died. The same run shows that alerts and dashboards ask for metrics that services show.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
import yarl

from tests.manifests.rbac_rules import grants, mismatches, words
from tests.manifests.rendering import KUBECTL, NAMESPACE, ROOT, folder_of, rendered
from tests.patience import PATIENCE_S
from tests.process.mesh import Mesh
from tests.scenarios.world import MERGE, Json, World
from twin.kubeconfig import kubeconfig_text

pytestmark = [pytest.mark.process, pytest.mark.etcd]
if KUBECTL is None:
    pytest.skip("kubectl is not on PATH", allow_module_level=True)

BUILD = "partition-agents+jobs"
OPEN = {"get /version"}
"""What everybody may ask."""
SELDOM = {
    f"{verb} resource.k8s.io/{resource}"
    for verb, resource in (
        ("get", "resourceclaims"), ("patch", "resourceclaims"), ("patch", "resourceclaims/status"),
        ("patch", "resourceclaims/binding"), ("create", "resourceclaims"), ("delete", "resourceclaims"),
        ("watch", "devicetaintrules"),
    )
} | {
    "watch topology.node.k8s.io/noderesourcetopologies", "watch node.katalyst.kubewharf.io/customnoderesources",
    "delete conclave.io/reservations", "get conclave.io/reservations",
}  # fmt: skip
"""Claims of devices are written in ``tests/real/test_claims.py``, where a real API server asks for ``binding`` too;
taint rules and zones of nodes are watched where they are served. Reservations are read where a write of one got no
answer, and deleted ten minutes after their end."""
USED = ("coordinator", "binder", "jobs")
MORE = {
    "coordinator": [
        "--keep-room",
        "on",
        "--policy",
        "marl-dqn",
        "--metrics-every-s",
        "1",
        "--target-egress",
        "conclave-system/sensor-targets",
    ],
    "binder": [],
    "jobs": ["--decide-least-s", "0.2"],
}
"""A policy that looks at what nodes use makes the coordinator ask for it."""


PLUGINS_GROUPS = ROOT / "k8s/components/plugins-pod-groups/pod-groups.yaml"


async def apply(mesh: Mesh, *what: str) -> None:
    """``kubectl apply``, as an operator does it."""
    command = [
        str(KUBECTL), "--kubeconfig", str(mesh.kubeconfig), "--cache-dir", str(mesh.folder / "cache"), "apply", *what,
    ]  # fmt: skip
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


async def account_kubeconfig(world: World, account: str) -> Path:
    """A kubeconfig with a token that the server issued for a service account of ours."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/conclave-{account}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = (await world.call("POST", path, body))["status"]["token"]
    file = world.mesh.folder / f"{account}.kubeconfig"
    file.write_text(kubeconfig_text(world.mesh.api_url, token))
    return file


async def volumes(world: World) -> None:
    """A free volume that a claim can take, and a class that provisions; both wait for their first consumer."""
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    for name, provisioner in (("ready", "kubernetes.io/no-provisioner"), ("made", "example.com/maker")):
        await world.create(
            classes, "StorageClass", name, api="storage.k8s.io/v1", provisioner=provisioner,
            volumeBindingMode="WaitForFirstConsumer",
        )  # fmt: skip
        claim = {
            "accessModes": ["ReadWriteOnce"], "storageClassName": name, "resources": {"requests": {"storage": "1Gi"}},
        }  # fmt: skip
        await world.create(
            "/api/v1/namespaces/default/persistentvolumeclaims", "PersistentVolumeClaim", name, spec=claim
        )
    volume = {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "ready", "capacity": {"storage": "1Gi"},
        "csi": {"driver": "example.com", "volumeHandle": "v"},
    }  # fmt: skip
    await world.create("/api/v1/persistentvolumes", "PersistentVolume", "ready", spec=volume)
    # the volume controller's part
    await world.call("PATCH", "/api/v1/persistentvolumes/ready/status", {"status": {"phase": "Available"}}, MERGE)
    for name in ("ready", "made"):
        await world.add_pod(
            f"with-{name}",
            volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}],
            nodeSelector={"kubernetes.io/hostname": "n0"},
        )


async def shown(world: World, collection: str, name: str, reached: Callable[[Json], Any]) -> None:
    """Until a watch shows the object as ``reached`` wants it."""
    url = f"{world.mesh.api_url}{collection}?watch=1&fieldSelector=metadata.name%3D{name}"
    async with asyncio.timeout(PATIENCE_S), world.mesh.session.get(yarl.URL(url, encoded=True)) as stream:
        async for line in stream.content:
            event = json.loads(line)
            if event["type"] in ("ADDED", "MODIFIED") and reached(event["object"]):
                return
    raise AssertionError(f"the watch of {name} ended")


async def gangs(world: World) -> None:
    """A gang of each API that no node takes is told so on its own object, though somebody else wrote it just before."""
    path = "/apis/scheduling%sk8s.io/.*/podgroups/[^/]+/status$"
    conflict = {"kind": "conflict", "method": "PATCH", "count": 1}
    await world.faults(*({**conflict, "path": path % dots} for dots in (".", ".x-")))
    for api, spec, status in (
        ("scheduling.k8s.io/v1alpha2", {"schedulingPolicy": {"gang": {"minCount": 2}}}, "conditions"),
        ("scheduling.x-k8s.io/v1alpha1", {"minMember": 2}, "phase"),
    ):
        collection, name = f"/apis/{api}/namespaces/default/podgroups", f"gang-{status}"
        await world.create(collection, "PodGroup", name, api=api, spec=spec)
        label = {"labels": {"scheduling.x-k8s.io/pod-group": name}}
        member: Json = {"schedulingGroup": {"podGroupName": name}} if status == "conditions" else label
        for number in range(2):
            await world.add_pod(f"{name}-{number}", cpu="64", **member)
        await shown(world, collection, name, lambda o, s=status: (o.get("status") or {}).get(s))


async def training(world: World) -> None:
    """A TrainingJob that grows, shrinks, gets another minimum, and fails in the end."""
    path, api = "/apis/conclave.io/v1alpha1/namespaces/default/trainingjobs", "conclave.io/v1alpha1"
    small = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}
    spec = {
        "workers": {"minimum": 1, "maximum": 3, "requested": 2}, "backoffLimit": 0,
        "template": {"spec": {"containers": [small]}},
    }  # fmt: skip
    await world.create(path, "TrainingJob", "elastic", api=api, spec=spec)
    for workers in ({"requested": 2}, {"requested": 3, "minimum": 2}, {"requested": 2}):
        await world.call("PATCH", f"{path}/elastic", {"spec": {"workers": workers}}, MERGE)
        count = f"{workers['requested']}/{workers['requested']}"
        await shown(world, path, "elastic", lambda o, c=count: (o.get("status") or {}).get("workers") == c)
    failed = {"status": {"phase": "Failed"}}
    await world.call("PATCH", "/api/v1/namespaces/default/pods/elastic-worker-0/status", failed, MERGE)
    await shown(world, path, "elastic", lambda o: o["status"]["phase"] == "Failed")
    groups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
    async with asyncio.timeout(PATIENCE_S):
        while any(o["metadata"]["name"] == "elastic" for o in (await world.call("GET", groups))["items"]):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def exercise(world: World) -> None:
    """Everything that any rule is for."""
    for name, value in (("low", 10), ("high", 1000)):
        await world.create(
            "/apis/scheduling.k8s.io/v1/priorityclasses", "PriorityClass", name, api="scheduling.k8s.io/v1", value=value
        )
    await world.add_node("n0", cpu="2")
    await world.add_node("n1", cpu="2", labels={"kept": "true"})
    # a Binding ends in an error of the server: the binder reads what became of the pod
    await world.faults({"kind": "error", "method": "POST", "path": "/binding$", "count": 1})
    await world.add_pod("plain")
    await world.until(lambda c: c.bound("plain"), within_s=30, what="a pod is bound although its Binding failed once")
    await training(world)
    await volumes(world)
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    selected = "volume.kubernetes.io/selected-node"
    await shown(world, "/api/v1/persistentvolumes", "ready", lambda o: o["spec"].get("claimRef"))
    await shown(world, claims, "made", lambda o: selected in (o["metadata"].get("annotations") or {}))
    # a new coordinator inherits the intent that waits for its volume; the binder withdraws it: where is its pod?
    world.mesh.kill("coordinator-0")
    world.mesh.services["coordinator-0"].ready.clear()
    await world.mesh.leader("coordinator")
    await world.patch_node("n0", {"spec": {"unschedulable": True}})
    await world.call("PATCH", f"{claims}/made", {"metadata": {"annotations": {"touched": "now"}}}, MERGE)
    # too large for any node: a condition and an event
    await world.add_pod("huge", cpu="64")
    await world.until(lambda c: "huge" in c.pods and unschedulable(c.pods["huge"]), within_s=30, what="huge waits")
    await gangs(world)
    # queues: one that is used, and one that says in its status what is wrong with it
    queues, api = "/apis/conclave.io/v1alpha1/queues", "conclave.io/v1alpha1"
    ours = {"namespaces": ["default"], "guaranteed": {"cpu": "1"}}
    await world.create(queues, "Queue", "ours", api=api, spec=ours)
    await world.create(queues, "Queue", "orphan", api=api, spec={"parent": "nobody"})
    await shown(world, queues, "orphan", lambda o: (o.get("status") or {}).get("conditions"))
    # a latency target, whose status says that no agent measures
    targets = "/apis/conclave.io/v1alpha1/latencytargets"
    await world.create(targets, "LatencyTarget", "shop", api=api, spec={"host": "127.0.0.1", "port": 1})
    await shown(world, targets, "shop", lambda o: (o.get("status") or {}).get("conditions"))
    # room that is kept: on a node, which says so, and for what a pod leaves
    kept, api = "/apis/conclave.io/v1alpha1/namespaces/default/reservations", "conclave.io/v1alpha1"
    spec = {"resources": {"cpu": "100m"}, "owners": [{"pod": "later"}], "nodes": {"names": ["n1"]}, "ttlSeconds": 5}
    await world.create(kept, "Reservation", "launch", api=api, spec=spec)
    await shown(world, kept, "launch", lambda o: (o.get("status") or {}).get("phase") == "Expired")
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db", "controller": True}
    leaves = {"annotations": {"conclave.io/keep-room": "60s"}, "ownerReferences": [owner]}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}
    spec = {"schedulerName": "conclave", "terminationGracePeriodSeconds": 1, "containers": [container]}
    await world.create("/api/v1/namespaces/default/pods", "Pod", "leaves", metadata=leaves, spec=spec)
    await world.until(lambda c: c.bound("leaves"), within_s=30, what="a pod whose room is kept runs")
    await world.call("DELETE", "/api/v1/namespaces/default/pods/leaves")
    async with asyncio.timeout(PATIENCE_S):
        while len((await world.call("GET", kept))["items"]) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    # it waits for another reason, then for the first again: that event's series goes on
    for cordoned, reason in ((False, "2 Insufficient cpu"), (True, "1 node(s) were unschedulable")):
        await world.patch_node("n0", {"spec": {"unschedulable": cordoned}})
        # a pod with another toleration is tried anew
        tolerated = [
            *world.pods["huge"]["spec"].get("tolerations", ()),
            {"key": f"new-{cordoned}", "operator": "Exists"},
        ]
        await world.call("PATCH", "/api/v1/namespaces/default/pods/huge", {"spec": {"tolerations": tolerated}}, MERGE)
        await world.until(lambda c, r=reason: r in why(c.pods["huge"]), within_s=30, what=f"huge says {reason}")
    # somebody asks why: the coordinator reads the pod
    url = world.mesh.services["coordinator-0"].url
    async with world.mesh.session.get(f"{url}/v1/explain/default/huge") as response:
        assert response.status == 200, await response.text()
    # a budget that allows no disruption, and nobody else to evict: the victim is deleted
    await world.create(
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets", "PodDisruptionBudget", "kept", api="policy/v1",
        spec={"selector": {"matchLabels": {"app": "kept"}}, "minAvailable": 1},
    )  # fmt: skip
    only = {"nodeSelector": {"kept": "true"}}
    await world.add_pod("kept", cpu="1500m", labels={"app": "kept"}, priorityClassName="low", **only)
    # who is not running is no loss to a budget
    await world.until(lambda c: "kept" in c.pods and running(c.pods["kept"]), within_s=30, what="the victim runs")
    budget = {
        "status": {
            "disruptionsAllowed": 0,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
            "observedGeneration": 1,
        }
    }
    await world.call("PATCH", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/kept/status", budget, MERGE)
    # another scheduler is at work: the node is closed to it while room is made there
    await world.add_pod("theirs", schedulerName="another-scheduler")
    await world.add_pod("urgent", cpu="1500m", priorityClassName="high", **only)
    await world.until(lambda c: c.bound("urgent"), within_s=60, what="the preemptor takes the victim's place")


def running(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def why(pod: dict[str, Any]) -> str:
    conditions = pod.get("status", {}).get("conditions", ())
    return " ".join(c.get("message", "") for c in conditions if c["type"] == "PodScheduled")


def unschedulable(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)


def asked_in(requests: Path) -> dict[str, dict[str, bool]]:
    """Service account to what it asked for, in words, and whether it was allowed."""
    found: dict[str, dict[str, bool]] = {}
    for line in requests.read_text().splitlines():
        entry = json.loads(line)
        prefix, _, account = entry["user"].rpartition(":")
        if prefix == f"system:serviceaccount:{NAMESPACE}":
            what = (
                f"{entry['verb']} {entry['path']}"
                if entry["path"]
                else words(entry["verb"], entry["group"], entry["resource"])
            )
            found.setdefault(account, {})[what] = entry["allowed"]
    return found


async def shown_metrics(mesh: Mesh) -> set[str]:
    """The names of every series that a service shows."""
    names: set[str] = set()
    for name, running in mesh.services.items():
        if name != "twin":
            async with mesh.session.get(running.url + "/metrics") as response:
                assert response.status == 200, name
                names |= set(re.findall(r"^([a-z_]+)[{ ]", await response.text(), re.MULTILINE))
    return names


def wanted_metrics() -> set[str]:
    """The names that alerts and dashboards ask of services."""
    groups = yaml.safe_load((ROOT / "compose/monitoring/alerts.yaml").read_text())["groups"]
    texts = [rule["expr"] for group in groups for rule in group["rules"]]
    for path in (ROOT / "k8s/components/monitoring/dashboards").glob("*.json"):
        texts += [target["expr"] for panel in json.loads(path.read_text())["panels"] for target in panel["targets"]]
    return {name for text in texts for name in re.findall(r"\b((?:conclave|process|scheduler)_[a-z_]+)\b", text)}


async def test_a_mesh_works_with_its_roles_uses_every_rule_and_shows_what_is_asked_for(tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    flags = ["--simulate", "--requests", str(requests)]
    async with Mesh(
        tmp_path, coordinators=0, agents=2, binders=0, twin_flags=["--kubeconfig-scheme", "https", *flags]
    ) as mesh:
        await apply(mesh, "-k", str(folder_of(BUILD)))
        await apply(mesh, "-f", str(PLUGINS_GROUPS))
        world = World(mesh)
        for service in USED:
            # the last flag counts: not the administrator's kubeconfig
            mesh._flags[service] = ["--kubeconfig", str(await account_kubeconfig(world, service)), *MORE[service]]
            await mesh.add(service, 0)
        watching = asyncio.create_task(world.follow(asyncio.Event()))
        try:
            await exercise(world)
            metrics = await shown_metrics(mesh)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    # which object is asked for is not in the requests; that the server let it through says that the name is right
    granted = {
        account: {rule.partition(" [")[0] for rule in rules} for account, rules in grants(rendered(BUILD)).items()
    }
    # of the two APIs of pod groups the jobs service uses the one that comes first
    granted["conclave-jobs"] -= {rule for rule in granted["conclave-jobs"] if "scheduling.x-k8s.io" in rule}
    asked = asked_in(requests)
    for account in ("conclave-binder", "conclave-coordinator"):
        granted[account] -= SELDOM - asked[account].keys()
    assert mismatches(asked, granted, everybody=OPEN) == []
    elsewhere = {name for name in wanted_metrics() if name.startswith("conclave_autoscaler")}  # test_autoscaler_rbac.py
    assert wanted_metrics() - elsewhere <= metrics
