"""One HTTP exchange with the API server: credentials, deadline, what may be repeated, and which error it is.

    send --2xx--> body
     |--401, failed handshake--> renew credentials, once --> send
     |--429--> wait Retry-After while the deadline allows --> send
     |--other 4xx--> KubeRejected (410: KubeExpired)        |--5xx, timeout, broken connection--> KubeUnknown

A 429 and a 401 had no effect, so they are repeated here, inside the caller's one deadline. It does not repeat
anything whose outcome is unknown, follow redirects or log a body.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp
import yarl

from shared.adapters.peers.traffic import Traffic
from shared.errors import KubeExpired, KubeRejected, KubeUnknown
from shared.kube.decoding import ERROR_LIMIT, Status, status_of

MAX_CONNECTIONS = 128
USER_AGENT = "conclave/0.1"
IDLE_S = 30.0
"""An idle connection is not used again after so long: load balancers drop theirs silently from 60 s on."""

KEEPALIVE = (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000))
"""A peer that is gone without a word is noticed by the kernel within 30 s, long before a watch's silence is."""

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


class KubeTransport:
    """One session with one API server. Close it with ``close``."""

    def __init__(self, access: KubeAccess) -> None:
        self.traffic = Traffic()
        self._access = access
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def close(self) -> None:
        """Close all connections; requests from now on are refused."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None

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
        counters = self.traffic.route(route)
        received, outcome, renewed = 0, "kube_unknown", False
        try:
            for _ in range(MAX_RETRIES):
                remaining = max(deadline - loop.time(), 0.001)
                try:
                    async with await self._send(method, path, query, body, content_type, remaining) as response:
                        answer = await response.read()
                        code, retry_after = response.status, response.headers.get("Retry-After")
                except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
                    if not renewed and await self._access.renew():
                        renewed = True
                        continue
                    raise KubeUnknown(f"{route}: TLS handshake failed ({_brief(error)})") from error
                except TimeoutError as error:
                    raise KubeUnknown(f"{route}: no answer within {timeout_s:g} s") from error
                except (aiohttp.ClientError, OSError) as error:
                    raise KubeUnknown(f"{route}: {_brief(error)}") from error
                received += len(answer)
                if code < 300:
                    outcome = "ok"
                    return answer
                if code == 401 and not renewed and await self._access.renew():
                    renewed = True
                    continue
                wait_s = retry_after_s(retry_after)
                if code == 429 and wait_when_busy and loop.time() + wait_s < deadline:
                    await asyncio.sleep(wait_s)
                    continue
                error_found = error_of(route, code, status_of(answer), wait_s if retry_after is not None else None)
                outcome = error_found.code
                raise error_found
            raise KubeRejected(f"{route}: 429 after {MAX_RETRIES} tries", status=429, reason="TooManyRequests")
        finally:
            counters.count(sent=len(body) if body is not None else 0, received=received, outcome=outcome)

    async def open_watch(self, path: str, query: Mapping[str, str], silence_s: float) -> aiohttp.ClientResponse:
        """An open stream. Errors as in ``request``; 429 and 401 are for the caller's backoff, after one renewal."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=silence_s)
        for attempt in (1, 2):
            try:
                response = await self._send("GET", path, query, None, "", timeout)
            except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
                if attempt == 1 and await self._access.renew():
                    continue
                raise KubeUnknown(f"watch: TLS handshake failed ({_brief(error)})") from error
            except (aiohttp.ClientError, OSError) as error:
                raise KubeUnknown(f"watch: {_brief(error)}") from error
            if response.status == 200:
                return response
            try:
                answer = await response.content.read(65_536)
            except (aiohttp.ClientError, OSError) as error:
                raise KubeUnknown(f"watch: {response.status}, {_brief(error)}") from error
            finally:
                response.release()
            if response.status == 401 and attempt == 1 and await self._access.renew():
                continue
            retry_after = response.headers.get("Retry-After")
            wait_s = retry_after_s(retry_after) if retry_after is not None else None
            raise error_of("watch", response.status, status_of(answer), wait_s)
        raise KubeUnknown("watch: refused again after credentials were renewed")

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        timeout: float | aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        access = self._access
        headers = dict(await access.headers())
        if body is not None:
            headers["Content-Type"] = content_type
        if not isinstance(timeout, aiohttp.ClientTimeout):
            timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=min(5.0, timeout))
        url = f"{access.base_url}{path}?{urlencode(query)}" if query else f"{access.base_url}{path}"
        tls = access.tls()
        return await self._open().request(
            method,
            yarl.URL(url, encoded=True),
            data=body,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            proxy=access.proxy,
            ssl=tls if tls is not None else True,
            server_hostname=access.server_hostname,
        )

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise KubeUnknown("the client is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=MAX_CONNECTIONS, keepalive_timeout=IDLE_S, socket_factory=watched_socket
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
                skip_auto_headers=("Accept-Encoding",),
                read_bufsize=1 << 18,
            )
        return self._session


def watched_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket whose peer's death is noticed (``KEEPALIVE``); options that the platform lacks are left out."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        option = getattr(socket, name, None)
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


def error_of(route: str, code: int, status: Status, wait_s: float | None) -> KubeRejected | KubeUnknown | KubeExpired:
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


_SSL_OBJECT = re.compile(r" ssl:<[^>]*>")
"""How aiohttp names the TLS context of a failed connection: an address in memory, which tells nobody anything."""


def _brief(error: BaseException) -> str:
    told = _SSL_OBJECT.sub("", str(error)) or type(error).__name__
    return told[:ERROR_LIMIT]
