"""The autoscaler on a real control plane, with the rights of its own ServiceAccount: what it scales by, and says."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.conftest import ROOT, STEADY, RunningPlane, mesh_of, running
from tests.real.metrics_server import MetricsServer, metrics_server

Json = dict[str, Any]
CONCLAVE = str(Path(sys.executable).with_name("conclave"))
SYSTEM = "conclave-system"
COMPONENT = ROOT / "k8s/components/autoscaler"
PATIENCE_S = 120.0
GRACE_S = 30.0
APPLY = ("apply", "--validate=false")
"""The server validates; kubectl would first fetch all schemas of it, each time."""


@pytest.fixture(scope="module")
def metrics(plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetricsServer]:
    with metrics_server(plane, tmp_path_factory.mktemp("metrics")) as server:
        yield server


@pytest.fixture(scope="module")
def autoscaler(plane: RunningPlane, metrics: MetricsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One autoscaler with the component's rights; its log."""
    folder = tmp_path_factory.mktemp("autoscaler")
    plane.kubectl(*APPLY, "-f", "-", stdin=json.dumps(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    ))  # fmt: skip
    plane.kubectl(*APPLY, "-n", SYSTEM, "-f", str(COMPONENT / "rbac.yaml"))
    plane.kubectl(*APPLY, "-f", str(COMPONENT / "resilientautoscalers-crd.yaml"))
    plane.kubectl("wait", "--for=condition=Established", "crd/resilientautoscalers.conclave.io", "--timeout=60s")
    token = plane.kubectl("create", "token", "conclave-autoscaler", "-n", SYSTEM, "--duration=2h").strip()
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    kubeconfig = folder / "autoscaler.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    with mesh_of(plane, tmp_path_factory.mktemp("mesh"), "--agents", "0") as ready:
        etcd = next(word.removeprefix("etcd=") for word in ready.split() if word.startswith("etcd="))
        command = (
            CONCLAVE, "run", "autoscaler", "--etcd", etcd, "--kubeconfig", str(kubeconfig), "--decide-every-s", "2",
            "--tell-every-s", "1", "--validate", *STEADY,
        )  # fmt: skip
        with running(folder, "autoscaler", *command, ready=lambda line: line.startswith("ready")):
            yield folder / "autoscaler.log"


def workload(kind: str, name: str, replicas: int, **spec: Any) -> Json:
    """Its pods request 100m each in the main container and in a native sidecar."""
    requests = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": [name]}]},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "schedulerName": "conclave",
                    "containers": [{"name": "main", "image": "x", "resources": requests}],
                    "initContainers": [
                        {"name": "proxy", "image": "x", "restartPolicy": "Always", "resources": requests}
                    ],
                },
            },
            **spec,
        },
    }  # fmt: skip


def scaler(*targets: tuple[str, str], **more: Any) -> Json:
    limits = {"upPods": 20, "downPods": 20, "downPeriodSeconds": 1, "failOverSeconds": 1}
    return {
        "apiVersion": "conclave.io/v1alpha1", "kind": "ResilientAutoscaler", "metadata": {"name": "graph"},
        "spec": {
            "mode": "act-on-scale", "limits": limits,
            "hpaRule": {"target": 60, "sync_s": 1, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}},
            "targets": [
                {"name": name, "scaleTargetRef": {"kind": kind, "name": name}, "maxReplicas": 9}
                for kind, name in targets
            ],
            **more,
        },
    }  # fmt: skip


