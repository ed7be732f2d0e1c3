"""A snapshot decided again by the mesh itself (``world.py``): what waits is placed, and what was placed lately once
more where that is asked; with changes, to see what would be otherwise.

    snapshot --as the watches show it--> cores at rest --the last N decisions, one by one--> compared
                                                       --what waits, in the leader's order--> placed, or told why not

What a file cannot hold is not replayed: what agents have learned of pods' use, who has waited for how long, the tie
that a leader's random numbers broke. Writes of volumes and of claims for devices are nobody's here, so such a pod stays
where it was assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from lab.mesh.world import Agents, MeshWorld
from services.binder.core import instructions as to_do
from services.coordinator.core import instructions as wanted
from services.coordinator.core.events import NodeSample, NodesMeasured
from services.coordinator.core.state import CoreSettings
from services.coordinator.settings import CoordinatorSettings
from shared.errors import ConfigError, ObjectError
from shared.kube import objects as api
from shared.kube.pod_groups import job_group
from shared.kube.pods.convert import node_from_api, owner_of, pod_from_api
from shared.kube.pods.convert_relations import node_images
from shared.kube.reservations import reserve_pod_from_api
from shared.kube.scheduling_kinds import JOBS, RESERVATION_KIND
from shared.model.cluster_events import ClusterEvent, NodeUpserted, ObjectChanged, PodUpserted
from shared.model.node import Node
from shared.model.pod import Pod
from shared.policy.frag.policy import GpuPolicy
from shared.policy.observation import Policy
from shared.policy.registry import load_policy, make_policy, ref_of, reference
from shared.policy.weights import decode, digest, policy_of, shipped, shipped_bytes, shipped_names
from shared.scheduling.state.room.reserved_room import in_name_of
from shared.wire.records import PolicyRef
from shared.wire.snapshot import DECIDING, KINDS, DecisionSeen, MeshFacts, Snapshot

HOSTNAME = "kubernetes.io/hostname"
REST_S = 20.0
"""Virtual seconds for what waits: one back-off of those that failed once, and the search for victims."""
ROUNDS = 5
"""How often victims leave and it is rested again."""
NOBODY_WRITES = (
    to_do.WriteClaim, to_do.ReleaseClaim, to_do.PatchObject, to_do.MarkPod, wanted.FreeClaim, wanted.WritePointer,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DecidingPolicy:
    """The policy that decides."""

    make: Callable[[], Policy]
    ref: PolicyRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is otherwise than in the file. ``added``: (like which node, how many); ``priorities``: in place of their
    own, by ``namespace/name``."""

    cordoned: Sequence[str] = ()
    uncordoned: Sequence[str] = ()
    removed: Sequence[str] = ()
    added: Sequence[tuple[str, int]] = ()
    priorities: Mapping[str, int] = field(default_factory=dict)

    def check(self) -> None:
        """Raises ``ConfigError`` for two changes of one node that cannot both be."""
        asked = {
            "--cordon": set(self.cordoned), "--uncordon": set(self.uncordoned), "--remove": set(self.removed),
            "--add": {name for name, _ in self.added},
        }  # fmt: skip
        for one, other in (("--cordon", "--uncordon"), ("--remove", "--cordon"), ("--remove", "--uncordon")):
            if both := asked[one] & asked[other]:
                raise ConfigError(f"{one}, {other}: both name {min(both)}; leave one of them out")

    def __bool__(self) -> bool:
        return bool(self.cordoned or self.uncordoned or self.removed or self.added or self.priorities)


@dataclass(frozen=True, slots=True)
class DecisionAgain:
    """One recorded decision beside the replay's. ``tied``: both nodes have the same score now; of a node
    that is not among those remembered now, the recorded one counts."""

    pod: str
    recorded: str
    node: str
    tied: bool = False

    @property
    def same(self) -> bool:
        """Whether it came out as recorded."""
        return self.node == self.recorded


@dataclass(slots=True)
class Replayed:
    """By ``namespace/name``: the nodes of those that were placed, why the others wait, and who had to leave."""

    placed: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    evicted: list[str] = field(default_factory=list)
    compared: list[DecisionAgain] = field(default_factory=list)
    of_others: int = 0
    """Decisions that are not made again, for another policy than the active one made them: a canary's, a fallback's."""
    gone: int = 0
    """Likewise of pods that are gone since, or elsewhere; what they took is free for the decisions that are."""
    told: list[str] = field(default_factory=list)


