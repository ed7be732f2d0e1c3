"""An API server in memory with the semantics a binder lives by: uids, resourceVersions, preconditions, 409s.

Synchronous, so that pure tests drive it step by step; ``AsyncKube`` gives it the face of ``shared.ports.KubeApi``, with
faults. It knows pods, nodes, and what devices are claimed by, and keeps the history of every Binding it accepted, which
the checkers read.

``check_preconditions`` False leaves out uid and resourceVersion: only ablation tests do that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shared.adapters.kube.signs import WatchSigns
from shared.errors import KubeError, KubeRejected, KubeUnknown
from shared.kube import objects as api
from shared.kube.reservations import RESERVATIONS
from shared.kube.resources import (
    EVENTS,
    NODES,
    PODS,
    Bookmark,
    DeletedObject,
    ObjectList,
    Resource,
    Upserted,
    WatchEvent,
)
from shared.kube.scheduling_kinds import DEVICE_CLAIMS, RESERVATION_KIND, SchedulingKind
from shared.ports import BindRequest
from tests.builders import NodeBuilder, PodBuilder
from twin.kinds.devices.claim_status import keep_device_status, validate_claim_status
from twin.kinds.pod.claim_statuses import check_claim_statuses
from twin.patches.json_patch import json_patch
from twin.patches.strategic_patch import strategic_patch
from twin.registry.status import ApiError

WRITES = frozenset({"create", "patch", "delete"})
"""What ``AsyncKube.faults`` means by "write"; such a one that is late is kept in ``delayed``."""


@dataclass(frozen=True)
class Bound:
    """One Binding the server accepted."""

    revision: int
    uid: str
    node: str
    annotations: Mapping[str, str]


@dataclass
class FakeKube:
    """Pods by namespace/name and nodes by name, as JSON; every change has a revision and is in ``history``."""

    check_preconditions: bool = True
    revision: int = 1000
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    bound: list[Bound] = field(default_factory=list)
    history: list[tuple[int, str, WatchEvent[Any]]] = field(default_factory=list)
    listeners: list[Callable[[], None]] = field(default_factory=list)
    refuse_with: dict[str, int] = field(default_factory=dict)
    patch_answers: list[KubeError] = field(default_factory=list)
    """What the next status patches are answered, instead of being made."""
    drops_extended: bool = False
    """Whether pods' extendedResourceClaimStatus is left out, as where the gate DRAExtendedResource is off."""
    check_tests: bool = True
    """False leaves the ``test`` operations of JSON patches out: only ablation tests do that."""
    objects: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Claims, slices and classes: by plural, then by key."""
    _uids: int = 0

    # --- people and controllers ---------------------------------------------------------------------------------

    def add_node(self, builder: NodeBuilder) -> None:
        self._store_node(msgspec.json.decode(msgspec.json.encode(builder.json)))

    def change_node(self, name: str, **spec: Any) -> None:
        node = msgspec.json.decode(msgspec.json.encode(self.nodes[name]))
        node["spec"].update(spec)
        self._store_node(node)

    def annotate_node(self, name: str, patch: Mapping[str, Any]) -> None:
        """PATCH nodes/NAME, merge, of annotations alone."""
        node = copy(self.nodes[name])
        if patch["resourceVersion"] != node["metadata"]["resourceVersion"]:
            raise KubeRejected("resourceVersion in precondition", status=409, reason="Conflict")
        merged = {**(node["metadata"].get("annotations") or {}), **patch["annotations"]}
        node["metadata"]["annotations"] = {key: value for key, value in merged.items() if value is not None}
        self._store_node(node)

    def remove_node(self, name: str) -> None:
        self._gone("nodes", self.nodes.pop(name), api.KubeNode)

    def add_pod(self, builder: PodBuilder) -> str:
        pod = msgspec.json.decode(msgspec.json.encode(builder.json))
        self._uids += 1
        pod["metadata"]["uid"] = uid = f"{pod['metadata']['name']}-uid-{self._uids}"
        self._store_pod(pod)
        return uid

    def touch_pod(self, name: str, **labels: str) -> None:
        """Somebody writes to the pod: a new resourceVersion."""
        pod = self._copy(f"default/{name}")
        pod["metadata"].setdefault("labels", {}).update({"touched": str(self.revision), **labels})
        self._store_pod(pod)

    def terminate_pod(self, name: str) -> None:
        pod = self._copy(f"default/{name}")
        pod["metadata"]["deletionTimestamp"] = "2026-11-20T00:00:00Z"
        self._store_pod(pod)

    def remove_pod(self, name: str) -> None:
        self._gone("pods", self.pods.pop(f"default/{name}"), api.KubePod)

    def bind_elsewhere(self, name: str, node: str) -> None:
        """Another scheduler was faster."""
        pod = self.pods[f"default/{name}"]
        self.bind(BindRequest("default", name, pod["metadata"]["uid"], pod["metadata"]["resourceVersion"], node))

    def put_object(self, kind: SchedulingKind, item: dict[str, Any]) -> str:
        """An object of ``DEVICE_KINDS``, or a PodGroup, is made or replaced; its uid."""
        meta, key = item["metadata"], self.key_of(item)
        known = self.objects.setdefault(kind.name, {}).get(key)
        if known is None:
            self._uids += 1
        meta["uid"] = known["metadata"]["uid"] if known is not None else f"{meta['name']}-uid-{self._uids}"
        self.revision += 1
        meta["resourceVersion"] = str(self.revision)
        self.objects[kind.name][key] = item
        self._tell(kind.name, Upserted(msgspec.convert(item, kind.resource.type)))
        uid: str = meta["uid"]
        return uid

    def drop_object(self, kind: SchedulingKind, key: str) -> None:
        self._gone(kind.name, self.objects[kind.name].pop(key), kind.resource.type)

    @staticmethod
    def key_of(item: Mapping[str, Any]) -> str:
        meta = item["metadata"]
        return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])

    def patch_claim(self, key: str, patch: Mapping[str, Any], subresource: str) -> dict[str, Any]:
        """PATCH resourceclaims/NAME[/status], strategic, by the rules of the API server."""
        before = self.objects.get(DEVICE_CLAIMS.name, {}).get(key)
        if before is None:
            raise KubeRejected(f"resourceclaims {key!r} not found", status=404, reason="NotFound")
        for name in ("uid", "resourceVersion"):
            wanted = patch.get("metadata", {}).get(name)
            if self.check_preconditions and wanted not in (None, "", before["metadata"][name]):
                raise KubeRejected(f"{name} in precondition", status=409, reason="Conflict")
        claim = copy(before)
        strategic_patch(claim, copy(patch), {"status.reservedFor": "uid"})
        claim["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        if subresource:
            claim["metadata"] = copy(before["metadata"])
            keep_device_status(claim, before)
            if wrong := validate_claim_status(claim, before):
                raise KubeRejected(str(wrong[0]), status=422, reason="Invalid")
        else:
            claim["status"] = copy(before.get("status", {}))
        if claim != before:
            self.put_object(DEVICE_CLAIMS, claim)
        return self.objects[DEVICE_CLAIMS.name][key]

    # --- the API ------------------------------------------------------------------------------------------------

    def get_pod(self, namespace: str, name: str) -> api.KubePod | None:
        pod = self.pods.get(f"{namespace}/{name}")
        return msgspec.convert(pod, api.KubePod) if pod is not None else None

    def bind(self, request: BindRequest) -> None:
        """POST binding. As the real one: no check that the node exists."""
        if "bind" in self.refuse_with:
            raise KubeRejected("refused by the test", status=self.refuse_with["bind"], reason="Test")
        key = f"{request.namespace}/{request.name}"
        pod = self.pods.get(key)
        if pod is None:
            raise KubeRejected(f"pods {request.name!r} not found", status=404, reason="NotFound")
        meta = pod["metadata"]
        if self.check_preconditions:
            if meta["uid"] != request.uid:
                raise KubeRejected("uid in precondition", status=409, reason="Conflict")
            if meta["resourceVersion"] != request.resource_version:
                raise KubeRejected("the object has been modified", status=409, reason="Conflict")
            if pod["spec"].get("nodeName"):
                raise KubeRejected("pod is already assigned to a node", status=409, reason="Conflict")
        if "deletionTimestamp" in meta:
            raise KubeRejected("pod is being deleted, cannot be assigned to a host", status=409, reason="Conflict")
        pod = self._copy(key)
        pod["spec"]["nodeName"] = request.node_name
        pod["metadata"].setdefault("annotations", {}).update(request.annotations)
        others = [c for c in pod["status"].get("conditions", ()) if c["type"] != "PodScheduled"]
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}, *others]
        pod["status"].pop("nominatedNodeName", None)
        self._store_pod(pod)
        uid = pod["metadata"]["uid"]
        self.bound.append(Bound(self.revision, uid, request.node_name, dict(request.annotations)))

    def patch_status(self, namespace: str, name: str, patch: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """PATCH pods/NAME/status, strategic or JSON: of what comes out, only the status is taken over."""
        if self.patch_answers:
            raise self.patch_answers.pop(0)
        key = f"{namespace}/{name}"
        if key not in self.pods:
            raise KubeRejected(f"pods {name!r} not found", status=404, reason="NotFound")
        pod = self._copy(key)
        pod["status"] = self._patched(self._copy(key), patch)["status"]
        if pod != self.pods[key]:
            self._store_pod(pod)

    def _patched(self, pod: dict[str, Any], patch: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        if not isinstance(patch, Mapping):
            operations = [dict(one) for one in patch if self.check_tests or one["op"] != "test"]
            try:
                return json_patch(pod, operations)
            except ApiError as error:
                raise KubeRejected(str(error), status=422, reason="Invalid") from error
        for field_name in ("uid", "resourceVersion"):
            wanted = patch.get("metadata", {}).get(field_name)
            if wanted not in (None, pod["metadata"][field_name]):
                raise KubeRejected(f"{field_name} in precondition", status=409, reason="Conflict")
        if "extendedResourceClaimStatus" in patch["status"]:
            if self.drops_extended:
                return pod
            pod["status"].pop("extendedResourceClaimStatus", None)
            if (told := patch["status"]["extendedResourceClaimStatus"]) is not None:
                pod["status"]["extendedResourceClaimStatus"] = copy(told)
            if wrong := check_claim_statuses(pod["status"], pod["spec"]):
                raise KubeRejected(str(wrong[0]), status=422, reason="Invalid")
            return pod
        conditions = {c["type"]: c for c in pod["status"].get("conditions", ())}
        conditions.update({c["type"]: dict(c) for c in patch["status"]["conditions"]})
        pod["status"]["conditions"] = list(conditions.values())
        return pod

    def create_claim(self, body: Mapping[str, Any]) -> None:
        """POST resourceclaims."""
        key = self.key_of(body)
        if key in self.objects.get(DEVICE_CLAIMS.name, {}):
            raise KubeRejected(f"resourceclaims {key!r} already exists", status=409, reason="AlreadyExists")
        self.put_object(DEVICE_CLAIMS, {"status": {}, **copy(body)})

    def delete_claim(self, key: str, uid: str, resource_version: str) -> None:
        """DELETE resourceclaims/NAME, by its preconditions; one with a finalizer goes on until that is gone."""
        claim = self.objects.get(DEVICE_CLAIMS.name, {}).get(key)
        if claim is None:
            raise KubeRejected(f"resourceclaims {key!r} not found", status=404, reason="NotFound")
        wanted = {"uid": uid, "resourceVersion": resource_version}
        for name, value in wanted.items():
            if self.check_preconditions and value not in ("", claim["metadata"][name]):
                raise KubeRejected(f"{name} in precondition", status=409, reason="Conflict")
        if claim["metadata"].get("finalizers"):
            claim = copy(claim)
            claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self.put_object(DEVICE_CLAIMS, claim)
        else:
            self.drop_object(DEVICE_CLAIMS, key)

    def patch_reservation(self, key: str, patch: Mapping[str, Any]) -> None:
        """PATCH reservations/NAME/status, merge, by its preconditions."""
        before = self.objects.get(RESERVATIONS.plural, {}).get(key)
        if before is None:
            raise KubeRejected(f"reservations {key!r} not found", status=404, reason="NotFound")
        for name in ("uid", "resourceVersion"):
            wanted = patch["metadata"].get(name, before["metadata"][name])
            if self.check_preconditions and wanted != before["metadata"][name]:
                raise KubeRejected(f"{name} in precondition", status=409, reason="Conflict")
        after = copy(before)
        after["status"] = {**after.get("status", {}), **copy(patch["status"])}
        if after != before:
            self.put_object(RESERVATION_KIND, after)

    def create_reservation(self, body: Mapping[str, Any]) -> None:
        """POST reservations."""
        key = self.key_of(body)
        if key in self.objects.get(RESERVATIONS.plural, {}):
            raise KubeRejected(f"reservations {key!r} already exists", status=409, reason="AlreadyExists")
        made = copy(body)
        made["metadata"]["creationTimestamp"] = "2000-01-01T05:00:00Z"
        self.put_object(RESERVATION_KIND, made)

    def delete_reservation(self, key: str, uid: str) -> None:
        """DELETE reservations/NAME."""
        found = self.objects.get(RESERVATIONS.plural, {}).get(key)
        if found is None or (uid and uid != found["metadata"]["uid"]):
            raise KubeRejected(f"reservations {key!r} not found", status=404, reason="NotFound")
        self.drop_object(RESERVATION_KIND, key)

    def delete_pod(self, namespace: str, name: str, uid: str = "") -> None:
        """DELETE, or an eviction that no budget forbids, of a pod that ends at once. ``uid``: the precondition."""
        pod = self.pods.get(f"{namespace}/{name}")
        if pod is None:
            raise KubeRejected(f"pods {name!r} not found", status=404, reason="NotFound")
        if uid and self.check_preconditions and uid != pod["metadata"]["uid"]:
            raise KubeRejected("uid in precondition", status=409, reason="Conflict")
        self._gone("pods", self.pods.pop(f"{namespace}/{name}"), api.KubePod)

    # --- inside -------------------------------------------------------------------------------------------------

    def _copy(self, key: str) -> dict[str, Any]:
        pod: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self.pods[key]))
        return pod

    def _store_pod(self, pod: dict[str, Any]) -> None:
        self.revision += 1
        pod["metadata"]["resourceVersion"] = str(self.revision)
        self.pods[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"] = pod
        self._tell("pods", Upserted(msgspec.convert(pod, api.KubePod)))

    def _store_node(self, node: dict[str, Any]) -> None:
        self.revision += 1
        node["metadata"]["resourceVersion"] = str(self.revision)
        self.nodes[node["metadata"]["name"]] = node
        self._tell("nodes", Upserted(msgspec.convert(node, api.KubeNode)))

    def _gone(self, plural: str, stored: dict[str, Any], kind: type[Any]) -> None:
        self.revision += 1
        self._tell(plural, DeletedObject(msgspec.convert(stored, kind)))

    def _tell(self, plural: str, event: WatchEvent[Any]) -> None:
        self.history.append((self.revision, plural, event))
        for listener in self.listeners:
            listener()


def at_once(call: Coroutine[Any, Any, None]) -> None:
    """Run a shell's call without a loop: against fakes in memory nothing of it has to wait for anything."""
    try:
        while True:
            waits_for = call.send(None)
            assert waits_for is None, f"the call waits for {waits_for}"
    except StopIteration:
        return


