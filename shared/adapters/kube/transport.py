"""One HTTP exchange with the API server: credentials, deadline, what may be repeated, and which error it is.

    send --2xx--> body
     |--401, failed handshake--> renew credentials, once --> send
     |--429--> wait Retry-After while the deadline allows --> send
     |--other 4xx--> KubeRejected (410: KubeExpired)        |--5xx, timeout, broken connection--> KubeUnknown

A 429 and a 401 had no effect, so they are repeated here, inside the caller's one deadline; so is a read that met a
connection which the server had closed while it was idle. It does not repeat anything whose outcome is unknown, follow
redirects or log a body. Connections are ``pool``'s and ``connection``'s; a watch takes one of them out of the pool.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Protocol
from urllib.parse import urlencode

from shared.adapters.http.answers import NoAnswer, ResponseHead
from shared.adapters.http.connection import Connection
from shared.adapters.http.dialing import DIAL_S, target_of
from shared.adapters.http.pool import ConnectionPool
from shared.adapters.peers.traffic import Traffic
from shared.errors import KubeExpired, KubeRejected, KubeUnknown
from shared.kube.decoding import ERROR_LIMIT, KubeStatus, status_of

USER_AGENT = "conclave/0.1"

DEFAULT_RETRY_AFTER_S = 1.0
MIN_RETRY_AFTER_S = 0.05
"""``Retry-After: 0`` must not make us spin."""

MAX_RETRIES = 8
"""Of one call on 429, each at least ``Retry-After`` apart; the deadline usually ends it first."""


class KubeAccess(Protocol):
    """Where the API server is and how we prove who we are."""

    @property
    def base_url(self) -> str:
        """Scheme, host, port and prefix, without a slash at the end."""
        ...

    @property
    def proxy(self) -> str | None:
        """The HTTP proxy on the way, if any."""
        ...

    @property
    def server_hostname(self) -> str | None:
        """The name to check in the certificate where it is not the URL's."""
        ...

    def tls(self) -> ssl.SSLContext | None:
        """The context in force; it changes when certificates do."""
        ...

    async def headers(self) -> Mapping[str, str]:
        """The Authorization header now."""
        ...

    async def renew(self) -> bool:
        """Read credentials and certificates again, after a 401 or a failed handshake. False: nothing was done."""
        ...


class Stream:
    """The body of a watch. ``close`` it, wherever it was left."""

    def __init__(self, connection: Connection, pool: ConnectionPool) -> None:
        self._connection = connection
        self._pool = pool

    async def read(self, timeout_s: float) -> bytes:
        """What came since the last call, at least one byte; nothing once the server has ended the stream.

        ``TimeoutError``: no byte for so long, and what is idle is as little trusted. Another ``OSError``: it broke off,
        or was left."""
        try:
            return await self._connection.read(timeout_s)
        except TimeoutError:
            self._pool.doubt()
            raise

    def leave(self) -> None:
        """Whoever reads is told that it broke off."""
        self._connection.give_up("left: another watch fell silent")

    def close(self) -> None:
        """A connection that the server ended the stream on serves again; any other may be in the middle of one."""
        self._pool.rejoin(self._connection)