def deciding(snapshot: Snapshot, given: str, weights: bytes | None) -> DecidingPolicy:
    """By the policy ``given`` (a name), or of these ``weights``, else by the snapshot's. Raises ``ConfigError``."""
    if weights is not None and given:
        if (name := policy_of(weights, "--weights")) != given:
            raise ConfigError(f"--weights: are of {name}, not of {given}; say --policy {name}, or give its file")
        return _of_bytes(weights, "")
    if given:
        return DecidingPolicy(partial(make_policy, given), ref_of(given))
    mesh = snapshot.mesh or MeshFacts()
    active = mesh.pointer.active if mesh.pointer is not None else None
    if weights is not None and (active is None or not active.sha256):
        raise ConfigError(
            f"--weights: the snapshot's policy {active.title if active is not None else mesh.policy or 'kube-default'} "
            f"has none; say --policy {policy_of(weights, '--weights')} too"
        )
    if active is None:
        name = mesh.policy or "kube-default"
        return DecidingPolicy(partial(make_policy, name), ref_of(name))
    if not active.sha256:
        return DecidingPolicy(partial(make_policy, active.name), active)
    if weights is not None:
        return _of_bytes(weights, active.sha256)
    if active.name in shipped_names() and shipped(active.name).sha256 == active.sha256:
        return DecidingPolicy(
            partial(load_policy, active.name, data=shipped_bytes(active.name), sha256=active.sha256), active
        )
    raise ConfigError(
        f"the snapshot's policy is {active.title} ({active.sha256[:12]}), whose weights are not in it; give them with "
        "--weights FILE, or another policy with --policy NAME"
    )


def _of_bytes(data: bytes, sha256: str) -> DecidingPolicy:
    name, found = policy_of(data, "--weights"), digest(data)
    if sha256 and found != sha256:
        raise ConfigError(
            f"--weights: has the digest {found[:12]}, the snapshot's policy {sha256[:12]}; give its file, or say that "
            f"another one shall decide with --policy {name}"
        )
    file = decode(data, policy=name, sha256=found)
    return DecidingPolicy(partial(load_policy, name, data=data, sha256=found), reference(file))


def replay(
    snapshot: Snapshot, by: DecidingPolicy, agents: Agents | None = None, *, changes: Changes = Changes(),
    again: int = 0, seed: int | None = None,
) -> Replayed:  # fmt: skip
    """What the mesh makes of the snapshot. ``again``: how many of the last recorded decisions are made once more first.
    Raises ``ConfigError`` for a change that names what is not there, ``ObjectError`` never: such objects are told."""
    cluster = _Cluster(snapshot, changes)
    mesh = snapshot.mesh or MeshFacts()
    settings, start = _settings(mesh)
    last = mesh.decisions[-again:] if again else []
    active = mesh.pointer.active.title if mesh.pointer is not None else ""
    own = [one for one in last if not active or one.policy == active]
    decisions = cluster.take_back(own)
    later = {pod.uid for pods in decisions for _, pod in pods}
    waiting = [uid for uid in cluster.in_order(mesh.queue) if uid not in later]
    events = [*cluster.events(), *(PodUpserted(pod) for pod in cluster.pods.values() if pod.node_name)]
    world = MeshWorld(
        cluster.nodes, agents or _agents(mesh), by.make, by.ref, settings=settings, first=events,
        seed=start.seed if seed is None else seed, unanswered=NOBODY_WRITES,
        scheduler_name=mesh.scheduler_name, drained=mesh.drained,
    )  # fmt: skip
    names = {node.name for node in cluster.nodes}
    told = [_sample(one) for one in mesh.measured if one.node in names]
    if told:
        world.tell(NodesMeasured(tuple(told)))
        world.rest()
    found = Replayed(told=[*cluster.told, *_limits(snapshot, by, world, again=bool(again))])
    found.of_others = len(last) - len(own)
    found.gone = len(own) - sum(map(len, decisions))
    for pods in decisions:
        world.add([pod for _, pod in pods])
        world.rest()
        for recorded, pod in pods:
            found.compared.append(_compared(world, recorded, pod.uid))
            if not found.compared[-1].same:  # the next is judged on what the leader saw, not on what follows from this
                world.remove(pod.uid)
                world.add([replace(pod, node_name=recorded.node)])
    world.add([cluster.pods[uid] for uid in waiting])
    for _ in range(ROUNDS):
        world.rest(REST_S)
        leaving, world.asked = [one.uid for one in world.asked], []
        if not leaving:
            break
        for uid in leaving:
            found.evicted.append(world.pods[uid].key)
            world.remove(uid)
    for uid in waiting:
        if uid not in world.pods:
            continue
        pod = world.pods[uid]
        if node := _node_of(world, uid):
            found.placed[pod.key] = node
        else:
            reason, message = world.reasons.get(uid, ("", ""))
            found.waiting[pod.key] = f"{reason}: {message}" if reason else _not_tried(pod, mesh.scheduler_name)
    return found


