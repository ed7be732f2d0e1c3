"""Room that Reservations keep, and who has taken it: the accounting of reserve pods (ADR 0089). Pure.

    stands --a pod takes it (assumed or bound)--> of one for once: lifted, of one that is shared: so much less
       ^----- the pod turns out not to be bound, or leaves one that is shared -----|
    lifted --its pod seen bound--> spent: it keeps nothing any more, whatever its status still says

A reserve pod is counted as any pod that stands. Who takes it is counted in its place, never beside it: until the API
server shows the pod bound it counts as the greater of both, so that a try that fails leaves the room as it was. A bound
pod tells itself what it took (the Binding writes that), and is believed where it stands on the reservation's node and
is one of those for whom it is kept: whoever writes the annotation by hand takes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import gcd
from typing import TypeVar

from msgspec.structs import replace

from shared.model.constraints import PodClass, gpu_milli_of
from shared.model.gpu import pick_devices
from shared.model.pod import Pod
from shared.model.resources import GPU_MILLI
from shared.model.terms.labels import selects
from shared.model.units.reservation import Reservation, ReservationOwner
from shared.model.workload_key import TEMPLATE_HASH

K = TypeVar("K")
V = TypeVar("V")


LABEL = "="
"""Before the key of a label, where a kind of owners stands; no kind begins so."""


def serves(terms: Reservation, pod: Pod) -> bool:
    """Whether the room is kept for this pod."""
    return (
        pod.reserves is None and pod.namespace in terms.namespaces and any(_owns(one, pod) for one in terms.owners)
    )  # fmt: skip


def _owns(owner: ReservationOwner, pod: Pod) -> bool:
    if owner.pod and owner.pod != pod.name:
        return False
    if owner.kind and (owner.kind, owner.name) not in controllers_of(pod):
        return False
    return owner.labels is None or selects(owner.labels, pod.labels)


def in_name_of(pod: Pod, scheduler_name: str) -> Pod:
    """The pod; a reserve pod whose template names no scheduler is this one's."""
    return pod if pod.scheduler_name or pod.reserves is None else replace(pod, scheduler_name=scheduler_name)


def controllers_of(pod: Pod) -> list[tuple[str, str]]:
    """Kind and name of what controls the pod, and of what made that: a Deployment's ReplicaSets end in a hash."""
    _, kind, name = pod.owner
    if not name:
        return []
    suffix = f"-{pod.labels.get(TEMPLATE_HASH, '')}"
    if kind == "ReplicaSet" and len(suffix) > 1 and name.endswith(suffix):
        return [(kind, name), ("Deployment", name.removesuffix(suffix))]
    return [(kind, name)]


def covering(pod_class: PodClass, kept: PodClass) -> PodClass:
    """What a pod counts as while it is on its way into room kept for once: the greater of both, of each resource.
    Devices are its own: which they are is in its Binding."""
    amounts = dict(pod_class.requests)
    for name, amount in kept.requests:
        if name != GPU_MILLI:
            amounts[name] = max(amount, amounts.get(name, 0))
    ports = tuple(dict.fromkeys((*pod_class.host_ports, *kept.host_ports)))
    return replace(pod_class, requests=tuple(sorted(amounts.items())), host_ports=ports)


def remaining(kept: PodClass, takers: Iterable[PodClass]) -> PodClass:
    """What is left of shared room."""
    amounts, ports = dict(kept.requests), set(kept.host_ports)
    for taker in takers:
        ports.difference_update(taker.host_ports)
        for name, amount in taker.requests:
            if name in amounts:
                amounts[name] = max(0, amounts[name] - amount)
    left = tuple((name, amount) for name, amount in sorted(amounts.items()) if amount)
    return replace(kept, requests=left, host_ports=tuple(port for port in kept.host_ports if port in ports))


