"""The hot path to the Kubernetes API over raw HTTP: lists, watches, Bindings, patches, events.

The official client takes 586 us of CPU for a Binding and raises *after* a Binding that succeeded (its answer is a
Status, not a Binding); this takes about 100 us and reads the answer as what it is (ADR 0003). Where the server is and
who we are comes from ``KubeAccess`` (``config``).

Refused: ``KubeRejected`` (4xx with a Status: no effect). Unknown: ``KubeUnknown`` (5xx, timeout, broken connection).
What is retried is ``transport``'s, how connections are kept ``pool``'s; how a watch goes on for ever is ``watch``'s.
It keeps no objects and decides nothing about them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from shared.adapters.kube.signs import WatchSigns
from shared.adapters.kube.transport import KubeAccess, KubeTransport
from shared.adapters.kube.watch import WatchPolicy, watch_batches
from shared.errors import ConfigError, KubeError, KubeExpired, KubeRejected, KubeUnknown
from shared.hostport import server_of
from shared.kube.decoding import UNREADABLE, ListMeta, decode_page, object_decoder
from shared.kube.nodes.node_metrics import PATH as METRICS_PATH
from shared.kube.nodes.node_metrics import NodeMetric, decode_node_metrics
from shared.kube.resources import PODS, MalformedObject, ObjectList, Resource, WatchEvent
from shared.ports import BindRequest

T = TypeVar("T")

PAGE_SIZE = 500
"""client-go's default page."""

NOBODY = "conclave-asks-for-the-revision"
"""An object that is not there, and the namespace where it is looked for, which is not there either."""

PAGE_S = 25.0
"""How long one page may take."""

