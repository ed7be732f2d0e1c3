"""The Kubernetes client against scripted faults over real sockets (fault 4, 10 and 18 of the reliability notes)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import trustme

from shared.adapters import kube_watch
from shared.adapters.kube_api import KubeClient
from shared.adapters.kube_transport import watched_socket
from shared.adapters.kube_watch import WatchPolicy
from shared.errors import ConfigError, KubeExpired, KubeRejected, KubeUnknown
from shared.kube.resources import NODES, PODS, Bookmark, Deleted, Malformed, Upserted, WatchEvent
from shared.ports import BindRequest
from tests.faults.scripted_api import (
    Answer,
    ScriptedApi,
    StaticAccess,
    answer,
    bookmark,
    drop_reply,
    event,
    failure,
    hang,
    page,
    pod,
    stream,
)

PODS_PATH = "/api/v1/pods"
BIND_PATH = "/api/v1/namespaces/default/pods/a/binding"
BOUND = {"kind": "Status", "status": "Success", "code": 201}
FAST = WatchPolicy(backoff_s=0.001, max_backoff_s=0.01, silence_s=10.0)
REQUEST = BindRequest("default", "a", "uid-a", "7", "n1", {"conclave.io/gpu-devices": "0"})


@contextlib.asynccontextmanager
async def client_of(
    api: ScriptedApi, *, policy: WatchPolicy = FAST, access: StaticAccess | None = None, **options: Any
):
    client = KubeClient(access or StaticAccess(api.url), policy=policy, **options)
    try:
        yield client
    finally:
        await client.close()


async def collect(client: KubeClient, resource_version: str, number: int) -> list[WatchEvent[Any]]:
    """The first ``number`` events of a pod watch."""
    found: list[WatchEvent[Any]] = []
    async with asyncio.timeout(20), contextlib.aclosing(client.watch(PODS, resource_version=resource_version)) as watch:
        async for item in watch:
            found.append(item)
            if len(found) == number:
                return found
    raise AssertionError


def names(events: list[WatchEvent[Any]]) -> list[str]:
    return [item.object.metadata.name for item in events if isinstance(item, Upserted | Deleted)]


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
            await client.bind(REQUEST, timeout_s=0.3)
    assert len(api.seen) == 1


async def test_429_is_retried_after_what_the_server_asked_within_the_deadline():
    busy = answer(429, failure(429, "TooManyRequests"), Retry_After="1")
    async with ScriptedApi().on("GET", PODS_PATH, busy, answer(200, page([], 9))) as api, client_of(api) as client:
        started = asyncio.get_running_loop().time()
        await client.list(PODS, timeout_s=5)
        assert asyncio.get_running_loop().time() - started >= 1.0
    assert len(api.seen) == 2


async def test_429_of_a_binding_is_told_at_once_so_that_its_node_is_checked_again():
    busy = answer(429, failure(429, "TooManyRequests"), Retry_After="1")
    async with ScriptedApi().on("POST", BIND_PATH, busy, answer(201, BOUND)) as api, client_of(api) as client:
        with pytest.raises(KubeRejected) as caught:
            await client.bind(REQUEST, timeout_s=5)
    assert (caught.value.status, caught.value.retry_after_s) == (429, 1)
    assert len(api.seen) == 1


async def test_429_beyond_the_deadline_is_refused_at_once_with_the_wait():
    busy = answer(429, failure(429, "TooManyRequests"), Retry_After="60")
    async with ScriptedApi().on("POST", BIND_PATH, busy) as api, client_of(api) as client:
        with pytest.raises(KubeRejected) as caught:
            await client.bind(REQUEST, timeout_s=0.5)
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


async def test_a_rotated_ca_is_read_again_after_a_failed_handshake():
    old, new = trustme.CA(), trustme.CA()
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    new.issue_cert("localhost").configure_cert(serving)
    contexts = [ssl.create_default_context(), ssl.create_default_context()]
    old.configure_trust(contexts[0])
    new.configure_trust(contexts[1])
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
        async with asyncio.timeout(2):
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


# --- watch ------------------------------------------------------------------------------------------------------


async def test_events_of_one_read_come_as_one_batch():
    lines = b"".join(
        b'{"type":"ADDED","object":{"metadata":{"name":"p%d","resourceVersion":"%d"}}}\n' % (i, i) for i in range(100)
    )
    async with (
        ScriptedApi().on("WATCH", PODS_PATH, stream(lines, end="silence")) as api,
        client_of(api) as client,
        contextlib.aclosing(client.watch_batches(PODS, resource_version="0")) as watch,
    ):
        batch = await anext(watch)
    assert len(batch) == 100


async def test_a_watch_asks_for_bookmarks_and_a_spread_timeout():
    script = stream(event("ADDED", pod("a", 5)), end="silence")
    async with ScriptedApi().on("WATCH", PODS_PATH, script) as api, client_of(api) as client:
        await collect(client, "4", 1)
    query = api.seen[0].query
    assert query["allowWatchBookmarks"] == "true"
    assert 290 <= int(query["timeoutSeconds"]) <= 590


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_after_a_stream_ends_the_next_one_starts_at_the_last_seen_revision(end: str):
    script = (
        stream(event("ADDED", pod("a", 5)), event("MODIFIED", pod("a", 6)), end=end),
        stream(event("DELETED", pod("a", 8)), end="silence"),
    )
    async with ScriptedApi().on("WATCH", PODS_PATH, *script) as api, client_of(api) as client:
        events = await collect(client, "4", 3)
    assert [type(item) for item in events] == [Upserted, Upserted, Deleted]
    assert [query["resourceVersion"] for query in api.queries(watch="true")][:2] == ["4", "6"]


async def test_a_bookmark_moves_the_position():
    script = (stream(bookmark(50)), stream(event("ADDED", pod("a", 51)), end="silence"))
    async with ScriptedApi().on("WATCH", PODS_PATH, *script) as api, client_of(api) as client:
        events = await collect(client, "4", 2)
    assert events[0] == Bookmark("50")
    assert api.queries(watch="true")[1]["resourceVersion"] == "50"


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(answer(410, failure(410, "Expired")), id="answer"),
        pytest.param(stream(event("ERROR", failure(410, "Expired", "too old"))), id="error-event"),
    ],
)
async def test_410_in_either_form_means_list_again(gone: Answer):
    async with ScriptedApi().on("WATCH", PODS_PATH, gone) as api, client_of(api) as client:
        with pytest.raises(KubeExpired):
            await collect(client, "4", 1)
    assert len(api.seen) == 1


async def test_events_before_an_expiry_are_delivered_first():
    script = stream(event("ADDED", pod("a", 5)), event("ERROR", failure(410, "Expired")))
    async with ScriptedApi().on("WATCH", PODS_PATH, script) as api, client_of(api) as client:
        assert names(await collect(client, "4", 1)) == ["a"]


async def test_a_silent_stream_is_left_and_resumed():
    script = (
        stream(event("ADDED", pod("a", 5)), end="silence"),
        stream(event("ADDED", pod("b", 6)), end="silence"),
    )
    on = WatchPolicy(backoff_s=0.001, silence_s=0.3)
    async with ScriptedApi().on("WATCH", PODS_PATH, *script) as api, client_of(api, policy=on) as client:
        assert names(await collect(client, "4", 2)) == ["a", "b"]


async def test_without_the_silence_watchdog_a_half_open_watch_stays_blind():
    """The ablation of the test above: the checker sees the fault when the safeguard is off."""
    script = (
        stream(event("ADDED", pod("a", 5)), end="silence"),
        stream(event("ADDED", pod("b", 6)), end="silence"),
    )
    off = WatchPolicy(backoff_s=0.001, silence_s=3600.0)
    async with ScriptedApi().on("WATCH", PODS_PATH, *script) as api, client_of(api, policy=off) as client:
        watch = client.watch(PODS, resource_version="4")
        await anext(watch)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(watch), 1.0)
        await watch.aclose()


async def test_a_server_restored_from_an_older_backup_means_list_again():
    """A watch from a revision that has not happened yet is silent, not refused (transcript ``watch-future``)."""
    broken = stream(event("ADDED", pod("a", 5000)), end="abort")
    api = ScriptedApi().on("WATCH", PODS_PATH, broken, stream(end="silence"))
    api.on("GET", PODS_PATH, answer(200, page([], 31)))
    async with api, client_of(api) as client:
        with pytest.raises(KubeExpired, match="went back"):
            await collect(client, "4", 2)
    assert len(api.queries(watch="true")) == 1


async def test_without_the_look_at_the_servers_revision_the_watch_would_stay_silent(monkeypatch: pytest.MonkeyPatch):
    """Ablation of the test above."""
    monkeypatch.setattr(kube_watch, "went_back", lambda revision, position: False)
    broken = stream(event("ADDED", pod("a", 5000)), end="abort")
    api = ScriptedApi().on("WATCH", PODS_PATH, broken, stream(end="silence"))
    api.on("GET", PODS_PATH, answer(200, page([], 31)))
    async with api, client_of(api) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(collect(client, "4", 2), 1.0)


async def test_a_line_cut_in_two_by_the_connection_is_fetched_again():
    script = (
        stream(event("ADDED", pod("a", 5)), b'{"type":"ADDED","object":{"meta', end="abort"),
        stream(event("ADDED", pod("b", 6)), end="silence"),
    )
    async with ScriptedApi().on("WATCH", PODS_PATH, *script) as api, client_of(api) as client:
        assert names(await collect(client, "4", 2)) == ["a", "b"]
    assert api.queries(watch="true")[1]["resourceVersion"] == "5"


async def test_a_line_that_never_decodes_leads_to_a_fresh_list_not_to_a_loop():
    script = stream(b'{"type": nonsense}\n')
    async with ScriptedApi().on("WATCH", PODS_PATH, script) as api, client_of(api) as client:
        with pytest.raises(KubeExpired, match="broke 3 times"):
            await collect(client, "4", 1)
    assert len(api.queries(watch="true")) == 3


async def test_without_counting_stuck_streams_a_bad_line_is_fetched_for_ever(monkeypatch: pytest.MonkeyPatch):
    """Ablation of the test above."""
    monkeypatch.setattr(kube_watch, "STUCK_STREAMS", 1_000_000)
    script = stream(b'{"type": nonsense}\n')
    async with ScriptedApi().on("WATCH", PODS_PATH, script) as api, client_of(api) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(client.watch(PODS, resource_version="4")), 0.5)
    assert len(api.seen) > 3


async def test_a_line_without_end_is_not_kept_without_bound():
    policy = WatchPolicy(backoff_s=0.001, max_backoff_s=0.01, max_line_bytes=100_000)
    script = stream(*[b"x" * 50_000] * 4)
    async with ScriptedApi().on("WATCH", PODS_PATH, script) as api, client_of(api, policy=policy) as client:
        with pytest.raises(KubeExpired, match="over 100000 bytes"):
            await collect(client, "4", 1)


async def test_a_huge_event_in_many_chunks_arrives_whole():
    body = pod("a", 5)
    body["metadata"]["annotations"] = {"note": "y" * 3_000_000}
    line = msgspec.json.encode(event("ADDED", body)) + b"\n"
    chunks = [line[start : start + 60_000] for start in range(0, len(line), 60_000)]
    async with ScriptedApi().on("WATCH", PODS_PATH, stream(*chunks, end="silence")) as api, client_of(api) as client:
        assert names(await collect(client, "4", 1)) == ["a"]


async def test_an_event_that_does_not_decode_is_told_and_the_watch_goes_on():
    bad = pod("bad", 5) | {"spec": {"containers": "all"}}
    script = stream(event("ADDED", bad), event("ADDED", pod("b", 6)), end="silence")
    async with ScriptedApi().on("WATCH", PODS_PATH, script) as api, client_of(api) as client:
        first, second = await collect(client, "4", 2)
    assert isinstance(first, Malformed)
    assert (first.object.name, first.object.uid, first.deleted) == ("bad", "uid-bad", False)
    assert isinstance(second, Upserted)


async def test_500s_and_refused_connections_are_waited_out_at_the_same_position():
    script = (
        answer(500, failure(500, "InternalError")),
        drop_reply(),
        answer(429, failure(429, "TooManyRequests"), Retry_After="0"),
        answer(401, failure(401, "Unauthorized")),
        stream(event("ADDED", pod("a", 5)), end="silence"),
    )
    async with ScriptedApi().on("WATCH", PODS_PATH, *script) as api, client_of(api) as client:
        assert names(await collect(client, "4", 1)) == ["a"]
    assert {query["resourceVersion"] for query in api.queries(watch="true")} == {"4"}


async def test_a_watch_that_is_forbidden_is_refused_to_the_caller():
    script = answer(403, failure(403, "Forbidden", "pods is forbidden"))
    async with ScriptedApi().on("WATCH", PODS_PATH, script) as api, client_of(api) as client:
        with pytest.raises(KubeRejected, match="forbidden"):
            await collect(client, "4", 1)


async def test_a_server_that_ends_every_stream_at_once_does_not_make_us_spin():
    policy = WatchPolicy(backoff_s=0.2, max_backoff_s=10.0)
    async with ScriptedApi().on("WATCH", PODS_PATH, stream()) as api, client_of(api, policy=policy) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(client.watch(PODS, resource_version="4")), 1.0)
    assert len(api.seen) <= 5


async def test_without_the_spin_guard_it_would(monkeypatch: pytest.MonkeyPatch):
    """Ablation of the test above."""
    monkeypatch.setattr(kube_watch, "SPIN_GUARD_S", 0.0)
    policy = WatchPolicy(backoff_s=0.2, max_backoff_s=10.0)
    async with ScriptedApi().on("WATCH", PODS_PATH, stream()) as api, client_of(api, policy=policy) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(client.watch(PODS, resource_version="4")), 0.5)
    assert len(api.seen) > 5
