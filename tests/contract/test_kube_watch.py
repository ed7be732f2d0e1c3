"""The Kubernetes client's watches against scripted faults over real sockets.

Fault 4, 10 and 18 of the reliability notes. Silence, gaps, expiry, streams that end too soon, lines that do not decode.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from aiohttp import web

from shared.adapters.kube import signs
from shared.adapters.kube import watch as kube_watch
from shared.adapters.kube.api import KubeClient
from shared.adapters.kube.signs import LENGTH_S, WatchSigns
from shared.adapters.kube.watch import WatchPolicy
from shared.errors import KubeExpired, KubeRejected
from shared.kube.resources import NODES, PODS, Bookmark, DeletedObject, Malformed, Upserted, WatchEvent
from tests.contract.scripted_client import PODS_PATH, REVISION_PATH, client_of
from tests.faults.scripted_api import (
    Answer,
    ScriptedApi,
    StaticAccess,
    answer,
    bookmark,
    drop_reply,
    event,
    failure,
    page,
    pod,
    stream,
)
from tests.faults.tcp_proxy import TcpProxy
from tests.patience import PATIENCE_S


async def collect(client: KubeClient, resource_version: str, number: int) -> list[WatchEvent[Any]]:
    """The first ``number`` events of a pod watch."""
    found: list[WatchEvent[Any]] = []
    async with (
        asyncio.timeout(PATIENCE_S),
        contextlib.aclosing(client.watch(PODS, resource_version=resource_version)) as watch,
    ):
        async for item in watch:
            found.append(item)
            if len(found) == number:
                return found
    raise AssertionError


async def asked_more_than(count: int, api: ScriptedApi, client: KubeClient) -> None:
    """Return once a watch that tells nothing has asked so often."""
    watching = asyncio.ensure_future(anext(client.watch(PODS, resource_version="4")))
    async with asyncio.timeout(PATIENCE_S):
        while len(api.seen) <= count:  # noqa: ASYNC110  the server counts, and tells nobody
            await asyncio.sleep(0.01)
    assert not watching.done()
    watching.cancel()


def soon() -> WatchSigns:
    """Streams end after a second."""
    return WatchSigns(most_s=1, grace_s=0.3)


def names(events: list[WatchEvent[Any]]) -> list[str]:
    return [item.object.metadata.name for item in events if isinstance(item, Upserted | DeletedObject)]


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


async def test_a_watch_asks_for_bookmarks_and_for_an_end_that_is_soon_due():
    script = stream(event("ADDED", pod("a", 5)), end="silence")
    async with ScriptedApi().on("WATCH", PODS_PATH, script) as api, client_of(api) as client:
        await collect(client, "4", 1)
    query = api.seen[0].query
    assert query["allowWatchBookmarks"] == "true"
    assert 8 <= int(query["timeoutSeconds"]) <= LENGTH_S


async def test_a_server_that_asks_to_be_asked_less_is_asked_for_long_streams():
    script = (
        answer(429, failure(429, "TooManyRequests"), Retry_After="0"),
        stream(event("ADDED", pod("a", 5)), end="silence"),
    )
    async with ScriptedApi().on("WATCH", PODS_PATH, *script) as api, client_of(api) as client:
        await collect(client, "4", 1)
    first, second = api.queries(watch="true")
    assert int(first["timeoutSeconds"]) <= LENGTH_S
    assert 290 <= int(second["timeoutSeconds"]) <= 590


async def test_a_stream_that_ended_when_it_should_leaves_its_connection_to_the_next():
    ports: list[int] = []

    async def give(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        return await stream(event("ADDED", pod("a", 4 + len(ports))))(request)

    async with ScriptedApi().on("WATCH", PODS_PATH, give) as api, client_of(api) as client:
        await collect(client, "4", 3)
    assert len(ports) >= 3
    assert len(set(ports)) == 1


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_after_a_stream_ends_the_next_one_starts_at_the_last_seen_revision(end: str):
    script = (
        stream(event("ADDED", pod("a", 5)), event("MODIFIED", pod("a", 6)), end=end),
        stream(event("DELETED", pod("a", 8)), end="silence"),
    )
    async with ScriptedApi().on("WATCH", PODS_PATH, *script) as api, client_of(api) as client:
        events = await collect(client, "4", 3)
    assert [type(item) for item in events] == [Upserted, Upserted, DeletedObject]
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


async def test_a_kind_that_went_while_its_watch_expired_is_not_told_as_silent():
    gone = answer(410, failure(410, "Expired"))
    api_of = ScriptedApi().on("WATCH", PODS_PATH, gone).on("GET", PODS_PATH, answer(404, failure(404, "NotFound")))
    async with api_of as api, client_of(api) as client:
        with pytest.raises(KubeExpired):
            await collect(client, "4", 1)
        assert client.signs.silent_s(asyncio.get_running_loop().time()) > 0.0
        with pytest.raises(KubeRejected):
            await client.list(PODS)
        assert client.signs.silent_s(asyncio.get_running_loop().time()) == 0.0


async def test_events_before_an_expiry_are_delivered_first():
    script = stream(event("ADDED", pod("a", 5)), event("ERROR", failure(410, "Expired")))
    async with ScriptedApi().on("WATCH", PODS_PATH, script) as api, client_of(api) as client:
        assert names(await collect(client, "4", 1)) == ["a"]


async def test_a_silent_stream_is_left_and_resumed():
    script = (
        stream(event("ADDED", pod("a", 5)), end="silence"),
        stream(event("ADDED", pod("b", 6)), end="silence"),
    )
    async with ScriptedApi().on("WATCH", PODS_PATH, *script) as api, client_of(api, signs=soon()) as client:
        assert names(await collect(client, "4", 2)) == ["a", "b"]
        assert client.signs.blind == 1
        (lost,) = client.signs.lost(asyncio.get_running_loop().time())
    assert (lost.plural, lost.over) == ("pods", True)
    assert lost.silent_s >= 1.0


async def test_without_the_silence_watchdog_a_half_open_watch_stays_blind():
    """The ablation of the test above: the checker sees the fault when the safeguard is off."""
    script = (
        stream(event("ADDED", pod("a", 5)), end="silence"),
        stream(event("ADDED", pod("b", 6)), end="silence"),
    )
    off = WatchSigns(most_s=1, grace_s=3600.0)
    async with ScriptedApi().on("WATCH", PODS_PATH, *script) as api, client_of(api, signs=off) as client:
        watch = client.watch(PODS, resource_version="4")
        await anext(watch)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(watch), 2.0)
        await watch.aclose()


async def test_when_one_watch_was_blind_those_that_are_as_silent_are_opened_anew_at_once(
    monkeypatch: pytest.MonkeyPatch,
):
    """One fault rarely hits one connection alone; the nodes' watch is not due for an hour."""
    monkeypatch.setattr(signs, "DOUBTED_S", 0.5)
    asked = asyncio.Event()

    async def silent(request: web.Request) -> web.StreamResponse:
        asked.set()
        return await stream(end="silence")(request)

    nodes = (silent, stream(event("ADDED", {"metadata": {"name": "n"}}), end="silence"))
    pods = (stream(event("ADDED", pod("a", 5)), end="silence"), stream(end="silence"))
    api = ScriptedApi().on("WATCH", PODS_PATH, *pods).on("WATCH", "/api/v1/nodes", *nodes)
    book = WatchSigns(most_s=3600, grace_s=1.0, silence_s=3600.0)
    async with api, client_of(api, signs=book) as client:
        of_nodes = asyncio.create_task(anext(client.watch(NODES, resource_version="4")))
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        book.most_s = 1
        of_pods = asyncio.create_task(collect(client, "4", 2))
        found = await asyncio.wait_for(of_nodes, PATIENCE_S)
        of_pods.cancel()
    assert isinstance(found, Upserted)
    assert found.object.metadata.name == "n"
    assert client.signs.blind >= 1  # that of the pods; the next one may be blind by now


