"""Speaks with the admin API: JSON in, JSON out, one deadline, and each failure as one line that says what to do.

``ConfigError``: refused, nothing was changed, and asking again changes nothing (exit code 2). ``ServerFailed``: nobody
answers or leads, or nobody knows whether it was done (exit code 1). Reading is tried again while the server is too
busy, within the deadline; a change is sent once. Nothing is followed elsewhere: no redirects, no proxies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp

from services.cli.server.errors import ServerFailed, refusal, text_of
from shared.errors import ConfigError

TIMEOUT_S = 10.0
CONNECT_S = 3.0
QUIET_S = 45.0
"""A stream says something at least every 15 s: three times nothing, and the connection is dead."""
ALIVE_S = 2.0
"""Where there are several servers: how long one may take to say that it is there before the next is asked."""
MAX_ANSWER_BYTES = 32 << 20
PAGE = 500
"""Items per page: what the API gives at most."""
READ_BUFFER = 1 << 20
LINKED = frozenset({"page", "runbook"})
"""Fields of answers that name a page of the server itself."""

Json = dict[str, Any]

_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
"""Of a request whose deadline is kept around it."""


class AdminClient:
    """One server for one command: the first of ``urls`` that answers, which then is kept. ``pages``: where people read
    its pages, if not there."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
        pages: str = "",
    ) -> None:
        self._urls = list(urls)
        self._pages = pages
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._tls = tls
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._chosen = len(self._urls) < 2

    @property
    def url(self) -> str:
        """The server that is asked next."""
        return self._urls[0]

    async def get(self, path: str, **query: Any) -> Json:
        """The answer to a GET. Empty and None values of ``query`` are left out."""
        wanted = {name: str(value) for name, value in query.items() if value not in (None, "")}
        async with self._deadline("GET", path):
            while True:
                status, headers, body = await self._once("GET", path, query=wanted)
                if status != 429:
                    break
                await asyncio.sleep(_retry_after_s(headers))
        return self._answer("GET", path, status, body)

    async def change(self, method: str, path: str, document: Mapping[str, Any]) -> Json:
        """The answer to a change, sent once."""
        async with self._deadline(method, path):
            status, _, body = await self._once(method, path, document=document)
        return self._answer(method, path, status, body)

    async def items(self, path: str, *, most: int = 0, **query: Any) -> list[Json]:
        """All items of a list, page by page; with ``most`` at most so many."""
        found: list[Json] = (await self.list_document(path, most=most, **query))["items"]
        return found

    async def list_document(self, path: str, *, most: int = 0, **query: Any) -> Json:
        """As ``items``, with what the first page holds beside them. ``continue`` is where it stopped, "" at the end."""
        whole: Json = {}
        found: list[Json] = []
        token = ""
        while True:
            limit = min(PAGE, most - len(found)) if most else PAGE
            page = await self.get(path, **query, limit=limit, **{"continue": token})
            rows = page.get("items")
            if not isinstance(rows, list):
                raise ServerFailed(f"{self.url}{path}: the answer has no items; is the server of this version?")
            whole = whole or page
            found += rows
            before, token = token, str(page.get("continue") or "")
            # a page may be empty and yet not the last: whoever answers looks at so many and no more
            if token in ("", before) or (most and len(found) >= most):
                return {**whole, "items": found, "continue": token}

    @contextlib.asynccontextmanager
    async def stream(self, path: str, **query: Any) -> AsyncIterator[aiohttp.StreamReader]:
        """The body of a GET as it comes: it must begin within the deadline, and never say nothing for ``QUIET_S``.
        Raises as ``get``, and waits as it does where the server asks for patience."""
        wanted = {name: str(value) for name, value in query.items() if value not in (None, "")}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=QUIET_S)
        waited_s = 0.0
        while True:
            async with self._deadline("GET", path):
                response = await self._open("GET", path, query=wanted, timeout=timeout)
            if response.status != 429 or waited_s > self._timeout_s:
                break
            response.release()
            waited_s += (pause_s := _retry_after_s(response.headers))
            await asyncio.sleep(pause_s)
        try:
            if response.status != 200:
                self._answer("GET", path, response.status, await response.content.read(65536))
            with _broken(self.url, path):
                yield response.content
        finally:
            response.close()

    async def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            await self._session.close()

    # --- one request --------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _deadline(self, method: str, path: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except TimeoutError:
            raise ServerFailed(_silent(self.url, method, path, self._timeout_s)) from None

    async def _once(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, document: Any = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        response = await self._open(method, path, query=query, document=document, timeout=_TIMEOUT)
        try:
            return response.status, response.headers, await _body(response)
        except (aiohttp.ClientError, OSError) as error:
            raise ServerFailed(f"{self.url}: the answer breaks off ({text_of(error)}){_maybe(method)}") from None
        finally:
            response.release()

    async def _open(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,
        query: Mapping[str, str] | None = None,
        document: Any = None,
    ) -> aiohttp.ClientResponse:
        """The response's head, of the first server that takes a connection."""
        if self._session is None:
            options: dict[str, Any] = {} if self._tls is None else {"ssl": self._tls}
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=8, **options),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=READ_BUFFER,
            )
        if not self._chosen:
            self._chosen = True
            await self._choose(self._session)
        failures: list[str] = []
        for url in list(self._urls):
            sent: dict[str, Any] = {}
            if document is not None:  # weights are large: of large bytes aiohttp warns
                sent = {"data": BytesIO(json.dumps(document).encode()), "headers": {"Content-Type": "application/json"}}
            try:
                response = await self._session.request(
                    method, url + path, params=query or {}, timeout=timeout, allow_redirects=False, **sent
                )
            except aiohttp.ClientConnectorCertificateError as error:
                raise ConfigError(f"{url}: {text_of(error)}; give the CA that signed it with --ca") from None
            except (aiohttp.ClientSSLError, ssl.SSLError) as error:
                raise ConfigError(_no_handshake(url, error)) from None
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                failures.append(f"{url}: {_no_connection(error)}")
                continue
            except aiohttp.ClientResponseError as error:
                raise ServerFailed(f"{url}: the answer is no HTTP ({text_of(error)}); is it https://?") from None
            except (aiohttp.ClientError, OSError) as error:
                raise ServerFailed(_no_answer(url, method, error)) from None
            if url != self._urls[0]:
                self._urls = [url, *(other for other in self._urls if other != url)]
            return response
        raise ServerFailed(
            f"{'; '.join(failures)}; is a coordinator running there with --admin-listen? "
            "its address is in its ready line"
        )

    async def _choose(self, session: aiohttp.ClientSession) -> None:
        """Put first the server that says it is there. One that hangs takes connections all the same, and a change
        that it was sent may not be sent to another. Where none says so the order stays, and asking tells why."""
        for url in self._urls:
            try:
                async with session.get(
                    f"{url}/healthz", timeout=aiohttp.ClientTimeout(total=ALIVE_S), allow_redirects=False
                ):
                    self._urls = [url, *(other for other in self._urls if other != url)]
                    return
            except (aiohttp.ClientError, OSError):  # TimeoutError is one
                continue

    def _answer(self, method: str, path: str, status: int, body: bytes) -> Json:
        try:
            found = decoded(body, self._pages or self.url)
        except (ValueError, RecursionError):
            found = None
        if status == 200 and isinstance(found, dict):
            return found
        if not isinstance(found, dict) or (status != 200 and "code" not in found):
            raise ServerFailed(
                f"{self.url}{path}: {status} and no JSON; is this a coordinator's admin address?{_maybe(method)}"
            )
        raise refusal(self.url, status, str(found.get("code", "")), str(found.get("message", "")))


