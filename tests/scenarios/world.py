"""One scenario's world: a mesh of real processes, and a client that knows nothing but the Kubernetes API.

    async with world(tmp_path, agents=2) as cluster:
        await cluster.add_node("n0", cpu="4")
        await cluster.add_pod("p0", cpu="1")
        await cluster.until(lambda c: c.bound("p0"), within_s=5)

Watches keep pods, groups and queues current and wake ``until``; only ``fault_met`` polls. Gangs are judged live.
Leaving the block ends every process and then holds the API server's whole history against ``invariants.ALWAYS``. It
refuses to ask the mesh about itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from lab.audit.log import LogEntry, read_entries
from tests.patience import FULL, PATIENCE, PATIENCE_S
from tests.process.mesh import ROOT, Mesh
from tests.scenarios.group_watch import GroupWatch
from tests.scenarios.invariants import ALWAYS, TOLD_AFTER_S, Checker, has_verdict, node_of, scheduled_condition

Json = dict[str, Any]

MERGE = {"Content-Type": "application/merge-patch+json"}
PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
QUEUES, QUEUES_KIND = "/apis/conclave.io/v1alpha1/queues", ROOT / "k8s" / "base" / "queues-crd.yaml"


def length(*, short: float, full: float) -> float:
    """Seconds or a count, by ``SCENARIO_LENGTH``."""
    return full if FULL else short


class World:
    """The cluster as its API shows it. ``pods``, ``groups``, ``queues``: by name, as the watch last showed them.
    ``groups_api``: the path under which Kubernetes' own pod groups are served."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.pods: dict[str, Json] = {}
        self.groups: dict[str, Json] = {}
        self.queues: dict[str, Json] = {}
        self.groups_api = ""
        self.history: list[LogEntry] = []
        self.watch = GroupWatch()
        self._changed = asyncio.Condition()

    # --- writes -------------------------------------------------------------------------------------------------

    async def call(
        self, method: str, path: str, body: Json | None = None, headers: dict[str, str] | None = None
    ) -> Json:
        """One request. ``AssertionError``: the server refused it."""
        async with self.mesh.session.request(method, self.mesh.api_url + path, json=body, headers=headers) as response:
            answer: Json = await response.json()
            assert response.status < 300, f"{method} {path}: {answer}"
            return answer

    async def create(self, path: str, kind: str, name: str, **body: Any) -> Json:
        """POST an object; ``metadata`` may hold labels, ``api`` the apiVersion."""
        version = body.pop("api", "v1")
        metadata = {"name": name, **body.pop("metadata", {})}
        return await self.call("POST", path, {"apiVersion": version, "kind": kind, "metadata": metadata, **body})

    async def add_node(self, name: str, *, labels: dict[str, str] | None = None, **amounts: str) -> None:
        """A ready node whose kubelet the API server's simulator plays. ``amounts``: cpu, memory, pods."""
        offered = {"cpu": "4", "memory": "8Gi", "pods": "110", **amounts}
        ready = {"allocatable": offered, "capacity": offered, "conditions": [{"type": "Ready", "status": "True"}]}
        metadata = {
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": {"conclave.io/twin-node": "true"},
        }
        await self.create(NODES, "Node", name, metadata=metadata, status=ready)
        # admission taints a new node as not ready; the node controller would take that back
        await self.patch_node(name, {"spec": {"taints": None}})

    async def patch_node(self, name: str, patch: Json) -> None:
        await self.call("PATCH", f"{NODES}/{name}", patch, MERGE)

    async def patch_node_status(self, name: str, patch: Json) -> None:
        await self.call("PATCH", f"{NODES}/{name}/status", patch, MERGE)

    async def add_pod(
        self, name: str, *, cpu: str = "100m", labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None, **spec: Any,
    ) -> str:  # fmt: skip
        """A pending pod of ours, in ``default``; its uid. ``spec``: further fields. It ends at once when deleted."""
        wanted = {"requests": {"cpu": cpu, "memory": "16Mi"}}
        body: Json = {
            "schedulerName": "conclave",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i", "resources": wanted}],
            **spec,
        }
        pod = await self.create(
            PODS, "Pod", name, metadata={"labels": labels or {}, "annotations": annotations or {}}, spec=body
        )
        return str(pod["metadata"]["uid"])

    async def add_pods(self, names: Iterable[str], **pod: Any) -> set[str]:
        """Many alike, all at once."""
        wanted = set(names)
        await asyncio.gather(*(self.add_pod(name, **pod) for name in sorted(wanted)))
        return wanted

    async def delete_pod(self, name: str) -> None:
        await self.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    async def delete_pod_if_there(self, name: str) -> None:
        """As ``delete_pod``; somebody may have been faster."""
        url = f"{self.mesh.api_url}{PODS}/{name}"
        async with self.mesh.session.delete(url, json={"gracePeriodSeconds": 0}) as response:
            assert response.status in (200, 202, 404), await response.text()

    async def faults(self, *rules: Json) -> None:
        """What the API server does wrong from now on; no rule: nothing."""
        await self.call("PUT", "/twin/faults", {"rules": list(rules)})

    async def fault_met(self, count: int) -> None:
        """Until a request has met the first rule, which was given with ``count``. The server tells nobody: it is asked
        again and again."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                plan = await self.call("GET", "/twin/faults")
                if plan["rules"][0]["count"] < count:
                    return
                await asyncio.sleep(0.02)

    # --- what the API shows -------------------------------------------------------------------------------------

    def bound(self, *names: str) -> bool:
        """Whether all of these pods have a node."""
        return all(name in self.pods and node_of(self.pods[name]) for name in names)

    def bound_names(self, prefix: str = "") -> set[str]:
        """Names of bound pods."""
        return {name for name, pod in self.pods.items() if name.startswith(prefix) and node_of(pod)}

    def node(self, name: str) -> str:
        """Where a pod is, or ""."""
        return node_of(self.pods[name]) if name in self.pods else ""

    def told(self, name: str) -> str:
        """The message of its PodScheduled=False, or ""."""
        condition = scheduled_condition(self.pods[name]) if name in self.pods else {}
        return str(condition.get("message") or "") if condition.get("status") == "False" else ""

    async def until(self, holds: Callable[[World], bool], *, within_s: float, what: str = "") -> None:
        """Wait for the watch to show it. ``AssertionError`` with what pends, when it does not within ``PATIENCE`` times
        so long."""
        try:
            async with asyncio.timeout(within_s * PATIENCE):
                await self.when(holds)
        except TimeoutError:
            pending = [name for name, pod in self.pods.items() if not node_of(pod)]
            say = {name: self.told(name) for name in sorted(pending)[:5]}
            bound, patience_s = len(self.bound_names()), within_s * PATIENCE
            raise AssertionError(
                f"not within {patience_s:g} s: {what}; {bound} bound, {len(pending)} pending, as {say}"
            ) from None

    async def when(self, holds: Callable[[World], bool]) -> None:
        """Wait for the watch to show it, however long it takes."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.watch.violations or holds(self))
        assert not self.watch.violations, "\n".join(self.watch.violations)

    async def never(self, happens: Callable[[World], bool], *, for_s: float, what: str) -> None:
        """Watch that it does not happen for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(for_s):
                await self.when(happens)
            raise AssertionError(f"it happened: {what}")

    async def follow(self, listed: asyncio.Event, kind: str = "Pod", path: str = "/api/v1/pods") -> None:
        """Keep ``pods``, ``groups`` or ``queues`` current; eternal. A cut watch lists again."""
        shown = {"Pod": self.pods, "PodGroup": self.groups, "Queue": self.queues}[kind]
        while True:
            page = await self.call("GET", path)
            async with self._changed:
                shown.clear()
                shown.update({item["metadata"]["name"]: item for item in page["items"]})
                self.watch.listed(kind, page["items"])
                self._changed.notify_all()
            listed.set()
            version = page["metadata"]["resourceVersion"]
            url = f"{self.mesh.api_url}{path}?watch=1&resourceVersion={version}"
            try:
                async with self.mesh.session.get(url, timeout=aiohttp.ClientTimeout(sock_connect=5)) as stream:
                    await self._read(kind, shown, stream)
            except aiohttp.ClientError:
                continue

    async def _read(self, kind: str, shown: dict[str, Json], stream: aiohttp.ClientResponse) -> None:
        rest = b""
        async for chunk in stream.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            async with self._changed:
                for line in filter(None, lines):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    if event["type"] != "BOOKMARK":
                        self._take(kind, shown, event["type"], event["object"])
                self._changed.notify_all()

    def _take(self, kind: str, shown: dict[str, Json], event: str, item: Json) -> None:
        self.watch.event(kind, event, item)
        name = item["metadata"]["name"]
        if event != "DELETED":
            shown[name] = item
        elif name in shown and shown[name]["metadata"]["uid"] == item["metadata"]["uid"]:
            del shown[name]


async def groups_path(cluster: World) -> str:
    """Where Kubernetes' own pod groups are served, the newer version first; "" where they are not."""
    for version in ("v1beta1", "v1alpha2"):
        url = f"{cluster.mesh.api_url}/apis/scheduling.k8s.io/{version}"
        async with cluster.mesh.session.get(url) as response:
            if response.status == 200 and any(
                one["name"] == "podgroups" for one in (await response.json())["resources"]
            ):
                return f"/apis/scheduling.k8s.io/{version}"
    return ""