async def test_after_a_blind_watch_no_idle_connection_is_trusted_either():
    """A balancer lost its server: the look at its revision, on the connection of the last list, would wait in vain."""
    pods = (stream(event("ADDED", pod("a", 5)), end="silence"), stream(event("ADDED", pod("b", 6)), end="silence"))
    api = ScriptedApi().on("WATCH", PODS_PATH, *pods).on("GET", PODS_PATH, answer(200, page([], 5)))
    async with api, TcpProxy(urlsplit(api.url).port or 0) as balancer:
        access = StaticAccess(f"http://127.0.0.1:{balancer.port}")
        async with (
            client_of(api, access=access, signs=soon()) as client,
            contextlib.aclosing(client.watch(PODS, resource_version="4")) as watch,
        ):
            await anext(watch)
            await client.list(PODS)
            balancer.lose_servers()
            found = await asyncio.wait_for(anext(watch), 4.0)  # that look is waited for 5 s
    assert names([found]) == ["b"]


async def test_a_bookmark_that_goes_back_means_list_again():
    script = stream(event("ADDED", pod("a", 5000)), bookmark(31), end="silence")
    async with ScriptedApi().on("WATCH", PODS_PATH, script) as api, client_of(api) as client:
        with pytest.raises(KubeExpired, match="went back from 5000 to 31"):
            await collect(client, "4", 3)


