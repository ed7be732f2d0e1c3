"""The hot path to the Kubernetes API over raw aiohttp: lists, watches, Bindings, patches, events.

The official client takes 586 us of CPU for a Binding and raises *after* a Binding that succeeded (its answer is a
Status, not a Binding); this takes about 100 us and reads the answer as what it is (ADR 0003). Where the server is and
who we are comes from ``KubeAccess`` (``kube_config``).

Refused: ``KubeRejected`` (4xx with a Status: no effect). Unknown: ``KubeUnknown`` (5xx, timeout, broken connection).
A 429 and a 401 had no effect and are retried here, inside the caller's one deadline. It refuses to retry anything
whose outcome is unknown, and never logs a body.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
import yarl

from shared.adapters.kube_watch import WatchPolicy, watch_batches
from shared.adapters.traffic import Traffic
from shared.errors import ConfigError, KubeExpired, KubeRejected, KubeUnknown
from shared.kube.decoding import ERROR_LIMIT, UNREADABLE, Status, decode_page, object_decoder, status_of
from shared.kube.resources import PODS, MalformedObject, ObjectList, Resource, WatchEvent
from shared.ports import BindRequest

T = TypeVar("T")

PAGE_SIZE = 500
"""client-go's default page."""

MAX_CONNECTIONS = 128
USER_AGENT = "conclave/0.1"

CONTENT_TYPES = {
    "strategic": "application/strategic-merge-patch+json",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
}

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


