"""The Kubernetes client and the reflector against the twin's API server as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import select
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from services.coordinator.core.instructions import EmitEvent
from services.coordinator.io.kube_writes import KubeWrites
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.config import KubeConfig
from shared.adapters.kube.watch import WatchPolicy
from shared.errors import KubeRejected, KubeUnknown
from shared.kube.objects import PartialObject
from shared.kube.pod_groups import JOBS
from shared.kube.resources import EVENTS, NODES, PODS, DeletedObject, Resource, Upserted
from shared.ports import BindRequest
from shared.runtime.kube.reflector import Reflector, Synced
from shared.runtime.kube.unscheduled import FIRST, NOTHING, mark_unscheduled
from shared.runtime.process.service import boottime
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-for-this-test-only"


@contextlib.contextmanager
def running_twin(file: Path, port: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A twin that serves; its kubeconfig is in ``file``."""
    arguments = ["--port", str(port), "--token", TOKEN, "--kubeconfig-out", str(file)]
    process = subprocess.Popen([sys.executable, "-m", "twin", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        assert ready, "the twin did not start within 60 s"
        line = process.stdout.readline()
        assert line.startswith("serving "), line
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        process.stdout.close()


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    file = tmp_path_factory.mktemp("twin") / "kubeconfig"
    with running_twin(file):
        yield file


@pytest.fixture
async def client(kubeconfig: Path) -> AsyncIterator[KubeClient]:
    policy = WatchPolicy(backoff_s=0.01, max_backoff_s=0.1)
    client = KubeClient(await KubeConfig.load(kubeconfig), policy=policy, page_size=2)
    try:
        yield client
    finally:
        await inject(client)
        await client.close()


async def inject(client: KubeClient, *rules: dict[str, Any]) -> None:
    """Replace the twin's fault plan."""
    access = client._http._access
    async with (
        aiohttp.ClientSession(headers=await access.headers()) as raw,
        raw.put(f"{access.base_url}/twin/faults", json={"rules": list(rules)}) as response,
    ):
        assert response.status == 200, await response.text()


async def create_pod(client: KubeClient, name: str) -> BindRequest:
    """A pending pod, and the Binding that would place it on ``n1``."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": "conclave", "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}]},
    }
    await client.create(PODS, namespace="default", body=body)
    found = await client.get(PODS, namespace="default", name=name)
    assert found is not None
    return BindRequest("default", name, found.metadata.uid, found.metadata.resource_version, "n1")


async def node_of(client: KubeClient, name: str) -> str | None:
    found = await client.get(PODS, namespace="default", name=name)
    assert found is not None
    return found.spec.node_name


async def test_the_server_tells_its_version(client: KubeClient):
    assert (await client.check()).startswith("v1.")


async def test_a_pod_is_bound_once_and_the_second_binding_is_refused(client: KubeClient):
    request = await create_pod(client, "once")
    await client.bind(request)
    assert await node_of(client, "once") == "n1"
    with pytest.raises(KubeRejected) as caught:
        await client.bind(request)
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")


@pytest.mark.parametrize("wrong", ["uid", "resource_version"])
async def test_a_binding_of_a_stale_view_is_refused(client: KubeClient, wrong: str):
    request = await create_pod(client, f"stale-{wrong.replace('_', '-')}")
    stale = {"uid": "00000000-0000-0000-0000-000000000001", "resource_version": "1"}[wrong]
    fields = {name: getattr(request, name) for name in ("namespace", "name", "uid", "resource_version", "node_name")}
    with pytest.raises(KubeRejected) as caught:
        await client.bind(BindRequest(**{**fields, wrong: stale}))
    assert caught.value.status == 409
    assert not await node_of(client, request.name)


async def test_a_status_patch_fences_a_late_binding(client: KubeClient):
    request = await create_pod(client, "fenced")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "withdrawn"}
    patch = {"status": {"conditions": [condition]}}
    await client.patch(PODS, namespace="default", name="fenced", patch=patch, subresource="status")
    with pytest.raises(KubeRejected):
        await client.bind(request)


async def test_without_the_resource_version_the_late_binding_would_go_through(client: KubeClient):
    """Ablation of the test above: the precondition is what fences."""
    request = await create_pod(client, "unfenced")
    patch = {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}
    await client.patch(PODS, namespace="default", name="unfenced", patch=patch, subresource="status")
    await client.bind(BindRequest("default", "unfenced", request.uid, "", "n1"))
    assert await node_of(client, "unfenced") == "n1"


async def test_a_dropped_reply_is_unknown_and_the_read_back_finds_the_binding(client: KubeClient):
    request = await create_pod(client, "dropped")
    await inject(client, {"kind": "drop", "method": "POST", "path": "/dropped/binding", "count": 1})
    with pytest.raises(KubeUnknown):
        await client.bind(request)
    assert await node_of(client, "dropped") == "n1"


async def test_a_throttled_binding_is_told_at_once_and_may_be_sent_again(client: KubeClient):
    """By the time it may be sent again the node may have changed: who binds looks at it first."""
    request = await create_pod(client, "throttled")
    await inject(client, {"kind": "throttle", "method": "POST", "path": "/binding", "count": 1, "retry_after_s": 1})
    with pytest.raises(KubeRejected) as refused:
        await client.bind(request, timeout_s=10)
    assert (refused.value.status, refused.value.retry_after_s) == (429, 1.0)
    assert not await node_of(client, "throttled")
    await client.bind(request, timeout_s=10)
    assert await node_of(client, "throttled") == "n1"


async def test_a_500_is_unknown_and_had_no_effect_here(client: KubeClient):
    request = await create_pod(client, "failed")
    await inject(client, {"kind": "error", "method": "POST", "path": "/binding", "count": 1})
    with pytest.raises(KubeUnknown):
        await client.bind(request)
    assert not await node_of(client, "failed")


async def test_a_delete_needs_the_right_uid(client: KubeClient):
    request = await create_pod(client, "deleted")
    with pytest.raises(KubeRejected):
        await client.delete(PODS, namespace="default", name="deleted", uid="00000000-0000-0000-0000-000000000001")
    await client.delete(PODS, namespace="default", name="deleted", uid=request.uid)
    assert await client.get(PODS, namespace="default", name="deleted") is None


async def test_an_event_can_be_told(client: KubeClient):
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "told.1"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "conclave.io/scheduler",
        "reportingInstance": "c-0",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "note": "bound",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "told"},
    }
    await client.create(EVENTS, namespace="default", body=body)


async def test_a_list_of_many_pages_is_whole(client: KubeClient):
    for number in range(5):
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"page-{number}"}}
        await client.create(NODES, namespace="", body=body)
    listed = await client.list(NODES)
    assert {f"page-{number}" for number in range(5)} <= {item.metadata.name for item in listed.items}


async def test_the_reflector_sees_every_change_and_a_throttled_watch_loses_none(client: KubeClient):
    before = await create_pod(client, "before")
    await inject(client, {"kind": "throttle", "method": "GET", "path": "/pods", "count": 2, "retry_after_s": 0})
    reflector = Reflector(client, PODS, backoff_s=0.01)
    seen: list[str] = []
    async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(reflector.batches()) as batches:
        async for batch in batches:
            for item in batch:
                if isinstance(item, Synced):
                    after = await create_pod(client, "after")
                    await client.bind(after)
                    await client.delete(PODS, namespace="default", name="before", uid=before.uid)
                elif isinstance(item, Upserted) and item.object.metadata.name in ("before", "after"):
                    place = "ending" if item.object.metadata.deletion_timestamp else item.object.spec.node_name or "-"
                    seen.append(f"{item.object.metadata.name}@{place}")
                elif isinstance(item, DeletedObject):
                    seen.append(f"{item.object.metadata.name} deleted")
            if "before deleted" in seen:
                break
    assert seen == ["before@-", "after@-", "after@n1", "before@ending", "before deleted"]


async def test_a_server_killed_and_back_without_its_memory_is_told_as_deletions(tmp_path: Path):
    file = tmp_path / "kubeconfig"
    policy = WatchPolicy(backoff_s=0.05, max_backoff_s=0.2)
    gone: set[str] = set()
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(running_twin(file))
        access = await KubeConfig.load(file)
        client = KubeClient(access, policy=policy)
        for number in range(20):
            await create_pod(client, f"lost-{number}")
        reflector = Reflector(client, PODS, backoff_s=0.05)
        async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(reflector.batches()) as batches:
            async for batch in batches:
                gone |= {item.object.metadata.name for item in batch if isinstance(item, DeletedObject)}
                if any(isinstance(item, Synced) for item in batch):
                    await create_pod(client, "live")
                if any(isinstance(item, Upserted) and item.object.metadata.name == "live" for item in batch):
                    first.kill()  # the watch is open now
                    first.wait()
                    stack.enter_context(running_twin(file, port=int(access.base_url.rpartition(":")[2])))
                if len(gone) == 21:
                    break
        await client.close()
    assert gone == {"live", *(f"lost-{number}" for number in range(20))}
    assert reflector.relists == 2


# --- conditions and events of pods that wait ------------------------------------------------------------------------


async def shown(client: KubeClient, name: str) -> list[tuple[str, str | None]]:
    """Status and message of the pod's PodScheduled conditions."""
    found = await client.get(PODS, namespace="default", name=name)
    assert found is not None
    return [(c.status, c.message) for c in found.status.conditions or () if c.type == "PodScheduled"]


async def test_a_pod_is_told_why_it_waits_until_it_is_bound_and_not_after(client: KubeClient):
    request = await create_pod(client, "told")
    named = {"namespace": "default", "name": "told", "uid": request.uid, "reason": "Unschedulable"}
    assert await mark_unscheduled(client, message="one", shown=NOTHING, nominated="n1", **named)
    assert await mark_unscheduled(client, message="two", shown=FIRST, nominated="", **named)
    assert await shown(client, "told") == [("False", "two")]
    found = await client.get(PODS, namespace="default", name="told")
    assert found is not None
    assert not found.status.nominated_node_name
    await client.bind(BindRequest("default", "told", request.uid, found.metadata.resource_version, "n1"))
    for expected in (NOTHING, FIRST):
        assert not await mark_unscheduled(client, message="late", shown=expected, **named)
    assert [status for status, _ in await shown(client, "told")] == ["True"]


async def test_an_event_again_continues_its_series(client: KubeClient):
    request = await create_pod(client, "again")
    tasks: list[asyncio.Task[None]] = []
    writes = KubeWrites(
        client, lambda event: None, controller="conclave", instance="c0", clock=boottime,
        start=lambda call: tasks.append(asyncio.create_task(call)), may_act=lambda: True, crowded=lambda: False,
    )  # fmt: skip
    for note in ("0/1 nodes", "0/2 nodes"):
        writes.submit(EmitEvent(request.uid, "default", "again", "", "Warning", "FailedScheduling", "Scheduling", note))
        await asyncio.gather(*tasks)
    events = await client.list(EVENTS)
    assert writes.events_written == 2
    assert writes.recorder.lost == 0
    assert len([event for event in events.items if event.metadata.name.startswith("again.")]) == 1


async def test_whether_a_kind_may_be_listed_is_known_from_one_request(client: KubeClient) -> None:
    absent = Resource("Absent", "example.com", "v1", "absents", True, PartialObject)
    assert await client.may_list(JOBS)
    assert not await client.may_list(absent)
    await inject(client, {"kind": "forbid", "method": "GET", "path": "/jobs$"})
    assert not await client.may_list(JOBS)


async def test_a_server_that_cannot_say_refuses_nothing(client: KubeClient) -> None:
    await inject(client, {"kind": "error", "method": "GET", "path": "/jobs$"})
    assert await client.may_list(JOBS)
