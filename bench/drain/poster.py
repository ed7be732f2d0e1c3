"""The limit of a drain: Bindings and no thinking. It lists pods and nodes once, then binds each pod to the next node.

.venv/bin/python -m bench.drain.poster --kubeconfig FILE --namespace NAMESPACE [--connections 32] [--victims]

``--victims``: a pod that stands is deleted for each that is bound, to its node.

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

ANSWERED = re.compile(rb"HTTP/1.1 20[01] ")
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CHUNKED, LAST_CHUNK = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE), b"\r\n0\r\n\r\n"
"""How the answer to a DELETE, which is the whole object, may come."""
BODY = (
    '{"apiVersion":"v1","kind":"Binding","metadata":{"name":"%s"},'
    '"target":{"apiVersion":"v1","kind":"Node","name":"%s"}}'
)


class _Metadata(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815  the API's name


class _Item(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _List(msgspec.Struct):
    items: list[_Item]


class PostingConnection(asyncio.Protocol):
    """Posts what ``requests`` gives, one after the other; ``done`` when there is no more, or one is refused."""

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
        chunked = CHUNKED.search(self._answer, 0, end) is not None
        if (length is None and not chunked) or not ANSWERED.match(self._answer):
            self._fail(f"unexpected answer {self._answer[:300]!r}")
        elif self._answer.endswith(LAST_CHUNK) if length is None else len(self._answer) >= end + 4 + int(length[1]):
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


async def _items(session: aiohttp.ClientSession, access: KubeConfig, path: str) -> list[_Item]:
    url, name = access.base_url + path, access.server_hostname
    async with session.get(url, headers=await access.headers(), server_hostname=name) as told:
        told.raise_for_status()
        return msgspec.json.decode(await told.read(), type=_List).items


async def post(kubeconfig: Path, namespace: str, connections: int, *, victims: bool) -> None:
    """Everything that is pending. ``RuntimeError``: a call was refused."""
    access = await KubeConfig.load(kubeconfig)
    tls = access.tls()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls or True)) as session:
        path = f"/api/v1/namespaces/{namespace}/pods"
        pods = await _items(session, access, f"{path}?fieldSelector=spec.nodeName%3D")
        if victims:
            standing = await _items(session, access, f"{path}?fieldSelector=spec.nodeName%21%3D")
            places = [(one.spec.nodeName, one.metadata.name) for one in standing]
        else:
            nodes = await _items(session, access, f"/api/v1/nodes?labelSelector={NODE_LABEL}%3Dtrue")
            places = [(one.metadata.name, "") for one in nodes]
    server = urlsplit(access.base_url)
    head = "".join(f"{name}: {value}\r\n" for name, value in (await access.headers()).items())

    def request(verb: str, at: str, body: str) -> bytes:
        return (
            f"{verb} {server.path}{path}/{at} HTTP/1.1\r\nHost: {server.netloc}\r\n{head}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()

    def requests() -> Iterator[bytes]:
        for pod, (node, victim) in zip(pods, itertools.cycle(places), strict=False):
            name = pod.metadata.name
            if victim:
                yield request("DELETE", victim, "")
            yield request("POST", f"{name}/binding", BODY % (name, node))

    left, loop = requests(), asyncio.get_running_loop()
    port = server.port or (443 if tls else 80)
    made = [
        await loop.create_connection(
            lambda: PostingConnection(left), server.hostname or "", port, ssl=tls,
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
    parser.add_argument("--victims", action="store_true", help="delete a pod that stands for each that is bound")
    options = parser.parse_args()
    try:
        uvloop.run(post(options.kubeconfig, options.namespace, options.connections, victims=options.victims))
    except (RuntimeError, aiohttp.ClientError) as error:
        sys.exit(f"bench.drain.poster: {error}")


if __name__ == "__main__":
    main()
