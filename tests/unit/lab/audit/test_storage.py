"""The audit's rules for volumes: each is seen red, and green where nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.lab.audit.audit_history import History

DONE = {"pv.kubernetes.io/bind-completed": "yes"}


class Stored(History):
    """With volumes, claims, classes and limits."""

    def obj(self, kind: str, name: str, *, annotations: Any = None, namespace: str = "", **body: Any) -> Stored:
        metadata = {"name": name, "annotations": annotations or {}, **({"namespace": namespace} if namespace else {})}
        self._write("create", kind, {"kind": kind, "metadata": metadata, **body})
        return self

    def volume(self, name: str, *, node: str = "") -> Stored:
        spec: dict[str, Any] = {"csi": {"driver": "d", "volumeHandle": name}}
        if node:
            expression = {"key": "host", "operator": "In", "values": [node]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        return self.obj("PersistentVolume", name, spec=spec)

    def claim(self, name: str, volume: str = "", *, modes: str = "ReadWriteOnce", **more: Any) -> Stored:
        spec = {"accessModes": [modes], "volumeName": volume, **more.pop("spec", {})}
        given = more.pop("annotations", DONE if volume else {})
        return self.obj("PersistentVolumeClaim", name, namespace="default", spec=spec, annotations=given, **more)

    def limit(self, count: int, node: str = "n1") -> Stored:
        self.obj("CSINode", node, spec={"drivers": [{"name": "d", "nodeID": "i", "allocatable": {"count": count}}]})
        self.wait(10)
        return self

    def user(self, name: str, *claims: str, node: str = "n1") -> Stored:
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        self.pod(name, volumes=volumes)
        if node:
            self.bind(name, node)
        return self


def stored() -> Stored:
    history = Stored()
    for name in ("n1", "n2"):
        history.node(name, {"cpu": "9", "memory": "9Gi", "pods": "9"}, labels={"host": name})
    history.wait(10)
    return history


def three() -> Stored:
    """Three bound claims, at most two volumes on n1."""
    history = stored().limit(2)
    for name in "abc":
        history.volume(f"v{name}").claim(name, f"v{name}")
    return history


RED: dict[str, Callable[[], History]] = {
    "no claim": lambda: stored().user("p", "a"),
    "claim not bound": lambda: stored().claim("a").user("p", "a"),
    "claim named a volume, not completed": lambda: stored().volume("v").claim("a", "v", annotations={}).user("p", "a"),
    "no volume": lambda: stored().claim("a", "v").user("p", "a"),
    "volume out of reach": lambda: stored().volume("v", node="n2").claim("a", "v").user("p", "a"),
    "one pod per claim": lambda: (
        stored().volume("v").claim("a", "v", modes="ReadWriteOncePod").user("p", "a").user("q", "a", node="n2")
    ),
    "too many volumes": lambda: three().user("p", "a", "b").user("q", "c"),
    "too many volumes of one pod": lambda: three().user("p", "a", "b", "c"),
}

GREEN: dict[str, Callable[[], History]] = {
    "volume in reach": lambda: stored().volume("v", node="n1").claim("a", "v").user("p", "a"),
    "a claim that others may use": lambda: stored().volume("v").claim("a", "v").user("p", "a").user("q", "a"),
    "a volume that two pods use is attached once": lambda: three().user("p", "a", "b").user("q", "b"),
    "the limit of another node": lambda: three().user("p", "a", "b").user("q", "c", node="n2"),
    "a limit that was lowered just now": lambda: (
        three().user("p", "a").obj(
            "CSINode", "n1", spec={"drivers": [{"name": "d", "nodeID": "i", "allocatable": {"count": 1}}]}
        ).user("q", "b")
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RED)
def test_a_binding_against_its_volumes_is_seen(case: str) -> None:
    report = RED[case]().report()
    assert report.misplaced == 1, report.examples
    assert not report.ok


@pytest.mark.parametrize("case", GREEN)
def test_a_binding_that_its_volumes_allow_is_fine(case: str) -> None:
    report = GREEN[case]().report()
    assert report.misplaced == 0, report.examples


def test_a_claim_for_one_pod_is_free_when_that_pod_ended() -> None:
    history = stored().volume("v").claim("a", "v", modes="ReadWriteOncePod").user("p", "a")
    history.phase("p", "Succeeded")
    assert history.user("q", "a", node="n2").report().ok


@pytest.mark.parametrize(
    ("claim", "lost"),
    [
        ({}, False),
        ({"spec": {"storageClassName": "slow"}}, True),
        (
            {"spec": {"storageClassName": "slow"}, "annotations": {"volume.kubernetes.io/selected-node": "n1"}},
            False,
        ),
        ({"spec": {"storageClassName": "static"}}, False),
        ({"spec": {"storageClassName": "at-once"}}, False),
    ],
)
def test_a_pod_that_waits_for_its_volumes_is_lost_only_where_the_scheduler_is_to_act(
    claim: dict[str, Any], *, lost: bool
) -> None:
    history = stored()
    for name, provisioner, mode in (
        ("slow", "d", "WaitForFirstConsumer"),
        ("static", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        ("at-once", "d", "Immediate"),
    ):
        history.obj("StorageClass", name, provisioner=provisioner, volumeBindingMode=mode)
    report = history.claim("a", **claim).user("p", "a", node="").unschedulable("p").report()
    assert (report.lost == 1) is lost, report.examples
