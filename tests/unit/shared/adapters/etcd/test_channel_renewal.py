"""New certificates mean a new channel, and closing the old one cancels its calls: nobody's task may end by that."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from shared.adapters.etcd.channel import EtcdConnection, EtcdSettings, EtcdTls
from shared.adapters.etcd.protocol import method
from shared.errors import StoreUnknown
from tests.certificates import TestCa

RANGE = method("KV", "Range")


class LeavingServer:
    """Takes calls and answers none; ``leave`` says goodbye (GOAWAY) and lets those under way go on."""

    def __init__(self, authority: TestCa, folder: Path) -> None:
        self.took, self._end = asyncio.Event(), asyncio.Event()
        self._server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(
            self._hang, RANGE.request.FromString, RANGE.response.SerializeToString
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("etcdserverpb.KV", {"Range": handler}),)
        )
        cert, key = authority.issue(folder, "etcd", "localhost", "127.0.0.1")
        credentials = grpc.ssl_server_credentials([(key.read_bytes(), cert.read_bytes())])
        self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self._stopping: asyncio.Task[None] | None = None

    async def _hang(self, *_: Any) -> Any:
        self.took.set()
        await self._end.wait()
        return RANGE.response()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[LeavingServer]:
        await self._server.start()
        try:
            yield self
        finally:
            self._end.set()
            await (self._stopping or self._server.stop(0))

    def leave(self) -> None:
        self._stopping = asyncio.create_task(self._server.stop(30))


@pytest.mark.parametrize("repeatable", [False, True])
async def test_a_call_under_way_when_certificates_change_is_unknown_not_cancelled(
    tmp_path: Path, *, repeatable: bool
) -> None:
    authority = TestCa()
    ca_file = authority.write(tmp_path / "ca.pem")
    async with LeavingServer(authority, tmp_path).running() as server:
        connection = EtcdConnection(
            EtcdSettings(endpoints=(f"https://127.0.0.1:{server.port}",), tls=EtcdTls(ca_file=ca_file))
        )

        async def read() -> Any:
            return await connection.unary(RANGE, RANGE.request(key=b"k"), "x", timeout_s=2, repeatable=repeatable)

        first = asyncio.create_task(read())
        await server.took.wait()
        channel = connection.current._channel
        server.leave()
        await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        os.utime(ca_file, ns=(1, 1))
        done = await asyncio.gather(first, read(), return_exceptions=True)
        assert [type(one) for one in done] == [StoreUnknown, StoreUnknown]
        assert connection.current._channel is not channel
        await connection.close()


async def test_a_task_that_is_asked_to_end_still_ends(tmp_path: Path) -> None:
    authority = TestCa()
    ca_file = authority.write(tmp_path / "ca.pem")
    async with LeavingServer(authority, tmp_path).running() as server:
        connection = EtcdConnection(
            EtcdSettings(endpoints=(f"https://127.0.0.1:{server.port}",), tls=EtcdTls(ca_file=ca_file))
        )
        reading = asyncio.create_task(
            connection.unary(RANGE, RANGE.request(key=b"k"), "x", timeout_s=5, repeatable=True)
        )
        await server.took.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await connection.close()
