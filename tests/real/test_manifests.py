"""Every build of k8s/ is applied to a real API server, whole, and the controllers make its pods.

The kinds of cert-manager and the Prometheus operator are defined first, as their installations do.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.manifests.rendering import BUILDS, NAMESPACE, folder_of, rendered
from tests.process.test_apply_overlays import FOREIGN, definition
from tests.real.conftest import RunningPlane

Json = dict[str, Any]

WORKLOADS = ("Deployment", "DaemonSet", "StatefulSet", "Job")
PODS_S = 60.0
LOOK_EVERY_S = 0.3


@pytest.fixture(scope="module")
def foreign(plane: RunningPlane) -> None:
    for group, kind, plural in FOREIGN:
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=definition(group, kind, plural))
    names = [f"crd/{plural}.{group}" for group, _, plural in FOREIGN]
    plane.kubectl("wait", "--for=condition=Established", *names, "--timeout=60s")


def generations(plane: RunningPlane, build: str) -> dict[str, int]:
    """By object: how often what is wanted of it was changed."""
    items = plane.get("-k", str(folder_of(build)))["items"]
    return {f"{one['kind']}/{one['metadata']['name']}": one["metadata"].get("generation", 0) for one in items}


def without_pods(plane: RunningPlane, build: str) -> list[str]:
    """Workloads of the build of which there is no pod, with what their controllers say."""
    found = plane.get("pods,replicasets", "-n", NAMESPACE)["items"]
    owners = {
        (one["metadata"]["ownerReferences"][0]["kind"], one["metadata"]["ownerReferences"][0]["name"])
        for one in found
        if one["metadata"].get("ownerReferences")
        and (one["kind"] == "Pod" or (one.get("status") or {}).get("replicas"))
    }
    return [
        f"{one['kind']}/{one['metadata']['name']}"
        for one in rendered(build)
        if one["kind"] in WORKLOADS
        and one["spec"].get("replicas", 1)
        and (one["kind"], one["metadata"]["name"]) not in owners
    ]


@pytest.mark.parametrize("build", BUILDS)
def test_a_build_is_applied_whole_and_its_pods_are_made(plane: RunningPlane, foreign: None, build: str) -> None:
    folder = str(folder_of(build))
    try:
        lines = plane.kubectl("apply", "--server-side", "-k", folder).splitlines()
        assert len(lines) == len(rendered(build))
        assert all(line.endswith(" serverside-applied") for line in lines), lines
        until = time.monotonic() + PODS_S
        while lacking := without_pods(plane, build):
            told = plane.kubectl("get", "events", "-n", NAMESPACE, "--field-selector=type=Warning")
            assert time.monotonic() < until, f"no pod of {lacking}: {told}"
            time.sleep(LOOK_EVERY_S)
        before = generations(plane, build)
        assert len(before) == len(lines)
        plane.kubectl("apply", "--server-side", "-k", folder)
        assert generations(plane, build) == before
    finally:
        # of the next build some are other ones under the same name, which no update makes of these
        kinds = "deployments,daemonsets,statefulsets,jobs,persistentvolumeclaims,poddisruptionbudgets"
        plane.kubectl("delete", kinds, "--all", "-n", NAMESPACE, "--wait=true", "--timeout=90s", "--ignore-not-found")