def copy(document: Any) -> Any:
    """A deep one."""
    return msgspec.json.decode(msgspec.json.encode(document))


class AsyncKube:
    """``shared.ports.KubeApi`` on a ``FakeKube``. ``faults``: verb to what the next calls of it do, in order.

    ``drop_reply``: it happens, the answer is lost; ``drop_request``: it does not happen, the answer is lost (``late``:
    the same, and the test makes it happen later); ``ok``: nothing. ``gates``: verb to an event that a call waits for
    before it has its effect. ``events``: Events that were created; they are kept, not served.
    """

    def __init__(self, server: FakeKube) -> None:
        self.server = server
        self.signs = WatchSigns()
        self.faults: dict[str, list[str]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.reached: dict[str, asyncio.Event] = {}
        self.calls: list[str] = []
        self.events: list[Mapping[str, Any]] = []
        self.delayed: list[Callable[[], Any]] = []
        """Writes of claims that come later (``late``)."""

    async def may_list(self, resource: Resource[Any], *, timeout_s: float = 5.0) -> bool:
        return True

    async def list(self, resource: Resource[Any], *, timeout_s: float = 60.0) -> ObjectList[Any]:
        others = self.server.objects.get(resource.plural, {})
        stored = {"pods": self.server.pods, "nodes": self.server.nodes}.get(resource.plural, others)
        items = tuple(msgspec.convert(item, resource.type) for item in stored.values())
        return ObjectList(items, str(self.server.revision))

    async def pages(self, resource: Resource[Any], *, timeout_s: float = 60.0) -> AsyncIterator[ObjectList[Any]]:
        listed = await self.list(resource)
        half = len(listed.items) // 2
        if half:
            yield ObjectList(listed.items[:half], listed.resource_version)
        yield ObjectList(listed.items[half:], listed.resource_version)

    async def watch_batches(
        self, resource: Resource[Any], *, resource_version: str, brief: int = 0
    ) -> AsyncIterator[Sequence[WatchEvent[Any]]]:
        changed = asyncio.Event()
        self.server.listeners.append(changed.set)
        seen = int(resource_version)
        try:
            while True:
                changed.clear()
                new = [e for r, plural, e in self.server.history if r > seen and plural == resource.plural]
                seen = self.server.revision
                if new:
                    yield new
                if brief:
                    yield [Bookmark(str(seen))]
                    brief = 0
                await changed.wait()
        finally:
            self.server.listeners.remove(changed.set)

    async def revision(self, resource: Resource[Any]) -> str:
        return str(self.server.revision)

    async def watch(self, resource: Resource[Any], *, resource_version: str) -> AsyncIterator[WatchEvent[Any]]:
        async for batch in self.watch_batches(resource, resource_version=resource_version):
            for event in batch:
                yield event

    async def get(self, resource: Resource[Any], *, namespace: str, name: str, timeout_s: float = 5.0) -> Any:
        if resource is PODS:
            return await self._call("get", lambda: self.server.get_pod(namespace, name))
        if resource is NODES:
            node = self.server.nodes.get(name)
            return await self._call("get", lambda: msgspec.convert(node, api.KubeNode) if node is not None else None)
        found = self.server.objects.get(resource.plural, {}).get(f"{namespace}/{name}")
        return await self._call("get", lambda: msgspec.convert(found, resource.type) if found is not None else None)

    async def patched(
        self, resource: Resource[Any], *, namespace: str, name: str, patch: Mapping[str, Any], subresource: str = "",
        timeout_s: float = 5.0, wait_when_busy: bool = True,
    ) -> Any:  # fmt: skip

        def act() -> Any:
            if resource is PODS:
                self.server.patch_status(namespace, name, patch)
                return self.server.pods[f"{namespace}/{name}"]
            return self.server.patch_claim(f"{namespace}/{name}", patch, subresource)

        return msgspec.convert(await self._call("patch", act), resource.type)

    async def bind(self, request: BindRequest, *, timeout_s: float = 5.0) -> None:
        await self._call("bind", lambda: self.server.bind(request))

    async def patch(
        self, resource: Resource[Any], *, namespace: str, name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]], subresource: str = "", strategy: str = "strategic",
        timeout_s: float = 5.0, wait_when_busy: bool = True,
    ) -> None:  # fmt: skip
        if resource is EVENTS:
            await self._call("patch", lambda: self._continue(name, patch))
        elif resource is NODES and isinstance(patch, Mapping):
            await self._call("patch", lambda: self.server.annotate_node(name, patch["metadata"]))
        elif resource is RESERVATIONS and isinstance(patch, Mapping):
            await self._call("patch", lambda: self.server.patch_reservation(f"{namespace}/{name}", patch))
        else:
            await self._call("patch", lambda: self.server.patch_status(namespace, name, patch))

    async def evict(self, *, namespace: str, name: str, uid: str, timeout_s: float = 5.0) -> None:
        await self._call("evict", lambda: self.server.delete_pod(namespace, name, uid))

    async def create(
        self, resource: Resource[Any], *, namespace: str, body: Mapping[str, Any], timeout_s: float = 5.0,
        wait_when_busy: bool = True, dry_run: bool = False,
    ) -> None:  # fmt: skip
        assert not dry_run, "nobody asks FakeKube what it would make"
        if resource is DEVICE_CLAIMS.resource:
            await self._call("create", lambda: self.server.create_claim(body))
        elif resource is RESERVATIONS:
            await self._call("create", lambda: self.server.create_reservation(body))
        else:
            assert resource is EVENTS, "FakeKube.add_pod and add_node make the rest"
            await self._call("create", lambda: self._record(body))

    async def delete(
        self, resource: Resource[Any], *, namespace: str, name: str, uid: str = "", resource_version: str = "",
        timeout_s: float = 5.0,
    ) -> None:  # fmt: skip
        def act() -> None:
            if resource is DEVICE_CLAIMS.resource:
                self.server.delete_claim(f"{namespace}/{name}", uid, resource_version)
            elif resource is RESERVATIONS:
                self.server.delete_reservation(f"{namespace}/{name}", uid)
            else:
                assert resource is PODS, "FakeKube.remove_node takes a node away"
                self.server.delete_pod(namespace, name, uid)

        await self._call("delete", act)

    async def close(self) -> None:
        return None

    def _record(self, body: Mapping[str, Any]) -> None:
        if any(event["metadata"]["name"] == body["metadata"]["name"] for event in self.events):
            raise KubeRejected("events already exists", status=409, reason="AlreadyExists")
        self.events.append(body)

    def _continue(self, name: str, patch: Any) -> None:
        for number, event in enumerate(self.events):
            if event["metadata"]["name"] == name:
                self.events[number] = {**event, **patch}
                return
        raise KubeRejected(f"events {name!r} not found", status=404, reason="NotFound")

    async def _call(self, verb: str, act: Callable[[], Any]) -> Any:
        self.calls.append(verb)
        if verb in self.reached:
            self.reached[verb].set()
        if verb in self.gates:
            await self.gates[verb].wait()
        write = verb in WRITES and "write" in self.faults
        faults = self.faults["write" if write else verb] if write or verb in self.faults else None
        fault = faults.pop(0) if faults else "ok"
        if fault == "late" and write:
            self.delayed.append(act)
        if fault in ("drop_request", "late"):
            raise KubeUnknown("the connection was cut")
        result = act()
        if fault == "drop_reply":
            raise KubeUnknown("the connection was cut")
        return result
