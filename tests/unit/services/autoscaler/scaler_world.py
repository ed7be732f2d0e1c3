"""An API server and an etcd in memory, and autoscalers of which one may lead: events in, instructions out, in steps.

Deployments keep a resourceVersion, writes name it; the store keeps the leader's term and each object's last record.
What an autoscaler asked for and is not answered yet can be done in any order, lost, or come after its death: then
the API server may still take it. ``accepted`` is the history that the tests judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from services.autoscaler.core.core import AutoscalerCore
from services.autoscaler.core.events import (
    KINDS,
    Event,
    Fenced,
    HpaFact,
    HpaSeen,
    NodeFact,
    PodFact,
    RecordCommitted,
    ReplicasWrote,
    RoundRead,
    ScaledListed,
    ScaledNodeSeen,
    ScaledPodGone,
    ScaledPodSeen,
    ScalerGone,
    ScalerSeen,
    SetSeen,
    StatusTold,
    TargetFact,
)
from services.autoscaler.core.gates import digest
from services.autoscaler.core.instructions import (
    CommitRecord,
    Instruction,
    ReadRound,
    ScaleTo,
    SetBounds,
    TellStatus,
    Write,
)
from services.autoscaler.core.state import ScalerCoreSettings
from shared.autoscaling.hpa.model import ContainerFacts, PodFacts, PodUsage
from shared.autoscaling.observation import Decision, Policy, ScalingObservation
from shared.errors import ConfigError
from shared.kube.objects import ObjectMeta
from shared.kube.scaling.autoscaling import AutoscalerObject, autoscaler_from_api
from shared.model.controllers.autoscaler import Autoscaler
from shared.turns import Stop, Tick
from shared.wire.records import AutoscaleRecord

Json = dict[str, Any]
WALL = 1_800_000_000.0
KEY = "shop/graph"


def scaler_of(spec: Json, *, generation: int = 1, uid: str = "scaler-uid", status: Json | None = None) -> Autoscaler:
    meta = ObjectMeta(name="graph", namespace="shop", uid=uid, generation=generation, resource_version=str(generation))
    return autoscaler_from_api(AutoscalerObject(meta, spec, status))


def spec_of(*names: str, mode: str = "act-on-scale", **more: Any) -> Json:
    """A spec with these Deployments, 1 to 20 replicas each, at rates that hold nobody back."""
    limits = {"upPods": 100, "downPods": 100, "nodesGrow": True, "failOverSeconds": 1}
    targets = [{"name": name, "scaleTargetRef": {"name": name}, "minReplicas": 1, "maxReplicas": 20} for name in names]
    return {"mode": mode, "policy": {"name": "test"}, "limits": limits, "targets": targets, **more}


def pod_of(
    name: str, *, app: str = "front", labels: Mapping[str, str] | None = None, owner: str = "", node: str = "n1",
    ready: bool = True, start_s: float = WALL, phase: str = "", deleting: bool = False,
    requests: Mapping[str, int] | None = None,
) -> PodFact:  # fmt: skip
    """A pod that requests a core and 256 MiB."""
    asked = {"cpu": 1000, "memory": (1 << 28) * 1000} if requests is None else requests
    seen = PodFacts(
        name=name, labels={"app": app} if labels is None else labels, phase=phase or ("Running" if node else "Pending"),
        deleting=deleting, ready="True" if ready else "False", ready_since_s=start_s, start_s=start_s if node else None,
        containers=(ContainerFacts("main", asked),),
    )  # fmt: skip
    takes = {key: value / 1000 for key, value in asked.items()}
    return PodFact(uid=name, namespace="shop", seen=seen, owner=owner, node=node, takes=takes)


def usage_of(pod: str, at_s: float, **amounts: float) -> PodUsage:
    """A pod's sample: cores and bytes, over 30 s."""
    milli = {name: round(amount * 1000) for name, amount in amounts.items()}
    return PodUsage(pod, {}, at_s, 30.0, (("main", milli),))


class Wants:
    """A policy that wants what a test says; ``raises``: it fails instead."""

    name = "test"
    digest = "weights-1"

    def __init__(self) -> None:
        self.wanted: dict[str, object] = {}
        self.raises = False
        self.seen: list[ScalingObservation] = []

    def reset(self, seed: int) -> None:
        self.seen.clear()

    def decide(self, seen: ScalingObservation) -> Decision:
        self.seen.append(seen)
        if self.raises:
            raise ZeroDivisionError("a bug")
        return dict(self.wanted)  # type: ignore[arg-type]


@dataclass
class Deployment:
    replicas: int
    version: int = 1
    writer: str = ""
    rollout: str = ""


@dataclass
class Process:
    """One autoscaler that leads, or led: its core, and what it asked for."""

    core: AutoscalerCore
    waiting: list[Instruction] = field(default_factory=list)
    stopped: str = ""


