"""Advice never names a mark that is not a person's to change."""

from __future__ import annotations

import pytest

from shared.model.constraints import PodClass, Requirement, SelectorTerm, Taint
from shared.scheduling.explain.reserved import Remedy, labellable_mask, remedy_of, reserved
from shared.scheduling.state.node_table import NodeTable
from tests.builders import make_node


@pytest.mark.parametrize("key", [
    "kubernetes.io/arch", "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type", "beta.kubernetes.io/os",
    "node-role.kubernetes.io/worker", "failure-domain.beta.kubernetes.io/zone", "feature.node.kubernetes.io/cpu-avx",
    "jobset.sigs.x-k8s.io/x", "autoscaling.k8s.io/a", "karpenter.sh/nodepool", "karpenter.k8s.aws/instance-family",
    "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool", "kubernetes.azure.com/mode", "agentpool",
    "nvidia.com/gpu.product", "node.openshift.io/os_id",
])  # fmt: skip
def test_keys_of_kubernetes_and_clouds_are_reserved(key: str) -> None:
    assert reserved(key)


@pytest.mark.parametrize("key", ["disk", "team", "example.com/disk", "mykubernetes.io/x", "conclave.io/rack", "zone"])
def test_keys_of_people_are_not(key: str) -> None:
    assert not reserved(key)


@pytest.mark.parametrize(("keys", "remedy"), [
    (("gpu",), Remedy.TOLERATE_OR_TAKE),
    (("nvidia.com/gpu",), Remedy.TOLERATE),
    (("team", "nvidia.com/gpu"), Remedy.TOLERATE),
    (("node.kubernetes.io/not-ready",), Remedy.REPAIR),
    (("team", "node.kubernetes.io/disk-pressure"), Remedy.REPAIR),
    (("node-role.kubernetes.io/control-plane",), Remedy.NONE),
    (("karpenter.sh/disrupted",), Remedy.NONE),
    (("ToBeDeletedByClusterAutoscaler", "node.kubernetes.io/not-ready"), Remedy.NONE),
])  # fmt: skip
def test_a_taint_is_advised_away_only_where_it_is_a_persons_own(keys: tuple[str, ...], remedy: Remedy) -> None:
    assert remedy_of(Taint(key, "", "NoSchedule") for key in keys) is remedy


def table_of(**labels: str) -> NodeTable:
    table = NodeTable()
    table.upsert(make_node("n0").label(**labels).node())
    return table


def test_a_node_may_be_labelled_where_only_labels_of_people_are_missing() -> None:
    table = table_of()
    arm = Requirement("kubernetes.io/arch", "In", ("arm64",))
    disk = Requirement("disk", "In", ("ssd",))
    assert labellable_mask(table, PodClass(node_selector=(("disk", "ssd"),))).all()
    assert not labellable_mask(table, PodClass(node_selector=(("kubernetes.io/arch", "arm64"),))).any()
    assert not labellable_mask(table, PodClass(affinity_terms=(SelectorTerm((arm, disk)),))).any()
    assert labellable_mask(table, PodClass(affinity_terms=(SelectorTerm((arm,)), SelectorTerm((disk,))))).all()
    assert not labellable_mask(table, PodClass(affinity_terms=())).any()
