"""One reading of a pod: where it is (``PodState``), and why, from all that its object says. Pure.

A training pod's phase says little: an injected sidecar keeps it Running after its program has ended, one that cannot
pull its image is Pending like one that waits for a node, and one that a kubelet refused is Failed like one that
crashed. So the container that trains is asked first, then the others, then what nodes and kubelets wrote::

    deletion asked for ------------------------------> Leaving (Lost: see ``as_of``)
    program ended 0, or phase Succeeded -------------> Succeeded
    marked DisruptionTarget, a kubelet's refusal,
    eviction or shutdown, its container was lost ----> Disrupted
    program or an init container ended otherwise,
    or phase Failed ---------------------------------> Failed
    program runs ------------------------------------> Running
    no node -----------------------------------------> Waiting
    a container waits for what the kubelet retries --> Stuck
    else --------------------------------------------> Starting
"""

from __future__ import annotations

from msgspec import field
from msgspec.structs import replace

from shared.errors import ObjectError
from shared.kube import objects as api
from shared.kube.objects import ContainerState, ContainerTerminated, Json, ObjectMeta
from shared.kube.pod_groups import GROUP_LABEL
from shared.kube.pods.convert_requests import effective_requests
from shared.kube.resources import Resource
from shared.kube.training.training_jobs import counted, gpu_milli, owner_of
from shared.kube.training.training_status import seconds_of
from shared.model.controllers.training_job import (
    ATTEMPT_LABEL,
    BOUNDS_ANNOTATION,
    INDEX_LABEL,
    JOB_LABEL,
    MADE_OF_LABEL,
    PROGRAM_ANNOTATION,
    REPORT_ANNOTATION,
    ROLE_LABEL,
    PodState,
    WorkerPod,
)
from shared.model.units.queue import QUEUE_LABEL

LOST_S = 60.0
"""A pod that should have been gone for so long is not waited for: its node does not answer. Kubernetes' own grace, 30 s
by default, and what a finalizer asks for are in the time of its deletion; the kubelet's reply takes seconds."""

REFUSED_PREFIX = "Pod was rejected: "
"""Before the message of each refusal (kubelet 1.36, ``kubelet.go`` ``rejectPod``)."""
OUT_OF = "OutOf"
"""Before the resource, any, that a kubelet has too little of (``lifecycle/predicate.go``)."""
REFUSALS = frozenset(
    {
        "NodeAffinity", "NodeName", "NodePorts", "TaintToleration",  # lifecycle/predicate.go: plug-ins of the scheduler
        "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "InvalidNodeInfo", "UnknownReason",
        "InitContainerRestartPolicyForbidden", "SupplementalGroupsPolicyNotSupported", "UnexpectedPredicateFailureType",
        "UnexpectedAdmissionError", "EmptyPodSharedPoolError",  # cm/admission/errors.go, cm/devicemanager
        "TopologyAffinityError", "SMTAlignmentError",  # cm/topologymanager, cm/cpumanager
        "AppArmor", "PodLevelResourcesNotSupported", "PodFeatureUnsupported",  # lifecycle/handlers.go
        "SysctlForbidden", "VolumeAttachmentLimitExceeded",  # sysctl/allowlist.go, volumemanager
        "NodeShutdown",  # nodeshutdown: it came while the node went down
    }
)  # fmt: skip
"""What a kubelet writes on a pod that it does not take (1.36, ``pkg/kubelet``)."""
TAKEN_AWAY = frozenset(
    {
        "Evicted",  # eviction/helpers.go, also of a pod that comes under pressure
        "Terminated", "Shutdown",  # nodeshutdown, now and before 1.22
        "Preempting",  # preemption/preemption.go: for a critical pod
        "NodeLost",  # util/node
    }
)  # fmt: skip
"""What a kubelet or the control plane writes on a pod that ran."""
CONTAINER_LOST = frozenset({"ContainerStatusUnknown", "Unknown"})
"""Of a container that the kubelet, or containerd, found no more: the node was started anew under it."""
BEGINNING = frozenset({"", "ContainerCreating", "PodInitializing", "RestartingAllContainers"})
"""A container that waits for one of these is on its way; for any other (ImagePullBackOff, CreateContainerConfigError,
CrashLoopBackOff, ...) the kubelet has failed and tries again."""
NEVER = (None, "", "Never")


class StatedContainer(api.ContainerStatus, frozen=True):
    state: ContainerState = field(default_factory=ContainerState)
    last_state: ContainerState = field(default_factory=ContainerState)


class WorkerPodStatus(api.PodStatus, frozen=True):
    reason: str | None = None
    message: str | None = None
    container_statuses: list[StatedContainer] | None = None  # type: ignore[assignment]  # narrower
    init_container_statuses: list[StatedContainer] | None = None  # type: ignore[assignment]


