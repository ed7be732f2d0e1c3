"""Calls between services: bytes out, bytes in, over kept-alive HTTP/1.1 with one deadline.

It does not know message types (``shared.wire`` does), nor does it retry: a peer's message is a hint or a request, and
only its sender knows whether sending it twice is harmless. What it does decide is the one bit that matters,
``PeerRejected`` (had no effect) or ``PeerUnknown`` (may have had one).
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from typing import Any, Protocol

import aiohttp
import msgspec
import structlog
import yarl

from shared.adapters.peers.clock_skew import ClockSkew
from shared.adapters.peers.identity import identity_of
from shared.adapters.peers.traffic import Traffic
from shared.errors import PeerRejected, PeerUnknown

log = structlog.get_logger()

MEDIA_TYPE = "application/vnd.conclave.v1+msgpack"
ERROR_TEXT_LIMIT = 256
"""Characters of a peer's error text that we keep: enough to understand, too little to carry secrets far."""

URL_CACHE_LIMIT = 4096

CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""What every stable code looks like."""


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every 4xx and 5xx between services. ``code`` is stable, ``message`` is for people."""

    code: str = ""
    message: str = ""


class Credentials(Protocol):
    """What gives the Authorization header (``credentials.TokenFile``)."""

    def authorization(self) -> str:
        """The header's value now; files are re-read when they change."""
        ...


class PeerClient:
    """One per process. Close it with ``close``.

    ``tls``: context with our certificate for mutual TLS, or None. ``max_answer_bytes`` bounds what a peer can make us
    hold. ``connections_per_peer`` bounds sockets, and so the calls in flight to one peer; the others wait in line
    within their deadline.
    """

    def __init__(
        self,
        *,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        connections_per_peer: int = 8,
        connect_timeout_s: float = 1.0,
        max_answer_bytes: int = 16 << 20,
        skew: ClockSkew | None = None,
    ) -> None:
        self.traffic = Traffic()
        self._credentials = credentials
        self._tls = tls
        self._connections_per_peer = connections_per_peer
        self._connect_timeout_s = connect_timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._skew = skew
        self._session: aiohttp.ClientSession | None = None
        self._urls: dict[tuple[str, str], yarl.URL] = {}

    async def call(
        self,
        base_url: str,
        route: str,
        body: bytes,
        *,
        timeout_s: float,
        service: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """POST ``body`` to ``base_url + route``; the answer's body.

        ``service``: the role of whom we mean to reach. With TLS its certificate must carry that role's identity
        (``identity.identity_of``), whatever the address; empty: the address itself.

        ``timeout_s`` is the one deadline, from waiting for a connection to the last byte. Refused:
        ``PeerRejected`` (4xx, or no connection came about). Unknown: ``PeerUnknown`` (5xx, timeout, broken answer).
        """
        counters = self.traffic.route(route)
        answer, outcome = b"", "peer_unknown"
        try:
            answer = await self._post(base_url, route, body, timeout_s, service, headers)
            outcome = "ok"
            return answer
        except (PeerRejected, PeerUnknown) as error:
            outcome = error.code
            raise
        finally:
            counters.count(sent=len(body), received=len(answer), outcome=outcome)

    async def _post(
        self, base_url: str, route: str, body: bytes, timeout_s: float, service: str, extra: Mapping[str, str] | None
    ) -> bytes:
        if self._tls is not None and not base_url.startswith("https://"):
            raise _untrusted(base_url, service, "it is registered without TLS, which we do not speak")
        headers = {"Content-Type": MEDIA_TYPE}
        if self._credentials is not None:
            headers["Authorization"] = self._credentials.authorization()
        if extra:
            headers.update(extra)
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(self._connect_timeout_s, timeout_s))
        try:
            async with self._open().post(
                self._url(base_url, route),
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                server_hostname=identity_of(service) if service and self._tls is not None else None,
            ) as response:
                answer = await self._read(response)
                status, retry_after = response.status, response.headers.get("Retry-After")
                if self._skew is not None:
                    self._skew.see(f"{service or 'peer'} {base_url}", response.headers.get("Date", ""))
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
            raise _untrusted(base_url, service, _brief(error)) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise PeerRejected(f"{base_url}: no connection ({_brief(error)})", code="peer_unreachable") from error
        except ValueError as error:  # aiohttp.InvalidURL, yarl's own, and a host name that IDNA cannot encode
            raise PeerRejected(f"{base_url[:ERROR_TEXT_LIMIT]}: not a URL", code="peer_unreachable") from error
        except TimeoutError as error:
            raise PeerUnknown(f"{base_url}{route}: no answer within {timeout_s} s") from error
        except (aiohttp.ClientError, OSError) as error:
            alert = _alert(error)
            if alert:
                raise _untrusted(base_url, service, f"it refuses our certificate: {alert}") from error
            raise PeerUnknown(f"{base_url}{route}: {_brief(error)}") from error
        if status == 200:
            return answer
        told = _error_body(answer)
        message = f"{base_url}{route}: {status} {told.code} {told.message}"[: 2 * ERROR_TEXT_LIMIT]
        if 400 <= status < 500:
            code = told.code or f"http_{status}"
            raise PeerRejected(message, code=code, status=status, retry_after_s=_seconds(retry_after))
        raise PeerUnknown(message)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        length = response.content_length
        if length is not None and length > self._max_answer_bytes:
            raise aiohttp.ClientPayloadError(f"answer of {length} bytes is over {self._max_answer_bytes}")
        if length is not None:
            return await response.read()
        parts, total = [], 0
        async for part in response.content.iter_any():
            total += len(part)
            if total > self._max_answer_bytes:
                raise aiohttp.ClientPayloadError(f"answer is over {self._max_answer_bytes} bytes")
            parts.append(part)
        return b"".join(parts)

    def _url(self, base_url: str, route: str) -> yarl.URL:
        url = self._urls.get((base_url, route))
        if url is None:
            if len(self._urls) >= URL_CACHE_LIMIT:
                self._urls.clear()
            url = self._urls[base_url, route] = yarl.URL(base_url.rstrip("/") + route)
        return url

    def _open(self) -> aiohttp.ClientSession:
        # aiohttp wants a running loop to make a session; the composition root builds us before there is one
        if self._session is None:
            options: dict[str, Any] = {} if self._tls is None else {"ssl": self._tls}
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, limit_per_host=self._connections_per_peer, keepalive_timeout=30.0, **options
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
                read_bufsize=1 << 20,
            )
        return self._session

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # the transports close in the next turn of the loop
            self._session = None


def _untrusted(base_url: str, service: str, why: str) -> PeerRejected:
    """No handshake came about, so no request was read: refused. One line, since certificates are for people to mend."""
    log.warning("peer_untrusted", url=base_url, peer=service, error=why)
    return PeerRejected(f"{base_url}: no trust between us and the {service or 'peer'}: {why}", code="peer_untrusted")


def _alert(error: BaseException | None) -> str:
    """The TLS alert behind an error, if there is one. In TLS 1.3 it comes when we read, after we have sent: a server
    that does not take our certificate never hands the request to its application."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            return str(error.reason)
        error = error.__cause__ or error.__context__
    return ""


def _error_body(body: bytes) -> ErrorBody:
    for decode in (msgspec.msgpack.decode, msgspec.json.decode):
        try:
            told = decode(body[:65536], type=ErrorBody)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        # the code goes into metrics and decisions: what does not look like one of ours is none
        return ErrorBody(told.code if CODE.fullmatch(told.code) else "", told.message[:ERROR_TEXT_LIMIT])
    return ErrorBody()


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _brief(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:ERROR_TEXT_LIMIT]