def _limits(snapshot: Snapshot, by: DecidingPolicy, world: MeshWorld, *, again: bool) -> list[str]:
    """What may come out otherwise here for other reasons than the version's."""
    lines = []
    if snapshot.names == "hashed" and isinstance(by.make(), GpuPolicy):
        lines.append(
            f"{by.ref.name} orders equal nodes by their names, which are hidden: decisions may come out on others; "
            "take the snapshot with --names to compare them"
        )
    if len(world.agents) > 1 and not all(one.node for one in (snapshot.mesh or MeshFacts()).agents):
        lines.append(
            "which of several agents had which nodes is not in the file: equal nodes of two agents may change places"
        )
    if again and not (snapshot.mesh is not None and snapshot.mesh.decisions):
        lines.append("--again: the file has no decisions; take it of a mesh, without --no-mesh")
    return lines


def _settings(mesh: MeshFacts) -> tuple[CoreSettings, CoordinatorSettings]:
    """Those of the leader that decide. ``ConfigError``: this version, or what is installed here, does not take them."""
    values = {name: value for name, value in mesh.settings.items() if name in DECIDING and name != "policy"}
    try:
        start = msgspec.convert(values, CoordinatorSettings)
        return start.core(), start
    except (TypeError, ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"the snapshot's settings: {error}; install what they name, or use its version") from None


def _agents(mesh: MeshFacts) -> Agents:
    """As many as there were; one for each node where each was of one."""
    if mesh.agents and all(agent.node for agent in mesh.agents):
        return Agents(0)
    return Agents(max(1, len(mesh.agents)))


def _sample(one: Any) -> NodeSample:
    return NodeSample(
        one.node, one.age_s, one.cpu_millis, one.memory_bytes, one.disk, one.network, one.source, one.delay_us,
        one.latencies,
    )  # fmt: skip


def _node_of(world: MeshWorld, uid: str) -> str:
    """Where the pod is bound, or was to be: some wait for a claim or a volume that nobody writes here."""
    if node := world.node_of(uid):
        return node
    account = world.core.state.cache.accounts.get(uid)
    return account.node_name if account is not None else ""


def _compared(world: MeshWorld, recorded: DecisionSeen, uid: str) -> DecisionAgain:
    node, now = _node_of(world, uid), world.core.state.recent.of(uid)
    scores = {one.node: one.score for one in now.considered} if now is not None else {}
    was = next((one.score for one in recorded.considered if one.node == recorded.node), None)
    tied = node in scores and scores[node] == scores.get(recorded.node, was)
    return DecisionAgain(f"{recorded.namespace}/{recorded.name}", recorded.node, node, tied)


def _not_tried(pod: Pod, scheduler_name: str) -> str:
    if pod.scheduler_name != scheduler_name:
        return f"another scheduler's ({pod.scheduler_name})"
    if pod.gates:
        return f"held by scheduling gates: {', '.join(pod.gates)}"
    return pod.invalid or pod.unsupported or "it waits for its turn"


