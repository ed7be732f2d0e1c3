"""A mesh whose API server is reached by a company's proxy alone: what goes through it, and what never does."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.process.mesh import Mesh

pytestmark = [pytest.mark.process, pytest.mark.etcd]

API = "api.conclave.test"
"""No resolver knows it: who does not ask the proxy gets nowhere."""


@contextlib.asynccontextmanager
async def proxy(asked: list[str]) -> AsyncIterator[str]:
    """An HTTP proxy that takes CONNECT, and leads to loopback whatever the name; ``asked``: the first lines."""
    open_ = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head.split("\r\n")[0])
        port = int(asked[-1].split()[1].rpartition(":")[2])
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))

    async def kept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        open_.add(task)
        try:
            await serve(reader, writer)
        finally:
            open_.discard(task)
            writer.close()

    server = await asyncio.start_server(kept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(open_):
            task.cancel()
        await asyncio.gather(*open_, return_exceptions=True)


async def test_the_api_server_is_asked_through_the_proxy_and_peers_and_etcd_are_not(tmp_path: Path) -> None:
    asked: list[str] = []
    async with proxy(asked) as url:
        environ = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), url)
        twin = ["--advertise", API, "--kubeconfig-scheme", "https"]
        async with Mesh(tmp_path, twin_flags=twin, environ=environ) as mesh:
            assert API in mesh.api_url
            mesh.api_url = mesh.services["twin"].url
            await mesh.leader()
            await mesh.leader("binder")
            await mesh.add_nodes(3)
            names = {f"p-{number}" for number in range(9)}
            await asyncio.gather(*(mesh.add_pod(name) for name in names))
            await mesh.wait_bound(names)
            port = mesh.api_url.rpartition(":")[2]
    assert set(asked) == {f"CONNECT {API}:{port} HTTP/1.1"}
    assert len(asked) >= 4  # coordinators and binders, watches and requests


async def test_who_is_told_to_leave_the_proxy_out_does(tmp_path: Path) -> None:
    asked: list[str] = []
    async with proxy(asked) as url:
        environ = {"HTTPS_PROXY": url, "NO_PROXY": f".test,{API}:1"}
        twin = ["--advertise", API, "--kubeconfig-scheme", "https"]
        async with Mesh(tmp_path, coordinators=0, agents=0, binders=0, twin_flags=twin, environ=environ) as mesh:
            flags = ["--etcd", mesh.etcd.endpoint, "--kubeconfig", str(mesh.kubeconfig), "--id", "binder-0"]
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "services.binder", *flags, stderr=asyncio.subprocess.PIPE,
                env={"PATH": "", **environ},
            )  # fmt: skip
            _, errors = await process.communicate()
    assert process.returncode == 2
    assert API in errors.decode()
    assert "through the proxy" not in errors.decode()
    assert asked == []


async def test_an_error_on_the_way_names_the_proxy_and_never_its_password(tmp_path: Path) -> None:
    async with Mesh(tmp_path, coordinators=0, agents=0, binders=0, twin_flags=["--advertise", API]) as mesh:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.binder", "--etcd", mesh.etcd.endpoint, "--kubeconfig", str(mesh.kubeconfig),
            stderr=asyncio.subprocess.PIPE, env={"PATH": "", "HTTP_PROXY": "http://me:secret@127.0.0.1:1"},
        )  # fmt: skip
        _, errors = await process.communicate()
    told = errors.decode().splitlines()[-1]
    assert process.returncode == 2
    assert f"http://{API}" in told
    assert "through the proxy http://127.0.0.1:1: no answer from the API server" in told
    assert "secret" not in errors.decode()