async def test_after_a_stream_that_told_nothing_the_server_is_asked_whether_it_went_back():
    """Its end was in good order, so nothing else would make us look; a healthy server tells a bookmark at least."""
    api = ScriptedApi().on("WATCH", PODS_PATH, stream(), stream(end="silence"))
    api.on("GET", REVISION_PATH, answer(200, page([], 31)))
    async with api, client_of(api) as client:
        with pytest.raises(KubeExpired, match="went back"):
            await collect(client, "5000", 1)


async def test_a_server_restored_from_an_older_backup_means_list_again():
    """A watch from a revision that has not happened yet is silent, not refused (transcript ``watch-future``)."""
    broken = stream(event("ADDED", pod("a", 5000)), end="abort")
    api = ScriptedApi().on("WATCH", PODS_PATH, broken, stream(end="silence"))
    api.on("GET", REVISION_PATH, answer(200, page([], 31)))
    async with api, client_of(api) as client:
        with pytest.raises(KubeExpired, match="went back"):
            await collect(client, "4", 2)
    assert len(api.queries(watch="true")) == 1


async def test_without_the_look_at_the_servers_revision_the_watch_would_stay_silent(monkeypatch: pytest.MonkeyPatch):
    """Ablation of the test above."""
    monkeypatch.setattr(kube_watch, "went_back", lambda revision, position: False)
    broken = stream(event("ADDED", pod("a", 5000)), end="abort")
    api = ScriptedApi().on("WATCH", PODS_PATH, broken, stream(end="silence"))
    api.on("GET", REVISION_PATH, answer(200, page([], 31)))
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
        await asked_more_than(3, api, client)


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


class Counted(random.Random):
    """Says when it was asked so often."""

    def __init__(self, times: int) -> None:
        super().__init__(1)
        self.left, self.asked = times, asyncio.Event()

    def random(self) -> float:
        self.left -= 1
        if self.left == 0:
            self.asked.set()
        return super().random()


async def test_a_server_that_is_started_again_is_watched_soon_however_often_it_refused():
    """A pause that has grown to seconds meanwhile would keep new pods waiting after the server is back."""
    rng = Counted(30)
    policy = WatchPolicy(backoff_s=0.001, max_backoff_s=3600.0, max_refused_s=0.001, rng=rng)
    script = stream(event("ADDED", pod("a", 5)))
    api = ScriptedApi().on("WATCH", PODS_PATH, script).on("GET", REVISION_PATH, answer(200, page([], 4)))
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))  # and not listened on yet: refused
        async with (
            api,
            client_of(api, access=StaticAccess(f"http://127.0.0.1:{place.getsockname()[1]}"), policy=policy) as client,
        ):
            watching = asyncio.ensure_future(collect(client, "4", 1))
            async with asyncio.timeout(PATIENCE_S):
                await rng.asked.wait()
            await api.listen_at(place)
            (found,) = await watching
            assert isinstance(found, Upserted)


async def test_a_server_that_ends_every_stream_at_once_does_not_make_us_spin():
    policy = WatchPolicy(backoff_s=0.2, max_backoff_s=10.0)
    async with ScriptedApi().on("WATCH", PODS_PATH, stream()) as api, client_of(api, policy=policy) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(client.watch(PODS, resource_version="4")), 1.0)
    assert len(api.seen) <= 7, "pauses of 0.1, 0.2 and 0.4 s at least: four streams, with a look at the server between"


async def test_without_the_spin_guard_it_would(monkeypatch: pytest.MonkeyPatch):
    """Ablation of the test above."""
    monkeypatch.setattr(kube_watch, "SPIN_GUARD_S", 0.0)
    policy = WatchPolicy(backoff_s=0.2, max_backoff_s=10.0)
    async with ScriptedApi().on("WATCH", PODS_PATH, stream()) as api, client_of(api, policy=policy) as client:
        await asked_more_than(7, api, client)