def decoded(body: bytes, pages: str) -> Any:
    """The document, with links where it names pages of the server. ``ValueError``: it is no JSON."""
    if b'"/ui/' not in body:
        return json.loads(body)

    def linked(fields: Json) -> Json:
        for name in LINKED & fields.keys():
            if isinstance(address := fields[name], str) and address.startswith("/ui/"):
                fields[name] = pages + address
        return fields

    return json.loads(body, object_hook=linked)


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """The body, of a length that we can hold."""
    parts, total = [], 0
    async for part in response.content.iter_any():
        total += len(part)
        if total > MAX_ANSWER_BYTES:
            raise aiohttp.ClientPayloadError(f"over {MAX_ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def _broken(url: str, path: str) -> Iterator[None]:
    """Not every OSError: the block also writes what it reads."""
    try:
        yield
    except (aiohttp.ClientError, ConnectionResetError) as error:
        raise ServerFailed(f"{url}{path}: the answer breaks off ({text_of(error)}); ask again") from None


def _retry_after_s(headers: Mapping[str, str]) -> float:
    told = headers.get("Retry-After", "")
    return min(max(float(told), 0.05), 5.0) if told.isascii() and told.isdigit() else 0.2


def _maybe(method: str) -> str:
    return "" if method == "GET" else "; it may have been done: look before you repeat it"


def _no_connection(error: BaseException) -> str:
    cause = getattr(error, "os_error", None)
    if isinstance(cause, ConnectionRefusedError) or "Connect call failed" in str(cause):
        return "nobody listens there"
    if isinstance(cause, socket.gaierror):
        return "there is no such host"
    return f"no connection ({text_of(error)})"


def _silent(url: str, method: str, path: str, timeout_s: float) -> str:
    return f"{url}{path}: no answer within {timeout_s:g} s{_maybe(method) or '; ask again in a moment'}"


def _no_answer(url: str, method: str, error: BaseException) -> str:
    hint = "" if url.startswith("https") else "; if it speaks TLS, write https://"
    return f"{url}: the connection breaks ({text_of(error)}){hint}{_maybe(method)}"


def _no_handshake(url: str, error: BaseException) -> str:
    told = text_of(error)
    if "WRONG_VERSION_NUMBER" in told or "record layer" in told:
        return f"{url}: the server speaks no TLS; write http://"
    return f"{url}: no TLS handshake ({told}); give the server's CA with --ca, and --cert with --key where it asks"


def tls_context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """TLS 1.2 or newer towards a server, checked against ``ca`` (None: the system's). ``ConfigError``: a bad file."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if ca is not None:
            context = ssl.create_default_context(cafile=str(ca))
            context.minimum_version = ssl.TLSVersion.TLSv1_2
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--ca: {ca}: {text_of(error)}; give a PEM file with the CA's certificate") from None
    if cert is not None and key is not None:
        try:
            context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"--cert: {cert}, {key}: {text_of(error)}; give a certificate and its key") from None
    return context
