"""Sends a workload to an API server: nodes first, then pods by schedule or as fast as the server takes them.

Idempotent: every object has a name of its own, so a request whose answer was lost is sent again and ``AlreadyExists``
counts as success. It refuses to hide a refusal: any other 4xx ends the run with the server's own words.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import aiohttp
import msgspec

from shared.errors import ConfigError

Json = dict[str, Any]

WORKERS = 8
ATTEMPTS = 40
RETRY_S = 0.25
TIMEOUT_S = 10.0

_encode = msgspec.json.Encoder().encode


class TokenAccess:
    """``KubeAccess`` by a URL and a bearer token: all that the twin's own command needs."""

    server_hostname: str | None = None
    proxy: str | None = None

    def __init__(self, base_url: str, token: str) -> None:
        self.base_url = base_url
        self._headers = {"Authorization": f"Bearer {token}"}

    def tls(self) -> None:
        """Plain HTTP on loopback."""
        return

    async def headers(self) -> Mapping[str, str]:
        """The Authorization header."""
        return self._headers

    async def renew(self) -> bool:
        """There is nothing to renew."""
        return False


class Submission:
    """Creates objects on one API server. ``async with``."""

    def __init__(self, access: TokenAccess) -> None:
        self._access = access
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Submission:
        self._session = aiohttp.ClientSession(
            headers={**await self._access.headers(), "Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            connector=aiohttp.TCPConnector(limit=WORKERS),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def create_nodes(self, nodes: Sequence[Json]) -> None:
        """Create all nodes. ``ConfigError``: the server refuses one, or does not answer."""
        await self._in_parallel(self._node(node) for node in nodes)

    async def _node(self, node: Json) -> None:
        await self.create("/api/v1/nodes", node)

    async def create_pod(self, pod: Json) -> None:
        """Create one pod. ``ConfigError``: refused, or no answer after ``ATTEMPTS``."""
        await self.create(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)

    async def create_pods(self, pods: AsyncIterator[Json], on_created: Callable[[str], None]) -> None:
        """Create pods as they come, ``WORKERS`` at a time; ``on_created(name)`` after each."""
        queue: asyncio.Queue[Json | None] = asyncio.Queue(4 * WORKERS)

        async def work() -> None:
            while (pod := await queue.get()) is not None:
                await self.create_pod(pod)
                on_created(pod["metadata"]["name"])

        async def fill() -> None:
            async for pod in pods:
                await queue.put(pod)
            for _ in range(WORKERS):
                await queue.put(None)

        async with asyncio.TaskGroup() as group:
            group.create_task(fill())
            for _ in range(WORKERS):
                group.create_task(work())

    async def _in_parallel(self, jobs: Iterable[Awaitable[None]]) -> None:
        gate = asyncio.Semaphore(WORKERS)

        async def one(job: Awaitable[None]) -> None:
            async with gate:
                await job

        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(one(job))

    async def create(self, path: str, body: Json) -> None:
        """POST until it is there. ``ConfigError``: refused for good, or no answer after ``ATTEMPTS``."""
        assert self._session is not None
        data, error = _encode(body), ""
        for _ in range(ATTEMPTS):
            try:
                async with self._session.post(self._access.base_url + path, data=data) as answer:
                    if answer.status in (200, 201):
                        await answer.read()
                        return
                    said = await answer.text()
                    if answer.status == 409 and '"AlreadyExists"' in said:
                        return
                    error = f"{answer.status} {said[:200]}"
                    if answer.status < 500 and answer.status != 429:
                        break
            except (aiohttp.ClientError, TimeoutError) as failure:
                error = str(failure) or type(failure).__name__
            await asyncio.sleep(RETRY_S)
        name = body["metadata"]["name"]
        raise ConfigError(f"{self._access.base_url}: the API server does not take {body['kind']} {name}: {error}")
