"""Hollow kubelets: they run no container, and write what a kubelet writes of pods whose containers run or have ended.

One object serves every node of the plane. What a pod does is said by its annotations:

- ``hollow/ignore: "true"``: it is left alone; the test writes its status.
- ``hollow/run-seconds: "2"``: its containers end after so long, with ``hollow/exit-code`` (0).
- ``hollow/stop-seconds: "15"``: so long it takes to stop when it is deleted (0; never longer than its grace period);
  a preStop hook that sleeps is waited out as well.

A node with ``hollow/ignore: "true"`` gets no heartbeat and no Ready condition. As a kubelet, a node refuses a pod that
it has no room for beside those that it let on before, whoever scheduled them: the pod is Failed, ``OutOfcpu``.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import zlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import aiohttp
import msgspec

from shared.kube.objects import KubePod
from shared.kube.pods.convert_requests import effective_requests
from shared.model.resources import PODS, Resources, parse_amount

Json = dict[str, Any]
MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
IGNORE, RUN_S, STOP_S, EXIT_CODE = (f"hollow/{name}" for name in ("ignore", "run-seconds", "stop-seconds", "exit-code"))
HEARTBEAT_S = 10.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
FOR_EVER = aiohttp.ClientTimeout(total=None)


def now() -> str:
    """As Kubernetes writes a time."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def hollow_node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    pods: int = 110,
    gpus: int = 0,
    labels: dict[str, str] | None = None,
) -> Json:
    """A Node as a kubelet registers it."""
    room = {"cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "100Gi"}
    if gpus:
        room["nvidia.com/gpu"] = str(gpus)
    address = f"192.0.2.{1 + zlib.crc32(name.encode()) % 254}"  # of a range that is nobody's
    marks = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {**marks, **(labels or {})}},
        "status": {
            "capacity": room, "allocatable": room, "conditions": [_ready()],
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        },
    }  # fmt: skip


def _ready() -> Json:
    return {
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "hollow",
        "lastHeartbeatTime": now(), "lastTransitionTime": now(),
    }  # fmt: skip


class KubeletRoom:
    """What each node's kubelet let on, in the order in which its watch showed it."""

    def __init__(self) -> None:
        self._on: dict[str, tuple[str, Resources]] = {}
        """By the pod's uid: its node, and what it asks for."""

    def forget(self, uid: str) -> None:
        self._on.pop(uid, None)

    def lets_on(self, pod: Json) -> None:
        """Whatever room there is: it runs there, or a test says what becomes of it."""
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        if uid not in self._on:
            self._on[uid] = node, {**effective_requests(msgspec.convert(pod, KubePod)), PODS: 1}

    def refusal(self, pod: Json, allocatable: Json) -> Json | None:
        """The status of a pod that finds too little (``GeneralPredicates``); None: it is let on. What the node does not
        name is not asked for, as of devices whose plug-in is away."""
        self.lets_on(pod)
        uid = pod["metadata"]["uid"]
        node, asks = self._on[uid]
        for name, asked in asks.items():
            there = parse_amount(name, str(allocatable[name])) if name in allocatable else asked
            used = sum(of.get(name, 0) for other, (on, of) in self._on.items() if on == node and other != uid)
            if asked and name in allocatable and used + asked > there:
                self.forget(uid)
                return {
                    "phase": "Failed", "reason": f"OutOf{name}", "startTime": now(),
                    "message": f"Pod was rejected: Node didn't have enough resource: {name}, "
                    f"requested: {asked}, used: {used}, capacity: {there}",
                }  # fmt: skip
        return None


