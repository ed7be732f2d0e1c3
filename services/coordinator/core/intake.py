"""Takes in what the API server shows: which pods are ours and pending, what every pod and node counts, what may help.

Every pod that is bound to any node is accounted, ours or not (reliability.md 3.6). A pod is queued if it names this
scheduler, is not bound, terminating (itself, or its namespace), gated or finished, and can be read; one that cannot be
read, or that asks for what is not supported, is told so and left aside until it changes. What may help parked pods is
noted (``requeueing.py``), which looks into it once per turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from services.coordinator.agents.registry import AgentRegistry
from services.coordinator.binding.plans import Ledger
from services.coordinator.binding.shards import confined, labelled
from services.coordinator.core.state import CoordinatorState, NodeHealth
from services.coordinator.core.takeover import Takeover
from services.coordinator.cycle.failures import FailureHandler
from services.coordinator.cycle.requeueing import FREED, Requeuer
from services.coordinator.preemption.giving_way import GivingWay
from services.coordinator.preemption.holds import Holds
from services.coordinator.preemption.search import Preemptor
from services.coordinator.reservations.leaving import LeftRoom
from shared.model.devices import DeviceClaim
from shared.model.node import Node
from shared.model.node_topology import NodeTopology
from shared.model.pod import Pod
from shared.model.qos import differ_in_lent_alone
from shared.model.units.pod_group import group_key
from shared.scheduling.places import ClusterEvent, Place
from shared.scheduling.preemption.delays import LOWEST
from shared.scheduling.state.devices_port import DEVICE_KINDS
from shared.scheduling.state.object_changes import GROUP_SOURCES, drop_object, put_object
from shared.scheduling.state.room.reserved_room import in_name_of
from shared.scheduling.state.zones_port import ZONE_KINDS

BUDGETS, CLAIMS, DEVICE_CLASSES = "poddisruptionbudgets", "resourceclaims", "deviceclasses"
NAMESPACES = "namespaces"

EVENT_OF_KIND = {
    "persistentvolumeclaims": ClusterEvent.CLAIM_CHANGED,
    "persistentvolumes": ClusterEvent.VOLUME_CHANGED,
    "storageclasses": ClusterEvent.STORAGE_CLASS_CHANGED,
    "csinodes": ClusterEvent.CSI_NODE_CHANGED,
    NAMESPACES: ClusterEvent.NAMESPACE_LABELS,
    "resourceslices": ClusterEvent.RESOURCE_SLICE_CHANGED,
    "devicetaintrules": ClusterEvent.RESOURCE_SLICE_CHANGED,
    "deviceclasses": ClusterEvent.DEVICE_CLASS_CHANGED,
}
"""What may help parked pods; services and controllers decide scores only, budgets only whom to evict."""


UNSERVED = "spec.resourceClaims where the API server has no resource.k8s.io/v1 resourceclaims that we may list"


class PodIntake:
    """Pods into accounting and queue."""

    def __init__(
        self, state: CoordinatorState, ledger: Ledger, takeover: Takeover, failures: FailureHandler,
        preemptor: Preemptor,
        requeuer: Requeuer, giving_way: GivingWay,
    ) -> None:  # fmt: skip
        self._state = state
        self._ledger = ledger
        self._takeover = takeover
        self._failures = failures
        self._preemptor = preemptor
        self._requeuer = requeuer
        self._giving_way = giving_way
        self._claims_served = True
        self._left_room = LeftRoom()
        self._profiles = state.settings.profiles if state.settings.profiles.special else None

    def seen(self, pod: Pod) -> None:
        """The API server shows a pod, which was added or changed."""
        if pod.reserves is not None:
            pod = in_name_of(pod, self._state.scheduler_name)
        if self._profiles is not None:
            pod = self._profiles.applied(pod)
        if pod.reserves is not None:
            self._state.reservations[pod.uid] = pod
        self.upsert(pod if pod.offline is None else self.counted(pod))

    def counted(self, pod: Pod) -> Pod:
        """The pod as it counts here. An offline one that may be evicted stands below online ones of its priority, where
        the setting says so: in the queue, and as a victim."""
        terms = pod.offline
        if terms is None or not terms.returns or not pod.preemptible or not self._state.settings.offline_preemption:
            return pod
        return replace(pod, priority=max(LOWEST, pod.priority - 1), offline=replace(terms, lowered=True))

    def upsert(self, pod: Pod, since: float | None = None, *, watched: bool = True) -> None:
        """A pod was added or changed. ``since``: when it was seen first; None: now. ``watched``: as the API server has
        it, else as it is known here."""
        if pod.group:
            pod = confined(self._state, pod)
        state, uid = self._state, pod.uid
        grouped = bool(pod.group) or uid in state.groups.key_of
        if pod.finished or pod.node_name:
            self._settled(pod)
            return
        account = state.cache.accounts.get(uid)
        if account is not None and account.assumed_at is None:
            return  # a uid never loses its node: this is an older event, delivered again
        if state.ending and (kept := state.ending.get(pod.namespace)) is not None:
            kept[uid] = pod
            pod = replace(pod, terminating=True)
        if pod.scheduler_name not in state.ours or pod.terminating or pod.gates:
            if pod.gates and pod.scheduler_name in state.ours and not pod.terminating:
                state.see_gated(pod)
            else:
                state.gated.pop(uid, None)
            if grouped:
                self._outside(pod)
            if uid not in self._ledger.placed and uid not in self._takeover.held:
                self._drop(uid)
                self._foreign(pod)
            return
        state.gated.pop(uid, None)
        if (pod.asks is not None or pod.extended) and state.started and not (pod.invalid or pod.unsupported):
            claims = pod.asks.claims if pod.asks is not None else ()
            if claims and not self._claims_served:
                pod = replace(pod, unsupported=UNSERVED)
            elif claims and (lacks := state.devices.lacking(pod)):
                self._without_claims(pod, lacks, grouped=grouped)
                return
            else:
                state.awaited_claims.drop(uid)
                pod = state.devices.described(pod)
        if pod.invalid or pod.unsupported:
            if grouped:
                state.groups.see_gone(uid)
            self._takeover.settle(uid)
            self._failures.refuse(pod)
            return
        state.untried.pop(uid, None)
        if grouped:
            self._regroup(pod)
        if (self._takeover.held or not state.started) and self._takeover.keep(pod):
            return
        if watched:
            pod = self._as_nominated(pod)
        entry = state.queue.entries.get(uid)
        if entry is None:
            state.stats.pods_seen += 1
        if (pod.nominated_node or (entry is not None and entry.pod.nominated_node)) and account is None:
            state.cluster.nominate(pod)
        state.queue.add(pod, state.now if since is None else since, gated=grouped)

    def _without_claims(self, pod: Pod, lacks: str, *, grouped: bool) -> None:
        """A claim that the pod names is not there, is going, or is another's: it is not tried until that changes."""
        state, uid = self._state, pod.uid
        if uid in self._ledger.placed or uid in self._takeover.held:
            return  # on its way: the binder will say
        if (entry := state.queue.entries.get(uid)) is not None and entry.place is Place.IN_FLIGHT:
            state.queue.add(self._as_nominated(pod), state.now, gated=grouped)  # the cycle that it is in says so
            return
        state.see_gated(pod, lacks)
        state.awaited_claims.add(pod)
        if grouped:
            self._outside(pod)
        self._drop(uid, waits=True)

    def _as_nominated(self, pod: Pod) -> Pod:
        """The pod with the nomination that its status does not say yet."""
        nominations = self._preemptor.nominations
        known = pod.uid in nominations.made or pod.uid in nominations.records.kept
        return nominations.as_nominated(pod) if known else pod

    def namespace_changed(self, name: str, *, ends: bool) -> None:
        """Pods of a namespace that is being deleted are not tried. One of that name that is made anew may be seen later
        than its first pods."""
        state = self._state
        if ends == (name in state.ending):
            return
        if ends:
            state.ending[name] = {}
            pods = [entry.pod for entry in state.queue.entries.values() if entry.pod.namespace == name]
            pods += [found.pod for found in state.gated.values() if found.pod.namespace == name]
        else:
            pods = list(state.ending.pop(name).values())
        for pod in pods:
            self.upsert(pod)

    def claims_unserved(self) -> None:
        """No claim can be read: who has some is told so, once, instead of waiting for them."""
        self._claims_served = False
        for found in list(self._state.gated.values()):
            if found.lacks:
                self.upsert(found.pod)

    def claim_changed(self, key: str) -> None:
        """A claim came, changed or went: who waits for it is tried, if it has all of its claims now."""
        state = self._state
        if not self._claims_served:
            self._claims_served = True
            for pod, _ in list(state.untried.values()):
                if pod.unsupported == UNSERVED:
                    self.upsert(replace(pod, unsupported=""))
        self.try_awaiting(key)

    def try_awaiting(self, key: str) -> None:
        """Those that wait for a claim, or for what their pod group says of one, are tried if they have all now."""
        state = self._state
        for uid in state.awaited_claims.of(key):
            if (found := state.gated.get(uid)) is not None:
                self.upsert(found.pod)
            elif (entry := state.queue.entries.get(uid)) is not None and not state.devices.lacking(entry.pod):
                state.awaited_claims.drop(uid)
                state.stats.woken += state.queue.wake(uid, state.now, ClusterEvent.DEVICE_CLAIM_CHANGED)

    def classes_changed(self) -> None:
        """Device classes stand for other extended resources than before: pods that request one are judged anew."""
        state, remapped = self._state, self._state.devices.backed.take_remapped()
        if not remapped or not state.started:
            return
        asking = [
            entry.pod
            for entry in state.queue.entries.values()
            if entry.pod.extended and any(name in remapped for name, _ in entry.pod.pod_class.requests)
        ]
        for pod in asking:
            self.upsert(pod, watched=False)
            state.stats.woken += state.queue.wake(pod.uid, state.now, ClusterEvent.DEVICE_CLASS_CHANGED)

    def _foreign(self, pod: Pod) -> None:
        """A pending pod that is not tried here. What room is made for one of another scheduler is left to it, as
        kube-scheduler leaves it to its own."""
        state = self._state
        waits = pod.scheduler_name not in state.ours and not pod.terminating
        if waits and not pod.gates:
            state.others.add(pod.uid)
        if waits and pod.nominated_node and not pod.invalid:
            state.cluster.nominate(pod)
        elif pod.uid in state.cluster.nominated_to:
            state.cluster.withdraw_nomination(pod.uid)

    def _regroup(self, pod: Pod) -> None:
        """A member waits; one whose label names another group than before leaves the old one."""
        state, before = self._state, self._state.groups.key_of.get(pod.uid, "")
        if before and before != pod.group:
            state.queue.gate(pod.uid, state.now)
            if not pod.group:
                state.queue.ungate(pod.uid, state.now, ClusterEvent.POD_GROUP_CHANGED)
        state.groups.see_pending(pod)
        state.queue.labelled |= bool(state.groups.label(pod.group))

    def _outside(self, pod: Pod) -> None:
        """A member that is not to be tried here: another scheduler's, gated by itself, or going."""
        groups = self._state.groups
        if pod.scheduler_name not in self._state.ours and not pod.terminating:
            groups.see_foreign(pod)
        else:
            groups.see_gone(pod.uid)

    def delete(self, uid: str) -> None:
        """The pod is gone."""
        if self._state.reservations:
            self._state.reservations.pop(uid, None)
        self._state.gated.pop(uid, None)
        for kept in self._state.ending.values():
            kept.pop(uid, None)
        if uid in self._state.groups.key_of:
            self._state.groups.see_deleted(uid)
        self._drop(uid)
        self.release(uid)

    def release(self, uid: str) -> None:
        """What the pod held is given up; parked pods that fit there now are woken."""
        cluster = self._state.cluster
        stood = cluster.index.get(uid)
        held = cluster.forget(uid)
        if held is not None:
            self._requeuer.node_changed(held.node_name, ClusterEvent.POD_DELETED)
            self._giving_way.pod_gone(uid, held.node_name)
            if cluster.reserved.on:
                cluster.reserved.node_changed(held.node_name)
        if stood is not None:
            self._requeuer.pod_changed(stood, ClusterEvent.POD_DELETED)
            if stood.group:
                self._state.to_leave[stood.group] = None

    def _settled(self, pod: Pod) -> None:
        """Bound (by anybody) or finished: it is not pending any more, and counts where it runs."""
        state, requeuer = self._state, self._requeuer
        if state.gated:
            state.gated.pop(pod.uid, None)
        if pod.group or pod.uid in state.groups.key_of:
            if pod.finished:
                state.groups.see_ended(pod)
            elif pod.terminating:
                state.groups.see_gone(pod.uid)
            else:
                state.groups.see_bound(pod)
        if pod.finished:
            counted = pod.uid in state.cache.accounts
            self._drop(pod.uid)
            self.release(pod.uid)
            if counted and pod.refused and pod.pod_class.needs is not None:
                state.zones.refused(pod.node_name, pod.pod_class.needs, pod.refused)
            return
        before, stood = state.cache.accounts.get(pod.uid), state.cluster.index.get(pod.uid)
        state.cluster.observe(pod)
        self._giving_way.pod_changed(pod)
        if before is not None and before.assumed_at is not None and before.node_name != pod.node_name:
            state.devices.forget(pod.uid)  # somebody else bound it: which devices it has its claims tell
        if state.queue.turns is not None:
            state.queue.turns.dirty[pod.uid] = None  # its labels may name another queue, or it leaves
        if pod.uid in self._preemptor.nominations.landing:
            self._preemptor.nominations.landed(pod)
        self._drop(pod.uid)
        begins = stood is not None and (stood.preempted, stood.terminating) != (pod.preempted, pod.terminating)
        counted_on = pod.uid in self._preemptor.nominations.leaving and pod.node_name in state.cluster.nominated
        if pod.keep_room_s and pod.terminating and (stood is None or begins) and state.settings.keep_room:
            ours = state.reservations_served and pod.scheduler_name in state.ours
            if ours and (room := self._left_room.keep(pod, state.now)) is not None:
                state.out.append(room)
        if begins and not counted_on:  # else nothing is new since somebody was nominated there
            self._preemptor.forget_tries(pod.node_name)
        if before is None or before.assumed_at is not None:
            requeuer.pod_changed(pod, ClusterEvent.POD_ADDED)
        elif stood is not None and (stood.labels, stood.terminating) != (pod.labels, pod.terminating):
            requeuer.pod_changed(stood, ClusterEvent.POD_LABELS)  # a terminating one counts for spread no longer
            requeuer.pod_changed(pod, ClusterEvent.POD_LABELS)
        if before is not None and (before.node_name != pod.node_name or before.pod_class != pod.pod_class):
            requeuer.node_changed(before.node_name, ClusterEvent.POD_DELETED)
        elif stood is not None and stood.preemptible != pod.preemptible:
            self._preemptor.forget_tries(pod.node_name)
            requeuer.node_changed(pod.node_name, ClusterEvent.POD_DELETED)  # it may be evicted now

    def _drop(self, uid: str, *, waits: bool = False) -> None:
        """The pod is not pending any more, or not ours; or it ``waits`` for what it names, and is not queued."""
        state = self._state
        if len(state.awaited_claims) and uid not in state.gated:
            state.awaited_claims.drop(uid)
        if uid in state.others:
            state.others.discard(uid)
            state.others_at = state.now
        if state.queue.remove(uid) is not None and uid in state.cluster.nominated_to:
            state.cluster.withdraw_nomination(uid)
        if uid in self._ledger.placed:
            self._ledger.settle(uid)
        if self._takeover.held or not state.started:
            self._takeover.settle(uid)
        self._failures.forget(uid, waits=waits)


