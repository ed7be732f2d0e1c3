"""Renewals of leases over one open stream per member.

Why: etcd renews over a stream of requests and answers. Opening one per renewal costs a call each time, which at one
renewal a second is most of what a process at rest spends. etcd answers a stream's requests in their order, so one
request at a time is under way and the next answer is its own.

It neither counts validity nor renews by itself. A stream that failed or was late is dropped, never read again: its
next answer would belong to an earlier request.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from shared.adapters.etcd.channel import HAS_LEADER, EtcdMember
from shared.adapters.etcd.protocol import EtcdProtocol
from shared.errors import StoreUnknown


class KeepAliveStream:
    """The current stream, to the member last asked."""

    def __init__(self, protocol: EtcdProtocol) -> None:
        self._protocol = protocol
        self._turn = asyncio.Lock()
        self._member: EtcdMember | None = None
        self._call: Any = None

    async def ask(self, member: EtcdMember, lease_id: int, timeout_s: float) -> Any:
        """The member's answer to one renewal. Unknown: ``StoreUnknown``, ``AioRpcError`` where gRPC ended it."""
        try:
            async with asyncio.timeout(timeout_s), self._turn:
                return await self._exchange(member, lease_id)
        except TimeoutError:
            raise StoreUnknown(f"etcd: keep a lease alive: no answer in {timeout_s:.3g} s") from None

    async def _exchange(self, member: EtcdMember, lease_id: int) -> Any:
        if self._call is None or self._member is not member:
            self.drop()
            self._member = member
            self._call = member.stream(self._protocol.keep_alive)(metadata=HAS_LEADER)
        call, complete = self._call, False
        try:
            await call.write(self._protocol.keep_alive.request(ID=lease_id))
            answer = await call.read()
            complete = answer is not grpc.aio.EOF and lease_id == answer.ID
        except asyncio.InvalidStateError as error:
            # The stream had ended since the last renewal; a new one is opened at once by whoever repeats.
            raise StoreUnknown("etcd: keep a lease alive: the stream has ended") from error
        finally:
            if not complete:
                self.drop()
        if not complete:
            raise StoreUnknown("etcd: keep a lease alive: the stream ended without an answer")
        return answer

    def drop(self) -> None:
        """Forget the stream; the next renewal opens another."""
        if self._call is not None:
            self._call.cancel()
        self._call = self._member = None
