"""``conclave twin capture --services`` as a real process: a service of the twin's API server, and of a Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from lab.traces.workload import thesis_nodes
from lab.worlds.learned.series import parse_series
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.kube.resources import NODES, PODS, Resource, Upserted
from tests.fake_prometheus import FakePrometheus
from tests.patience import PATIENCE_S
from tests.process.test_twin_capture import conclave
from tests.process.twin_process import RunningTwin, running_twin

pytestmark = pytest.mark.process

DEPLOYMENT = Resource("Deployment", "apps", "v1", "deployments", True, dict)
SHOP = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "shop"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "shop"}},
        "template": {
            "metadata": {"labels": {"app": "shop"}},
            "spec": {
                "schedulerName": "nobody",
                "containers": [
                    {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
                ],
            },
        },
    },
}
QUERIES = {"arrivals": "shop_arrivals", "served": "shop_served", "failed": "shop_failed"}


def manifest(folder: Path, **changed: object) -> Path:
    target = {
        "name": "shop", "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"},
        "maxReplicas": 4,
        "metrics": [{"signal": name, "type": "Prometheus", "query": query} for name, query in QUERIES.items()],
        **changed,
    }  # fmt: skip
    file = folder / "scaler.yaml"
    spec = {"targets": [target], "objectives": {"latencySeconds": 0.5}}
    file.write_text(yaml.safe_dump({"apiVersion": "conclave.io/v1alpha1", "kind": "ResilientAutoscaler",
                                    "metadata": {"name": "shop"}, "spec": spec}))  # fmt: skip
    return file


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTwin]:
    """Two nodes, and a Deployment of two replicas that nobody schedules."""
    with running_twin(tmp_path_factory.mktemp("twin"), "--simulate", "--speed", "20") as found:
        asyncio.run(_fill(found.kubeconfig))
        yield found


async def _fill(kubeconfig: Path) -> None:
    client = KubeClient(await KubeConfig.load(kubeconfig))
    try:
        for node in thesis_nodes(2):
            await client.create(NODES, namespace="", body=node)
        await client.create(DEPLOYMENT, namespace="default", body=SHOP)
        listed = await client.list(PODS)
        names = {pod.metadata.name for pod in listed.items}
        async with (
            asyncio.timeout(PATIENCE_S),
            contextlib.aclosing(client.watch(PODS, resource_version=listed.resource_version)) as events,
        ):
            while len(names) < 2:
                event = await anext(events)
                if isinstance(event, Upserted):
                    names.add(event.object.metadata.name)
    finally:
        await client.close()


@pytest.fixture
async def prometheus() -> AsyncIterator[FakePrometheus]:
    values = {"shop_arrivals": 50.0, "shop_served": 40.0, "shop_failed": 10.0}
    rows = {name: [({}, lambda _, value=value: value)] for name, value in values.items()}
    async with FakePrometheus(rows, now=True).serving() as fake:
        yield fake


def flags(twin: RunningTwin, scaler: Path | str, out: Path, *more: str) -> tuple[str, ...]:
    return ("twin", "capture", "--kubeconfig", str(twin.kubeconfig), "--services", str(scaler), "--out", str(out),
            "--step", "1s", *more)  # fmt: skip


async def test_a_service_is_recorded_and_a_second_capture_goes_on_in_the_same_file(twin, prometheus, tmp_path):
    out, scaler = tmp_path / "series.csv", manifest(tmp_path)
    for _ in range(2):
        code, told, err = await conclave(*flags(twin, scaler, out, "--prometheus", prometheus.url, "--duration", "2s"))
        assert code == 0, err
        assert "3 moments more, 0 missed" in told
        out.write_bytes(out.read_bytes() + b"live,cut sho")  # as a crash would leave it
    series = parse_series(out.read_bytes().removesuffix(b"live,cut sho"), "s")
    assert [one.scenario for one in series.episodes] == ["live", "live"]
    assert series.episodes[0].counts[0].tolist() == [[2, 0, 0, 2]]
    assert series.episodes[0].measures[0, 0, :3].tolist() == [50.0, 40.0, 10.0]
    assert "pending" in told  # nobody schedules its pods: that is what is worth automating first
    code, told, _ = await conclave("twin", "lost", str(out))
    assert code == 2  # the cut line is told, not passed over


async def test_an_interrupt_ends_a_capture_and_keeps_what_was_seen(twin, prometheus, tmp_path):
    out = tmp_path / "series.csv"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", *flags(twin, manifest(tmp_path), out, "--prometheus", prometheus.url),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_S):
        assert b"1 moments of 1 services" in await process.stderr.readline()
        os.kill(process.pid, signal.SIGINT)
        told, err = await process.communicate()
    assert process.returncode == 0, err
    assert b"moments more" in told
    assert out.read_bytes().count(b"\n") >= 2


@pytest.mark.parametrize(
    ("services", "words"),
    [
        ("default/nobody", "there is no ResilientAutoscaler default/nobody"),
        ("nobody", "neither a file nor NAMESPACE/NAME"),
        ("{folder}/empty.yaml", "holds 0 ResilientAutoscalers"),
        ("{folder}/loop.yaml", "is a loop of calls"),
        ("{folder}/gone.yaml", "check that its workloads are there"),
    ],
)
async def test_what_cannot_be_captured_is_one_line_and_no_file(twin, tmp_path, services, words):
    (tmp_path / "empty.yaml").write_text("kind: Pod\n")
    manifest(tmp_path, calls=["shop"]).rename(tmp_path / "loop.yaml")
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gone"}
    manifest(tmp_path, scaleTargetRef=ref).rename(tmp_path / "gone.yaml")
    out = tmp_path / "series.csv"
    code, _, err = await conclave(*flags(twin, services.format(folder=tmp_path), out, "--quiet"))
    assert code == 2
    assert words in err
    assert len(err.splitlines()) == 1
    assert not out.exists()


async def test_a_file_of_something_else_is_not_appended_to(twin, tmp_path):
    out = tmp_path / "notes.csv"
    out.write_text("my,notes\n1,2\n")
    code, _, err = await conclave(*flags(twin, manifest(tmp_path), out, "--quiet"))
    assert (code, out.read_text()) == (2, "my,notes\n1,2\n")
    assert "holds no series of this version" in err
