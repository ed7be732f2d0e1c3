"""Pod groups as clients meet them: kubectl and the official client, both releases, and the plug-ins' definition."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tests.process.twin_process import ROOT, RunningTwin, running_twin

pytestmark = [
    pytest.mark.process,
    # The library's own, on import and in its models.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

KUBECTL = shutil.which("kubectl")
DEFINITION = ROOT / "k8s/components/plugins-pod-groups/pod-groups.yaml"
GROUP = """
apiVersion: scheduling.k8s.io/%s
kind: PodGroup
metadata: {name: %s}
spec:
  schedulingPolicy: {gang: {minCount: %d}}
"""
MEMBER = """
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  schedulerName: nobody
  terminationGracePeriodSeconds: 0
  schedulingGroup: {podGroupName: %s}
  containers: [{name: c, image: pause}]
"""
PLUGINS = """
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: x}
spec: %s
"""
Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTwin]:
    with running_twin(tmp_path_factory.mktemp("old"), "--simulate", scheme="https") as server:
        yield server


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTwin]:
    with running_twin(tmp_path_factory.mktemp("new"), "--simulate", "--kubernetes", "1.37", scheme="https") as server:
        yield server


@pytest.fixture
def kubectl(tmp_path: Any) -> Kubectl:
    if KUBECTL is None:
        pytest.skip("no kubectl on PATH")

    def call(twin: RunningTwin, *arguments: str, stdin: str | None = None, fails: bool = False) -> str:
        done = subprocess.run(
            [str(KUBECTL), "--kubeconfig", str(twin.kubeconfig), "--cache-dir", str(tmp_path / "cache"), *arguments],
            input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ, "HOME": str(tmp_path)},
            check=False,
        )  # fmt: skip
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    return call


def test_kubectl_makes_shows_and_changes_groups_of_either_release(
    kubectl: Kubectl, old: RunningTwin, new: RunningTwin
) -> None:
    for twin, version, release in ((old, "v1alpha2", "v1.36.2"), (new, "v1beta1", "v1.37.0")):
        assert release in kubectl(twin, "version")
        assert "podgroups" in kubectl(twin, "api-resources", "--api-group", "scheduling.k8s.io")
        assert "podgroup.scheduling.k8s.io/g created" in kubectl(
            twin, "apply", "-f", "-", stdin=GROUP % (version, "g", 3)
        )
        assert "NAME" in kubectl(twin, "get", "podgroups")
        assert "Min Count:  3" in kubectl(twin, "describe", "podgroup", "g")
        assert 'unknown field "spec.minMember"' in kubectl(
            twin, "apply", "-f", "-", stdin=GROUP % (version, "h", 3) + "  minMember: 3\n", fails=True
        )
    immutable = kubectl(old, "apply", "-f", "-", stdin=GROUP % ("v1alpha2", "g", 2), fails=True)
    assert "spec.schedulingPolicy: Invalid value" in immutable
    assert "field is immutable" in immutable
    assert "configured" in kubectl(new, "apply", "-f", "-", stdin=GROUP % ("v1beta1", "g", 2))
    assert "must specify one of: `basic`, `gang`" in kubectl(
        new, "apply", "-f", "-", stdin=GROUP.replace("{gang: {minCount: %d}}", "{}") % ("v1beta1", "h"), fails=True
    )


def test_the_official_client_reads_and_writes_what_it_has_types_for(new: RunningTwin) -> None:
    from kubernetes import client, config

    configuration = client.Configuration()
    config.load_kube_config(str(new.kubeconfig), client_configuration=configuration)
    with client.ApiClient(configuration) as connection:
        groups = client.SchedulingV1beta1Api(connection)
        workload = {
            "metadata": {"name": "w"},
            "spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"gang": {"minCount": 4}}}]},
        }
        assert groups.create_namespaced_workload("default", workload).spec.pod_group_templates[0].name == "t"
        body = client.V1beta1PodGroup(
            metadata=client.V1ObjectMeta(name="typed"),
            spec=client.V1beta1PodGroupSpec(
                workload_ref=client.V1beta1WorkloadReference(workload_name="w", template_name="t"),
                scheduling_policy=client.V1beta1PodGroupSchedulingPolicy(
                    gang=client.V1beta1GangSchedulingPolicy(min_count=4)
                ),
                disruption_mode=client.V1beta1DisruptionMode(all={}),
            ),
        )
        made = groups.create_namespaced_pod_group("default", body)
        assert made.spec.disruption_mode.all == {}
        assert made.spec.disruption_mode.single is None
        condition = {
            "type": "PodGroupInitiallyScheduled", "status": "False", "reason": "Unschedulable", "message": "no room",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        for message in ("no room", "still none"):
            told = groups.patch_namespaced_pod_group_status(
                "typed", "default", {"status": {"conditions": [{**condition, "message": message}]}}
            )
        [shown] = told.status.conditions
        assert (shown.type, shown.message) == ("PodGroupInitiallyScheduled", "still none")
        with pytest.raises(client.ApiException) as refused:
            groups.patch_namespaced_pod_group("typed", "default", {"spec": {"priority": 5}})
        assert refused.value.status == 422
        listed = groups.list_namespaced_pod_group("default", field_selector="metadata.name=typed")
        assert [one.spec.scheduling_policy.gang.min_count for one in listed.items] == [4]


def test_a_group_stays_until_no_pod_of_it_is_left(kubectl: Kubectl, old: RunningTwin) -> None:
    kubectl(old, "apply", "-f", "-", stdin=GROUP % ("v1alpha2", "kept", 1))
    kubectl(old, "apply", "-f", "-", stdin=MEMBER % ("member", "kept"))
    finalizer = "jsonpath={.metadata.finalizers[0]}=scheduling.k8s.io/podgroup-protection"
    kubectl(old, "wait", "podgroup/kept", f"--for={finalizer}", f"--timeout={PATIENCE_S:.0f}s")
    kubectl(old, "delete", "podgroup", "kept", "--wait=false")
    assert json.loads(kubectl(old, "get", "podgroup", "kept", "-o", "json"))["metadata"]["deletionTimestamp"]
    kubectl(old, "delete", "pod", "member")
    kubectl(old, "wait", "podgroup/kept", "--for=delete", f"--timeout={PATIENCE_S:.0f}s")


def test_the_definition_of_the_plug_ins_group_is_taken_and_refuses_a_group_without_a_minimum(
    kubectl: Kubectl, old: RunningTwin
) -> None:
    assert "created" in kubectl(old, "apply", "-f", str(DEFINITION))
    assert "unchanged" in kubectl(old, "apply", "-f", str(DEFINITION))
    for spec, problem in (
        ("{minMember: 0}", "spec.minMember: Invalid value: 0: spec.minMember in body should be greater than or equal"),
        ("{minMember: 5000}", "should be less than or equal to 4096"),
        ("{scheduleTimeoutSeconds: 5}", "give minMember"),
        ("{minMember: 2, minResources: {cpu: lots}}", "spec.minResources.cpu"),
    ):
        assert problem in kubectl(old, "apply", "-f", "-", stdin=PLUGINS % spec, fails=True)
    kubectl(old, "apply", "-f", "-", stdin=PLUGINS % "{minMember: 2, minResources: {cpu: 500m, memory: 1Gi, pods: 2}}")
    patch = '{"status": {"phase": "Scheduled", "running": 1}}'
    kubectl(old, "patch", "pg", "x", "--subresource=status", "--type=merge", "-p", patch)
    assert kubectl(old, "get", "podgroups.scheduling.x-k8s.io", "x", "--no-headers").split()[:4] == [
        "x", "Scheduled", "2", "1"
    ]  # fmt: skip
