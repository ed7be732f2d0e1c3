"""What Kubernetes' own controllers make, placed by us on a real control plane."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.real.conftest import RunningPlane, mesh_of


@pytest.fixture(scope="module", params=["0", "1", "4"])
def agents(
    plane: RunningPlane, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[str]:
    """A mesh with so many agents."""
    with mesh_of(plane, tmp_path_factory.mktemp("mesh"), "--agents", request.param) as ready:
        yield ready


def test_a_deployment_becomes_available(plane: RunningPlane, agents: str, namespace: str) -> None:
    labels = {"app": "web"}
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    spec = {"schedulerName": "conclave", "containers": [container]}
    web = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 6, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }  # fmt: skip
    plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(web))
    plane.kubectl("wait", "-n", namespace, "--for=condition=Available", "deployment/web", "--timeout=60s")
    pods = plane.get("pods", "-n", namespace)["items"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 6
