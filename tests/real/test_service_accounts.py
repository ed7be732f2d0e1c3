"""Each service works with its own ServiceAccount and the Roles of k8s/: a real API server forbids nothing it does.

Tokens are asked for as a kubelet asks for them (TokenRequest). Who was refused what stands in the audit log of the API
server, which has every request of these accounts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from shared.runtime.process.embedded_etcd import EmbeddedEtcd, EmbeddedEtcdSettings
from tests.manifests.rendering import NAMESPACE, ROOT, rendered
from tests.real.conftest import RunningPlane, running
from tests.real.test_workloads import WITHIN, bound, make, placed, template, waits, workload

Json = dict[str, Any]

BUILD = "partition-agents+autoscaler+jobs+learner+shard"
RIGHTS = (
    "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
    "CustomResourceDefinition", "PriorityClass",
)  # fmt: skip
PLUGINS_GROUPS = ROOT / "k8s/components/plugins-pod-groups/pod-groups.yaml"
SERVICES = {
    "coordinator": [],
    "binder": [],
    "jobs": ["--decide-least-s", "0.2"],
    "autoscaler": ["--decide-every-s", "0.5", "--tell-every-s", "0.2"],
}
LOOK_EVERY_S = 0.3
WAIT_S = 120.0


def account_kubeconfig(plane: RunningPlane, folder: Path, account: str) -> Path:
    """With a token that the API server issued for a ServiceAccount of ours."""
    token = plane.kubectl("create", "token", f"conclave-{account}", "-n", NAMESPACE, "--duration=1h").strip()
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    file = folder / f"{account}.kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file


def requests_of(plane: RunningPlane) -> list[tuple[str, str, int]]:
    """(account, what it asked, status) of every answered request of our ServiceAccounts."""
    found = []
    for line in plane.audit_log.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # its last line may be half written
            event = json.loads(line)
            space, _, account = event["user"]["username"].rpartition(":")
            if space == f"system:serviceaccount:{NAMESPACE}" and "responseStatus" in event:
                found.append((account, f"{event['verb']} {event['requestURI']}", event["responseStatus"]["code"]))
    return found


def forbidden(plane: RunningPlane) -> list[str]:
    return [f"{account}: {what}" for account, what, code in requests_of(plane) if code in (401, 403)]


def until(what: str, reached: Any) -> None:
    end = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < end, what
        time.sleep(LOOK_EVERY_S)


def ours(name: str, **more: Any) -> Json:
    """A pod of ours."""
    made = template(**more)
    return {"apiVersion": "v1", "kind": "Pod", **made, "metadata": {**made["metadata"], "name": name}}


def exercise(plane: RunningPlane, space: str) -> None:
    """What each service does only now and then, too."""
    preemption(plane, space)
    volume(plane, space)
    groups(plane, space)
    objects(plane, space)
    training(plane, space)
    scaling(plane, space)


def preemption(plane: RunningPlane, space: str) -> None:
    """A pod that fits nowhere is told so; one that is urgent takes another's place against a budget."""
    for name, value in (("rights-low", 10), ("rights-high", 1000)):
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        plane.kubectl("apply", "-f", "-", stdin=json.dumps({**made, "value": value}))
    make(plane, space, ours("huge", cpu="64"))
    waits(plane, space, "huge", "Unschedulable")
    until(
        "an event says why",
        lambda: "FailedScheduling" in plane.kubectl("get", "events", "-n", space, "-o", "jsonpath={.items[*].reason}"),
    )
    only = {"nodeSelector": {"kubernetes.io/hostname": "node-0"}}
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "kept"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }  # fmt: skip
    make(plane, space, budget, ours("kept", cpu="3", priorityClassName="rights-low", **only))
    placed(plane, space, "kept")
    plane.kubectl("wait", "-n", space, "--for=condition=Ready", "pod/kept", WITHIN)
    plane.kubectl("wait", "-n", space, "--for=jsonpath={.status.currentHealthy}=1", "pdb/kept", WITHIN)
    make(plane, space, ours("urgent", cpu="3", priorityClassName="rights-high", **only))
    placed(plane, space, "urgent")
    assert "kept" not in bound(plane, space)
    plane.kubectl("delete", "pod", "urgent", "huge", "-n", space, "--wait=true")