class HollowKubelets:
    """Follows nodes and pods through ``session``, which is an administrator's with a base URL."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._nodes: dict[str, Json] = {}
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = KubeletRoom()
        self._begun: set[tuple[str, str]] = set()
        """(what, uid): what was begun for a pod."""

    async def start(self) -> None:
        for work in (self._follow_nodes(), self._follow_pods(), self._beat()):
            self._spawn(work)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def all_ready(self, count: int) -> None:
        """Wait until so many nodes are Ready and none of them is tainted."""

        def ready() -> bool:
            fit = [node for node in self._nodes.values() if _is_ready(node) and not node["spec"].get("taints")]
            return len(fit) >= count

        async with self._changed:
            await self._changed.wait_for(ready)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler({"message": "a kubelet failed", "exception": error})

    async def _objects(self, path: str) -> AsyncIterator[Json]:
        """What is there and what comes, ``{"type": ..., "object": ...}``, over restarts of the API server."""
        while True:
            try:
                async with self._session.get(path) as answer:
                    if answer.status != 200:
                        await asyncio.sleep(0.2)
                        continue
                    listed = await answer.json()
                for found in listed["items"] or ():
                    yield {"type": "ADDED", "object": found}
                version = listed["metadata"]["resourceVersion"]
                joint = "&" if "?" in path else "?"
                url = f"{path}{joint}watch=1&resourceVersion={version}"
                async with self._session.get(url, timeout=FOR_EVER) as stream:
                    buffer = b""
                    async for piece in stream.content.iter_any():
                        *lines, buffer = (buffer + piece).split(b"\n")
                        for line in lines:
                            event = json.loads(line)
                            if event["type"] == "ERROR":
                                break
                            yield event
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.2)

    async def _follow_nodes(self) -> None:
        async for event in self._objects("/api/v1/nodes"):
            node = event["object"]
            name = node["metadata"]["name"]
            if event["type"] == "DELETED":
                self._nodes.pop(name, None)
            else:
                self._nodes[name] = node
                status: Json = {} if _is_ready(node) else {"conditions": [_ready()]}
                if changed := allocatable_changes(node["status"]):
                    status["allocatable"] = changed
                if status and not _ignored(node):
                    await self._patch(f"/api/v1/nodes/{name}/status", {"status": status})
            async with self._changed:
                self._changed.notify_all()

    async def _beat(self) -> None:
        """Every node's Lease, as its kubelet renews it."""
        known: set[str] = set()
        while True:
            for name, node in list(self._nodes.items()):
                if _ignored(node):
                    continue
                stamp = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": stamp}
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    if name in known:
                        async with self._session.patch(f"{LEASES}/{name}", json={"spec": spec}, headers=MERGE) as told:
                            known -= {name} if told.status == 404 else set()
                    else:
                        body = {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec}
                        async with self._session.post(LEASES, json=body) as told:
                            known |= {name} if told.status in (201, 409) else set()
            await asyncio.sleep(HEARTBEAT_S if self._nodes else 0.1)

    async def _follow_pods(self) -> None:
        async for event in self._objects("/api/v1/pods?fieldSelector=spec.nodeName!="):
            pod = event["object"]
            uid = pod["metadata"]["uid"]
            if event["type"] == "DELETED":
                self._begun -= {("run", uid), ("end", uid)}
                self._room.forget(uid)
                continue
            phase = pod["status"].get("phase")
            if phase in ("Succeeded", "Failed"):
                self._room.forget(uid)
            elif _ignored(pod) or phase == "Running":
                self._room.lets_on(pod)
            if _ignored(pod):
                continue
            if "deletionTimestamp" in pod["metadata"]:
                self._once("end", pod, self._end)
            elif phase == "Pending":
                self._once("run", pod, self._run)

    def _once(self, what: str, pod: Json, work: Any) -> None:
        mark = (what, pod["metadata"]["uid"])
        if mark not in self._begun:
            self._begun.add(mark)
            self._spawn(work(pod))

    async def _run(self, pod: Json) -> None:
        node = self._nodes.get(pod["spec"]["nodeName"])
        refused = self._room.refusal(pod, node["status"].get("allocatable", {})) if node is not None else None
        await self._patch(f"{_path(pod)}/status", {"status": refused or running_status(pod)}, pod)
        if refused:
            return
        run_s = _number(pod, RUN_S)
        if run_s is not None:
            await asyncio.sleep(run_s)
            await self._patch(
                f"{_path(pod)}/status", {"status": ended_status(pod, int(_number(pod, EXIT_CODE) or 0))}, pod
            )

    async def _end(self, pod: Json) -> None:
        grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
        await asyncio.sleep(min(grace, max(_number(pod, STOP_S) or 0.0, pre_stop_s(pod))))
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        while True:
            try:
                async with self._session.delete(_path(pod), json=body) as answer:
                    if answer.status in (200, 404, 409):
                        return
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(0.5)

    async def _patch(self, path: str, patch: Json, of: Json | None = None) -> None:
        if of is not None:
            patch = {"metadata": {"uid": of["metadata"]["uid"]}, **patch}
        while True:
            try:
                async with self._session.patch(path, json=patch, headers=STRATEGIC) as answer:
                    if answer.status in (200, 404, 409):
                        return
                    assert answer.status in (429, 500, 503, 504), await answer.text()
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(0.5)


