"""One scene on a real plane: nodes of its own, pods that may use these alone, and what becomes of them, by watches.

    async with Scene(plane, "first") as scene:
        await scene.node("a", slots=2)
        await scene.pod("low", priority=100)
        await scene.until(lambda: scene.node_of("low") == "first-a")

Room is counted in ``example.com/slot``, so that nothing else of a pod matters. Pods are followed by a watch: ``until``
is woken by what happens, and ``bound`` and ``stopped`` keep the order in which it did.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import aiohttp

from tests.real.conftest import RunningPlane
from tests.real.hollow import IGNORE, hollow_node

Json = dict[str, Any]
SLOT = "example.com/slot"
GROUPS = "/apis/scheduling.k8s.io/v1alpha2"
CLASSES = {100: "scene-100", 200: "scene-200", 300: "scene-300", 400: "scene-400"}
NEVER = "scene-never"
"""A class of 300 whose pods preempt nobody."""
PATIENCE_S = 90.0
"""A bound for a loaded machine, nothing that a test is about."""
MERGE = {"Content-Type": "application/merge-patch+json"}


class Scene:
    """``async with``: its namespace is there and followed; leaving takes it and its nodes away."""

    def __init__(self, plane: RunningPlane, name: str, *, scheduler: str = "conclave") -> None:
        self.name = name
        self.scheduler = scheduler
        self.pods: dict[str, Json] = {}
        """As they were seen last."""
        self.bound: list[str] = []
        self.stopped: list[str] = []
        """Asked to leave, or gone at once."""
        self.nominated: list[tuple[str, str]] = []
        """(pod, node), each change of ``nominatedNodeName`` to a node."""
        self._plane = plane
        self._nodes: list[str] = []
        self._witness_node: str | None = None
        self._witnesses = itertools.count()
        self._changed = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.name}"

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cafile=self._plane.ca)
        self._session = aiohttp.ClientSession(
            self._plane.url,
            headers={"Authorization": f"Bearer {self._plane.token}"},
            connector=aiohttp.TCPConnector(ssl=context),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        for value, name in [*CLASSES.items(), (300, NEVER)]:
            policy = "Never" if name == NEVER else "PreemptLowerPriority"
            body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
            await self.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body, but=(409,))
        await self.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.name}})
        async with asyncio.timeout(PATIENCE_S):
            async for _ in self.objects(f"{self.path}/serviceaccounts"):
                break
        self._tasks.append(asyncio.create_task(self._follow()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self._session is not None
        with contextlib.suppress(aiohttp.ClientError):
            for pod in self.pods:
                await self.call("DELETE", f"{self.path}/pods/{pod}", {"gracePeriodSeconds": 0}, but=(404,))
            await self.call("DELETE", f"/api/v1/namespaces/{self.name}", but=(404, 409))
            for node in self._nodes:
                await self.call("DELETE", f"/api/v1/nodes/{node}", but=(404,))
        await self._session.close()

    # --- the API --------------------------------------------------------------------------------------------------

    async def call(self, verb: str, path: str, body: Json | None = None, *, but: tuple[int, ...] = ()) -> Json:
        """What the server answered; any refusal whose status is not in ``but`` fails."""
        assert self._session is not None
        async with self._session.request(verb, path, json=body, headers=MERGE if verb == "PATCH" else None) as answer:
            assert answer.status < 300 or answer.status in but, f"{verb} {path}: {await answer.text()}"
            told: Json = await answer.json()
            return told

    async def node(self, name: str, *, slots: int, labels: dict[str, str] | None = None, **spec: Any) -> str:
        """A node of this scene alone; its name on the plane."""
        full = f"{self.name}-{name}"
        body = hollow_node(full, labels={"scene": self.name, **(labels or {})})
        for part in ("capacity", "allocatable"):
            body["status"][part] = {**body["status"][part], SLOT: str(slots)}
        body["spec"] = spec
        await self.call("POST", "/api/v1/nodes", body)
        self._nodes.append(full)
        # the server taints a new node until its controller has seen it ready; what is asked for here stays
        wanted = {taint["key"] for taint in spec.get("taints", ())}
        async with asyncio.timeout(PATIENCE_S):
            async for event in self.objects(f"/api/v1/nodes?fieldSelector=metadata.name%3D{full}"):
                taints = {taint["key"] for taint in event["object"]["spec"].get("taints", ())}
                if taints - {"node.kubernetes.io/unschedulable"} <= wanted:
                    break
        return full

    async def pod(
        self,
        name: str,
        slots: int = 1,
        *,
        priority: int | str = 100,
        held: bool = False,
        labels: dict[str, str] | None = None,
        group: str = "",
        **spec: Any,
    ) -> None:
        """A pod that only nodes of this scene may take. ``priority``: a value of ``CLASSES``, or a class. ``held``: it
        takes its time to stop, until ``end``."""
        room = {SLOT: str(slots)}
        container = {"name": "c", "image": "x", "resources": {"requests": room, "limits": room}}
        body = {
            "metadata": {"name": name, "labels": labels or {}, "annotations": {IGNORE: str(held).lower()}},
            "spec": {
                "schedulerName": self.scheduler,
                "nodeSelector": {"scene": self.name},
                "priorityClassName": priority if isinstance(priority, str) else CLASSES[priority],
                "containers": [container],
                **({"schedulingGroup": {"podGroupName": group}} if group else {}),
                **({"terminationGracePeriodSeconds": 3600} if held else {}),
                **spec,
            },
        }
        await self.call("POST", f"{self.path}/pods", body)

    async def group(self, name: str, minimum: int, *, priority: int = 100, **spec: Any) -> None:
        """A PodGroup of Kubernetes; a minimum of 0: without one."""
        policy: Json = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
        body = {
            "metadata": {"name": name},
            "spec": {"schedulingPolicy": policy, "priorityClassName": CLASSES[priority], **spec},
        }
        await self.call("POST", f"{GROUPS}/namespaces/{self.name}/podgroups", body)

    async def delete(self, name: str, *, grace_s: int | None = None) -> None:
        """A pod; one that is gone already is as good."""
        body = None if grace_s is None else {"gracePeriodSeconds": grace_s}
        await self.call("DELETE", f"{self.path}/pods/{name}", body, but=(404,))

    async def end(self, name: str) -> None:
        """A pod that was ``held`` has stopped, and is gone."""
        await self.delete(name, grace_s=0)

    # --- what is seen ---------------------------------------------------------------------------------------------

    def node_of(self, name: str) -> str:
        """Where a pod is bound; "" while it is not, or is not there."""
        return str(self.pods.get(name, {}).get("spec", {}).get("nodeName") or "")

    def nominated_of(self, name: str) -> str:
        return str(self.pods.get(name, {}).get("status", {}).get("nominatedNodeName") or "")

    def refused(self, name: str) -> str:
        """The message of ``PodScheduled`` False; "" where it is not."""
        conditions = self.pods.get(name, {}).get("status", {}).get("conditions", ())
        found = [one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"]
        return str(found[0].get("message", "") or found[0].get("reason", "")) if found else ""

    def condition(self, name: str, kind: str) -> Json:
        conditions = self.pods.get(name, {}).get("status", {}).get("conditions", ())
        return next((one for one in conditions if one["type"] == kind), {})

    async def until(self, holds: Callable[[], Any], *, within_s: float = PATIENCE_S) -> None:
        """Until it holds; what is not so by then fails with what the pods are."""
        try:
            async with asyncio.timeout(within_s), self._changed:
                await self._changed.wait_for(holds)
        except TimeoutError:
            shown = "\n".join(
                f"{name}: on {self.node_of(name) or '-'}, nominated {self.nominated_of(name) or '-'}, "
                f"{'stopping, ' if 'deletionTimestamp' in pod['metadata'] else ''}{self.refused(name)}"
                for name, pod in sorted(self.pods.items())
            )
            raise AssertionError(
                f"not so within {within_s:g} s; bound {self.bound}, stopped {self.stopped}\n{shown}"
            ) from None

    async def until_bound(self, *names: str) -> None:
        await self.until(lambda: all(self.node_of(name) for name in names))

    async def until_refused(self, *names: str) -> None:
        await self.until(lambda: all(self.refused(name) and not self.node_of(name) for name in names))

    async def rounds_go_by(self, count: int = 3) -> None:
        """Until the scheduler has decided for so many pods, one after the other, that came after everything so far."""
        if self._witness_node is None:
            self._witness_node = await self.node("witness", slots=99, labels={"scene": f"{self.name}-witness"})
        for _ in range(count):
            name = f"witness-{next(self._witnesses)}"
            await self.pod(name, nodeSelector={"scene": f"{self.name}-witness"})
            await self.until_bound(name)

    async def objects(self, path: str) -> Any:
        """What is there and what becomes of it, as events of a watch."""
        assert self._session is not None
        listed = await self.call("GET", path)
        for found in listed["items"]:
            yield {"type": "ADDED", "object": found}
        joint = "&" if "?" in path else "?"
        watch = f"{path}{joint}watch=1&resourceVersion={listed['metadata']['resourceVersion']}"
        async with self._session.get(watch) as stream:
            buffer = b""
            async for piece in stream.content.iter_any():
                *lines, buffer = (buffer + piece).split(b"\n")
                for line in lines:
                    yield json.loads(line)

    async def _follow(self) -> None:
        async for event in self.objects(f"{self.path}/pods"):
            pod = event["object"]
            name = pod["metadata"]["name"]
            before = self.pods.get(name, {})
            if event["type"] == "DELETED":
                self.pods.pop(name, None)
            else:
                self.pods[name] = pod
            if not before.get("spec", {}).get("nodeName") and pod["spec"].get("nodeName"):
                self.bound.append(name)
            going = event["type"] == "DELETED" or "deletionTimestamp" in pod["metadata"]
            if going and "deletionTimestamp" not in before.get("metadata", {}):
                self.stopped.append(name)
            nominated = pod["status"].get("nominatedNodeName")
            if nominated and nominated != before.get("status", {}).get("nominatedNodeName"):
                self.nominated.append((name, nominated))
            async with self._changed:
                self._changed.notify_all()
