"""What Reservations keep, read from the objects alone by this audit's own code: room that is kept is given to nobody
else, what is kept for once is taken once, and no node holds more than it has with what is kept counted.

Judged at each Binding by the mesh: what stands on the node with the new pod, and what reservations that are Available
there have left. A pod takes what the Binding's annotation names, if it did not bear that before. Another scheduler
knows of no reservation: its Bindings are not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from lab.audit.log import LogEntry
from lab.audit.rules import Amounts, Json, pod_requests

KIND = "Reservation"
TAKES = "conclave.io/reservation"
HASH = "pod-template-hash"


@dataclass(slots=True)
class _KeptRoom:
    key: str
    namespace: str
    spec: Json
    amounts: Amounts
    node: str = ""
    """While it is Available."""
    takers: dict[str, Amounts] = field(default_factory=dict)
    """Pods that stand and took it, by uid."""
    ever: int = 0

    @property
    def once(self) -> bool:
        return self.spec.get("allocateOnce") is not False

    def left(self) -> Amounts:
        """What it keeps still."""
        if self.once and self.ever:
            return {}
        left = dict(self.amounts)
        for taken in self.takers.values():
            for name, amount in taken.items():
                left[name] = max(0, left.get(name, 0) - amount)
        return left


class Reservations:
    """Feed changes of Reservations and Bindings in order. ``note``: hears of each violation."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._known: dict[str, _KeptRoom] = {}

    def change(self, entry: LogEntry) -> None:
        """A Reservation was made, changed or deleted."""
        if entry.gone:
            self._known.pop(entry.uid, None)
            return
        spec, status = entry.object.get("spec") or {}, entry.object.get("status") or {}
        kept = self._known.get(entry.uid)
        if kept is None:
            key = f"{entry.namespace}/{entry.name}"
            kept = self._known[entry.uid] = _KeptRoom(key, entry.namespace, spec, _amounts(spec))
        kept.node = str(status.get("node") or "") if status.get("phase") == "Available" else ""

    def bound(
        self, pod: Json, before: Json | None, node: str, requests: Amounts, used: Mapping[str, int],
        allocatable: Mapping[str, int], rv: int,
    ) -> int:  # fmt: skip
        """The mesh has bound the pod. ``before``: as it was; ``used``: what stands on the node, the pod included. How
        many violations that is."""
        if not self._known:
            return 0
        meta = pod["metadata"]
        said = (meta.get("annotations") or {}).get(TAKES, "")
        had = ((before or {}).get("metadata", {}).get("annotations") or {}).get(TAKES, "")
        found = list(self._taken(pod, node, said, requests)) if said and said != had else []
        key = f"{meta.get('namespace', '')}/{meta['name']}"
        found += [f"{key} on {node}: {text}" for text in self._beyond(node, requests, used, allocatable)]
        for text in found:
            self._note(f"reserved: {text} (rv {rv})")
        return len(found)

    def leave_room(
        self, pod: Json, node: str, requests: Amounts, used: Mapping[str, int], allocatable: Mapping[str, int]
    ) -> bool:
        """Whether a pending pod fits beside what is kept there for others; what is kept for itself is no hindrance."""
        there = [kept for kept in self._known.values() if kept.node == node and not self._meant(kept, pod)]
        return all(
            used.get(name, 0) + amount + sum(one.left().get(name, 0) for one in there) <= allocatable.get(name, 0)
            for name, amount in (requests.items() if there else ())
        )

    @staticmethod
    def _meant(kept: _KeptRoom, pod: Json) -> bool:
        namespace = pod["metadata"].get("namespace", "")
        owners = kept.spec.get("owners") or ()
        return namespace in (kept.spec.get("namespaces") or [kept.namespace]) and any(_owns(one, pod) for one in owners)

    def left(self, uid: str) -> None:
        """A pod has gone from where it stood."""
        for kept in self._known.values():
            kept.takers.pop(uid, None)

    def _taken(self, pod: Json, node: str, uid: str, requests: Amounts) -> Iterator[str]:
        kept, meta = self._known.get(uid), pod["metadata"]
        key = f"{meta.get('namespace', '')}/{meta['name']}"
        if kept is None:
            return  # it went while the Binding was under way: the room was free by then
        if not self._meant(kept, pod):
            yield f"{key} took {kept.key}, which is kept for others"
        if kept.once and kept.ever:
            yield f"{key} took {kept.key}, which was for once and is taken"
        if kept.node and kept.node != node:
            yield f"{key} took {kept.key} on {node}, which is on {kept.node}"
        kept.ever += 1
        kept.takers[meta["uid"]] = requests

    def _beyond(
        self, node: str, requests: Amounts, used: Mapping[str, int], allocatable: Mapping[str, int]
    ) -> Iterator[str]:
        there = [kept for kept in self._known.values() if kept.node == node]
        for name in requests if there else ():
            kept = sum(one.left().get(name, 0) for one in there)
            if kept and used.get(name, 0) + kept > allocatable.get(name, 0):
                whose = ", ".join(one.key for one in there if one.left().get(name, 0))
                yield f"{used.get(name, 0)} {name} stand beside {kept} kept by {whose}, of {allocatable.get(name, 0)}"


def _amounts(spec: Json) -> Amounts:
    template = (spec.get("template") or {}).get("spec")
    body = template or {"containers": [{"name": "room", "resources": {"requests": spec.get("resources") or {}}}]}
    try:
        return dict(pod_requests(body, None))
    except ValueError:
        return {}


def _owns(owner: Json, pod: Json) -> bool:
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    controller, selector = owner.get("controller"), owner.get("selector")
    if owner.get("pod") and owner["pod"] != meta["name"]:
        return False
    if controller and (controller.get("kind"), controller.get("name")) not in _controllers(meta, labels):
        return False
    return selector is None or _selects(selector, labels)


def _controllers(meta: Json, labels: Mapping[str, str]) -> list[tuple[str, str]]:
    found = [one for one in meta.get("ownerReferences") or () if one.get("controller")]
    if not found:
        return []
    kind, name = str(found[0].get("kind")), str(found[0].get("name"))
    suffix = f"-{labels.get(HASH) or ''}"
    if kind == "ReplicaSet" and len(suffix) > 1 and name.endswith(suffix):
        return [(kind, name), ("Deployment", name[: -len(suffix)])]
    return [(kind, name)]


def _selects(selector: Json, labels: Mapping[str, str]) -> bool:
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for one in selector.get("matchExpressions") or ():
        value, values = labels.get(one.get("key", "")), one.get("values") or ()
        holds = {
            "In": value in values, "NotIn": value not in values, "Exists": value is not None,
            "DoesNotExist": value is None,
        }  # fmt: skip
        if not holds.get(one.get("operator", ""), False):
            return False
    return True