@dataclass
class World:
    """``accepted``: (deployment, from, to, term) of each write that the API server took, in order."""

    deployments: dict[str, Deployment] = field(default_factory=dict)
    hpas: dict[str, HpaFact] = field(default_factory=dict)
    now: float = 100.0
    term: int = 0
    record: AutoscaleRecord | None = None
    revision: int = 0
    records: list[AutoscaleRecord] = field(default_factory=list)
    fences: bool = True
    """False: etcd compares nothing, the API server no resourceVersion; only ablation tests do that."""
    decisions: list[Mapping[str, object]] = field(default_factory=list)
    accepted: list[tuple[str, int, int, int]] = field(default_factory=list)
    policy: Wants = field(default_factory=Wants)
    rule: Wants = field(default_factory=Wants)
    spec: Json = field(default_factory=dict)
    generation: int = 1
    status: Json = field(default_factory=dict)
    metrics: Mapping[str, PodUsage] | str | None = None
    readings: Json = field(default_factory=dict)
    store_down: bool = False
    api_down: bool = False
    silent_s: Mapping[str, float] = field(default_factory=dict)
    pods: dict[str, list[PodFact]] = field(default_factory=dict)
    process: Process | None = None

    def policies(self, name: str, settings: Mapping[str, object]) -> Policy:
        if name == "hpa":
            return self.rule
        if name != "test":
            raise ConfigError(f"policy: {name!r} is not known")
        return self.policy

    # --- the cluster --------------------------------------------------------------------------------------------------

    def serve(self, name: str, replicas: int, *, ready: int | None = None) -> None:
        """A Deployment with pods, all of them ready unless told otherwise."""
        self.deployments.setdefault(name, Deployment(replicas)).replicas = replicas
        self.settle(name, ready=ready)

    def settle(self, name: str, *, ready: int | None = None, pending: int = 0) -> list[Event]:
        """Pods as the Deployment asks for; what a watch tells of it goes to whoever leads."""
        old = self.pods.get(name, [])
        count = self.deployments[name].replicas
        self.pods[name] = [
            pod_of(
                f"{name}-{number}", app=name, owner=f"set-{name}", node="" if number >= count - pending else "n1",
                ready=number < (count - pending if ready is None else ready),
            )
            for number in range(count)
        ]  # fmt: skip
        events: list[Event] = [ScaledPodGone(pod.uid) for pod in old[count:]]
        events += [ScaledPodSeen(pod) for pod in self.pods[name]]
        if self.process is not None:
            self.tell(*events)
        return events

    def scale(self, name: str, replicas: int, writer: str = "kubectl") -> None:
        """Somebody else scales it."""
        one = self.deployments[name]
        one.replicas, one.version, one.writer = replicas, one.version + 1, writer
        self.settle(name)

    def apply(self, spec: Json) -> None:
        """The operator writes the object's spec."""
        self.spec = spec
        self.generation += 1
        if self.process is not None:
            self.tell(ScalerSeen(self.scaler()))

    def approve(self, at: str = "monday") -> None:
        """The operator gives a go to what is there."""
        assert self.process is not None
        name = digest(self.process.core.state.objects[KEY])
        self.apply({**self.spec, "go": {"by": "ada", "digest": name, "at": at}})

    def scaler(self) -> Autoscaler:
        return scaler_of(self.spec, generation=self.generation, status=self.status)

    # --- processes ----------------------------------------------------------------------------------------------------

    def elect(self, **settings: Any) -> Process:
        """A new leader that lists everything. The old one, if any, is deposed and may not know it."""
        self.term += 1
        core = AutoscalerCore(
            self.term, ScalerCoreSettings(**{"tell_every_s": 0.0, **settings}), self.policies, now=self.now
        )
        self.process = Process(core)
        events: list[Event] = [ScalerSeen(self.scaler())] if self.spec else []
        events += [SetSeen(f"set-{name}", f"uid-{name}") for name in self.deployments]
        events += [ScaledPodSeen(pod) for pods in self.pods.values() for pod in pods]
        events.append(ScaledNodeSeen(NodeFact(name="n1", cpu=64, memory=2**38, pods=110, takes=True, cordoned=False)))
        events += [HpaSeen(one) for one in self.hpas.values()]
        self.tell(*events, *(ScaledListed(kind) for kind in KINDS))
        return self.process

    def tell(self, *events: Event, to: Process | None = None) -> None:
        process = to or self.process
        assert process is not None
        for instruction in process.core.handle_all(events, self.now):
            if isinstance(instruction, Stop):
                process.stopped = instruction.reason
            else:
                process.waiting.append(instruction)
        assert process.core.validate() == []

    def forget_object(self) -> None:
        self.spec = {}
        self.tell(ScalerGone(KEY))

    def carry_out(self, process: Process, index: int = 0, *, answer: bool = True) -> Instruction:
        """One thing that was asked for is done; without ``answer`` the process does not hear of it."""
        instruction = process.waiting.pop(index)
        event = self._done(process, instruction)
        if event is not None and answer and not process.stopped:
            self.tell(event, to=process)
        return instruction

    def lose(self, process: Process, index: int = 0) -> None:
        """One thing that was asked for is not done, and the process hears that it may have been."""
        event = _unknown(process.waiting.pop(index))
        if event is not None and not process.stopped:
            self.tell(event, to=process)

    def run(self, rounds: int = 1, *, step_s: float = 10.0) -> None:
        """So many rounds of the leader, all done; pods follow."""
        process = self.process
        assert process is not None
        for _ in range(rounds):
            self.now += step_s
            self.tell(Tick())
            while process.waiting:
                self.carry_out(process)
            for name in self.deployments:
                self.settle(name)

    def _done(self, process: Process, instruction: Instruction) -> Event | None:
        match instruction:
            case ReadRound():
                return self._read(instruction)
            case CommitRecord():
                if self.store_down:
                    return RecordCommitted(instruction.key, instruction.number, "unknown")
                if self.fences and process.core.state.term != self.term:
                    return Fenced("another leads")
                if instruction.key != KEY:
                    return RecordCommitted(instruction.key, instruction.number, "ok")  # its record is its own
                if self.fences and instruction.last_revision != self.revision:
                    return RecordCommitted(instruction.key, instruction.number, "refused")
                self.revision += 1
                self.record = instruction.record
                self.records.append(instruction.record)
                self.decisions.append(instruction.decision)
                return RecordCommitted(instruction.key, instruction.number, "ok")
            case Write():
                term = process.core.state.term
                return ReplicasWrote(
                    instruction.key, instruction.number, {w.service: self._write(w, term) for w in instruction.writes}
                )
            case TellStatus():
                if not self.api_down and instruction.scaler.key == KEY:
                    self.status = {**instruction.status}
                    if self.spec and not process.stopped:
                        self.tell(ScalerSeen(self.scaler()), to=process)
                return StatusTold(instruction.scaler.key, not self.api_down)
            case _:
                return None

    def _read(self, work: ReadRound) -> RoundRead:
        down = "no answer"
        targets: dict[str, TargetFact | str] = {}
        for target in work.scaler.targets:
            one = self.deployments.get(target.ref.name)
            if self.api_down:
                targets[target.name] = down
            elif one is None:
                targets[target.name] = "!there is none in shop"
            else:
                targets[target.name] = TargetFact(
                    uid=f"uid-{target.ref.name}", resource_version=str(one.version), replicas=one.replicas,
                    rollout=one.rollout, writer=one.writer, there=len(self.pods.get(target.ref.name, ())),
                    selector=f"app={target.ref.name}",
                )  # fmt: skip
        metrics = self.metrics
        if metrics is None:
            metrics = {
                pod.name: usage_of(pod.name, WALL + self.now, cpu=0.5, memory=1e8)
                for pods in self.pods.values()
                for pod in pods
            }
        return RoundRead(
            key=work.scaler.key, number=work.number, wall_s=WALL + self.now, targets=targets,
            hpas={name: self.hpas.get(hpa, "!there is no such HPA") for name, hpa in work.hpas.items()},
            readings=self.readings, pod_metrics=down if self.api_down else metrics, last=self.record,
            last_revision=self.revision, store_problem=down if self.store_down else "",
            silent_s=self.silent_s,
        )  # fmt: skip

    def _write(self, write: ScaleTo | SetBounds, term: int) -> tuple[str, str]:
        if self.api_down:
            return "unknown", "no answer"
        if isinstance(write, SetBounds):
            hpa = self.hpas[write.name]
            if write.resource_version != hpa.resource_version:
                return "conflict", "modified"
            self.hpas[write.name] = _with(hpa, write)
            self.accepted.append((write.name, hpa.minimum, write.minimum, term))
            return "ok", ""
        one = self.deployments[write.ref.name]
        if self.fences and write.resource_version != str(one.version):
            return "conflict", "modified"
        self.accepted.append((write.ref.name, one.replicas, write.replicas, term))
        one.replicas, one.version, one.writer = write.replicas, one.version + 1, ""
        return "ok", ""

    def condition(self, kind: str) -> tuple[str, str, str]:
        """(status, reason, message) of one condition of the object."""
        found = next(one for one in self.status["conditions"] if one["type"] == kind)
        return found["status"], found["reason"], found["message"]


def _with(hpa: HpaFact, write: SetBounds) -> HpaFact:
    import msgspec

    version = str(int(hpa.resource_version) + 1)
    return msgspec.structs.replace(
        hpa, minimum=write.minimum, maximum=write.maximum, resource_version=version, writer=""
    )


def _unknown(instruction: Instruction) -> Event | None:
    match instruction:
        case CommitRecord():
            return RecordCommitted(instruction.key, instruction.number, "unknown")
        case Write():
            return ReplicasWrote(instruction.key, instruction.number, {})
        case TellStatus():
            return StatusTold(instruction.scaler.key, done=False)
        case ReadRound():
            down = {target.name: "no answer" for target in instruction.scaler.targets}
            return RoundRead(
                key=instruction.scaler.key, number=instruction.number, wall_s=WALL, targets=down, store_problem="down"
            )
        case _:
            return None


__all__ = ["KEY", "WALL", "Wants", "World", "pod_of", "replace", "scaler_of", "spec_of", "usage_of"]
