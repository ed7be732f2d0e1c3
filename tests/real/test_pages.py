"""Pages of the documentation followed word by word on a real control plane, as a fresh reader with a cluster would.

Only the lines that start a twin are left out; its nodes are made by the page's own file and served by hollow kubelets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import blocks, check_first_cluster, commands, follow, on_a_cluster, page, section
from tests.real.conftest import RunningPlane, plane_of
from tests.real.metrics_server import metrics_server
from tests.real.plane import missing

PLUGINS_GROUPS = "kubectl apply -f k8s/components/plugins-pod-groups/pod-groups.yaml\n"


@pytest.fixture
def empty(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningPlane]:
    """A plane without nodes; a parameter: further arguments of it."""
    if reason := missing():
        pytest.skip(f"no real control plane: {reason}")
    with plane_of(tmp_path / "plane", "--nodes", "0", *getattr(request, "param", ())) as found:
        yield found


def reader(tmp_path: Path) -> Path:
    folder = tmp_path / "reader"
    folder.mkdir()
    return folder


def test_the_first_cluster(empty: RunningPlane, tmp_path: Path) -> None:
    written = commands(page("first-cluster.md").split("## The same with your own cluster")[0])
    check_first_cluster(follow(on_a_cluster(written, empty.kubeconfig), reader(tmp_path)))


def test_operating_the_autoscaler(empty: RunningPlane, tmp_path: Path) -> None:
    written = commands(section(page("autoscaling-operations.md"), "Ten minutes on the twin"))
    with metrics_server(empty, tmp_path):
        said = follow(f"{on_a_cluster(written, empty.kubeconfig)}\nkill %1 %2 %3\n", reader(tmp_path))
    assert re.search(r"^\S+ shop 2 -> 3 by hpa$", said, re.MULTILINE)
    assert "MetricsGood True" in said
    assert re.search(r"ForeignWriter True .*somebody else set 2 by 'kubectl'", said)


@pytest.mark.parametrize(
    "empty", [(), ("--feature-gates", "")], indirect=True, ids=["groups of Kubernetes", "groups of the plug-ins"]
)
def test_training_jobs(empty: RunningPlane, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The groups of Kubernetes 1.36 stand behind feature gates, as on most clusters."""
    start = "".join(blocks(section(page("first-cluster.md"), "2. A cluster (10 seconds)")))
    own = section(page("jobs.md"), "Ten minutes on the twin")
    folder = reader(tmp_path)
    (folder / "job.yaml").write_text(blocks(own, "yaml")[0])
    groups = PLUGINS_GROUPS if "plug-ins" in request.node.name else ""
    script = on_a_cluster(start, empty.kubeconfig) + groups + commands(own)
    said = follow(f"{script}\nkill %2 %1\n", folder)
    assert said.count("condition met") == 4
    assert re.search(r"^resnet +Running +2/2 +2 +4", said, re.MULTILINE)
    assert "default/resnet: Running: 4 workers run" in said
    empty.kubectl("wait", "--for=delete", *(f"pod/resnet-worker-{number}" for number in range(4)), "--timeout=60s")
