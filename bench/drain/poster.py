"""The limit of a drain: Bindings and no thinking. It lists pods and nodes once, then binds each pod to the next node.

.venv/bin/python -m bench.drain.poster --kubeconfig FILE --namespace NAMESPACE [--connections 32]

One request at a time on each of some kept connections, over the bare transport: what is left is what the API server
takes. It asks no rule, checks nothing but the answer's status, and ends when all is posted.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import aiohttp
import msgspec
import uvloop

from bench.stand.cluster import NODE_LABEL
from shared.adapters.kube.config import KubeConfig

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
BODY = (
    '{"apiVersion":"v1","kind":"Binding","metadata":{"name":"%s"},'
    '"target":{"apiVersion":"v1","kind":"Node","name":"%s"}}'
)


class _Metadata(msgspec.Struct):
    name: str


class _Item(msgspec.Struct):
    metadata: _Metadata


class _List(msgspec.Struct):
    items: list[_Item]


class Connection(asyncio.Protocol):
    """Posts what ``requests`` gives, one after the other; ``done`` when there is no more, or an answer is not 201."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self._requests = requests
        self._answer = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's TLS transports are none by class
        self._next()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        end = self._answer.find(b"\r\n\r\n")
        if end < 0:
            return
        length = LENGTH.search(self._answer, 0, end)
        if length is None or not self._answer.startswith(b"HTTP/1.1 201"):
            self._fail(f"unexpected answer {self._answer[:300]!r}")
        elif len(self._answer) >= end + 4 + int(length[1]):
            self._answer = b""
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self._fail(f"the connection was lost: {exc}")

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self.done.set_result(None)
            self._transport.close()
        else:
            self._transport.write(request)

    def _fail(self, why: str) -> None:
        self.done.set_exception(RuntimeError(why))
        self._transport.close()


async def _names(session: aiohttp.ClientSession, access: KubeConfig, path: str) -> list[str]:
    url, name = access.base_url + path, access.server_hostname
    async with session.get(url, headers=await access.headers(), server_hostname=name) as told:
        told.raise_for_status()
        return [item.metadata.name for item in msgspec.json.decode(await told.read(), type=_List).items]


async def post(kubeconfig: Path, namespace: str, connections: int) -> None:
    """Everything that is pending. ``RuntimeError``: a Binding was refused."""
    access = await KubeConfig.load(kubeconfig)
    tls = access.tls()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls or True)) as session:
        path = f"/api/v1/namespaces/{namespace}/pods"
        pods = await _names(session, access, f"{path}?fieldSelector=spec.nodeName%3D")
        nodes = await _names(session, access, f"/api/v1/nodes?labelSelector={NODE_LABEL}%3Dtrue")
    server = urlsplit(access.base_url)
    head = "".join(f"{name}: {value}\r\n" for name, value in (await access.headers()).items())

    def requests() -> Iterator[bytes]:
        for pod, node in zip(pods, itertools.cycle(nodes), strict=False):
            body = BODY % (pod, node)
            yield (
                f"POST {server.path}{path}/{pod}/binding HTTP/1.1\r\nHost: {server.netloc}\r\n{head}"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
            ).encode()

    left, loop = requests(), asyncio.get_running_loop()
    port = server.port or (443 if tls else 80)
    made = [
        await loop.create_connection(
            lambda: Connection(left), server.hostname or "", port, ssl=tls,
            server_hostname=(access.server_hostname or server.hostname) if tls else None,
        )
        for _ in range(min(connections, max(1, len(pods))))
    ]  # fmt: skip
    await asyncio.gather(*(protocol.done for _, protocol in made))


def main() -> None:
    """Post."""
    parser = argparse.ArgumentParser(prog="python -m bench.drain.poster", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--connections", type=int, default=32)
    options = parser.parse_args()
    try:
        uvloop.run(post(options.kubeconfig, options.namespace, options.connections))
    except (RuntimeError, aiohttp.ClientError) as error:
        sys.exit(f"bench.drain.poster: {error}")


if __name__ == "__main__":
    main()