class WorkerPodSpec(api.PodSpec, frozen=True):
    restart_policy: str | None = None


class WorkerPodObject(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: WorkerPodSpec = field(default_factory=WorkerPodSpec)
    status: WorkerPodStatus = field(default_factory=WorkerPodStatus)


JOB_PODS = Resource("Pod", "", "v1", "pods", True, WorkerPodObject)


def worker_pod(item: WorkerPodObject) -> WorkerPod:
    """Any pod; what of it cannot be read counts as absent: it is then no worker of ours, or holds nothing."""
    meta, spec, status = item.metadata, item.spec, item.status
    labels, annotations = meta.labels or {}, meta.annotations or {}
    try:
        requests = effective_requests(api.KubePod(metadata=meta, spec=spec, status=status))
    except ObjectError:
        requests = {}  # type: ignore[assignment]  # nothing that can be counted
    group = spec.scheduling_group.pod_group_name if spec.scheduling_group is not None else None
    state, cause, message = _state(item)
    return WorkerPod(
        uid=meta.uid,
        namespace=meta.namespace or "",
        name=meta.name,
        state=state,
        node=spec.node_name or "",
        job=owner_of(meta) if JOB_LABEL in labels else "",
        role=labels.get(ROLE_LABEL, ""),
        index=_number_of(labels.get(INDEX_LABEL, ""), -1),
        attempt=_number_of(labels.get(ATTEMPT_LABEL, ""), 0),
        cause=cause[:64],
        message=message[:256],
        holds=status.phase not in ("Succeeded", "Failed"),
        marked=_marked(status),
        leave_by=seconds_of(meta.deletion_timestamp),
        made_of=labels.get(MADE_OF_LABEL, ""),
        bounds=annotations.get(BOUNDS_ANNOTATION, ""),
        gpu_milli=gpu_milli(requests),
        amounts=counted(requests),
        group=group or labels.get(GROUP_LABEL, ""),
        queue=labels.get(QUEUE_LABEL, ""),
        created=seconds_of(meta.creation_timestamp),
        report=annotations.get(REPORT_ANNOTATION, ""),
    )


def as_of(pod: WorkerPod, wall: float) -> WorkerPod:
    """The pod as it stands at this moment: one that should have gone long ago is lost."""
    late = pod.state is PodState.LEAVING and 0.0 < pod.leave_by < wall - LOST_S
    return replace(pod, state=PodState.LOST) if late else pod


def refused(pod: WorkerPod) -> bool:
    """Whether a kubelet did not take it."""
    return pod.state is PodState.DISRUPTED and (
        pod.cause in REFUSALS or pod.cause.startswith(OUT_OF) or pod.message.startswith(REFUSED_PREFIX)
    )


# --- the state ------------------------------------------------------------------------------------------------------


def _state(item: WorkerPodObject) -> tuple[PodState, str, str]:
    """(where it is, why in a word, why in a sentence)."""
    status = item.status
    reason, message = status.reason or "", status.message or ""
    if item.metadata.deletion_timestamp is not None:
        return PodState.LEAVING, reason, message
    main = _program(item)
    end = _end(item, main)
    if status.phase == "Succeeded" or (end is not None and end.exit_code == 0):
        return PodState.SUCCEEDED, "", ""
    broken = end if end is not None else _failed_step(item)
    over = status.phase == "Failed" or broken is not None
    if over and (found := _taken(status, broken)) is not None:
        return PodState.DISRUPTED, *found
    if over:
        return PodState.FAILED, *_why_failed(item, end, reason, message)
    if main is not None and main.state.running is not None:
        return PodState.RUNNING, "", ""
    if not item.spec.node_name:
        return PodState.WAITING, *_why_waiting(item)
    if status.phase == "Running" and (main is None or main.state == ContainerState()):
        return PodState.RUNNING, "", ""  # whoever wrote it tells nothing of the program
    for name, one in _statuses(item):
        waiting = one.state.waiting
        if waiting is not None and (waiting.reason or "") not in BEGINNING:
            told = _sentence(waiting.message, one.last_state.terminated)
            return PodState.STUCK, waiting.reason or "", f"container {name}: {told}" if told else f"container {name}"
    return PodState.STARTING, *_why_starting(item)


def _program_name(item: WorkerPodObject) -> str:
    """The container that trains: as its annotation says, since admission may put others before it."""
    named = (item.metadata.annotations or {}).get(PROGRAM_ANNOTATION, "")
    names = [one.name for one in item.spec.containers or ()]
    return named if named in names else next(iter(names), "")


def _program(item: WorkerPodObject) -> StatedContainer | None:
    name = _program_name(item)
    return next((one for one in item.status.container_statuses or () if one.name == name), None)


def _end(item: WorkerPodObject, main: StatedContainer | None) -> ContainerTerminated | None:
    """How the program ended; None: it has not, or its own restartPolicy starts it again."""
    if main is None:
        return None
    name = _program_name(item)
    asked = next((one for one in item.spec.containers or () if one.name == name), api.Container())
    if (asked.restart_policy not in NEVER or asked.restart_policy_rules) and item.status.phase != "Failed":
        return None
    if main.state.terminated is None and item.spec.restart_policy not in NEVER:
        # pods of ours are Never: whoever changed that lets a training begin anew that has ended
        return main.last_state.terminated
    return main.state.terminated


def _failed_step(item: WorkerPodObject) -> ContainerTerminated | None:
    """An init container that ended badly, where nothing starts it again."""
    if item.spec.restart_policy not in NEVER:
        return None
    again = {
        one.name
        for one in item.spec.init_containers or ()
        if one.restart_policy not in NEVER or one.restart_policy_rules
    }
    ends = (one.state.terminated for one in item.status.init_container_statuses or () if one.name not in again)
    return next((end for end in ends if end is not None and end.exit_code), None)


def _taken(status: WorkerPodStatus, end: ContainerTerminated | None) -> tuple[str, str] | None:
    """Why it ended without a fault of its own; None: it did not."""
    reason, message = status.reason or "", status.message or ""
    if reason in REFUSALS or reason in TAKEN_AWAY or reason.startswith(OUT_OF) or message.startswith(REFUSED_PREFIX):
        return reason or "Rejected", message
    if _marked(status):
        found = next(c for c in status.conditions or () if c.type == "DisruptionTarget")
        return found.reason or "DisruptionTarget", found.message or message
    if end is not None and (end.reason or "") in CONTAINER_LOST:
        return end.reason or "", end.message or "its node was started again"
    return None


def _marked(status: WorkerPodStatus) -> bool:
    return any(c.type == "DisruptionTarget" and c.status == "True" for c in status.conditions or ())


def _why_failed(item: WorkerPodObject, end: ContainerTerminated | None, reason: str, message: str) -> tuple[str, str]:
    if reason or message:
        return reason, message or reason  # DeadlineExceeded: the template's own limit
    if end is not None:
        return end.reason or "Error", _sentence(None, end)
    for one in item.status.init_container_statuses or ():
        if one.state.terminated is not None and one.state.terminated.exit_code:
            return "InitContainerFailed", f"init container {one.name}: {_sentence(None, one.state.terminated)}"
    return "", ""


def _why_waiting(item: WorkerPodObject) -> tuple[str, str]:
    if item.spec.scheduling_gates:
        names = ", ".join(gate.name for gate in item.spec.scheduling_gates)
        return "SchedulingGated", f"its scheduling gates stay: {names}; whoever set them takes them away"
    for one in item.status.conditions or ():
        if one.type == "PodScheduled" and one.status == "False":
            return one.reason or "", one.message or ""
    return "", ""


def _why_starting(item: WorkerPodObject) -> tuple[str, str]:
    for one in item.status.init_container_statuses or ():
        if one.state.running is not None and one.name not in _sidecars(item):
            return INITIALIZING, f"init container {one.name} runs"
    made = [c for c in item.status.conditions or () if c.type == "PodReadyToStartContainers"]
    if any(c.status == "False" for c in made):
        return "ContainerCreating", "its volumes or its network are not ready; kubectl describe says which"
    return "ContainerCreating", "its image is pulled, or its containers are made; kubectl describe says which"


INITIALIZING = "PodInitializing"
"""Cause of a pod in whose init container a program of the user's runs, as long as it likes."""


def _sidecars(item: WorkerPodObject) -> set[str]:
    return {one.name for one in item.spec.init_containers or () if one.restart_policy == "Always"}


def _statuses(item: WorkerPodObject) -> list[tuple[str, StatedContainer]]:
    """Containers in the order in which they begin; the program before its neighbours."""
    main = _program_name(item)
    own = sorted(item.status.container_statuses or (), key=lambda one: one.name != main)
    return [(one.name, one) for one in (*(item.status.init_container_statuses or ()), *own)]


def _sentence(message: str | None, end: ContainerTerminated | None) -> str:
    parts: list[str] = [message] if message else []
    if end is not None:
        parts.append(f"exit code {end.exit_code}" + (f" ({end.reason})" if end.reason not in (None, "Error") else ""))
        if end.message:
            parts.append(end.message[:128])
    return "; ".join(parts)


def _number_of(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else default