def allocatable_changes(status: Json) -> Json:
    """What a kubelet makes of extended resources that somebody wrote into a node's capacity, or took from it."""
    capacity, allocatable = status.get("capacity", {}), status.get("allocatable", {})
    new = {name: amount for name, amount in capacity.items() if "/" in name and name not in allocatable}
    return {**new, **{name: None for name in allocatable if "/" in name and name not in capacity}}


def pre_stop_s(pod: Json) -> float:
    """Seconds that the longest preStop sleep of its containers takes."""
    hooks = [one.get("lifecycle", {}).get("preStop", {}) for one in pod["spec"]["containers"]]
    return max((float(hook["sleep"]["seconds"]) for hook in hooks if "sleep" in hook), default=0.0)


def _is_ready(node: Json) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", ()))


def _ignored(found: Json) -> bool:
    return bool(found["metadata"].get("annotations", {}).get(IGNORE) == "true")


def _number(pod: Json, annotation: str) -> float | None:
    value = pod["metadata"].get("annotations", {}).get(annotation)
    return None if value is None else float(value)


def _path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def running_status(pod: Json) -> Json:
    """As a kubelet writes it of a pod whose containers all run and are ready."""
    at = now()
    address = f"10.244.{int(pod['metadata']['uid'][:2], 16)}.{int(pod['metadata']['uid'][2:4], 16)}"
    init = [
        _running(one, at) if one.get("restartPolicy") == "Always" else _terminated(one, at, 0)
        for one in pod["spec"].get("initContainers", ())
    ]
    ready = [{"type": kind, "status": "True", "lastTransitionTime": at}
             for kind in ("Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers")]  # fmt: skip
    return {
        "phase": "Running", "startTime": at, "hostIP": "127.0.0.1", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": ready, "containerStatuses": [_running(one, at) for one in pod["spec"]["containers"]],
        **({"initContainerStatuses": init} if init else {}),
    }  # fmt: skip


def ended_status(pod: Json, code: int) -> Json:
    """Of a pod whose containers have ended, all with this exit code."""
    at = now()
    reason = "PodFailed" if code else "PodCompleted"
    return {
        "phase": "Failed" if code else "Succeeded",
        "conditions": [
            {"type": kind, "status": "False", "reason": reason, "lastTransitionTime": at}
            for kind in ("Ready", "ContainersReady")
        ],
        "containerStatuses": [_terminated(one, at, code) for one in pod["spec"]["containers"]],
    }


def _running(container: Json, at: str) -> Json:
    return {
        "name": container["name"], "image": container["image"], "imageID": container["image"], "ready": True,
        "started": True, "restartCount": 0, "containerID": f"hollow://{container['name']}",
        "state": {"running": {"startedAt": at}},
    }  # fmt: skip


def _terminated(container: Json, at: str, code: int) -> Json:
    state = {
        "terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": at, "finishedAt": at}
    }
    return {
        "name": container["name"], "image": container["image"], "imageID": container["image"], "ready": False,
        "started": False, "restartCount": 0, "state": {**state, "running": None, "waiting": None},
    }  # fmt: skip