class _ObjectReference(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    name: str


class _BindingMeta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    namespace: str
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Binding(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    metadata: _BindingMeta
    target: _ObjectReference


class KubeClient:
    """``shared.ports.KubeApi`` over aiohttp. One per process; close it with ``close``."""

    def __init__(self, access: KubeAccess, *, policy: WatchPolicy | None = None, page_size: int = PAGE_SIZE) -> None:
        self.traffic = Traffic()
        self._access = access
        self._policy = policy if policy is not None else WatchPolicy()
        self._page_size = page_size
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def check(self, *, timeout_s: float = 5.0) -> str:
        """The server's version. ``ConfigError`` in one line when it does not answer or does not let us in."""
        base = self._access.base_url
        try:
            body = await self._request("version", "GET", "/version", timeout_s=timeout_s)
            version = msgspec.json.decode(body, type=dict[str, Any]).get("gitVersion", "")
        except KubeRejected as error:
            raise ConfigError(f"{base}: the API server refuses us ({error}); check the kubeconfig's user") from error
        except KubeUnknown as error:
            raise ConfigError(
                f"{base}: no answer from the API server ({error}); check that it runs and the kubeconfig's server"
            ) from error
        except UNREADABLE as error:
            raise ConfigError(f"{base}: the answer to /version is no JSON; is this a Kubernetes API server?") from error
        return str(version)

    async def list(self, resource: Resource[T], *, timeout_s: float = 60.0) -> ObjectList[T]:
        """See ``KubeApi.list``. An expired continue token starts anew, the second time without pages."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        for limit in (self._page_size, self._page_size, 0):
            try:
                return await self._list_pages(resource, limit, deadline)
            except KubeExpired:
                continue
        raise KubeUnknown(f"list of {resource.plural}: 410 even without a continue token")

    async def _list_pages(self, resource: Resource[T], limit: int, deadline: float) -> ObjectList[T]:
        items: list[T] = []
        malformed: list[MalformedObject] = []
        token = ""
        while True:
            query: dict[str, str] = {}
            if limit:
                query["limit"] = str(limit)
            if token:
                query["continue"] = token
            remaining = deadline - asyncio.get_running_loop().time()
            if remaining <= 0:
                raise KubeUnknown(f"list of {resource.plural}: not complete within its deadline")
            body = await self._request(
                f"list {resource.plural}", "GET", resource.path(), query=query, timeout_s=remaining
            )
            page, meta, bad = decode_page(resource, body)
            items += page
            malformed += bad
            token = meta.continue_
            if not token:
                return ObjectList(tuple(items), meta.resource_version, tuple(malformed))

    def watch_batches(
        self, resource: Resource[T], *, resource_version: str
    ) -> AsyncGenerator[Sequence[WatchEvent[T]], None]:
        """See ``KubeApi.watch_batches``: all events that one read delivered, as one list."""
        return watch_batches(
            self._open_watch,
            lambda: self._revision(resource),
            resource,
            resource_version=resource_version,
            policy=self._policy,
        )

    async def watch(self, resource: Resource[T], *, resource_version: str) -> AsyncGenerator[WatchEvent[T], None]:
        """See ``KubeApi.watch``."""
        async with contextlib.aclosing(self.watch_batches(resource, resource_version=resource_version)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def _revision(self, resource: Resource[Any]) -> str:
        """The server's resourceVersion now; empty where it does not tell."""
        try:
            body = await self._request(
                f"list {resource.plural}", "GET", resource.path(), query={"limit": "1"}, timeout_s=5.0
            )
        except (KubeRejected, KubeExpired):
            return ""
        return decode_page(resource, body)[1].resource_version

    async def get(self, resource: Resource[T], *, namespace: str, name: str, timeout_s: float = 5.0) -> T | None:
        """See ``KubeApi.get``."""
        path = resource.path(quote(namespace), quote(name))
        try:
            body = await self._request(f"get {resource.plural}", "GET", path, timeout_s=timeout_s)
        except KubeRejected as error:
            if error.status == 404:
                return None
            raise
        try:
            return object_decoder(resource).decode(body)
        except UNREADABLE as error:
            raise KubeUnknown(f"{resource.plural} {namespace}/{name} does not decode: {str(error)[:128]}") from error

    async def bind(self, request: BindRequest, *, timeout_s: float = 5.0) -> None:
        """See ``KubeApi.bind``."""
        body = msgspec.json.encode(
            _Binding(
                "v1",
                "Binding",
                _BindingMeta(
                    request.name,
                    request.namespace,
                    request.uid,
                    request.resource_version,
                    dict(request.annotations) or None,
                ),
                _ObjectReference("v1", "Node", request.node_name),
            )
        )
        path = PODS.path(quote(request.namespace), quote(request.name), "binding")
        await self._request("bind", "POST", path, body=body, timeout_s=timeout_s)

    async def patch(
        self,
        resource: Resource[Any],
        *,
        namespace: str,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        subresource: str = "",
        strategy: str = "strategic",
        timeout_s: float = 5.0,
    ) -> None:
        """See ``KubeApi.patch``; a ``json`` patch is a list of operations."""
        await self._request(
            f"patch {resource.plural}",
            "PATCH",
            resource.path(quote(namespace), quote(name), subresource),
            body=msgspec.json.encode(patch),
            content_type=CONTENT_TYPES[strategy],
            timeout_s=timeout_s,
        )

    async def create(
        self, resource: Resource[Any], *, namespace: str, body: Mapping[str, Any], timeout_s: float = 5.0
    ) -> None:
        """See ``KubeApi.create``."""
        path = resource.path(quote(namespace))
        await self._request(
            f"create {resource.plural}", "POST", path, body=msgspec.json.encode(body), timeout_s=timeout_s
        )

    async def delete(
        self, resource: Resource[Any], *, namespace: str, name: str, uid: str = "", timeout_s: float = 5.0
    ) -> None:
        """See ``KubeApi.delete``."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        await self._request(
            f"delete {resource.plural}",
            "DELETE",
            resource.path(quote(namespace), quote(name)),
            body=msgspec.json.encode(options),
            timeout_s=timeout_s,
        )

    async def close(self) -> None:
        """Close all connections; watches end with an error in their own time."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _request(
        self,
        route: str,
        method: str,
        path: str,
        *,
        timeout_s: float,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """The body of a 2xx. See the module's docstring for errors; ``KubeExpired`` for 410."""
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
                if code == 429 and loop.time() + wait_s < deadline:
                    await asyncio.sleep(wait_s)
                    continue
                error_found = error_of(route, code, status_of(answer), wait_s if retry_after is not None else None)
                outcome = error_found.code
                raise error_found
            raise KubeRejected(f"{route}: 429 after {MAX_RETRIES} tries", status=429, reason="TooManyRequests")
        finally:
            counters.count(sent=len(body) if body is not None else 0, received=received, outcome=outcome)

    async def _open_watch(self, path: str, query: Mapping[str, str], silence_s: float) -> aiohttp.ClientResponse:
        """An open stream. Errors as in ``_request``; 429 and 401 are for the caller's backoff, after one renewal."""
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
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=60.0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
                skip_auto_headers=("Accept-Encoding",),
                read_bufsize=1 << 18,
            )
        return self._session


def error_of(route: str, code: int, status: Status, wait_s: float | None) -> KubeRejected | KubeUnknown | KubeExpired:
    """The error of a non-2xx answer: 410 expired, other 4xx refused, everything else unknown."""
    message = f"{route}: {code} {status.reason}: {status.message}"[: 2 * ERROR_LIMIT]
    if code == 410:
        return KubeExpired(message)
    if 400 <= code < 500:
        return KubeRejected(message, status=code, reason=status.reason, retry_after_s=wait_s)
    return KubeUnknown(message)


def retry_after_s(header: str | None) -> float:
    """Seconds that ``Retry-After`` asks for; the API server sends whole seconds, never a date."""
    if header is not None and header.isascii() and header.isdigit():
        return max(MIN_RETRY_AFTER_S, min(float(header), 3600.0))
    return DEFAULT_RETRY_AFTER_S


def _brief(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:ERROR_LIMIT]