class Space:
    """One namespace, as the tests ask of it."""

    def __init__(self, plane: RunningPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace

    def apply(self, *documents: Json) -> None:
        for document in documents:
            self.plane.kubectl(*APPLY, "-n", self.namespace, "-f", "-", stdin=json.dumps(document))

    def get(self, *what: str) -> Any:
        return self.plane.get(*what, "-n", self.namespace)

    def replicas(self, kind: str, name: str) -> int:
        found: int = self.get(kind, name)["spec"]["replicas"]
        return found

    def until(self, what: str, holds: Callable[[], Any]) -> None:
        """Return once it holds. A real cluster's objects are looked at through kubectl, so it is asked again."""
        ends = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < ends, f"{what}: {json.dumps(self.get('ras', 'graph').get('status'))[:3000]}"
            time.sleep(0.5)

    def go(self) -> None:
        """An operator approves what the status shows."""

        def told() -> bool:
            found = self.get("ras", "graph")
            return bool(found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"])

        self.until("a status", told)
        command = (CONCLAVE, "autoscale", "approve", "graph", "-n", self.namespace, "--by", "ada", "--yes")
        reach = ("--kubeconfig", str(self.plane.kubeconfig))
        given = subprocess.run((*command, *reach), capture_output=True, text=True, timeout=60, check=False)
        assert given.returncode == 0, given.stderr

    def condition(self, kind: str) -> tuple[str, str]:
        found = self.get("ras", "graph").get("status", {}).get("conditions", ())
        return next(((one["status"], one["reason"]) for one in found if one["type"] == kind), ("", ""))

    def events(self) -> list[tuple[str, str]]:
        """(type, reason) of the object's events, as ``kubectl describe`` shows them."""
        items = self.get("events", "--field-selector=involvedObject.kind=ResilientAutoscaler")["items"]
        return [(one["type"], one["reason"]) for one in items]


@pytest.fixture
def space(plane: RunningPlane, autoscaler: Path, metrics: MetricsServer, namespace: str) -> Space:
    metrics.usage = {"main": {"cpu": "60m", "memory": "1Mi"}, "proxy": {"cpu": "60m", "memory": "1Mi"}}
    return Space(plane, namespace)


def test_services_grow_and_shrink_by_what_all_their_containers_request(space: Space, metrics: MetricsServer) -> None:
    web, store = workload("Deployment", "web", 2), workload("StatefulSet", "store", 2, serviceName="store")
    space.apply(web, store, scaler(("Deployment", "web"), ("StatefulSet", "store")))
    space.go()
    space.until("at rest", lambda: space.condition("MetricsGood") == ("True", "Good"))
    # 90 % of the request of both containers, target 60 %: two pods are to be three, then more by the same share
    metrics.usage = {name: {"cpu": "90m", "memory": "1Mi"} for name in ("main", "proxy")}
    space.until("web grows", lambda: space.replicas("deployment", "web") >= 3)
    space.until("store grows", lambda: space.replicas("statefulset", "store") >= 3)
    metrics.usage = {name: {"cpu": "10m", "memory": "1Mi"} for name in ("main", "proxy")}
    space.until("web shrinks", lambda: space.replicas("deployment", "web") == 1)
    space.until("store shrinks", lambda: space.replicas("statefulset", "store") == 1)
    assert ("Normal", "SuccessfulRescale") in space.events()
    space.plane.kubectl("delete", "ras", "graph", "-n", space.namespace)
    space.plane.kubectl("scale", "deployment", "web", "-n", space.namespace, "--replicas=3")
    three = "--for=jsonpath={.status.readyReplicas}=3"
    space.plane.kubectl("wait", three, "deployment/web", "-n", space.namespace, "--timeout=90s")


def test_an_applied_manifest_freezes_nothing(space: Space, metrics: MetricsServer) -> None:
    web = workload("Deployment", "web", 2)
    space.apply(web, scaler(("Deployment", "web")))
    metrics.usage = {name: {"cpu": "90m", "memory": "1Mi"} for name in ("main", "proxy")}
    space.go()
    space.until("web grows", lambda: space.replicas("deployment", "web") >= 3)
    metrics.usage = {name: {"cpu": "60m", "memory": "1Mi"} for name in ("main", "proxy")}
    space.until("at rest", lambda: space.condition("MetricsGood") == ("True", "Good"))
    metrics.usage = {name: {"cpu": "90m", "memory": "1Mi"} for name in ("main", "proxy")}
    space.apply(web)
    began = time.monotonic()
    space.until("told", lambda: space.condition("ForeignWriter") == ("True", "ForeignWriter"))
    space.until("risen over", lambda: space.replicas("deployment", "web") >= 3)
    assert time.monotonic() - began >= GRACE_S - 5
    space.until("ours again", lambda: space.condition("ForeignWriter") == ("False", "None"))
    assert ("Warning", "ForeignWriter") in space.events()


def test_a_statefulset_that_rests_with_two_templates_still_shrinks(space: Space, metrics: MetricsServer) -> None:
    """OnDelete, and a partition: nobody rolls these pods on."""
    by_hand = workload("StatefulSet", "store", 3, serviceName="store", updateStrategy={"type": "OnDelete"})
    split = workload(
        "StatefulSet", "split", 3, serviceName="split", podManagementPolicy="Parallel",
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}},
    )  # fmt: skip
    space.apply(by_hand, split)
    for one in (by_hand, split):
        name = one["metadata"]["name"]
        ready = "--for=jsonpath={.status.readyReplicas}=3"
        space.plane.kubectl("wait", ready, f"statefulset/{name}", "-n", space.namespace, "--timeout=90s")
        one["spec"]["template"]["metadata"]["annotations"] = {"release": "two"}
        space.apply(one)
    space.until("the partition", lambda: space.get("statefulset", "split")["status"].get("updatedReplicas") == 1)
    metrics.usage = {name: {"cpu": "10m", "memory": "1Mi"} for name in ("main", "proxy")}
    space.apply(scaler(("StatefulSet", "store"), ("StatefulSet", "split")))
    space.go()
    space.until("store shrinks", lambda: space.replicas("statefulset", "store") == 1)
    space.until("split shrinks", lambda: space.replicas("statefulset", "split") == 1)


def test_a_missing_request_and_a_missing_signal_are_told(space: Space, metrics: MetricsServer) -> None:
    web = workload("Deployment", "web", 2)
    del web["spec"]["template"]["spec"]["initContainers"][0]["resources"]
    space.apply(web, scaler(("Deployment", "web")))
    space.until("refused", lambda: space.condition("MetricsGood") == ("False", "FailedGetResourceMetric"))
    space.apply(scaler(("Deployment", "web"), policy={"name": "karma"}))
    space.until("missing", lambda: space.condition("MetricsGood") == ("False", "SignalsMissing"))
    space.until("an event", lambda: ("Warning", "SignalsMissing") in space.events())
    assert space.replicas("deployment", "web") == 2
