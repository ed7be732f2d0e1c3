"""What the load's own side does at the API server: creates and deletes, many at once, and a watch of its own on pods.

Bodies are sent as they are; every time is this process's monotonic clock. It refuses to retry: a load that was not made
as it was meant is no measurement, and ends with what the server said.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec

from shared.adapters.kube.config import KubeConfig

NAMESPACE = "conclave-bench"
AT_ONCE = 32
URGENT, STANDING, LOW = 1000, 0, -10
"""Priorities."""
CLASSES = {URGENT: "conclave-bench-urgent", LOW: "conclave-bench-low"}
NODE_LABEL = "conclave.bench/node"
MAX_LINE = 1 << 24
GATEWAY_TIMEOUT, GONE, OK = 504, 410, 200
LEFT_BEHIND_S = 2.0
"""A server that is asked to delete a pod without a grace notes that it leaves, then deletes it; a request that is given
up between leaves it there."""
AGAIN_S = 1.0
"""Until a watch that the server did not open, or cut, is asked for again."""


class _Condition(msgspec.Struct):
    type: str
    status: str = ""


class _Metadata(msgspec.Struct):
    name: str = ""
    resourceVersion: str = ""  # noqa: N815  the API's name
    deletionTimestamp: str | None = None  # noqa: N815


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _List(msgspec.Struct):
    metadata: _Metadata
    items: list[_Pod]


@dataclass(slots=True)
class SeenPods:
    """By pod name: when the own watch first showed it so."""

    created: dict[str, float] = field(default_factory=dict)
    """When it was sent."""
    shown: dict[str, float] = field(default_factory=dict)
    """When the watch showed it at all: what its server had taken by then."""
    told: dict[str, float] = field(default_factory=dict)
    """PodScheduled=False."""
    bound: dict[str, float] = field(default_factory=dict)
    leaving: dict[str, float] = field(default_factory=dict)
    gone: dict[str, float] = field(default_factory=dict)
    node: dict[str, str] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)
    """Deleted by this side."""

    def evicted(self) -> set[str]:
        """Those that left and were not told to by this side."""
        return (self.leaving.keys() | self.gone.keys()) - self.own


class BenchCluster:
    """One API server. ``async with Cluster.open(kubeconfig)``."""

    def __init__(self, access: KubeConfig, session: aiohttp.ClientSession, grace_s: float) -> None:
        self._access = access
        self._session = session
        self._grace_s = grace_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._decoder = msgspec.json.Decoder(_Event)
        self._pods = msgspec.json.Decoder(_Pod)
        self.seen = SeenPods()
        self.changed = asyncio.Event()
        self.on_bound: Callable[[str], None] | None = None
        """Called with the name of each pod when it is seen bound first."""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, kubeconfig: Path, *, grace_s: float) -> AsyncIterator[Self]:
        """Connected; the namespace and what pods need in it are there."""
        access = await KubeConfig.load(kubeconfig)
        connector = aiohttp.TCPConnector(limit=2 * AT_ONCE, ssl=access.tls() or True)
        async with aiohttp.ClientSession(connector=connector, read_bufsize=MAX_LINE) as session:
            cluster = cls(access, session, grace_s)
            await cluster._prepare()
            watching = cluster._watching = asyncio.create_task(cluster._watch(await cluster._revision()))
            watching.add_done_callback(lambda _: cluster.changed.set())
            try:
                yield cluster
            finally:
                for task in (watching, *cluster._tasks):
                    task.cancel()
                await asyncio.gather(watching, *cluster._tasks, return_exceptions=True)

    # --- the load ---------------------------------------------------------------------------------------------------

    async def add_nodes(self, bodies: Iterable[dict[str, Any]]) -> None:
        """Ready, and without the taints that admission gives to new nodes."""

        async def one(body: dict[str, Any]) -> None:
            body["metadata"]["labels"][NODE_LABEL] = "true"
            path, name = "/api/v1/nodes", body["metadata"]["name"]
            await self._call("POST", path, body)
            await self._call("PATCH", f"{path}/{name}", {"spec": {"taints": body["spec"].get("taints")}})
            await self._call("PATCH", f"{path}/{name}/status", {"status": body["status"]})

        await self._many(one, bodies)

    async def add_pods(self, bodies: Iterable[dict[str, Any]]) -> None:
        """As fast as the server takes them."""
        await self._many(self.add_pod, bodies)

    async def add_pod(self, body: dict[str, Any]) -> None:
        """One."""
        spec, name = body["spec"], body["metadata"]["name"]
        body["metadata"]["namespace"] = NAMESPACE
        priority = spec.pop("priority", STANDING)
        if priority in CLASSES:
            spec["priorityClassName"] = CLASSES[priority]
        spec["terminationGracePeriodSeconds"] = int(self._grace_s)
        self.seen.created[name] = time.monotonic()
        await self._call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body)

    async def remove_pods(self, names: Iterable[str]) -> None:
        """At once, as a kubelet does at the end of the grace."""
        await self._many(self.remove_pod, names)

    async def remove_pod(self, name: str) -> None:
        """One; gone already is well."""
        self.seen.own.add(name)
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}?gracePeriodSeconds=0"
        await self._call("DELETE", path, None, also=(404,))

    async def clear(self) -> None:
        """Everything that a load left here."""
        await self.clear_pods()
        await self._delete_all(f"/api/v1/nodes?labelSelector={NODE_LABEL}%3Dtrue")

    async def clear_pods(self) -> None:
        """The pods alone. What is seen from here on is noted anew, their going first."""
        self.seen = SeenPods()
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        await self._delete_all(f"{pods}?gracePeriodSeconds=0")

    async def _delete_all(self, path: str) -> None:
        """A server gives up a call after a minute, also one that deletes thousands, or hangs up: what is left is asked
        for again."""
        while True:
            with contextlib.suppress(aiohttp.ServerDisconnectedError):
                text = await self._call("DELETE", path, None, also=(504,))
                if json.loads(text).get("code") != GATEWAY_TIMEOUT:
                    return

    async def metrics(self) -> str:
        """The server's own figures as Prometheus reads them; some other text where it shows none."""
        text: bytes = await self._call("GET", "/metrics", None, also=(401, 403, 404))
        return text.decode()

    async def until(self, holds: Any, most_s: float) -> bool:
        """Until ``holds()``, asked after every news; False after ``most_s``. Raises what ended the watch."""
        try:
            async with asyncio.timeout(most_s):
                while not holds():
                    if self._watching is not None and self._watching.done():
                        self._watching.result()
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            return False
        return True

    async def serving(self, group: str, versions: Iterable[str], plural: str) -> str:
        """``GROUP/VERSION`` of the first of these versions that has the resource; "" where none has."""
        for version in versions:
            text = await self._call("GET", f"/apis/{group}/{version}", None, also=(404,))
            served = json.loads(text).get("resources") if text.startswith(b"{") else None  # no group: 404 as plain text
            if any(one.get("name") == plural for one in served or ()):
                return f"{group}/{version}"
        return ""

    async def add(self, path: str, bodies: Iterable[dict[str, Any]]) -> None:
        """Objects of any kind."""
        await self._many(lambda body: self._call("POST", path, body), bodies)

    async def remove(self, path: str, names: Iterable[str]) -> None:
        """Objects of any kind; gone already is well."""
        await self._many(lambda name: self._call("DELETE", f"{path}/{name}", None, also=(404,)), names)

    async def drop(self, path: str, names: Iterable[str]) -> None:
        """The same, also of what a server protects: no controller is there to let it go."""
        await self._many(lambda name: self._let_go(f"{path}/{name}"), names)

    async def _let_go(self, path: str) -> None:
        await self._call("PATCH", path, {"metadata": {"finalizers": None}}, also=(404,))
        await self._call("DELETE", path, None, also=(404,))

    async def each_of(self, one: Callable[[Any], Any], items: Iterable[Any]) -> None:
        """``one`` of each item, many at once."""
        await self._many(one, items)

    async def ask(self, method: str, path: str, body: Any) -> Any:
        """One call; what the server answered."""
        return json.loads(await self._call(method, path, body))

    async def each(self, path: str, page: int) -> AsyncIterator[dict[str, Any]]:
        """Every object of a list, page by page."""
        joint, follow = "&" if "?" in path else "?", ""
        while True:
            found = await self.ask("GET", f"{path}{joint}limit={page}{follow}", None)
            for one in found["items"]:
                yield one
            if not (token := found["metadata"].get("continue")):
                return
            follow = f"&continue={token}"

    async def count(self, path: str) -> int:
        """How many objects a list has."""
        found = await self.ask("GET", f"{path}?limit=1", None)
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount") or 0)

    # --- inside -----------------------------------------------------------------------------------------------------

    async def _many(self, one: Any, items: Iterable[Any]) -> None:
        left = iter(items)

        async def worker() -> None:
            for item in left:
                await one(item)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(worker())

    async def _call(self, method: str, path: str, body: Any, *, also: tuple[int, ...] = ()) -> Any:
        headers = dict(await self._access.headers())
        headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = json.dumps(body).encode() if body is not None else None
        url, name = self._access.base_url + path, self._access.server_hostname
        async with self._session.request(method, url, data=data, headers=headers, server_hostname=name) as told:
            text = await told.read()
            if told.status >= 300 and told.status not in also:
                sys.exit(f"bench: {method} {path}: {told.status} {text[:300]!r}")
            return text

    async def _prepare(self) -> None:
        api = "/api/v1/namespaces"
        await self._call("POST", api, {"metadata": {"name": NAMESPACE}}, also=(409,))
        # a cluster without controllers gives no namespace its service account
        await self._call("POST", f"{api}/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}}, also=(409,))
        for value, name in CLASSES.items():
            body = {"metadata": {"name": name}, "value": value}
            await self._call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body, also=(409,))
        await self.clear()

    async def _revision(self) -> str:
        listed = json.loads(await self._call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods?limit=1", None))
        return str(listed["metadata"]["resourceVersion"])

    async def _watch(self, revision: str) -> None:
        """Our own view of the pods. A watch that ends is begun again where it was; where that is too long ago, from a
        new list."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        while True:
            path = f"/api/v1/namespaces/{NAMESPACE}/pods?watch=true&allowWatchBookmarks=true&resourceVersion={revision}"
            url, headers = self._access.base_url + path, await self._access.headers()
            name = self._access.server_hostname
            try:
                async with self._session.get(url, headers=headers, timeout=timeout, server_hostname=name) as stream:
                    if stream.status == GONE:
                        revision = await self._relisted()
                    elif stream.status != OK:
                        print(f"bench: the watch: {stream.status}; again in {AGAIN_S:g} s", file=sys.stderr)
                        await asyncio.sleep(AGAIN_S)
                    else:
                        revision = await self._followed(stream, revision)
            except aiohttp.ClientPayloadError:  # the server, or what is before it, cut the stream
                await asyncio.sleep(AGAIN_S)

    async def _followed(self, stream: aiohttp.ClientResponse, revision: str) -> str:
        """Note what the stream shows until it ends; from which revision to go on."""
        while line := await stream.content.readline():
            event = self._decoder.decode(line)
            if event.type == "ERROR" and (b"Expired" in line or b'"code":410' in line):
                return await self._relisted()
            if event.type == "ERROR":
                sys.exit(f"bench: the watch fails: {line[:300]!r}")
            found = self._pods.decode(event.object)
            revision = found.metadata.resourceVersion
            if event.type != "BOOKMARK":
                self._note(event.type, found)
        return revision

    async def _relisted(self) -> str:
        """Note what a list says, and as gone what was seen before and is not in it; the list's revision."""
        text = await self._call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods", None)
        found = msgspec.json.decode(text, type=_List)
        for pod in found.items:
            self._note("MODIFIED", pod)
        known, now = self.seen.bound.keys() | self.seen.told.keys() | self.seen.leaving.keys(), time.monotonic()
        for name in known - {pod.metadata.name for pod in found.items}:
            self.seen.gone.setdefault(name, now)
        self.changed.set()
        return found.metadata.resourceVersion

    def _note(self, kind: str, pod: _Pod) -> None:
        seen, name, now = self.seen, pod.metadata.name, time.monotonic()
        seen.shown.setdefault(name, now)
        if kind == "DELETED":
            seen.gone.setdefault(name, now)
        elif pod.metadata.deletionTimestamp is not None:
            if name not in seen.leaving:
                seen.leaving[name] = now
                self._later(self._leave(name))
        elif pod.spec.nodeName:
            if name not in seen.bound and self.on_bound is not None:
                self.on_bound(name)
            seen.bound.setdefault(name, now)
            seen.node[name] = pod.spec.nodeName
        elif any(one.type == "PodScheduled" and one.status == "False" for one in pod.status.conditions):
            seen.told.setdefault(name, now)
        self.changed.set()

    async def _leave(self, name: str) -> None:
        """The kubelet's part: the pod has ended. Without a grace the server does it, if nothing comes between."""
        seen = self.seen
        await asyncio.sleep(self._grace_s or LEFT_BEHIND_S)
        if name in seen.gone:
            return
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}?gracePeriodSeconds=0"
        await self._call("DELETE", path, None, also=(404,))

    def _later(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
