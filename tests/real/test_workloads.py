"""What Kubernetes' own controllers make, and gangs and queues, placed by us on a real control plane."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.manifests.rendering import ROOT
from tests.real.conftest import RunningPlane, mesh_of, running

Json = dict[str, Any]

QUEUES = ROOT / "k8s/base/queues-crd.yaml"
LABELS = {"app": "web"}
WITHIN = "--timeout=100s"
none_or_many = pytest.mark.parametrize("agents", ["0", "4"], indirect=True)
"""For what its controller decides more than we do."""


@pytest.fixture(scope="module", params=["0", "1", "4"])
def agents(
    plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[str]:
    """A mesh with so many agents, in a cluster that has Queues."""
    plane.kubectl("apply", "--server-side", "-f", str(QUEUES))
    plane.kubectl("wait", "--for=condition=Established", "crd/queues.conclave.io", WITHIN)
    with mesh_of(plane, tmp_path_factory.mktemp("mesh"), "--agents", request.param) as ready:
        yield ready


def template(*, annotations: Json | None = None, cpu: str = "100m", **spec: Any) -> Json:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    return {
        "metadata": {"labels": LABELS, "annotations": annotations or {}},
        "spec": {"schedulerName": "conclave", "containers": [container], **spec},
    }


def workload(kind: str, name: str, **spec: Any) -> Json:
    selector = {} if kind == "Job" else {"selector": {"matchLabels": LABELS}}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {**selector, "template": template(), **spec},
    }  # fmt: skip


def make(plane: RunningPlane, namespace: str, *objects: Json) -> None:
    plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump_all(objects))


def pods(plane: RunningPlane, namespace: str) -> list[Json]:
    found: list[Json] = plane.get("pods", "-n", namespace)["items"]
    return found


def bound(plane: RunningPlane, namespace: str) -> dict[str, str]:
    """Pod to node, of those that are on one."""
    return {one["metadata"]["name"]: one["spec"]["nodeName"] for one in pods(plane, namespace) if _node(one)}


def _node(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


def placed(plane: RunningPlane, namespace: str, *names: str) -> None:
    """Until these pods are on nodes."""
    which = [f"pod/{name}" for name in names]
    plane.kubectl("wait", "-n", namespace, "--for=condition=PodScheduled", *which, WITHIN)


def waits(plane: RunningPlane, namespace: str, name: str, reason: str) -> None:
    """Until the pod is told that it waits for this reason."""
    path = '{.status.conditions[?(@.type=="PodScheduled")].reason}'
    plane.kubectl("wait", "-n", namespace, f"--for=jsonpath={path}={reason}", f"pod/{name}", WITHIN)


def test_a_deployment_becomes_available(plane: RunningPlane, agents: str, namespace: str) -> None:
    make(plane, namespace, workload("Deployment", "web", replicas=6))
    plane.kubectl("wait", "-n", namespace, "--for=condition=Available", "deployment/web", WITHIN)
    assert len(set(bound(plane, namespace).values())) == 6


@none_or_many
def test_a_rollout_ends_with_new_pods_alone(plane: RunningPlane, agents: str, namespace: str) -> None:
    make(plane, namespace, workload("Deployment", "web", replicas=4))
    plane.kubectl("rollout", "status", "-n", namespace, "deployment/web", WITHIN)
    before = set(bound(plane, namespace))
    plane.kubectl("set", "image", "-n", namespace, "deployment/web", "c=y")
    plane.kubectl("rollout", "status", "-n", namespace, "deployment/web", WITHIN)
    plane.kubectl("rollout", "undo", "-n", namespace, "deployment/web")
    plane.kubectl("rollout", "status", "-n", namespace, "deployment/web", WITHIN)
    alive = {one["metadata"]["name"] for one in pods(plane, namespace) if "deletionTimestamp" not in one["metadata"]}
    assert len(alive) == 4
    assert not alive & before


@none_or_many
def test_a_stateful_set_starts_in_order_and_gets_back_what_it_lost(
    plane: RunningPlane, agents: str, namespace: str
) -> None:
    make(plane, namespace, workload("StatefulSet", "db", replicas=3, serviceName="db"))
    plane.kubectl("rollout", "status", "-n", namespace, "statefulset/db", WITHIN)
    assert bound(plane, namespace).keys() == {"db-0", "db-1", "db-2"}
    uid = plane.get("pod", "db-1", "-n", namespace)["metadata"]["uid"]
    plane.kubectl("delete", "pod", "db-1", "-n", namespace, "--wait=true")
    plane.kubectl("wait", "-n", namespace, "--for=create", "pod/db-1", WITHIN)
    plane.kubectl("wait", "-n", namespace, "--for=condition=Ready", "pod/db-1", WITHIN)
    again = plane.get("pod", "db-1", "-n", namespace)
    assert _node(again)
    assert again["metadata"]["uid"] != uid


@none_or_many
def test_a_job_runs_to_its_end(plane: RunningPlane, agents: str, namespace: str) -> None:
    short = template(annotations={"hollow/run-seconds": "0.2"}, restartPolicy="Never")
    make(plane, namespace, workload("Job", "sums", completions=6, parallelism=3, template=short))
    plane.kubectl("wait", "-n", namespace, "--for=condition=Complete", "job/sums", WITHIN)
    assert plane.get("job", "sums", "-n", namespace)["status"]["succeeded"] == 6


@none_or_many
def test_what_an_hpa_adds_is_placed(plane: RunningPlane, agents: str, namespace: str) -> None:
    """There are no metrics here: below its minimum an HPA asks for none."""
    make(plane, namespace, workload("Deployment", "web", replicas=1))
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
    }
    hpa = {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 5, "maxReplicas": 8, "metrics": [metric],
        },
    }  # fmt: skip
    make(plane, namespace, hpa)
    plane.kubectl("wait", "-n", namespace, "--for=jsonpath={.status.readyReplicas}=5", "deployment/web", WITHIN)
    assert len(bound(plane, namespace)) == 5


@none_or_many
def test_a_drain_moves_pods_and_a_budget_holds_while_it_does(plane: RunningPlane, agents: str, namespace: str) -> None:
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": LABELS}},
    }  # fmt: skip
    # all on one node, so that the drain has four to move of which one may be missing
    narrow = template(affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname",
                                            "labelSelector": {"matchLabels": LABELS}}}]}})  # fmt: skip
    make(plane, namespace, budget, workload("Deployment", "web", replicas=4, template=narrow))
    plane.kubectl("wait", "-n", namespace, "--for=condition=Available", "deployment/web", WITHIN)
    plane.kubectl("wait", "-n", namespace, "--for=jsonpath={.status.currentHealthy}=4", "pdb/web", WITHIN)
    nodes = list(bound(plane, namespace).values())
    node = max(nodes, key=nodes.count)
    least = []
    command = (
        "kubectl", "--kubeconfig", str(plane.kubeconfig), "get", "deployment/web", "-n", namespace, "--watch",
        "-o", "jsonpath={.status.availableReplicas}{\"\\n\"}",
    )  # fmt: skip
    drained = threading.Event()

    def told(line: str) -> bool:
        least.append(int(line.strip() or 0))
        return True

    with running(plane.folder, f"watch-{namespace}", *command, ready=told):
        try:
            plane.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", WITHIN)
            drained.set()
            plane.kubectl("wait", "-n", namespace, "--for=jsonpath={.status.readyReplicas}=4", "deployment/web", WITHIN)
        finally:
            plane.kubectl("uncordon", node)
    assert drained.is_set()
    assert min(least) >= 3
    assert node not in bound(plane, namespace).values()


@pytest.mark.parametrize("members", [2, 5])
def test_a_gang_starts_whole_and_its_end_frees_its_room(
    plane: RunningPlane, agents: str, namespace: str, members: int
) -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": "gang"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": members}}},
    }  # fmt: skip

    def member(number: int) -> Json:
        made = template(cpu="3", schedulingGroup={"podGroupName": "gang"})
        return {"apiVersion": "v1", "kind": "Pod", **made, "metadata": {**made["metadata"], "name": f"m-{number}"}}

    *first, last = [f"m-{number}" for number in range(members)]
    make(plane, namespace, group, *(member(number) for number in range(members - 1)))
    for name in first:
        path = '{.status.conditions[?(@.type=="PodScheduled")].status}'
        plane.kubectl("wait", "-n", namespace, f"--for=jsonpath={path}=False", f"pod/{name}", WITHIN)
    assert bound(plane, namespace) == {}
    make(plane, namespace, member(members - 1))
    placed(plane, namespace, *first, last)
    # a pod of 3 CPUs on a node of 4: no two of them share one
    assert len(set(bound(plane, namespace).values())) == members
    plane.kubectl("delete", "pods", "--all", "-n", namespace, "--wait=true")
    plane.kubectl("delete", "podgroups.scheduling.k8s.io", "gang", "-n", namespace)
    make(plane, namespace, group, *(member(number) for number in range(members)))
    placed(plane, namespace, *first, last)


def test_a_queue_holds_what_is_above_its_maximum_until_there_is_room(
    plane: RunningPlane, agents: str, namespace: str
) -> None:
    queue = {
        "apiVersion": "conclave.io/v1alpha1", "kind": "Queue", "metadata": {"name": namespace},
        "spec": {"namespaces": [namespace], "maximum": {"cpu": "2"}},
    }  # fmt: skip
    try:
        make(plane, namespace, queue)
        path = '{.status.conditions[?(@.type=="Ready")].status}'
        plane.kubectl("wait", f"--for=jsonpath={path}=True", f"queue.conclave.io/{namespace}", WITHIN)
        for number in range(3):
            made = template(cpu="1")
            name = f"q-{number}"
            make(
                plane,
                namespace,
                {"apiVersion": "v1", "kind": "Pod", **made, "metadata": {**made["metadata"], "name": name}},
            )
            if number < 2:
                placed(plane, namespace, name)
        waits(plane, namespace, "q-2", "NotReadyForScheduling")  # a node more would not help
        assert bound(plane, namespace).keys() == {"q-0", "q-1"}
        more = json.dumps({"spec": {"maximum": {"cpu": "3"}}})
        plane.kubectl("patch", f"queue.conclave.io/{namespace}", "--type=merge", "-p", more)
        placed(plane, namespace, "q-2")
    finally:
        plane.kubectl("delete", f"queue.conclave.io/{namespace}", "--ignore-not-found")