class ClusterIntake:
    """Nodes, and the objects that rules read beside them."""

    def __init__(
        self, state: CoordinatorState, registry: AgentRegistry, requeuer: Requeuer, holds: Holds, giving_way: GivingWay,
        forget_readings: Callable[[str], None],
        node_joined: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._state = state
        self._holds = holds
        self._registry = registry
        self._requeuer = requeuer
        self._giving_way = giving_way
        self._forget_readings, self._node_joined = forget_readings, node_joined
        self.new_nodes: list[str] = []
        """Those that no agent decides for yet."""
        self._refused: dict[str, str] = {}
        """Nodes that are left out, with why."""

    def begin(self) -> None:
        """All nodes are known: those that are left out are named."""
        for name, problem in self._refused.items():
            self._say_refused(name, problem)

    def upsert_node(self, node: Node, images: Mapping[str, int] | None = None) -> None:
        """A node was added or changed. Heartbeats and other changes that decide nothing are dropped here."""
        state = self._state
        self._holds.seen(node.name, node.held, marked=node.marked)
        if node.held:
            node = replace(node, held=False)  # it decides nothing here: our own taint must wake nobody
        if node.reserved[0] or node.reserved[1]:
            state.spared[node.name], node = node.reserved, replace(node, reserved=(False, False))
        elif state.spared:
            state.spared.pop(node.name, None)
        if problem := oversize(node):
            told = self._refused.get(node.name)
            self.delete_node(node.name)
            self._refused[node.name] = problem
            if told != problem and state.started:
                self._say_refused(node.name, problem)
            return
        self._refused.pop(node.name, None)
        if node.conditions:
            state.unhealthy[node.name] = NodeHealth(node.conditions)
        else:
            state.unhealthy.pop(node.name, None)
        if node.deleting:
            node = replace(node, unschedulable=True)  # to the agents it is: all rules must judge it alike
        if (drained := state.drained.get(node.name)) is not None:
            node = replace(node, drained=drained.text)
        node = labelled(state.shards, node)
        if images is not None:
            state.cluster.images.set(node.name, images)
        row = state.cache.table.row_of.get(node.name)
        known = state.cache.table.nodes[row] if row is not None else None
        events = [ClusterEvent.NODE_ADDED] if known is None else changes_of(known, node)
        if known is None:
            self.new_nodes.append(node.name)
            self._node_joined(node.name)
        elif not events and known.latency_us == node.latency_us:
            return
        elif known.uid != node.uid:
            state.log("node_recreated", node=node.name)
            self._forget_readings(node.name)
        state.cluster.upsert_node(node)
        state.totals_version += 1
        if (
            known is None
            or (known.uid, known.latency_us) != (node.uid, node.latency_us)
            or events != [ClusterEvent.NODE_ALLOCATABLE]
            or not differ_in_lent_alone(known.allocatable, node.allocatable)
        ):
            state.nodes_version += 1
        if known is None or ClusterEvent.NODE_ALLOCATABLE in events:
            self._giving_way.node_changed(node.name)
        if ClusterEvent.NODE_ALLOCATABLE in events or ClusterEvent.NODE_LABELS in events:
            self._registry.change_node(node)
        if events and state.cluster.reserved.on:
            state.cluster.reserved.node_changed(node.name)
        for event in events:
            self._requeuer.node_changed(node.name, event)
        if known is not None and known.latency_us != node.latency_us:
            self._requeuer.latency_changed(node.name, {"": known.latency_us})

    def delete_node(self, name: str) -> None:
        """A node is gone; its pods' accounts wait for their deletion."""
        self._state.unhealthy.pop(name, None)
        self._state.spared.pop(name, None)
        self._refused.pop(name, None)
        self._holds.gone(name)
        if name in self._state.cache.table.row_of:
            self._state.cluster.remove_node(name)
            self._giving_way.node_changed(name)
            self._state.nodes_version += 1
            self._state.totals_version += 1
            self._forget_readings(name)
            self._requeuer.node_changed(name, ClusterEvent.NODE_DELETED)
            if name in self.new_nodes:
                self.new_nodes.remove(name)
            self._registry.remove_node(name)

    def _say_refused(self, name: str, problem: str) -> None:
        self._state.log("node_refused", level="warning", node=name, problem=problem)

    def change_object(self, kind: str, key: str, item: object | None) -> None:
        """An object of another kind came, changed or went; what it may help is woken."""
        state = self._state
        if kind in GROUP_SOURCES:
            self._change_group(group_key(GROUP_SOURCES[kind], *key.split("/", 1)), kind, key, item)
            return
        if kind == CLAIMS:
            self._change_claim(key, item)
            return
        if kind in ZONE_KINDS:
            self._change_topology(kind, key, item)
            return
        if item is None:
            drop_object(state.cluster, kind, key)
        elif put_object(state.cluster, kind, key, item) == item:
            return
        if kind not in DEVICE_KINDS:  # which have a version of their own
            state.cluster.objects_version += 1
        event = EVENT_OF_KIND.get(kind)
        if event is not None:
            self._requeuer.object_changed(event, key)
        elif kind == BUDGETS:
            state.budgets_version += 1
            self._requeuer.budgets_changed()
            self._giving_way.budgets_changed()

    def _change_topology(self, kind: str, key: str, item: object | None) -> None:
        """What it says is about one node, whose room is offered anew. Exporters write it again and again, unchanged."""
        state = self._state
        if isinstance(item, NodeTopology):
            version = state.zones.version
            state.zones.put(key, item)
            if state.zones.version == version:
                return
        else:
            state.zones.drop(key, ZONE_KINDS[kind])
        self._requeuer.node_changed(key, ClusterEvent.NODE_TOPOLOGY)

    def _change_claim(self, key: str, item: object | None) -> None:
        """What it says may help its own pods; devices that are free again help others too (``devices_freed``)."""
        state, shown = self._state, self._state.devices.accounts.shown
        before = shown.get(key)
        if isinstance(item, DeviceClaim):
            state.devices.put(CLAIMS, key, item)
        else:
            state.devices.drop(CLAIMS, key)
        claim = shown.get(key)
        self._count_sole(key, before, claim)
        held = before is not None and before.allocation is not None
        self._requeuer.object_changed(ClusterEvent.DEVICE_CLAIM_CHANGED, key)
        owner = ""
        if claim is not None and (claim.allocation is not None) != held:
            owner = claim.owner
        elif claim is None and before is not None and before.for_extended:
            owner = before.owner  # it may have kept its pod from every node
        if owner and owner in state.queue.entries:
            state.stats.woken += state.queue.wake(owner, state.now, ClusterEvent.DEVICE_CLAIM_CHANGED)

    def _count_sole(self, key: str, before: DeviceClaim | None, claim: DeviceClaim | None) -> None:
        """Who alone has the claim's devices; a pod group that has is looked at as the turn ends."""
        state, was, now = self._state, _sole_user(before), _sole_user(claim)
        if was and was != now:
            state.sole[was].pop(key)
            if not state.sole[was]:
                del state.sole[was]
        if now:
            state.sole.setdefault(now, {})[key] = None
            if now in state.claiming:
                state.to_leave[state.claiming[now]] = None

    def devices_freed(self) -> None:
        """At the end of a turn: what claims have no more, or was assumed in vain, may help anybody who claims some."""
        if self._state.devices.take_freed():
            self._requeuer.object_changed(ClusterEvent.DEVICE_CLAIM_CHANGED, FREED)

    def pass_time(self) -> None:
        """Time alone opens nodes to pods: their room is offered anew."""
        for name in self._state.zones.advance(self._state.now):
            self._requeuer.node_changed(name, ClusterEvent.NODE_TOPOLOGY)

    def tell_zones(self) -> None:
        """Nodes whose zones are not clear, and what kubelets refused."""
        for event, name, why in self._state.zones.take_news():
            self._state.log(event, level="warning", node=name, reason=why)

    def _change_group(self, group: str, kind: str, key: str, item: object | None) -> None:
        before = self._state.cluster.pod_groups.get(group)
        if item is None:
            drop_object(self._state.cluster, kind, key)
        else:
            put_object(self._state.cluster, kind, key, item)
        if before is not None:
            self._state.claiming.pop(before.uid, None)
        if (after := self._state.cluster.pod_groups.get(group)) is not None and after.claims:
            self._state.claiming[after.uid] = group
        if self._state.cluster.pod_groups.get(group) != before:
            self._state.groups.change(group, before)

    def settle(self) -> None:
        """After a batch of events: assign the new nodes to agents, offer what nominated pods gave up."""
        if self.new_nodes:
            names, self.new_nodes = self.new_nodes, []
            self._registry.add_nodes(names)
        cluster = self._state.cluster
        given_up, cluster.given_up = sorted(cluster.given_up), set()
        for node_name in given_up:  # pods that yielded to the nominated one may have its room
            self._requeuer.node_changed(node_name, ClusterEvent.POD_DELETED)


def _sole_user(claim: DeviceClaim | None) -> str:
    """For whom alone a claim that has devices is reserved: a uid, "" for nobody or several."""
    if claim is None or claim.allocation is None or len(claim.reserved_for) != 1:
        return ""
    return claim.reserved_for[0]


def oversize(node: Node) -> str:
    """Why the node cannot be told to an agent ("" if it can): the wire bounds every list (I10)."""
    for what, size, limit in (
        ("labels", len(node.labels), 1024),
        ("taints", len(node.taints), 256),
        ("allocatable resources", len(node.allocatable), 256),
    ):
        if size > limit:
            return f"{size} {what}, at most {limit} are supported"
    return ""


def changes_of(known: Node, node: Node) -> list[ClusterEvent]:
    """What of a node's change matters to scheduling; nothing for heartbeats, conditions and annotations
    (a latency wakes those alone whose limit it has come within: ``Requeuer.latency_changed``)."""
    events = []
    if known.allocatable != node.allocatable:
        events.append(ClusterEvent.NODE_ALLOCATABLE)
    if known.labels != node.labels:
        events.append(ClusterEvent.NODE_LABELS)
    closed, known_closed = (node.unschedulable, node.drained), (known.unschedulable, known.drained)
    if (known.taints, known_closed, known.deleting) != (node.taints, closed, node.deleting):
        events.append(ClusterEvent.NODE_TAINTS)
    if known.features != node.features:
        events.append(ClusterEvent.NODE_FEATURES)
    if known.uid != node.uid and not events:
        events.append(ClusterEvent.NODE_ADDED)
    return events
