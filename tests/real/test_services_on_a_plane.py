"""An autoscaled service and training jobs on a real control plane, from their creation to their end."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages import ROOT
from tests.real.conftest import STEADY, RunningPlane, mesh_of, plane_of, running
from tests.real.hollow import EXIT_CODE, RUN_S
from tests.real.plane import missing
from tests.real.pod_metrics import USAGE

PROGRAM = str(Path(sys.executable).with_name("conclave"))
PATIENCE = "--timeout=110s"


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    """A plane with a metrics-server, both definitions, and a mesh that runs training jobs and the autoscaler."""
    if reason := missing():
        pytest.skip(f"no real control plane: {reason}")
    folder = tmp_path_factory.mktemp("metered")
    with plane_of(folder / "plane", "--nodes", "4", "--pod-metrics") as plane:
        for file in ("autoscaler/resilientautoscalers-crd.yaml", "jobs/training-jobs-crd.yaml"):
            plane.kubectl("apply", "-f", str(ROOT / "k8s" / "components" / file))
        for name in ("resilientautoscalers", "trainingjobs"):
            plane.kubectl("wait", "--for=condition=Established", f"crd/{name}.conclave.io", PATIENCE)
        with mesh_of(plane, folder / "mesh", "--jobs", "--agents", "1") as ready:
            found = re.search(r" etcd=(\S+)", ready)
            assert found
            reach = ("--etcd", found[1], "--kubeconfig", str(plane.kubeconfig))
            command = (PROGRAM, "run", "autoscaler", *reach, *STEADY)
            with running(folder, "autoscaler", *command, ready=lambda line: line.startswith("ready")):
                yield plane


# --- an autoscaled service ----------------------------------------------------------------------------------------


def deployment(millicores: int, **more: Any) -> dict[str, Any]:
    """A service whose pods ask for 100 millicores and use so many. ``more``: further fields of its spec."""
    labels = {"app": "shop"}
    usage = json.dumps({"u": [[0, millicores, 41943040, 0, 0]]})
    container = {"name": "shop", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"},
        "spec": {
            **more, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {USAGE: usage}},
                "spec": {"schedulerName": "conclave", "containers": [container]},
            },
        },
    }  # fmt: skip


AUTOSCALER = {
    "apiVersion": "conclave.io/v1alpha1", "kind": "ResilientAutoscaler", "metadata": {"name": "shop"},
    "spec": {
        "mode": "act-on-scale", "limits": {"downPods": 4, "downPeriodSeconds": 1, "failOverSeconds": 1},
        "policy": {"name": "hpa", "settings": {"target": 60, "down_window_s": 0}},
        "targets": [{
            "name": "shop", "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"},
            "minReplicas": 2, "maxReplicas": 6,
        }],
    },
}  # fmt: skip


def test_a_service_grows_with_its_load_falls_with_it_and_outlives_its_autoscaler(
    metered: RunningPlane, tmp_path: Path
) -> None:
    def kubectl(*words: str, body: dict[str, Any] | None = None) -> str:
        return metered.kubectl(*words, stdin=json.dumps(body) if body else "")

    def replicas_are(count: int) -> None:
        kubectl("wait", "deployment/shop", f"--for=jsonpath={{.status.readyReplicas}}={count}", PATIENCE)

    kubectl("apply", "-f", "-", body=deployment(90, replicas=2))
    replicas_are(2)
    kubectl("apply", "-f", "-", body=AUTOSCALER)
    kubectl("wait", "ras/shop", "--for=condition=Ready", PATIENCE)
    assert metered.get("deployment", "shop")["spec"]["replicas"] == 2, "nobody has given a go"
    go = (PROGRAM, "autoscale", "go", "shop", "--by", "ada", "--yes", "--kubeconfig", str(metered.kubeconfig))
    with running(tmp_path, "go", *go, ready=lambda line: line.startswith("go given")):
        pass
    replicas_are(6)
    kubectl("wait", "ras/shop", "--for=condition=Acting", PATIENCE)
    # the pods of the new template use 10 of their 100 millicores; a patch leaves their number alone
    kubectl("patch", "deployment", "shop", "--patch", json.dumps(deployment(10)))
    kubectl("rollout", "status", "deployment/shop", PATIENCE)
    replicas_are(2)
    kubectl("delete", "ras", "shop")
    kubectl("scale", "deployment", "shop", "--replicas=3")
    replicas_are(3)
    kubectl("delete", "deployment", "shop")


# --- training jobs ------------------------------------------------------------------------------------------------


def job(name: str, *, run_s: float, code: int = 0, backoff: int = 0) -> dict[str, Any]:
    """A TrainingJob of two workers, each of which ends after so long."""
    container = {"name": "train", "image": "x", "command": ["torchrun"], "resources": {"requests": {"cpu": "250m"}}}
    return {
        "apiVersion": "conclave.io/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
        "spec": {
            "workers": {"minimum": 2, "maximum": 2}, "checkpoint": {"path": f"/checkpoints/{name}"},
            "restartSeconds": 1, "backoffLimit": backoff,
            "template": {
                "metadata": {"annotations": {RUN_S: str(run_s), EXIT_CODE: str(code)}},
                "spec": {"containers": [container]},
            },
        },
    }  # fmt: skip


def test_a_training_job_runs_to_its_end(metered: RunningPlane) -> None:
    metered.kubectl("apply", "-f", "-", stdin=json.dumps(job("good", run_s=4)))
    metered.kubectl("wait", "trainingjob/good", "--for=condition=Complete", PATIENCE)
    told = metered.get("trainingjob", "good")
    assert told["status"]["phase"] == "Succeeded"
    assert told["status"].get("failures", 0) == 0
    metered.kubectl("delete", "trainingjob", "good")
    metered.kubectl("wait", "--for=delete", "pod/good-worker-0", "service/good", "podgroup/good", PATIENCE)


def test_a_training_job_that_fails_is_tried_again_and_then_has_failed(metered: RunningPlane) -> None:
    metered.kubectl("apply", "-f", "-", stdin=json.dumps(job("bad", run_s=1, code=3, backoff=1)))
    metered.kubectl("wait", "trainingjob/bad", "--for=condition=Failed", PATIENCE)
    told = metered.get("trainingjob", "bad")
    assert told["status"]["phase"] == "Failed"
    assert told["status"]["failures"] == 2
    metered.kubectl("delete", "trainingjob", "bad")