def devices_left(reserve: Pod, takers: Iterable[Pod]) -> dict[int, int]:
    """Of each device that room is kept on, the thousandths that no taker has."""
    left = dict.fromkeys(reserve.devices, gpu_milli_of(reserve.pod_class) // len(reserve.devices))
    for pod in takers:
        for device in pod.devices:
            if device in left:
                left[device] -= gpu_milli_of(pod.pod_class) // len(pod.devices)
    return {device: milli for device, milli in sorted(left.items()) if milli > 0}


def as_bound(pod: Pod, bound: Pod) -> Pod:
    """The reserve pod with the shape that was judged and bound: what is edited since takes no room that nobody checked.
    Whose it is and until when may change."""
    assert pod.reserves is not None
    assert bound.reserves is not None
    return replace(
        pod, pod_class=bound.pod_class, priority=bound.priority, relations=bound.relations, devices=bound.devices,
        reserves=replace(pod.reserves, once=bound.reserves.once),
    )  # fmt: skip


class ReservedRoom:
    """``standing``: reserve pods on their nodes by uid, each with all of its amounts; ``taker_of``: by a pod's uid the
    reservation that it takes; ``takers``: by reservation, also one not seen yet, the pods that take it."""

    def __init__(self) -> None:
        self.standing: dict[str, Pod] = {}
        self.taker_of: dict[str, str] = {}
        self.takers: dict[str, dict[str, Pod]] = {}
        self.spent: set[str] = set()
        """Reservations for once that a pod was seen to have taken, while they are shown."""
        self.untold: dict[str, str] = {}
        """By reservation the pod that was let have it and stands there, and whose Binding did not say so: by a binder
        that knows of none."""
        self.offered: dict[str, None] = {}
        """Reservations whose room came, or came back, since that was looked at: for pods that wait."""
        self.on: dict[str, dict[str, None]] = {}
        """Reservations by node, for who asks what a node keeps."""
        self._by_owner: dict[tuple[str, str, str], dict[str, None]] = {}
        self._labels: dict[str, dict[tuple[str, str], dict[str, None]]] = {}
        """By namespace, and by key and value of a label, those that are found by it."""
        self._others = Counter[str]()
        """By namespace the ways by which others are found."""

    def put(self, pod: Pod) -> None:
        """A reserve pod stands."""
        before = self.standing.get(pod.uid)
        if before is not None and before.reserves == pod.reserves and before.node_name == pod.node_name:
            self.standing[pod.uid] = pod
            return
        if before is not None:
            self._unlist(before)
        self.standing[pod.uid] = pod
        self.offered[pod.uid] = None
        self.on.setdefault(pod.node_name, {})[pod.uid] = None
        for key in keys_of(pod):
            self._by_owner.setdefault(key, {})[pod.uid] = None
            if key[1].startswith(LABEL):
                label = key[1].removeprefix(LABEL), key[2]
                self._labels.setdefault(key[0], {}).setdefault(label, {})[pod.uid] = None
            else:
                self._others[key[0]] += 1

    def drop(self, uid: str) -> None:
        """The reservation is over, or gone; an unknown uid is fine."""
        known = self.standing.pop(uid, None)
        if known is not None:
            self._unlist(known)
            self.offered.pop(uid, None)
        self.spent.discard(uid)
        self.untold.pop(uid, None)

    def node_changed(self, name: str) -> None:
        """The node may take who was refused there, into what is kept on it."""
        self.offered |= self.on.get(name, {})

    def _unlist(self, pod: Pod) -> None:
        _take_from(self.on, pod.node_name, pod.uid)
        for key in keys_of(pod):
            _take_from(self._by_owner, key, pod.uid)
            if key[1].startswith(LABEL):
                labels = self._labels.get(key[0], {})
                _take_from(labels, (key[1].removeprefix(LABEL), key[2]), pod.uid)
                if not labels:
                    self._labels.pop(key[0], None)
            elif self._others[key[0]] == 1:
                del self._others[key[0]]
            else:
                self._others[key[0]] -= 1

    def kept_for(self, pod: Pod) -> list[Pod]:
        """The reserve pods whose room the pod may have and nobody has taken, the first made first."""
        namespace, keys = pod.namespace, list[tuple[str, str, str]]()
        labels = self._labels.get(namespace)
        if labels and not labels.keys().isdisjoint(pod.labels.items()):
            keys = [(namespace, f"{LABEL}{key}", value) for key, value in labels.keys() & pod.labels.items()]
        if namespace in self._others:
            keys += [(namespace, "pod", pod.name), (namespace, "", "")]
            if pod.owner[2]:
                keys += [(namespace, *one) for one in controllers_of(pod)]
        if not keys or (there := self._by_owner).keys().isdisjoint(keys):
            return []  # most pods, and this is asked about each
        found = dict[str, None]()
        for owner in keys:
            found |= there.get(owner, {})
        kept = [self.standing[uid] for uid in found]
        able = [one for one in kept if one.reserves is not None and serves(one.reserves, pod) and self.free(one)]
        return sorted(able, key=lambda one: (one.created, one.name))

    def free(self, reserve: Pod) -> bool:
        """Whether a pod may still take it."""
        once = reserve.reserves is not None and reserve.reserves.once
        return reserve.uid not in self.spent and not (once and self._believed(reserve))

    def left(self, uid: str) -> PodClass | None:
        """What of the reserve pod's amounts counts now; None: nothing."""
        counted = self.counted(uid)
        return counted.pod_class if counted is not None else None

    def counted(self, uid: str) -> Pod | None:
        """What the reserve pod counts as now, and on which devices; None: nothing. Of devices it has its own alone,
        each so often as its share asks for."""
        reserve = self.standing[uid]
        takers = self._believed(reserve)
        if not takers:
            return None if uid in self.spent else reserve
        if reserve.reserves is None or reserve.reserves.once:
            return None
        pod_class = remaining(reserve.pod_class, (pod.pod_class for pod in takers))
        if not reserve.devices:
            return replace(reserve, pod_class=pod_class)
        left = devices_left(reserve, takers)
        amounts = {**dict(pod_class.requests), GPU_MILLI: sum(left.values())}
        requests = tuple((name, amount) for name, amount in sorted(amounts.items()) if amount)
        share = gcd(*left.values())
        devices = tuple(device for device, milli in left.items() for _ in range(milli // share))
        return replace(reserve, pod_class=replace(pod_class, requests=requests), devices=devices)

    def devices_for(self, reserve: Pod, pod: Pod) -> tuple[int, ...]:
        """Which of the devices that are kept and shared a pod gets; () where those do not do: it gets any."""
        if not reserve.devices or reserve.reserves is None or reserve.reserves.once:
            return ()
        left = devices_left(reserve, self._believed(reserve))
        numbers = list(left)
        return tuple(numbers[at] for at in pick_devices(list(left.values()), gpu_milli_of(pod.pod_class)))

    def devices_of(self, pod_uid: str, node_name: str) -> tuple[int, ...] | None:
        """The devices that the pod was given with the room it takes on the node; None: it may have any."""
        uid = self.taker_of.get(pod_uid, "")
        reserve = self.standing.get(uid)
        if reserve is None or reserve.node_name != node_name:
            return None
        return self.takers[uid][pod_uid].devices or None

    def take(self, uid: str, pod: Pod) -> None:
        """The pod has the room, or is to have it."""
        self.taker_of[pod.uid] = uid
        self.takers.setdefault(uid, {})[pod.uid] = pod

    def leave(self, pod_uid: str, *, bound: bool = False, offers: bool = True) -> str:
        """The pod has it no more; which reservation's. ``bound``: it stood there; ``offers`` False: that is news to
        nobody, since it never had it but to be judged."""
        uid = self.taker_of.pop(pod_uid)
        reserve = self.standing.get(uid)
        if reserve is not None:
            if bound and reserve.reserves is not None and reserve.reserves.once and self._believed(reserve):
                self.spent.add(uid)
            if offers:
                self.offered[uid] = None
        _take_from(self.takers, uid, pod_uid)
        return uid

    def owners(self, uid: str) -> list[Pod]:
        """The pods that stand there in the reservation's room."""
        reserve = self.standing.get(uid)
        return [pod for pod in self._believed(reserve) if pod.node_name] if reserve is not None else []

    def _believed(self, reserve: Pod) -> list[Pod]:
        """Those who have taken the room: who is only on its way was judged by whoever sends it."""
        terms, found = reserve.reserves, self.takers.get(reserve.uid)
        if not found or terms is None:
            return []
        return [
            pod for pod in found.values()
            if not pod.node_name or (pod.node_name == reserve.node_name and serves(terms, pod))
        ]  # fmt: skip

    def validate(self) -> Iterator[str]:
        """What is broken; nothing while all is well."""
        for pod_uid, uid in self.taker_of.items():
            if pod_uid not in self.takers.get(uid, {}):
                yield f"reserved: {pod_uid} takes {uid}, which does not list it"
        for uid in self.takers:
            reserve = self.standing.get(uid)
            if reserve is not None and reserve.reserves is not None and reserve.reserves.once:
                believed = sorted(pod.uid for pod in self._believed(reserve))
                if len(believed) > 1:
                    yield f"reserved: {uid} is for once and taken by {' and '.join(believed)}"


def owned_by(pod: Pod) -> Iterator[tuple[str, str]]:
    """By which owners of its namespace a reservation may be its: ``keys_of`` has those of a reservation."""
    yield "pod", pod.name
    yield "", ""
    yield from controllers_of(pod)
    for key, value in pod.labels.items():
        yield f"{LABEL}{key}", value


def keys_of(pod: Pod) -> list[tuple[str, str, str]]:
    """Namespace and owner, one of each pair, by which a reserve pod is found."""
    terms = pod.reserves
    assert terms is not None
    return [
        (namespace, *name) for namespace in terms.namespaces for owner in terms.owners for name in _names_of(owner)
    ]  # fmt: skip


def _names_of(owner: ReservationOwner) -> list[tuple[str, str]]:
    """Of a selector one label that it asks for, with each of its values; so plain pods do not meet it."""
    if owner.pod:
        return [("pod", owner.pod)]
    if owner.kind:
        return [(owner.kind, owner.name)]
    for one in owner.labels.requirements if owner.labels is not None else ():
        if one.operator == "In":
            return [(f"{LABEL}{one.key}", value) for value in one.values]
    return [("", "")]


def _take_from(table: dict[K, dict[str, V]], key: K, uid: str) -> None:
    there = table.get(key, {})
    there.pop(uid, None)
    if not there:
        table.pop(key, None)
