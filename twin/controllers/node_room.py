"""The admission of the twin's kubelets: a pod that its node has no room for is Failed at once, as on a real node.

Who looks at pods and nodes is the scheduler, and two of them may not see each other's Bindings in time; what becomes of
that is said here. A kubelet whose machine is down looks when it is back.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from twin.controllers.kubelet_objects import node_seen
from twin.controllers.runtime import Controller, ObjectKey
from twin.kinds.pod.resources import pod_requests
from twin.kinds.rules.quantity import QuantityError, nanos
from twin.model.cluster import FINISHED_PHASES
from twin.model.room import AdmissionRoom, OutOf
from twin.registry.registry import TwinRegistry

Json = dict[str, Any]


class NodeRoomController(Controller[ObjectKey]):
    """Keys are pods that are to be refused. ``refusals``: how many were, by reason."""

    user = "system:serviceaccount:kube-system:twin-kubelets"

    def __init__(self, registry: TwinRegistry) -> None:
        super().__init__(registry)
        self._rooms: dict[str, AdmissionRoom] = {}
        self._on: dict[str, dict[str, Json]] = {}
        """Pods that have not ended, by node and uid: a node that fails or is back looks at its own alone."""
        self._seen: dict[str, tuple[str, Json]] = {}
        """The node and spec of each pod that was looked at, by uid."""
        self._why: dict[str, OutOf] = {}
        self.refusals: Counter[str] = Counter()

    def follows(self) -> list[str]:
        return ["nodes", "pods"]

    def concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
        if resource == "nodes":
            self._node(obj["metadata"]["name"], obj, gone=gone)
        elif resource == "pods" and (name := obj["spec"].get("nodeName")):
            uid = obj["metadata"]["uid"]
            if gone or (obj.get("status") or {}).get("phase") in FINISHED_PHASES:
                self._on.get(name, {}).pop(uid, None)
                self._ended(uid)
                return
            self._on.setdefault(name, {})[uid] = obj
            if (room := self._rooms.get(name)) is not None:
                self._pod(uid, obj, name, room)

    def _node(self, name: str, node: Json, *, gone: bool) -> None:
        seen = node_seen(node)
        if gone or not seen.managed or seen.failed:
            self._rooms.pop(name, None)
            for uid in self._on.get(name, ()):
                self._seen.pop(uid, None)
            if gone and not self._on.get(name):
                self._on.pop(name, None)
            return
        try:
            offers = {what: nanos(text) for what, text in ((node.get("status") or {}).get("allocatable") or {}).items()}
        except QuantityError:
            return  # it offers what it did
        room = self._rooms.get(name)
        if room is not None:
            room.offers = offers
            return
        self._rooms[name] = AdmissionRoom(offers)
        there = list(self._on.get(name, {}).items())
        for uid, pod in sorted(there, key=lambda one: (one[1].get("status") or {}).get("phase") != "Running"):
            self._pod(uid, pod, name, self._rooms[name])

    def _pod(self, uid: str, pod: Json, name: str, room: AdmissionRoom) -> None:
        spec, known = pod["spec"], self._seen.get(uid)
        if known is not None and known[1] is spec:
            return
        running = (pod.get("status") or {}).get("phase") == "Running"
        if known is None and pod["metadata"].get("deletionTimestamp") and not running:
            return  # it never begins; one that runs holds what it has until it ends
        self._seen[uid] = name, spec
        if known is None and running:
            room.let_on(uid, pod_requests(spec))
        elif uid not in self._why and (lacks := room.lacks(uid, pod_requests(spec))) is not None:
            self._why[uid] = lacks
            self.refusals[lacks.reason] += 1
            self.note(("pods", pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def _ended(self, uid: str) -> None:
        self._why.pop(uid, None)
        name, _ = self._seen.pop(uid, ("", {}))
        if name in self._rooms:
            self._rooms[name].remove(uid)

    def reconcile(self, key: ObjectKey) -> None:
        if self.registry.get(*key) is not None:
            self.change(key, self._refused)

    def _refused(self, pod: Json) -> Json:
        status, why = pod.get("status") or {}, self._why.get(pod["metadata"]["uid"])
        if why is None or status.get("phase") in FINISHED_PHASES:
            return pod
        return {**pod, "status": {**status, "phase": "Failed", "reason": why.reason, "message": why.message}}
