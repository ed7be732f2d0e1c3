"""Everything a decision may rest on: nodes, pods, and the objects beside them, as one value.

Sorts out which pods count: finished ones nowhere, bound ones on their node (also while terminating), pending ones only
as nominated. It keeps ``ClusterCache`` (amounts) and ``PodIndex`` (who stands where) in step; it decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from shared.model.cluster_objects import DisruptionBudget, PersistentVolume, StorageClass, VolumeClaim
from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.pod import Pod
from shared.model.units.pod_group import PodGroup
from shared.model.units.queue import Queue
from shared.scheduling.state.attach_limits import AttachLimits
from shared.scheduling.state.cache import Account, ClusterCache
from shared.scheduling.state.devices_port import KeepsDevices
from shared.scheduling.state.images import ImageTable
from shared.scheduling.state.namespaces import Namespaces
from shared.scheduling.state.pod_index import PodIndex
from shared.scheduling.state.releases import Release
from shared.scheduling.state.room.nominated_room import NominatedPods, NominatedRoom
from shared.scheduling.state.room.reserved_room import ReservedRoom, as_bound, covering, serves
from shared.scheduling.state.workloads import Workloads
from shared.scheduling.state.zones_port import KeepsZones


@dataclass(slots=True)
class Storage:
    """Claims by ``namespace/name``, volumes and classes by name, attach limits by node and driver."""

    attach_limits: AttachLimits
    claims: dict[str, VolumeClaim] = field(default_factory=dict)
    classes: dict[str, StorageClass] = field(default_factory=dict)
    _volumes: dict[str, PersistentVolume] = field(default_factory=dict)
    _of_class: dict[str, dict[str, PersistentVolume]] = field(default_factory=dict)

    def put_volume(self, volume: PersistentVolume) -> None:
        """A volume appeared or changed."""
        self.drop_volume(volume.name)
        self._volumes[volume.name] = volume
        self._of_class.setdefault(volume.class_name, {})[volume.name] = volume

    def drop_volume(self, name: str) -> None:
        """A volume is gone; an unknown name is fine."""
        known = self._volumes.pop(name, None)
        if known is not None:
            del self._of_class[known.class_name][name]

    def volume(self, name: str) -> PersistentVolume | None:
        """The volume called ``name``."""
        return self._volumes.get(name)

    def volumes_of_class(self, name: str) -> Iterable[PersistentVolume]:
        """Volumes of one storage class; the empty name is a class too."""
        return self._of_class.get(name, {}).values()


class ClusterState:
    """The cluster as known here. ``namespaces``: labels by name; ``pod_groups``: by their keys; ``queues``: by name;
    ``objects_version`` counts changes of what rules read beside nodes and pods that stand: volumes, workloads,
    nominations; ``nominated``: pods by node and uid, ``nominated_to``: nodes by uid; ``members``: uids of pods that
    stand, by pod group; ``nominated_members``: by pod group, its nominated members per node; ``nominations`` counts
    changes of who is nominated where; ``given_up``: nodes where a nominated pod left room, by going elsewhere or away;
    ``release``: by whose rules pods are judged."""

    def __init__(self, release: Release = Release.V1_38) -> None:
        self.release = release
        self.cache = ClusterCache()
        self.table = self.cache.table
        self.index = PodIndex(self.cache.table)
        self.images = ImageTable(self.cache.table)
        self.namespaces = Namespaces()
        self.namespaces.release = release
        self.storage = Storage(AttachLimits(self.table))
        self.workloads = Workloads()
        self.budgets: list[DisruptionBudget] = []
        self.pod_groups: dict[str, PodGroup] = {}
        self.queues: dict[str, Queue] = {}
        self.objects_version = 0
        self.devices: KeepsDevices | None = None
        """Slices, classes and claims, and what is assumed of them; None: nobody reads them."""
        self.nominated: dict[str, dict[str, Pod]] = {}
        self.nominated_to: dict[str, str] = {}
        self.nominated_members: dict[str, Counter[str]] = {}
        self.nominations = 0
        self._renominated_at: dict[str, int] = {}
        self._nominated_room = NominatedRoom(self.table, self.nominated, self.renominated_since)
        self.promised: dict[tuple[str, str], Counter[str]] = {}
        """By a budget's namespace and name: pods that it covers and that are to be evicted, and were not yet, by name,
        for how many reasons; what it says it allows does not count those."""
        self.members: dict[str, set[str]] = {}
        self.given_up: set[str] = set()
        self.reserved = ReservedRoom()
        """Room that Reservations keep: their reserve pods stand here as pods do."""
        self.renominated: dict[str, None] | None = None
        """Uids of pods that were nominated, or are not any more, for whoever follows them; None: nobody does."""

    @property
    def zones(self) -> KeepsZones | None:
        """The zones of nodes and who stands in which; None: nobody reads them."""
        return self.cache.zones

    def upsert_node(self, node: Node, images: Mapping[str, int] | None = None) -> None:
        """A node appeared or changed. ``images``: bytes by name; None leaves them as they are."""
        self.cache.upsert_node(node)
        if images is not None:
            self.images.set(node.name, images)

    def remove_node(self, name: str) -> None:
        """A node is gone; what stands there waits."""
        self.cache.remove_node(name)
        self.images.set(name, {})

    def observe(self, pod: Pod) -> None:
        """Take over a pod as the API server shows it."""
        if pod.finished:
            self.forget(pod.uid)
        elif pod.node_name:
            if pod.takes or self.reserved.taker_of:
                self.observe_reserved(pod)
                if pod.reserves is not None:
                    return
            self.cache.confirm(pod)
            if pod.uid in self.nominated_to:
                self.withdraw_nomination(pod.uid, stays_on=pod.node_name)
            self.index.place(pod, pod.node_name)
            if pod.group:
                self.members.setdefault(pod.group, set()).add(pod.uid)
        else:
            self.nominate(pod)

    def assume(
        self, pod: Pod, node_name: str, now: float, *, devices: tuple[int, ...] | None = None,
        counts_as: PodClass | None = None,
    ) -> Account:  # fmt: skip
        """Count a pending pod on a node before the API server knows, for every rule; ``forget`` undoes it.
        ``counts_as``: as ``take_room`` says."""
        if pod.uid in self.nominated_to:
            self.withdraw_nomination(pod.uid, stays_on=node_name)
        self.index.place(pod, node_name, assumed=True)
        if pod.group:
            self.members.setdefault(pod.group, set()).add(pod.uid)
        if pod.asks is not None and self.devices is not None:
            self.devices.assume(pod, node_name, now)
        if devices is None and self.reserved.taker_of:
            devices = self.reserved.devices_of(pod.uid, node_name)
        return self.cache.assume(pod.uid, node_name, counts_as or pod.pod_class, now, devices=devices)

    def forget(self, uid: str) -> Account | None:
        """The pod is gone, or was assumed in vain. Returns what it held."""
        self.withdraw_nomination(uid)
        reservation = self._leave_reserved(uid) if self.reserved.taker_of or self.reserved.standing else ""
        known = self.index.get(uid)
        if known is not None and known.group:
            self.members[known.group].discard(uid)
            if not self.members[known.group]:
                del self.members[known.group]
        self.index.drop(uid)
        if self.devices is not None:
            self.devices.forget(uid)
        account = self.cache.forget(uid)
        if reservation:
            self._recount(reservation)
        return account

    # --- room that is reserved ----------------------------------------------------------------------------------

    def observe_reserved(self, pod: Pod) -> None:
        """A pod that stands: a reserve pod, or one that may have taken such a one's room, or have gone elsewhere."""
        reserved = self.reserved
        if pod.reserves is not None:
            if pod.uid in self.nominated_to:
                self.withdraw_nomination(pod.uid, stays_on=pod.node_name)
            if (bound := reserved.standing.get(pod.uid)) is None:
                self.cache.forget(pod.uid)  # as it was assumed, perhaps elsewhere
            elif bound.node_name == pod.node_name:
                pod = as_bound(pod, bound)
            reserved.put(pod)
            self._recount(pod.uid)
            return
        if (before := reserved.taker_of.get(pod.uid, "")) and before != pod.takes:
            self._recount(reserved.leave(pod.uid))
            left = reserved.standing.get(before)
            if not pod.takes and left is not None and left.node_name == pod.node_name:
                reserved.untold[before] = pod.uid
        if pod.takes:
            reserved.take(pod.takes, pod)
            self._recount(pod.takes)

    def take_room(self, reservation: str, pod: Pod, devices: tuple[int, ...] = ()) -> PodClass | None:
        """Let a pod that is to be placed have a reservation's room, as long as it is counted nowhere; what it counts as
        on its way there. None: nothing is kept for it, or another has it. ``devices``: those it was given already."""
        reserve = self.reserved.standing.get(reservation)
        if reserve is None or reserve.reserves is None or not serves(reserve.reserves, pod):
            return None
        if self.reserved.taker_of.get(pod.uid) != reservation:
            if not self.reserved.free(reserve):
                return None
            given = devices or self.reserved.devices_for(reserve, pod)
            self.reserved.take(reservation, replace(pod, devices=given) if given else pod)
            self._recount(reservation)
        return covering(pod.pod_class, reserve.pod_class) if reserve.reserves.once else pod.pod_class

    def spend_room(self, reservation: str) -> None:
        """One for once that stands was taken by somebody who is gone: it keeps nothing any more."""
        self.reserved.spent.add(reservation)
        self._recount(reservation)

    def leave_room(self, uid: str, *, offers: bool = True) -> None:
        """A pod that is counted nowhere is not to have what it was let have; an unknown uid is fine. ``offers`` False:
        it was let have it only to be judged."""
        if uid in self.reserved.taker_of:
            self._recount(self.reserved.leave(uid, offers=offers))

    def _leave_reserved(self, uid: str) -> str:
        """Which reservation's room the pod has no more."""
        self.reserved.drop(uid)
        if uid not in self.reserved.taker_of:
            return ""
        account = self.cache.accounts.get(uid)
        return self.reserved.leave(uid, bound=account is not None and account.assumed_at is None)

    def _recount(self, reservation: str) -> None:
        """Count what is left of a reservation that stands."""
        reserve = self.reserved.standing.get(reservation)
        if reserve is None:
            return
        counted = self.reserved.counted(reservation)
        if counted is None:
            self.index.drop(reservation)
            self.cache.forget(reservation)
            return
        self.cache.confirm(counted)
        self.index.place(counted, reserve.node_name)

    # --- nominations --------------------------------------------------------------------------------------------

    def nominate(self, pod: Pod) -> None:
        """Take over where a pending pod is nominated to, if anywhere; it holds nothing by that."""
        there = self.nominated.get(pod.nominated_node) if pod.nominated_node and not pod.gates else None
        if there is not None and (known := there.get(pod.uid)) is not None and _weighs_as(known, pod):
            there[pod.uid] = pod  # it keeps its place before those that came after it
            return
        self.withdraw_nomination(pod.uid, stays_on="" if pod.gates else pod.nominated_node)
        if pod.nominated_node and not pod.gates:
            self.objects_version += 1
            if self.renominated is not None:
                self.renominated[pod.uid] = None
            self.nominated.setdefault(pod.nominated_node, {})[pod.uid] = pod
            self.nominated_to[pod.uid] = pod.nominated_node
            self._count_nomination(pod, pod.nominated_node, 1)

    def withdraw_nomination(self, uid: str, *, stays_on: str = "") -> None:
        """The pod is nominated nowhere any more, an unknown uid is fine; ``stays_on``: what was kept for it on this
        node is left to nobody else."""
        node_name = self.nominated_to.pop(uid, None)
        if node_name is None:
            return
        self.objects_version += 1
        if self.renominated is not None:
            self.renominated[uid] = None
        if node_name != stays_on:
            self.given_up.add(node_name)
        there = self.nominated[node_name]
        self._count_nomination(there.pop(uid), node_name, -1)
        if not there:
            del self.nominated[node_name]

    def _count_nomination(self, pod: Pod, node_name: str, count: int) -> None:
        self.nominations += 1
        self._renominated_at.pop(node_name, None)
        self._renominated_at[node_name] = self.nominations
        if pod.group:
            nodes = self.nominated_members.setdefault(pod.group, Counter())
            nodes[node_name] += count
            if not nodes[node_name]:
                del nodes[node_name]
            if not nodes:
                del self.nominated_members[pod.group]

    def renominated_since(self, count: int) -> Iterator[str]:
        """Nodes where somebody was nominated, or is not any more, since ``nominations`` stood at ``count``."""
        for node_name, at in reversed(self._renominated_at.items()):
            if at <= count:
                return
            yield node_name

    def renominated_at(self, node_name: str) -> int:
        """Where ``nominations`` stood when somebody was last nominated to the node, or was not any more."""
        return self._renominated_at.get(node_name, 0)

    def nominated_on(self, node_name: str, pod: Pod) -> list[Pod]:
        """Pods nominated to a node that ``pod`` must yield to: of equal or higher priority, but not itself, and no
        fellow member of its group, with which it is placed together.

        Of those that are nominated there and equal the first come is first, so that each is placed as its room comes,
        and gangs one after the other: kube-scheduler has all yield to each other until the last victim has left.
        """
        there = self.nominated.get(node_name)
        if there is None:
            return []
        in_turn = pod.nominated_node == node_name and self.release is not Release.V1_36
        found, later = list[Pod](), False
        for uid, other in there.items():
            if uid == pod.uid:
                later = in_turn
            elif other.priority < pod.priority or (pod.group and other.group == pod.group):
                continue
            elif not (later and other.priority == pod.priority):
                found.append(other)
        return found

    def behind(self, pods: Sequence[Pod]) -> list[Pod]:
        """Those nominated to the nodes of these pods, which go together, that come after all of them there."""
        uids, priorities = {pod.uid for pod in pods}, {pod.priority for pod in pods}
        found = list[Pod]()
        if self.release is Release.V1_36 or len(priorities) > 1:
            return found
        for node_name in dict.fromkeys(pod.nominated_node for pod in pods):
            for uid, other in reversed(self.nominated[node_name].items()):
                if uid in uids:
                    break
                if other.priority in priorities:
                    found.append(other)
        return found

    def held_for(self, priority: int) -> NominatedPods:
        """What nominated pods of that priority and above would take where they are nominated. For reading."""
        return self._nominated_room.held(priority, self.nominations)

    def nominated_below(self, node_name: str, priority: int) -> list[Pod]:
        """Pods nominated to a node that a preemptor of ``priority`` displaces."""
        return [other for other in self.nominated.get(node_name, {}).values() if other.priority < priority]

    def validate(self) -> Iterator[str]:
        """What is broken in cache and nominations; nothing while all is well."""
        yield from self.cache.validate()
        yield from self.reserved.validate()
        for uid, reserve in self.reserved.standing.items():
            account, left = self.cache.accounts.get(uid), self.reserved.counted(uid)
            amounts = account.pod_class if account is not None else None
            misplaced = left is not None and left.devices and account is not None and account.devices != left.devices
            if misplaced or amounts != (left.pod_class if left is not None else None):
                yield f"reserved: {uid} on {reserve.node_name} is not counted as what is left of it"
        if self.devices is not None:
            yield from self.devices.validate()
        if self.zones is not None:
            yield from self.zones.validate()
        nominated = {uid: name for name, pods in self.nominated.items() for uid in pods}
        for uid in nominated.keys() | self.nominated_to.keys():
            if nominated.get(uid) != self.nominated_to.get(uid):
                yield f"nominations: {uid} is on {nominated.get(uid)}, nominated to {self.nominated_to.get(uid)}"
        for key, uids in self.members.items():
            for uid in uids:
                pod = self.index.get(uid)
                if pod is None or pod.group != key:
                    yield f"members: {uid} is counted to {key}, and stands nowhere or for another"


def _weighs_as(known: Pod, pod: Pod) -> bool:
    """Whether a nominated pod's newer object counts exactly as the older for those that yield to it."""
    return (known.pod_class, known.priority, known.group, known.namespace, known.labels, known.relations) == (
        pod.pod_class, pod.priority, pod.group, pod.namespace, pod.labels, pod.relations,
    )  # fmt: skip