class KubeTransport:
    """All exchanges with one API server. Close it with ``close``."""

    def __init__(self, access: KubeAccess) -> None:
        self.traffic = Traffic()
        self._access = access
        self._pool: ConnectionPool | None = None
        self._reached_by: tuple[object, ...] = ()
        """What the pool was made from; it changes when certificates or the kubeconfig do."""
        self._headers: Mapping[str, str] = {}
        self._fixed = ""
        """The lines that stand in every request."""
        self._streams: set[Connection] = set()
        self._closed = False

    async def close(self) -> None:
        """Close all connections; requests from now on are refused."""
        self._closed = True
        for connection in self._streams:
            connection.abort()
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def request(
        self,
        route: str,
        method: str,
        path: str,
        *,
        timeout_s: float,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        wait_when_busy: bool = True,
    ) -> bytes:
        """The body of a 2xx. See the module's docstring for errors; ``KubeExpired`` for 410.

        ``wait_when_busy`` False: a 429 is told at once, for what must be decided anew by the time it may be repeated.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        received, outcome, renewed = 0, "kube_unknown", False
        try:
            for _ in range(MAX_RETRIES):
                try:
                    head, answer = await self._exchange(method, path, query, body, content_type, deadline)
                except ssl.SSLError as error:
                    if not renewed and await self._access.renew():
                        renewed = True
                        continue
                    raise KubeUnknown(f"{route}: TLS handshake failed ({_brief(error)})") from error
                except TimeoutError as error:
                    raise KubeUnknown(f"{route}: no answer within {timeout_s:g} s") from error
                except (OSError, ValueError) as error:
                    raise KubeUnknown(f"{route}: {_brief(error)}") from error
                received += len(answer)
                code = head.status
                if code < 300:
                    outcome = "ok"
                    return answer
                if code == 401 and not renewed and await self._access.renew():
                    renewed = True
                    continue
                wait_s = retry_after_s(head.retry_after)
                if code == 429 and wait_when_busy and loop.time() + wait_s < deadline:
                    await asyncio.sleep(wait_s)
                    continue
                error_found = error_of(route, code, status_of(answer), wait_s if head.retry_after is not None else None)
                outcome = error_found.code
                raise error_found
            raise KubeRejected(f"{route}: 429 after {MAX_RETRIES} tries", status=429, reason="TooManyRequests")
        finally:
            self.traffic.route(route).count(
                sent=len(body) if body is not None else 0, received=received, outcome=outcome
            )

    async def open_watch(self, path: str, query: Mapping[str, str], patience_s: float) -> Stream:
        """An open stream, its head within ``patience_s``. Errors as in ``request``; 429 and 401 are for the caller's
        backoff, after one renewal."""
        for attempt in (1, 2):
            try:
                head, connection, pool = await self._begin_stream(path, query, patience_s)
            except ssl.SSLError as error:
                if attempt == 1 and await self._access.renew():
                    continue
                raise KubeUnknown(f"watch: TLS handshake failed ({_brief(error)})") from error
            except (OSError, ValueError) as error:
                raise KubeUnknown(f"watch: {_brief(error)}") from error
            if head.status == 200:
                return Stream(connection, pool)
            try:
                answer = await connection.read(DIAL_S)
            except OSError as error:
                raise KubeUnknown(f"watch: {head.status}, {_brief(error)}") from error
            finally:
                connection.abort()
            if head.status == 401 and attempt == 1 and await self._access.renew():
                continue
            wait_s = retry_after_s(head.retry_after) if head.retry_after is not None else None
            raise error_of("watch", head.status, status_of(answer), wait_s)
        raise KubeUnknown("watch: refused again after credentials were renewed")

    async def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        deadline: float,
    ) -> tuple[ResponseHead, bytes]:
        """One request and its answer, whatever that says."""
        clock = asyncio.get_running_loop().time
        again = method == "GET"
        while True:
            pool = await self._prepare()
            connection = await pool.take(deadline - clock())
            try:
                # nothing is awaited between here and the write: what is taken is usable
                text = self._text(pool, method, path, query, body, content_type)
                return await connection.ask(text, deadline - clock())
            except NoAnswer:
                if not again:
                    raise
                again = False
            except TimeoutError:
                if connection.mute:
                    pool.doubt()
                raise
            finally:
                pool.give(connection)

    async def _begin_stream(
        self, path: str, query: Mapping[str, str], patience_s: float
    ) -> tuple[ResponseHead, Connection, ConnectionPool]:
        again = True
        while True:
            pool = await self._prepare()
            connection = await pool.take(DIAL_S)
            pool.part(connection)
            if connection not in self._streams:
                self._streams.add(connection)
                connection.ended.add_done_callback(partial(self._stream_ended, connection))
            try:
                text = self._text(pool, "GET", path, query, None, "")
                return await connection.open(text, patience_s), connection, pool
            except NoAnswer:
                if not again:
                    raise
                again = False

    def _stream_ended(self, connection: Connection, _: asyncio.Future[None]) -> None:
        self._streams.discard(connection)

    def _text(
        self,
        pool: ConnectionPool,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
    ) -> bytes:
        asked = f"?{urlencode(query)}" if query else ""
        first = f"{method} {pool.target.prefix}{path}{asked} HTTP/1.1\r\n{self._fixed}"
        if body is None:
            return f"{first}\r\n".encode()
        return f"{first}Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    async def _prepare(self) -> ConnectionPool:
        """The pool and the fixed lines as the credentials now ask for them."""
        access = self._access
        headers = await access.headers()
        if self._closed:
            raise KubeUnknown("the client is closed")
        reached_by = (access.base_url, access.proxy, access.server_hostname, access.tls())
        if self._pool is None or reached_by != self._reached_by:
            base_url, proxy, server_hostname, tls = reached_by
            target = target_of(base_url, proxy=proxy, server_hostname=server_hostname, tls=tls)
            if self._pool is not None:
                self._pool.retire()
            self._pool, self._reached_by, self._headers, self._fixed = ConnectionPool(target), reached_by, {}, ""
        if not self._fixed or headers != self._headers:
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            if any("\r" in value or "\n" in value for value in headers.values()):
                raise KubeUnknown("the credentials hold a line break, which no header may")
            self._headers = headers
            self._fixed = f"{self._pool.target.headers}User-Agent: {USER_AGENT}\r\nAccept: application/json\r\n{lines}"
        return self._pool


def error_of(
    route: str, code: int, status: KubeStatus, wait_s: float | None
) -> KubeRejected | KubeUnknown | KubeExpired:
    """The error of a non-2xx answer: 410 expired, other 4xx refused, everything else unknown."""
    message = f"{route}: {code} {status.reason}: {status.message}"[: 2 * ERROR_LIMIT]
    if code == 410:
        return KubeExpired(message)
    if 400 <= code < 500:
        return KubeRejected(message, status=code, reason=status.reason, retry_after_s=wait_s)
    return KubeUnknown(message, retry_after_s=wait_s)


def retry_after_s(header: str | None) -> float:
    """Seconds that ``Retry-After`` asks for; the API server sends whole seconds, never a date."""
    if header is not None and header.isascii() and header.isdigit():
        return max(MIN_RETRY_AFTER_S, min(float(header), 3600.0))
    return DEFAULT_RETRY_AFTER_S


def _brief(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:ERROR_LIMIT]
