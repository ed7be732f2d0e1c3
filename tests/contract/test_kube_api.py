"""The Kubernetes client's calls against scripted faults over real sockets.

Fault 4, 10 and 18 of the reliability notes. Bindings, lists, reads, patches, credentials.
Its watches: ``test_kube_watch.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import web

from shared.adapters.http.dialing import watched_socket
from shared.adapters.kube.api import KubeClient
from shared.errors import ConfigError, KubeRejected, KubeUnknown
from shared.kube.resources import NODES, PODS
from shared.ports import BindRequest
from tests.certificates import TestCa
from tests.contract.scripted_client import PODS_PATH, client_of
from tests.faults.scripted_api import Answer, ScriptedApi, StaticAccess, answer, drop_reply, failure, hang, page, pod
from tests.patience import PATIENCE_S

BIND_PATH = "/api/v1/namespaces/default/pods/a/binding"
BOUND = {"kind": "Status", "status": "Success", "code": 201}
REQUEST = BindRequest("default", "a", "uid-a", "7", "n1", {"conclave.io/gpu-devices": "0"})


# --- bind -------------------------------------------------------------------------------------------------------


async def test_a_binding_carries_uid_and_resource_version_and_a_status_answer_is_success():
    async with ScriptedApi().on("POST", BIND_PATH, answer(201, BOUND)) as api, client_of(api) as client:
        await client.bind(REQUEST)
    assert api.seen[0].body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "a",
            "namespace": "default",
            "uid": "uid-a",
            "resourceVersion": "7",
            "annotations": {"conclave.io/gpu-devices": "0"},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


@pytest.mark.parametrize(
    ("status", "reason"), [(409, "Conflict"), (404, "NotFound"), (403, "Forbidden"), (422, "Invalid")]
)
async def test_a_4xx_is_refused_with_status_and_reason(status: int, reason: str):
    script = answer(status, failure(status, reason, "because"))
    async with ScriptedApi().on("POST", BIND_PATH, script) as api, client_of(api) as client:
        with pytest.raises(KubeRejected, match="because") as caught:
            await client.bind(REQUEST)
    assert (caught.value.status, caught.value.reason) == (status, reason)
    assert len(api.seen) == 1


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(drop_reply(), id="reply-dropped"),
        pytest.param(hang(), id="no-answer"),
        pytest.param(answer(500, failure(500, "InternalError")), id="500"),
        pytest.param(answer(504, b"<html>bad gateway</html>"), id="504-of-a-proxy"),
    ],
)
async def test_a_binding_whose_outcome_is_unknown_is_said_so_and_never_sent_twice(fault: Answer):
    async with ScriptedApi().on("POST", BIND_PATH, fault) as api, client_of(api) as client:
        with pytest.raises(KubeUnknown):
            await client.bind(REQUEST, timeout_s=1.0)
    assert len(api.seen) == 1


async def test_429_is_retried_after_what_the_server_asked_within_the_deadline():
    busy = answer(429, failure(429, "TooManyRequests"), Retry_After="1")
    async with ScriptedApi().on("GET", PODS_PATH, busy, answer(200, page([], 9))) as api, client_of(api) as client:
        started = asyncio.get_running_loop().time()
        await client.list(PODS, timeout_s=PATIENCE_S)
        assert asyncio.get_running_loop().time() - started >= 1.0
    assert len(api.seen) == 2


async def test_429_of_a_binding_is_told_at_once_so_that_its_node_is_checked_again():
    busy = answer(429, failure(429, "TooManyRequests"), Retry_After="1")
    async with ScriptedApi().on("POST", BIND_PATH, busy, answer(201, BOUND)) as api, client_of(api) as client:
        with pytest.raises(KubeRejected) as caught:
            await client.bind(REQUEST, timeout_s=PATIENCE_S)
    assert (caught.value.status, caught.value.retry_after_s) == (429, 1)
    assert len(api.seen) == 1


async def test_429_beyond_the_deadline_is_refused_at_once_with_the_wait():
    busy = answer(429, failure(429, "TooManyRequests"), Retry_After="60")
    async with ScriptedApi().on("POST", BIND_PATH, busy) as api, client_of(api) as client:
        with pytest.raises(KubeRejected) as caught:
            await client.bind(REQUEST, timeout_s=30)
    assert caught.value.retry_after_s == 60


async def test_error_bodies_are_cut_before_they_reach_a_log():
    secret = answer(403, failure(403, "Forbidden", "x" * 300 + "SECRET"))
    async with ScriptedApi().on("POST", BIND_PATH, secret) as api, client_of(api) as client:
        with pytest.raises(KubeRejected) as caught:
            await client.bind(REQUEST)
    assert "SECRET" not in str(caught.value)


# --- credentials and reachability -------------------------------------------------------------------------------


async def test_401_renews_credentials_once_and_repeats():
    script = (answer(401, failure(401, "Unauthorized")), answer(201, BOUND))
    async with ScriptedApi().on("POST", BIND_PATH, *script) as api, client_of(api) as client:
        await client.bind(REQUEST)
    assert [seen.headers["Authorization"] for seen in api.seen] == ["Bearer token-0", "Bearer token-1"]


async def test_401_for_ever_is_refused_not_looped():
    script = answer(401, failure(401, "Unauthorized"))
    async with ScriptedApi().on("POST", BIND_PATH, script) as api, client_of(api) as client:
        with pytest.raises(KubeRejected):
            await client.bind(REQUEST)
    assert len(api.seen) == 2


async def test_a_rotated_ca_is_read_again_after_a_failed_handshake(tmp_path: Path):
    _, trusting_old = TestCa().contexts(tmp_path, "localhost")
    serving, trusting_new = TestCa().contexts(tmp_path, "localhost")
    contexts = [trusting_old, trusting_new]
    async with ScriptedApi(tls=serving).on("POST", BIND_PATH, answer(201, BOUND)) as api:
        access = StaticAccess(api.url, tls=contexts)
        async with client_of(api, access=access) as client:
            await client.bind(REQUEST)
    assert access.renewals == 1


async def test_a_server_that_does_not_answer_is_a_config_error_naming_it():
    async with ScriptedApi() as api:
        url = api.url
    async with client_of(api) as client:
        with pytest.raises(ConfigError, match=url) as caught:
            await client.check()
    assert "\n" not in str(caught.value)


async def test_a_server_that_is_no_kubernetes_is_a_config_error():
    async with ScriptedApi().on("GET", "/version", answer(200, b"<html>")) as api, client_of(api) as client:
        with pytest.raises(ConfigError, match="is this a Kubernetes API server"):
            await client.check()


# --- list -------------------------------------------------------------------------------------------------------


async def test_a_list_is_read_page_by_page_at_one_revision():
    script = (answer(200, page([pod("a", 1)], 9, "t1")), answer(200, page([pod("b", 2)], 9)))
    async with ScriptedApi().on("GET", PODS_PATH, *script) as api, client_of(api, page_size=1) as client:
        listed = await client.list(PODS)
    assert ([item.metadata.name for item in listed.items], listed.resource_version) == (["a", "b"], "9")
    assert [seen.query for seen in api.seen] == [{"limit": "1"}, {"limit": "1", "continue": "t1"}]


async def test_the_next_page_is_asked_for_while_the_last_one_is_taken_in():
    asked = asyncio.Event()

    async def second(request: web.Request) -> web.StreamResponse:
        asked.set()
        return await answer(200, page([pod("b", 2)], 9))(request)

    script = (answer(200, page([pod("a", 1)], 9, "t1")), second)
    async with (
        ScriptedApi().on("GET", PODS_PATH, *script) as api,
        client_of(api) as client,
        contextlib.aclosing(client.pages(PODS)) as pages,
    ):
        first = await anext(pages)
        await asyncio.wait_for(asked.wait(), PATIENCE_S)  # nobody has asked ``pages`` for another one yet
        rest = [one async for one in pages]
    assert [item.metadata.name for listed in (first, *rest) for item in listed.items] == ["a", "b"]


async def test_pages_that_are_left_early_leave_no_request_behind():
    script = (answer(200, page([pod("a", 1)], 9, "t1")), hang())
    async with ScriptedApi().on("GET", PODS_PATH, *script) as api, client_of(api) as client:
        async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(client.pages(PODS)) as pages:
            await anext(pages)
        assert not [task for task in asyncio.all_tasks() if "KubeClient._page" in repr(task.get_coro())]


async def test_an_expired_continue_token_starts_the_list_anew_and_at_last_without_pages():
    expired = answer(410, failure(410, "Expired"))
    first = answer(200, page([pod("a", 1)], 9, "t1"))
    script = (first, expired, first, expired, answer(200, page([pod("a", 1), pod("b", 2)], 12)))
    async with ScriptedApi().on("GET", PODS_PATH, *script) as api, client_of(api) as client:
        listed = await client.list(PODS)
    assert ([item.metadata.name for item in listed.items], listed.resource_version) == (["a", "b"], "12")
    assert "limit" not in api.seen[-1].query


async def test_one_object_that_does_not_decode_is_named_and_the_others_stay():
    bad = pod("bad", 2) | {"spec": {"containers": 7}}
    script = answer(200, page([pod("a", 1), bad, pod("c", 3)], 9))
    async with ScriptedApi().on("GET", PODS_PATH, script) as api, client_of(api) as client:
        listed = await client.list(PODS)
    assert [item.metadata.name for item in listed.items] == ["a", "c"]
    (malformed,) = listed.malformed
    assert (malformed.namespace, malformed.name, malformed.uid) == ("default", "bad", "uid-bad")
    assert "containers" in malformed.error


async def test_a_list_that_is_cut_off_is_unknown_never_shorter():
    cut = b'{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}}'
    async with ScriptedApi().on("GET", PODS_PATH, answer(200, cut)) as api, client_of(api) as client:
        with pytest.raises(KubeUnknown, match="no list"):
            await client.list(PODS)


async def test_the_deadline_of_a_list_is_one_over_all_its_pages():
    script = (answer(200, page([pod("a", 1)], 9, "t1")), hang())
    async with ScriptedApi().on("GET", PODS_PATH, *script) as api, client_of(api) as client:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(KubeUnknown):
                await client.list(PODS, timeout_s=0.3)


# --- other calls ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../../../nodes/n1", "..", ".", "a/../b", "a/status", "a?watch=1", "a%2F..", "a#b"])
async def test_a_name_from_outside_never_leads_to_another_object(name: str):
    """Callers of the admin API say which pod to explain: our rights are not theirs."""
    escaped = quote(name, safe="")
    for namespace, its_name, path in (("default", name, f"default/pods/{escaped}"), (name, "a", f"{escaped}/pods/a")):
        async with ScriptedApi() as api, client_of(api) as client:
            assert await client.get(PODS, namespace=namespace, name=its_name) is None
            with contextlib.suppress(KubeRejected):
                await client.delete(PODS, namespace=namespace, name=its_name)
            asked = [] if name in (".", "..") else [f"/api/v1/namespaces/{path}"] * 2
            assert [(seen.raw, seen.query) for seen in api.seen] == [(path, {}) for path in asked]


async def test_get_tells_absent_from_failed():
    path = "/api/v1/nodes/n1"
    script = (answer(404, failure(404, "NotFound")), answer(500, failure(500, "InternalError")))
    async with ScriptedApi().on("GET", path, *script) as api, client_of(api) as client:
        assert await client.get(NODES, namespace="", name="n1") is None
        with pytest.raises(KubeUnknown):
            await client.get(NODES, namespace="", name="n1")


@pytest.mark.parametrize(("strategy", "media"), [("strategic", "strategic-merge-patch"), ("merge", "merge-patch")])
async def test_a_status_patch_goes_to_the_subresource_with_its_media_type(strategy: str, media: str):
    path = "/api/v1/namespaces/default/pods/a/status"
    patch = {"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}
    async with ScriptedApi().on("PATCH", path, answer(200, pod("a", 8))) as api, client_of(api) as client:
        await client.patch(PODS, namespace="default", name="a", patch=patch, subresource="status", strategy=strategy)
    assert api.seen[0].headers["Content-Type"] == f"application/{media}+json"
    assert api.seen[0].body == patch


async def test_a_delete_carries_the_uid_precondition():
    path = "/api/v1/namespaces/default/pods/a"
    async with ScriptedApi().on("DELETE", path, answer(200, pod("a", 8))) as api, client_of(api) as client:
        await client.delete(PODS, namespace="default", name="a", uid="uid-a")
    assert api.seen[0].body["preconditions"] == {"uid": "uid-a"}


def test_the_kernel_watches_over_our_connections():
    made = watched_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1)))
    with made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, count = (
            made.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
    assert idle + interval * count <= 30


async def test_a_closed_client_refuses_to_open_connections_again():
    async with ScriptedApi().on("POST", BIND_PATH, answer(201, BOUND)) as api:
        client = KubeClient(StaticAccess(api.url))
        await client.close()
        with pytest.raises(KubeUnknown, match="closed"):
            await client.bind(REQUEST)
