"""Calls between services: bytes out, bytes in, over kept-alive HTTP/1.1 with one deadline.

It does not know message types (``shared.wire`` does), nor does it retry: a peer's message is a hint or a request, and
only its sender knows whether sending it twice is harmless. What it does decide is the one bit that matters,
``PeerRejected`` (had no effect) or ``PeerUnknown`` (may have had one).
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import OrderedDict
from collections.abc import Mapping
from typing import Protocol

import msgspec
import structlog

from shared.adapters.http.connection import Connection
from shared.adapters.http.dialing import ServerTarget, dial, target_of
from shared.adapters.http.pool import ConnectionPool
from shared.adapters.peers.clock_skew import ClockSkew
from shared.adapters.peers.identity import identity_of
from shared.adapters.peers.traffic import Traffic
from shared.errors import PeerRejected, PeerUnknown

log = structlog.get_logger()

HEALTH = "/healthz"
"""What every listener of ours answers to anybody."""

MEDIA_TYPE = "application/vnd.conclave.v1+msgpack"
ERROR_TEXT_LIMIT = 256
"""Characters of a peer's error text that we keep: enough to understand, too little to carry secrets far."""

MOST_PEERS = 4096
"""Peers whose connections are kept; of those beyond, the one called longest ago is left."""

CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""What every stable code looks like."""


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every 4xx and 5xx between services. ``code`` is stable, ``message`` is for people."""

    code: str = ""
    message: str = ""


class PeerCredentials(Protocol):
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
        credentials: PeerCredentials | None = None,
        tls: ssl.SSLContext | None = None,
        connections_per_peer: int = 16,
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
        self._pools: OrderedDict[tuple[str, str], ConnectionPool] = OrderedDict()

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
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        try:
            lines = self._lines(extra)
            pool = self._pool(base_url, service)
            connection = await pool.take(timeout_s)
        except ssl.SSLError as error:
            raise _untrusted(base_url, service, _brief(error)) from error
        except ValueError as error:  # a port or a host name that cannot be one
            raise PeerRejected(f"{base_url[:ERROR_TEXT_LIMIT]}: not a URL", code="peer_unreachable") from error
        except OSError as error:
            raise PeerRejected(f"{base_url}: no connection ({_brief(error)})", code="peer_unreachable") from error
        try:
            # nothing is awaited between here and the write: what is taken is usable
            first = f"POST {pool.target.prefix}{route} HTTP/1.1\r\n{pool.target.headers}{lines}"
            text = f"{first}Content-Length: {len(body)}\r\n\r\n".encode(errors="surrogateescape") + body
            head, answer = await connection.ask(text, max(0.0, deadline - clock()))
        except TimeoutError as error:
            raise PeerUnknown(f"{base_url}{route}: no answer within {timeout_s} s") from error
        except OSError as error:
            alert = _alert(error)
            if alert:
                raise _untrusted(base_url, service, f"it refuses our certificate: {alert}") from error
            raise PeerUnknown(f"{base_url}{route}: {_brief(error)}") from error
        finally:
            pool.give(connection)
        if self._skew is not None:
            self._skew.see(f"{service or 'peer'} {base_url}", head.date)
        status = head.status
        if status == 200:
            return answer
        told = _error_body(answer)
        message = f"{base_url}{route}: {status} {told.code} {told.message}"[: 2 * ERROR_TEXT_LIMIT]
        if 400 <= status < 500:
            code = told.code or f"http_{status}"
            raise PeerRejected(message, code=code, status=status, retry_after_s=_seconds(head.retry_after))
        raise PeerUnknown(message)

    async def hold(self, base_url: str, *, service: str = "") -> Connection:
        """A connection of its own, over which the peer has answered once, for who wants to know when it ends; whoever
        has it ends it. ``OSError``, ``ValueError``: none came about (``ConnectionRefusedError``: nobody listens)."""
        target = self._target(base_url, service)
        connection = await dial(target, connect_s=self._connect_timeout_s)
        try:
            head, _ = await connection.ask(
                f"GET {target.prefix}{HEALTH} HTTP/1.1\r\n{target.headers}\r\n".encode(), self._connect_timeout_s
            )
        except BaseException:
            connection.abort()
            raise
        if head.status != 200:
            connection.abort()
            raise OSError(f"{base_url}{HEALTH}: {head.status}")
        return connection

    def _lines(self, extra: Mapping[str, str] | None) -> str:
        """The headers that are ours. ``ValueError``: one that would end its line."""
        lines = f"Content-Type: {MEDIA_TYPE}\r\n"
        if self._credentials is not None:
            lines += f"Authorization: {self._credentials.authorization()}\r\n"
        for name, value in extra.items() if extra is not None else ():
            if not (name + value).isprintable():
                raise ValueError(f"header {name[:64]!r}")
            lines += f"{name}: {value}\r\n"
        return lines

    def _pool(self, base_url: str, service: str) -> ConnectionPool:
        """The connections to a peer. ``OSError``, ``ValueError``: that is no URL."""
        pool = self._pools.get((base_url, service))
        if pool is None:
            pool = self._pools[base_url, service] = ConnectionPool(
                self._target(base_url, service),
                most=self._connections_per_peer, connect_s=self._connect_timeout_s, most_bytes=self._max_answer_bytes,
            )  # fmt: skip
            if len(self._pools) > MOST_PEERS:
                self._pools.popitem(last=False)[1].retire()
        self._pools.move_to_end((base_url, service))
        return pool

    def _target(self, base_url: str, service: str) -> ServerTarget:
        identity = identity_of(service) if service and self._tls is not None else None
        return target_of(base_url, server_hostname=identity, tls=self._tls)

    async def close(self) -> None:
        """Close all connections but those that are held."""
        pools = list(self._pools.values())
        self._pools.clear()
        await asyncio.gather(*(pool.close() for pool in pools))


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