CONTENT_TYPES = {
    "strategic": "application/strategic-merge-patch+json",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


_PLAIN = re.compile(r"[a-z0-9.-]+")
"""Names as nearly all are: nothing of them needs an escape."""


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

    def __init__(
        self,
        access: KubeAccess,
        *,
        policy: WatchPolicy | None = None,
        signs: WatchSigns | None = None,
        page_size: int = PAGE_SIZE,
    ) -> None:
        self._http = KubeTransport(access)
        self.traffic = self._http.traffic
        self._place = access.base_url
        if access.proxy:
            self._place += f" through the proxy {server_of(access.proxy).url}"
        self._policy = policy if policy is not None else WatchPolicy()
        self.signs = signs if signs is not None else WatchSigns()
        self._page_size = page_size
        self._read: dict[str, int] = {}

    def figures(self) -> dict[str, dict[str, int]]:
        """``requests`` by what they were, the openings of watches left out, and objects ``read`` of lists by kind."""
        requests = {route: counters.requests for route, counters in self.traffic.routes.items()}
        return {"requests": requests, "read": dict(self._read)}

    async def check(self, *, timeout_s: float = 5.0) -> str:
        """The server's version. ``ConfigError`` in one line when it does not answer or does not let us in."""
        base = self._place
        try:
            body = await self._http.request("version", "GET", "/version", timeout_s=timeout_s)
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

    async def check_reads(self, *resources: Resource[Any], timeout_s: float = 5.0) -> None:
        """Whether we may list ``resources``; ``/version`` is open to everybody. ``ConfigError`` in one line if not."""
        for resource in resources:
            route, query = f"list {resource.plural}", {"limit": "1"}
            try:
                await self._http.request(route, "GET", resource.path(), query=query, timeout_s=timeout_s)
            except KubeRejected as error:
                raise ConfigError(
                    f"{self._place}: the API server refuses us ({error}); give the kubeconfig's user that right"
                ) from error
            except KubeUnknown as error:
                raise ConfigError(
                    f"{self._place}: no answer from the API server ({error}); check that it runs"
                ) from error

    async def may_list(self, resource: Resource[Any], *, timeout_s: float = 5.0) -> bool:
        """Whether ``resource`` is served and ours to list; True also where the server does not say."""
        return await self.lists(resource, timeout_s=timeout_s) is not False

    async def lists(self, resource: Resource[Any], *, timeout_s: float = 5.0) -> bool | None:
        """As ``may_list``; None where the server does not say."""
        route, query = f"list {resource.plural}", {"limit": "1"}
        try:
            await self._http.request(route, "GET", resource.path(), query=query, timeout_s=timeout_s)
        except KubeRejected as error:
            return False if error.status in (401, 403, 404) else None
        except KubeError:
            return None
        return True

    async def list(self, resource: Resource[T], *, timeout_s: float = 60.0) -> ObjectList[T]:
        """See ``KubeApi.list``. An expired continue token starts anew, the second time without pages."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        for limit in (self._page_size, self._page_size, 0):
            items: list[T] = []
            malformed: list[MalformedObject] = []
            revision = ""
            try:
                async with contextlib.aclosing(self._pages(resource, limit, deadline)) as pages:
                    async for page in pages:
                        items += page.items
                        malformed += page.malformed
                        revision = page.resource_version
            except KubeExpired:
                continue
            return ObjectList(tuple(items), revision, tuple(malformed))
        raise KubeUnknown(f"list of {resource.plural}: 410 even without a continue token")

    def pages(self, resource: Resource[T], *, timeout_s: float = 60.0) -> AsyncGenerator[ObjectList[T], None]:
        """See ``KubeApi.pages``."""
        return self._pages(resource, self._page_size, asyncio.get_running_loop().time() + timeout_s)

    async def _pages(self, resource: Resource[T], limit: int, deadline: float) -> AsyncGenerator[ObjectList[T], None]:
        asking = asyncio.ensure_future(self._page(resource, limit, "", deadline))
        try:
            while True:
                items, meta, malformed = self._decoded(resource, await asking)
                if meta.continue_:  # the server works on the next page while this one is taken in
                    asking = asyncio.ensure_future(self._page(resource, limit, meta.continue_, deadline))
                yield ObjectList(tuple(items), meta.resource_version, tuple(malformed))
                if not meta.continue_:
                    return
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    def _decoded(self, resource: Resource[T], body: bytes) -> tuple[Sequence[T], ListMeta, Sequence[MalformedObject]]:
        items, meta, malformed = decode_page(resource, body)
        self._read[resource.plural] = self._read.get(resource.plural, 0) + len(items) + len(malformed)
        return items, meta, malformed

    async def _page(self, resource: Resource[Any], limit: int, token: str, deadline: float) -> bytes:
        query: dict[str, str] = {}
        if limit:
            query["limit"] = str(limit)
        if token:
            query["continue"] = token
        remaining = deadline - asyncio.get_running_loop().time()
        if remaining <= 0:
            raise KubeUnknown(f"list of {resource.plural}: not complete within its deadline")
        # a page is small: one that does not come is no slow server's, and the list is begun anew the sooner
        patience_s = min(remaining, PAGE_S) if limit else remaining
        try:
            return await self._http.request(
                f"list {resource.plural}", "GET", resource.path(), query=query, timeout_s=patience_s
            )
        except KubeRejected as error:
            if error.status in (403, 404):
                self.signs.unserved(resource.plural)
            raise

    async def read(
        self, route: str, path: str, *, query: Mapping[str, str] | None = None, timeout_s: float = 5.0
    ) -> bytes:
        """GET of something that is no object of a known kind (metrics, discovery). ``route``: its name in figures."""
        return await self._http.request(route, "GET", path, query=query, timeout_s=timeout_s)

    async def node_metrics(self, *, timeout_s: float = 5.0) -> Sequence[NodeMetric]:
        """What nodes use, from the metrics API. Refused (also where it is not served): ``KubeRejected``."""
        body = await self._http.request("list node metrics", "GET", METRICS_PATH, timeout_s=timeout_s)
        return decode_node_metrics(body)[0]

    def watch_batches(
        self, resource: Resource[T], *, resource_version: str, brief: int = 0
    ) -> AsyncGenerator[Sequence[WatchEvent[T]], None]:
        """See ``KubeApi.watch_batches``: all events that one read delivered, as one list."""
        return watch_batches(
            self._http.open_watch,
            lambda: self.revision(resource),
            resource,
            resource_version=resource_version,
            policy=self._policy,
            signs=self.signs,
            brief=brief,
        )

    async def watch(self, resource: Resource[T], *, resource_version: str) -> AsyncGenerator[WatchEvent[T], None]:
        """See ``KubeApi.watch``."""
        async with contextlib.aclosing(self.watch_batches(resource, resource_version=resource_version)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def revision(self, resource: Resource[Any]) -> str:
        """See ``KubeApi.revision``. A list of an object that is not there: no server has to look through others for it.

        It has no limit: only then a server that lists from its watch cache (since 1.31) brings it up to etcd first, and
        watches tell that they have come so far; a list with a limit may leave it behind."""
        query = {"fieldSelector": f"metadata.name={NOBODY}"}
        try:
            body = await self._http.request(
                f"list {resource.plural}", "GET", resource.path(NOBODY), query=query, timeout_s=5.0
            )
        except (KubeRejected, KubeExpired):
            return ""
        return self._decoded(resource, body)[1].resource_version

    async def get(self, resource: Resource[T], *, namespace: str, name: str, timeout_s: float = 5.0) -> T | None:
        """See ``KubeApi.get``."""
        try:
            path = resource.path(_segment(namespace), _segment(name))
            body = await self._http.request(f"get {resource.plural}", "GET", path, timeout_s=timeout_s)
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
        path = PODS.path(_segment(request.namespace), _segment(request.name), "binding")
        # after a wait the node may be another: the binder looks at it again, then asks again
        await self._http.request("bind", "POST", path, body=body, timeout_s=timeout_s, wait_when_busy=False)

    async def evict(self, *, namespace: str, name: str, uid: str, timeout_s: float = 5.0) -> None:
        """See ``KubeApi.evict``."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = PODS.path(_segment(namespace), _segment(name), "eviction")
        await self._http.request(
            "evict", "POST", path, body=msgspec.json.encode(body), timeout_s=timeout_s, wait_when_busy=False
        )

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
        wait_when_busy: bool = True,
    ) -> None:
        """See ``KubeApi.patch``."""
        await self._patch(resource, namespace, name, patch, subresource, strategy, timeout_s, wait_when_busy)

    async def patched(
        self, resource: Resource[T], *, namespace: str, name: str, patch: Mapping[str, Any], subresource: str = "",
        timeout_s: float = 5.0, wait_when_busy: bool = True,
    ) -> T:  # fmt: skip
        """See ``KubeApi.patched``."""
        body = await self._patch(resource, namespace, name, patch, subresource, "strategic", timeout_s, wait_when_busy)
        try:
            return object_decoder(resource).decode(body)
        except UNREADABLE as error:
            raise KubeUnknown(f"{resource.plural} {namespace}/{name} does not decode: {str(error)[:128]}") from error

    async def applied(
        self, resource: Resource[T], *, name: str, body: Mapping[str, Any], manager: str, subresource: str = "",
        force: bool = False, timeout_s: float = 5.0,
    ) -> T:  # fmt: skip
        """Server-side apply of a cluster-scoped object, or of a subresource; the object as it is by that. ``manager``
        owns what ``body`` says, and what it said before is taken away; a field of another manager's: ``KubeRejected``
        409, unless ``force``."""
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        whole["metadata"] = {"name": name, **body.get("metadata", {})}
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        answer = await self._patch(resource, "", name, whole, subresource, "apply", timeout_s, False, query)
        try:
            return object_decoder(resource).decode(answer)
        except UNREADABLE as error:
            raise KubeUnknown(f"{resource.plural} {name} does not decode: {str(error)[:128]}") from error

    async def _patch(
        self, resource: Resource[Any], namespace: str, name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]], subresource: str, strategy: str, timeout_s: float,
        wait_when_busy: bool, query: Mapping[str, str] | None = None,
    ) -> bytes:  # fmt: skip
        return await self._http.request(
            f"patch {resource.plural}",
            "PATCH",
            resource.path(_segment(namespace), _segment(name), subresource),
            body=msgspec.json.encode(patch),
            content_type=CONTENT_TYPES[strategy],
            timeout_s=timeout_s,
            query=query,
            wait_when_busy=wait_when_busy,
        )

    async def create(
        self, resource: Resource[Any], *, namespace: str, body: Mapping[str, Any], timeout_s: float = 5.0,
        wait_when_busy: bool = True, dry_run: bool = False,
    ) -> None:  # fmt: skip
        """See ``KubeApi.create``."""
        await self._http.request(
            f"create {resource.plural}",
            "POST",
            resource.path(_segment(namespace)) + ("?dryRun=All" if dry_run else ""),
            body=msgspec.json.encode(body),
            timeout_s=timeout_s,
            wait_when_busy=wait_when_busy,
        )

    async def delete(
        self, resource: Resource[Any], *, namespace: str, name: str, uid: str = "", resource_version: str = "",
        timeout_s: float = 5.0,
    ) -> None:  # fmt: skip
        """See ``KubeApi.delete``."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if any(preconditions.values()):
            options["preconditions"] = {name: value for name, value in preconditions.items() if value}
        await self._http.request(
            f"delete {resource.plural}",
            "DELETE",
            resource.path(_segment(namespace), _segment(name)),
            body=msgspec.json.encode(options),
            timeout_s=timeout_s,
        )

    async def close(self) -> None:
        """Close all connections; watches end with an error in their own time."""
        await self._http.close()


def _segment(name: str) -> str:
    """One segment of a path, whatever the text holds: names come from callers too, who must not choose what our rights
    are used for. ``KubeRejected``: no object has such a name."""
    if name in (".", ".."):
        raise KubeRejected(f"{name}: no object has such a name", status=404, reason="NotFound")
    return name if _PLAIN.fullmatch(name) else quote(name, safe="")
