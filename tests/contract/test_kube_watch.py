"""The Kubernetes client's watches against scripted faults over real sockets.

Fault 4, 10 and 18 of the reliability notes. Silence, gaps, expiry, streams that end too soon, lines that do not decode.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest

from shared.adapters.kube import watch as kube_watch
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.watch import WatchPolicy
from shared.errors import KubeExpired, KubeRejected
from shared.kube.resources import PODS, Bookmark, Deleted, Malformed, Upserted, WatchEvent
from tests.contract.scripted_client import PODS_PATH, client_of
from tests.faults.scripted_api import (
    Answer,
    ScriptedApi,
    answer,
    bookmark,
    drop_reply,
    event,
    failure,
    page,
    pod,
    stream,
)


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
