"""Reads series from a Prometheus over its HTTP API (``/api/v1/query_range`` and ``query``), and nothing else.

A capture needs ranges, whose answer is a matrix; an autoscaler and the usage of nodes what a query is worth now, whose
answer is a vector or a scalar. Both have a deadline and a bounded size. Every failure is a ``ConfigError`` of one line:
a person reads it, on a terminal, in a condition or in the log. Source of the format: prometheus.io, "HTTP API".
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from shared.adapters.http.proxies import proxy_from_environment
from shared.errors import ConfigError
from shared.hostport import server_of

MAX_BYTES = 256 << 20
"""A matrix of 10,000 nodes and 1,000 steps is 250 MB; more is asked for in parts."""


class _Sample(msgspec.Struct, array_like=True):
    time_s: float
    value: str


class _Row(msgspec.Struct):
    metric: dict[str, str] = {}
    values: list[_Sample] = []
    value: _Sample | None = None


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Answer(msgspec.Struct, rename="camel"):
    status: str = ""
    error: str = ""
    data: _Data | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """``samples``: (unix seconds, value) ascending; a value may be NaN."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]


class PrometheusClient:
    """One server. Use as an async context manager. ``token``: a bearer token, "" for none; ``token_file``: a file with
    one in its place, read before each query: tokens that a cluster projects are replaced every hour. ``ca_file``: whom
    its certificate must come from (PEM), in place of the system's CAs; read again when it changes.

    It is asked through the proxy that the environment names for it, if any (``adapters.http.proxies``)."""

    def __init__(
        self, url: str, *, token: str = "", token_file: Path | None = None, ca_file: Path | None = None
    ) -> None:
        try:
            server = server_of(url)
        except ValueError:
            raise ConfigError(f"--prometheus: {url!r} is no URL; give one such as http://prometheus:9090") from None
        if ca_file is not None and server.scheme != "https":
            raise ConfigError(f"--prometheus: {url} is without TLS though a CA is given for it; write https://")
        self._url = url.rstrip("/")
        self._token, self._token_file, self._ca_file = token, token_file, ca_file
        self._proxy = proxy_from_environment(url, os.environ)
        self._trusted: tuple[tuple[int, int], ssl.SSLContext] | None = None
        """What the file of CAs was when it was read, and what it made."""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> PrometheusClient:
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    def check(self) -> None:
        """``ConfigError``: the file with the token or with the CAs cannot be used."""
        self.headers()
        self._tls()

    def _tls(self) -> ssl.SSLContext | bool:
        if self._ca_file is None:
            return True
        try:
            found = self._ca_file.stat()
            seen = (found.st_mtime_ns, found.st_size)
            if self._trusted is None or self._trusted[0] != seen:
                self._trusted = (seen, ssl.create_default_context(cafile=str(self._ca_file)))
        except OSError as error:  # SSLError is one
            problem = error.strerror or error
            raise ConfigError(f"prometheus_ca: {self._ca_file} cannot be used: {problem}; give a file in PEM") from None
        return self._trusted[1]

    def headers(self) -> dict[str, str]:
        """What each request carries. ``ConfigError``: there is no usable token."""
        token = self._token
        if self._token_file is not None:
            try:
                token = self._token_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"prometheus_token_file: {self._token_file} cannot be read: {error}") from None
        if not (token.isascii() and token.isprintable()):
            raise ConfigError("--prometheus: its token is not one line of printable characters; correct the file")
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def query_range(
        self, query: str, *, start_s: float, end_s: float, step_s: float, timeout_s: float = 60.0
    ) -> list[Series]:
        """The series of ``query`` from ``start_s`` to ``end_s`` (unix seconds). ``ConfigError``: no usable answer."""
        fields = {"query": query, "start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        return self._series(*await self._ask("query_range", fields, timeout_s), ("matrix",))

    async def query(self, query: str, *, timeout_s: float = 10.0) -> list[Series]:
        """The series of ``query`` now, with one sample each; a scalar is one without labels. ``ConfigError``: no usable
        answer."""
        return self._series(*await self._ask("query", {"query": query}, timeout_s), ("vector", "scalar"))

    async def _ask(self, endpoint: str, fields: Mapping[str, str], timeout_s: float) -> tuple[int, bytes]:
        assert self._session is not None, "use the client as a context manager"
        headers, tls = self.headers(), self._tls()
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.post(
                    f"{self._url}/api/v1/{endpoint}", data=fields, headers=headers, ssl=tls, proxy=self._proxy
                ) as response,
            ):
                return response.status, await _limited(response)
        except TimeoutError:
            raise self._error(f"no answer within {timeout_s:g} s; is it overloaded?") from None
        except aiohttp.ClientError as error:
            raise self._error(f"{_brief(error)}; check that it runs and the URL") from None

    def _series(self, status: int, body: bytes, kinds: tuple[str, ...]) -> list[Series]:
        try:
            answer = msgspec.json.decode(body, type=_Answer)
            if answer.status != "success":
                raise self._error(f"HTTP {status}: {answer.error[:200] or 'no success'}; check server and query")
            data = answer.data
            if data is None or data.result_type not in kinds:
                raise self._error(f"the answer is no {' or '.join(kinds)}; is this a Prometheus?")
            if data.result_type == "scalar":
                rows = [_Row(value=msgspec.json.decode(data.result, type=_Sample))]
            else:
                rows = msgspec.json.decode(data.result, type=list[_Row])
        except (msgspec.DecodeError, RecursionError):
            raise self._error(f"HTTP {status} and no JSON of Prometheus; check the URL") from None
        try:
            return [
                Series(row.metric, tuple((sample.time_s, float(sample.value)) for sample in _samples(row)))
                for row in rows
            ]
        except ValueError:
            raise self._error("a sample is no number; is this a Prometheus?") from None

    def _error(self, text: str) -> ConfigError:
        return ConfigError(f"--prometheus: {self._url}: {text}")


def _samples(row: _Row) -> list[_Sample]:
    return row.values if row.value is None else [row.value]


async def _limited(response: aiohttp.ClientResponse) -> bytes:
    parts, total = [], 0
    async for part in response.content.iter_any():
        total += len(part)
        if total > MAX_BYTES:
            raise aiohttp.ClientPayloadError(f"more than {MAX_BYTES} bytes; ask for a longer step or less time")
        parts.append(part)
    return b"".join(parts)


def _brief(error: BaseException) -> str:
    return str(error)[:200] or type(error).__name__