class _Cluster:
    """The file's objects as the model has them, with the changes."""

    def __init__(self, snapshot: Snapshot, changes: Changes) -> None:
        self._snapshot = snapshot
        self.told: list[str] = list(snapshot.missing)
        changes.check()
        raw = {node.metadata.name: node for node in snapshot.input.nodes or ()}
        for flag, names in (
            ("--cordon", changes.cordoned), ("--uncordon", changes.uncordoned), ("--remove", changes.removed),
            ("--add", [name for name, _ in changes.added]),
        ):  # fmt: skip
            for name in names:
                if name not in raw:
                    raise ConfigError(f"{flag}: the snapshot has no node {name}; its nodes are {_some(raw)}")
        for name in (*changes.cordoned, *changes.uncordoned):
            raw[name] = _cordoned(raw[name], closed=name in changes.cordoned)
        for name, count in changes.added:
            raw |= {copy.metadata.name: copy for copy in _copies(raw[name], count, raw)}
        for name in set(changes.removed):
            del raw[name]
        self._images = {name: node_images(node) for name, node in raw.items()}
        self.nodes: list[Node] = [node_from_api(node) for node in raw.values()]
        self._raw = {pod.metadata.uid: pod for pod in snapshot.input.pods or ()}
        self.pods = {uid: pod_from_api(pod) for uid, pod in self._raw.items()}
        reserved = [reserve_pod_from_api(one) for one in snapshot.input.of(RESERVATION_KIND)]
        name = snapshot.mesh.scheduler_name if snapshot.mesh is not None else "conclave"
        self.pods |= {pod.uid: in_name_of(pod, name) for pod in reserved if pod.node_name not in changes.removed}
        known = {pod.key: uid for uid, pod in self.pods.items()}
        for key, priority in changes.priorities.items():
            if key not in known:
                raise ConfigError(f"--priority: the snapshot has no pod {key}; write NAMESPACE/NAME=NUMBER")
            self.pods[known[key]] = replace(self.pods[known[key]], priority=priority)
        for uid, pod in list(self.pods.items()):
            if pod.node_name in changes.removed:
                if pod.ends and not owner_of(self._raw[uid].metadata)[1]:
                    del self.pods[uid]  # nobody makes it anew
                else:
                    self.pods[uid] = self._unbound(uid)

    def events(self) -> Iterator[ClusterEvent]:
        """What the watches show beside nodes and pods, and what images nodes have."""
        for node in self.nodes:
            yield NodeUpserted(node, self._images[node.name])
        of_namespace = {
            one.metadata.name: one.metadata.annotations or {} for one in self._snapshot.input.namespaces or ()
        }
        for kind in KINDS:
            if kind is RESERVATION_KIND:
                continue  # they are pods to the mesh
            for item in self._snapshot.input.of(kind):
                key = kind.key(item.metadata)
                try:
                    if kind.name == JOBS.name:
                        found: object | None = job_group(item, of_namespace.get(item.metadata.namespace or "", {}))
                    else:
                        found = kind.convert(item)
                except ObjectError as error:
                    self.told.append(f"{kind.name} {key} ({error})")
                    continue
                if found is not None:
                    yield ObjectChanged(kind.name, key, found)

    def take_back(self, decisions: Iterable[DecisionSeen]) -> list[list[tuple[DecisionSeen, Pod]]]:
        """The pods of these decisions, pending again, in the decisions' order; members of a group that were placed one
        after the other together. Of a pod that is gone since, or elsewhere, nothing is made."""
        found = []
        for one in decisions:
            pod = self.pods.get(one.uid)
            if pod is not None and pod.node_name == one.node and not pod.finished:
                self.pods[one.uid] = self._unbound(one.uid)
                found.append((one, self.pods[one.uid]))
        grouped = groupby(enumerate(found), key=lambda item: item[1][1].group or item[0])
        return [[one for _, one in members] for _, members in grouped]

    def in_order(self, queue: Sequence[str]) -> list[str]:
        """The uids of what is on no node: as the leader had them, the others by age behind them."""
        pending = {uid: pod for uid, pod in self.pods.items() if not pod.node_name and not pod.finished}
        first = [uid for uid in queue if uid in pending]
        rest = sorted(
            pending.keys() - set(first),
            key=lambda uid: (pending[uid].created, pending[uid].namespace, pending[uid].name),
        )
        return [*first, *rest]

    def _unbound(self, uid: str) -> Pod:
        """The pod as it was before somebody placed it."""
        raw = self._raw[uid]
        status = api.PodStatus(
            phase="Pending", resource_claim_statuses=raw.status.resource_claim_statuses,
            extended_resource_claim_status=raw.status.extended_resource_claim_status,
        )  # fmt: skip
        pod = pod_from_api(replace(raw, spec=replace(raw.spec, node_name=None), status=status))
        return replace(pod, priority=self.pods[uid].priority)


def _cordoned(node: api.KubeNode, *, closed: bool) -> api.KubeNode:
    """With the taint that Kubernetes keeps beside the field, or without both."""
    taints = [taint for taint in node.spec.taints or () if taint.key != "node.kubernetes.io/unschedulable"]
    if closed:
        taints.append(api.KubeTaint("node.kubernetes.io/unschedulable", None, "NoSchedule"))
    return replace(node, spec=replace(node.spec, unschedulable=closed, taints=taints))


def _copies(node: api.KubeNode, count: int, taken: Mapping[str, api.KubeNode]) -> Iterator[api.KubeNode]:
    """Empty nodes like this one, under names of their own."""
    name, number = node.metadata.name, 0
    for _ in range(count):
        number += 1
        while (title := f"{name}-like-{number}") in taken:
            number += 1
        labels = {**(node.metadata.labels or {}), HOSTNAME: title}
        yield replace(node, metadata=replace(node.metadata, name=title, uid=title, labels=labels))


def _some(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")