def volume(plane: RunningPlane, space: str) -> None:
    """A claim that waits for its first consumer gets the volume that was there, and one gets its node."""
    for name, provisioner in (("rights-ready", "kubernetes.io/no-provisioner"), ("rights-made", "example.com/maker")):
        made = {
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
        }  # fmt: skip
        plane.kubectl("apply", "-f", "-", stdin=json.dumps(made))
        claim = {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": name,
                     "resources": {"requests": {"storage": "1Gi"}}},
        }  # fmt: skip
        make(plane, space, claim)
    disk = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"disk-of-{space}"[:60]},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "rights-ready", "capacity": {"storage": "1Gi"},
                 "csi": {"driver": "example.com", "volumeHandle": "v"}},
    }  # fmt: skip
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(disk))
    for name in ("rights-ready", "rights-made"):
        mounted = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
        make(plane, space, ours(f"with-{name}", volumes=mounted))
    placed(plane, space, "with-rights-ready")
    node = r"{.metadata.annotations.volume\.kubernetes\.io/selected-node}"
    until(
        "a claim without a volume is told its node",
        lambda: plane.kubectl("get", "pvc", "rights-made", "-n", space, "-o", f"jsonpath={node}"),
    )
    plane.kubectl("delete", "pod", "with-rights-made", "-n", space, "--wait=true")


def groups(plane: RunningPlane, space: str) -> None:
    """Gangs of both APIs that no node takes are told so on their objects; one that fits runs."""
    for api, spec, path in (
        ("scheduling.k8s.io/v1alpha2", {"schedulingPolicy": {"gang": {"minCount": 2}}}, "{.status.conditions}"),
        ("scheduling.x-k8s.io/v1alpha1", {"minMember": 2}, "{.status.phase}"),
    ):
        native = "scheduling.k8s.io" in api
        name = "native" if native else "plugins"
        make(plane, space, {"apiVersion": api, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec})
        for number in range(2):
            pod = ours(f"{name}-{number}", cpu="64", **({"schedulingGroup": {"podGroupName": name}} if native else {}))
            if not native:
                pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": name}
            make(plane, space, pod)
        resource = f"podgroups.{api.partition('/')[0]}"
        read = ("get", resource, name, "-n", space, "-o", f"jsonpath={path}")
        until(f"the {name} gang is told", lambda command=read: plane.kubectl(*command))


def objects(plane: RunningPlane, space: str) -> None:
    """A Queue and a LatencyTarget say in their status what is wrong with them."""
    queue: Json = {"kind": "Queue", "metadata": {"name": f"orphan-{space}"}, "spec": {"parent": "nobody"}}
    target: Json = {
        "kind": "LatencyTarget",
        "metadata": {"name": f"of-{space}"},
        "spec": {"host": "::1", "port": 1},
    }
    for made in (queue, target):
        plane.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "conclave.io/v1alpha1", **made}))
        read = ("get", f"{made['kind'].lower()}.conclave.io", made["metadata"]["name"])
        told = (*read, "-o", "jsonpath={.status.conditions}")
        until(f"{made['kind']} is told", lambda command=told: plane.kubectl(*command))
        plane.kubectl("delete", *read[1:])