@asynccontextmanager
async def world(folder: Path, *, but: Sequence[Checker] = (), **mesh: Any) -> AsyncIterator[World]:
    """Processes up and scheduling; afterwards everything is down and the history has been checked. ``but``: what the
    scenario itself breaks, by somebody else's hand."""
    mesh.setdefault("twin_flags", ["--simulate"])
    async with Mesh(folder, **mesh) as running:
        cluster = World(running)
        cluster.groups_api = await groups_path(cluster)
        follow = {"Pod": "/api/v1/pods"}
        if cluster.groups_api:
            follow["PodGroup"] = f"{cluster.groups_api}/podgroups"
        if QUEUES_KIND in mesh.get("kinds", ()):
            follow["Queue"] = QUEUES
        listed = {kind: asyncio.Event() for kind in follow}
        following = [asyncio.create_task(cluster.follow(listed[kind], kind, path)) for kind, path in follow.items()]
        try:
            await running.leader("coordinator")
            await running.leader("binder")
            for event in listed.values():
                await event.wait()
            yield cluster
            with contextlib.suppress(TimeoutError):  # who is told nothing is found in the history
                async with asyncio.timeout(TOLD_AFTER_S * PATIENCE):
                    await cluster.when(lambda c: all(map(has_verdict, c.pods.values())))
            cluster.watch.passed()
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
    with running.audit.open("rb") as lines:
        cluster.history = list(read_entries(lines, str(running.audit)))
    violations = [violation for checker in ALWAYS if checker not in but for violation in checker(cluster.history)]
    assert not violations, "\n".join(violations[:20])
