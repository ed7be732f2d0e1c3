"""``conclave twin capture`` and ``replay`` as real processes, against the twin's API server and a Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from math import nan
from pathlib import Path

import pytest
from aiohttp import web

from lab.traces.workload import stress_pod, thesis_nodes
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.kube.objects import KubePod
from shared.kube.resources import NODES, PODS, Upserted
from shared.ports import BindRequest
from tests.fake_prometheus import FakePrometheus
from tests.patience import PATIENCE_S
from tests.process.twin_process import RunningTwin, running_twin
from twin.model.capture import Capture, decode

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTwin]:
    """Two nodes whose kubelets are played; two pods run, one waits."""
    with running_twin(tmp_path_factory.mktemp("twin"), "--simulate", "--speed", "20") as found:
        asyncio.run(_fill(found.kubeconfig))
        yield found


async def _fill(kubeconfig: Path) -> None:
    client = KubeClient(await KubeConfig.load(kubeconfig))
    try:
        for node in thesis_nodes(2):
            await client.create(NODES, namespace="", body=node)
        for name, kind in (("one", "cpu"), ("two", "disk"), ("waits", "net")):
            await client.create(PODS, namespace="default", body=stress_pod(name, kind, None))
        for name, node in (("one", "worker-1"), ("two", "worker-2")):
            pod = await client.get(PODS, namespace="default", name=name)
            assert pod is not None
            await client.bind(BindRequest("default", name, pod.metadata.uid, "", node, {}))
        for name in ("one", "two"):
            await until(client, name, lambda pod: bool(pod.status.start_time))
    finally:
        await client.close()


async def until(client: KubeClient, name: str, reached: Callable[[KubePod], bool]) -> None:
    """Return once the pod is seen as it should be."""
    listed = await client.list(PODS)
    if any(pod.metadata.name == name and reached(pod) for pod in listed.items):
        return
    async with (
        asyncio.timeout(PATIENCE_S),
        contextlib.aclosing(client.watch(PODS, resource_version=listed.resource_version)) as events,
    ):
        async for event in events:
            if isinstance(event, Upserted) and event.object.metadata.name == name and reached(event.object):
                return


@pytest.fixture
async def prometheus() -> AsyncIterator[FakePrometheus]:
    """Knows worker-1 by its label and worker-2 by its host name; the cpu pod uses 300m besides 100m of the node."""
    one, two = {"instance": "x:9100", "node": "worker-1"}, {"instance": "y:9100"}
    fake = FakePrometheus(
        {
            "node_uname_info": [({"instance": "y:9100", "nodename": "worker-2"}, lambda _: 1.0)],
            "node_cpu_seconds": [(one, lambda _: 400.0), (two, lambda _: 180.0)],
            "node_memory": [(one, lambda _: 5e8), (two, lambda time: nan if int(time) % 2 else 6e8)],
            "node_disk": [(two, lambda _: 5e5), ({"instance": "stranger:9100"}, lambda _: 1.0)],
        }
    )
    async with fake.serving():
        yield fake


async def conclave(*arguments: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a run that does not block this loop."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def read(file: Path) -> Capture:
    return decode(file.read_bytes(), str(file))


async def test_objects_and_series_of_a_cluster_are_captured_and_replayed(twin, prometheus, tmp_path):
    file, token = tmp_path / "twin.json.gz", tmp_path / "token"
    token.write_text("let-me-in\n")
    code, out, err = await conclave(
        "twin", "capture", "--kubeconfig", str(twin.kubeconfig), "--prometheus", prometheus.url, "--out", str(file),
        "--history", "5m", "--prometheus-token-file", str(token),
    )  # fmt: skip
    assert code == 0, err
    assert "2 nodes, 3 pods, 2 nodes with metrics" in out
    assert set(prometheus.tokens) == {"Bearer let-me-in"}
    capture = read(file)
    assert capture.series["worker-1"]["cpu"] == [400.0] * capture.steps
    assert set(capture.series["worker-2"]) == {"cpu", "memory", "disk"}
    assert {pod.pod.metadata.name: pod.pod.spec.node_name for pod in capture.pods} == {
        "one": "worker-1", "two": "worker-2", "waits": None,
    }  # fmt: skip
    assert all(0 < pod.arrived_s <= capture.length_s for pod in capture.pods)

    figures = tmp_path / "replay.json"
    code, out, err = await conclave("twin", "replay", str(file), "--policy", "least-allocated", "--json", str(figures))
    assert code == 0, err
    found = json.loads(figures.read_text())
    assert found["annotated"] == 2
    assert found["fitted"]["by_node"]["worker-1"]["cpu"] < found["requests"]["by_node"]["worker-1"]["cpu"] + 1e-9
    assert "mean over nodes" in out
    assert "under the policy" in out


async def test_a_capture_without_a_prometheus_says_so_and_cannot_be_replayed(twin, tmp_path):
    file = tmp_path / "twin.json.gz"
    code, out, err = await conclave("twin", "capture", "--kubeconfig", str(twin.kubeconfig), "--out", str(file))
    assert code == 0, err
    assert "no metrics" in out
    code, out, err = await conclave("twin", "replay", str(file))
    assert (code, out) == (2, "")
    assert "holds no metrics" in err
    assert len(err.splitlines()) == 1


async def test_what_happens_while_it_watches_is_captured_and_an_interrupt_keeps_it(twin, tmp_path):
    file = tmp_path / "twin.json.gz"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.cli", "twin", "capture", "--kubeconfig", str(twin.kubeconfig),
        "--out", str(file), "--duration", "1h",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_S):
        assert b"watching" in await process.stderr.readline()
        client = KubeClient(await KubeConfig.load(twin.kubeconfig))
        try:
            await client.create(PODS, namespace="default", body=stress_pod("brief", "cpu", 1.0))
            pod = await client.get(PODS, namespace="default", name="brief")
            assert pod is not None
            await client.bind(BindRequest("default", "brief", pod.metadata.uid, "", "worker-1", {}))
            await until(client, "brief", lambda pod: pod.status.phase == "Succeeded")
        finally:
            await client.close()
        while b"watching 4 pods" not in await process.stderr.readline():
            pass
        os.kill(process.pid, signal.SIGINT)
        _, err = await process.communicate()
    assert process.returncode == 0, err
    brief = next(one for one in read(file).pods if one.pod.metadata.name == "brief")
    assert brief.started_s is not None
    assert brief.ended_s is not None
    assert brief.ended_s >= brief.started_s


@pytest.mark.parametrize(
    ("fail", "words"),
    [
        (web.Response(status=401, text="who are you"), "HTTP 401 and no JSON"),
        (web.json_response({"status": "error", "error": "too many samples"}, status=422), "too many samples"),
        (web.json_response({"status": "success", "data": {"resultType": "vector", "result": []}}), "no matrix"),
    ],
    ids=["not let in", "refused", "not a Prometheus"],
)
async def test_a_prometheus_that_does_not_help_is_one_line_and_no_file(twin, tmp_path, fail, words):
    async with FakePrometheus({}, fail=fail).serving() as prometheus:
        code, _, err = await conclave(
            "twin", "capture", "--kubeconfig", str(twin.kubeconfig), "--prometheus", prometheus.url,
            "--out", str(tmp_path / "t"), "--quiet",
        )  # fmt: skip
    assert code == 2
    assert words in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "t").exists()


async def test_a_prometheus_of_another_cluster_is_refused(twin, tmp_path):
    strange = {"node_cpu": [({"instance": "10.9.9.9:9100"}, lambda _: 1.0)]}
    async with FakePrometheus(strange).serving() as prometheus:
        code, _, err = await conclave(
            "twin", "capture", "--kubeconfig", str(twin.kubeconfig), "--prometheus", prometheus.url,
            "--out", str(tmp_path / "t"), "--quiet",
        )  # fmt: skip
    assert code == 2
    assert "10.9.9.9:9100" in err


async def test_a_cluster_without_nodes_is_refused(tmp_path):
    with running_twin(tmp_path) as empty:
        code, _, err = await conclave("twin", "capture", "--kubeconfig", str(empty.kubeconfig), "--out", "o")
    assert code == 2
    assert "no node" in err