def training(plane: RunningPlane, space: str) -> None:
    """A TrainingJob grows, shrinks and is deleted."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}
    job = {
        "apiVersion": "conclave.io/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "elastic"},
        "spec": {"workers": {"minimum": 1, "maximum": 3, "requested": 2},
                 "template": {"spec": {"containers": [container]}}},
    }  # fmt: skip
    make(plane, space, job)
    for count in (2, 3, 1):
        patch = json.dumps({"spec": {"workers": {"requested": count}}})
        plane.kubectl("patch", "trainingjob", "elastic", "-n", space, "--type=merge", "-p", patch)
        path = f"--for=jsonpath={{.status.workers}}={count}/{count}"
        plane.kubectl("wait", "-n", space, path, "trainingjob/elastic", WITHIN)
    plane.kubectl("delete", "trainingjob", "elastic", "-n", space, "--wait=true")


def scaling(plane: RunningPlane, space: str) -> None:
    """An autoscaled service whose lower bound is above what runs: no metrics are needed to raise it."""
    made = workload("Deployment", "front", replicas=1)
    target = {"name": "front", "scaleTargetRef": {"kind": "Deployment", "name": "front"},
              "minReplicas": 3, "maxReplicas": 9}  # fmt: skip
    scaler = {
        "apiVersion": "conclave.io/v1alpha1", "kind": "ResilientAutoscaler", "metadata": {"name": "graph"},
        "spec": {"mode": "act-on-scale", "targets": [target]},
    }  # fmt: skip
    make(plane, space, made, scaler)
    read = ("get", "resilientautoscaler", "graph", "-n", space, "-o", "jsonpath={.status.digest}")
    until("the object says what a go would approve", lambda: plane.kubectl(*read))
    go = json.dumps({"spec": {"go": {"by": "ada", "digest": plane.kubectl(*read)}}})
    plane.kubectl("patch", "resilientautoscaler", "graph", "-n", space, "--type=merge", "-p", go)
    plane.kubectl("wait", "-n", space, "--for=jsonpath={.spec.replicas}=3", "deployment/front", WITHIN)
    plane.kubectl("wait", "-n", space, "--for=condition=Available", "deployment/front", WITHIN)


async def test_each_service_works_with_its_own_account_and_is_forbidden_nothing(
    plane: RunningPlane, namespace: str, tmp_path: Path
) -> None:
    granted = [one for one in rendered(BUILD) if one["kind"] in RIGHTS]
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(granted))
    plane.kubectl("apply", "--server-side", "-f", str(PLUGINS_GROUPS))
    defined = [f"crd/{one['metadata']['name']}" for one in granted if one["kind"] == "CustomResourceDefinition"]
    plane.kubectl("wait", "--for=condition=Established", *defined, WITHIN)
    etcd = EmbeddedEtcd(EmbeddedEtcdSettings(data_dir=tmp_path / "etcd", fsync=False))
    await etcd.start()
    try:
        with contextlib.ExitStack() as stack:
            python = (sys.executable, "-m")
            for number in range(2):
                command: tuple[str, ...] = (
                    *python,
                    "services.agent",
                    "--etcd",
                    etcd.endpoint,
                    "--id",
                    f"agent-{number}",
                )
                stack.enter_context(
                    running(tmp_path, f"agent-{number}", *command, ready=lambda line: line.startswith("ready"))
                )
            urls: dict[str, str] = {}
            for service, flags in SERVICES.items():
                kubeconfig = account_kubeconfig(plane, tmp_path, service)
                command = (*python, f"services.{service}", "--etcd", etcd.endpoint, "--id", service,
                           "--kubeconfig", str(kubeconfig), *flags)  # fmt: skip
                _, line = stack.enter_context(
                    running(tmp_path, service, *command, ready=lambda line: line.startswith("ready"))
                )
                urls[service] = line.split()[-1]
            await asyncio.to_thread(exercise, plane, namespace)
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{urls['coordinator']}/v1/explain/{namespace}/native-0") as answer,
            ):
                assert answer.status == 200, await answer.text()
    finally:
        await etcd.kill()
    assert forbidden(plane) == []
    counts = Counter(account for account, _, _ in requests_of(plane))
    assert counts.keys() == {f"conclave-{service}" for service in SERVICES}
    assert min(counts.values()) >= 10, counts


def test_what_an_account_may_not_do_is_seen_in_the_audit_log(
    plane: RunningPlane, namespace: str, tmp_path: Path
) -> None:
    """The check above can fail: a request without a rule is found."""
    kubeconfig = account_kubeconfig(plane, tmp_path, "binder")
    before = forbidden(plane)
    told = plane.kubectl("--kubeconfig", str(kubeconfig), "get", "secrets", "-n", namespace, check=False)
    assert "forbidden" in told.lower()
    found = forbidden(plane)[len(before) :]
    assert found
    assert all("/secrets" in one for one in found)
