"""What the cluster is called: as the operator says, else as the kubeconfig does, else by its own uid."""

from __future__ import annotations

from services.coordinator.io.cluster_identity import ClusterIdentity
from shared.kube.objects import ObjectMeta

UID = "6f0c1a2b-aaaa-bbbb-cccc-0123456789ab"


def test_the_setting_wins_over_the_kubeconfig_and_that_over_the_uid() -> None:
    assert ClusterIdentity(setting="prod", context="kind-a", uid=UID).named == ("prod", "setting")
    assert ClusterIdentity(context="kind-a", uid=UID).named == ("kind-a", "context")
    assert ClusterIdentity(uid=UID).named == ("6f0c1a2b", "uid")
    assert ClusterIdentity().named == ("", "")


def test_the_uid_is_that_of_kube_system() -> None:
    cluster = ClusterIdentity()
    cluster.saw(ObjectMeta(name="default", uid="other"))
    cluster.saw(ObjectMeta(name="kube-system", uid=UID))
    assert cluster.uid == UID
