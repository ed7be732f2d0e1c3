"""The audit's reading of pod groups: which pods belong together, how many must stand, and under which label.

Three kinds of object make a group: Kubernetes' own PodGroup (``scheduling.k8s.io``, v1alpha2 and v1beta1), the PodGroup
of the scheduler plug-ins (``scheduling.x-k8s.io``), and an Indexed Job whose annotation, or whose namespace's, asks for
it. A pod names its group by ``spec.schedulingGroup``, by label, or by its owner, in this order. Plain JSON in, facts
out; it shares no code with the scheduler (ADR 0010), so names of fields and annotations are repeated here.

Sources: kubernetes 1.36 and 1.37 ``staging/src/k8s.io/api/scheduling``, scheduler-plugins ``apis/scheduling/v1alpha1``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from lab.audit.ledger import ELIGIBILITY_GRACE_S as GRACE_S
from lab.audit.rules import Json, amounts

NATIVE, PLUGINS = "scheduling.k8s.io", "scheduling.x-k8s.io"
MEMBER_LABEL = "scheduling.x-k8s.io/pod-group"
QUEUE_LABEL = "conclave.io/queue"
GANG, GANG_MIN_COUNT, GANG_BROKEN = "conclave.io/gang", "conclave.io/gang-min-count", "conclave.io/gang-broken"
TIMEOUT_S = 300.0
"""How long a broken gang is held where the group does not say: the scheduler's setting, as it is unless changed."""
TOPOLOGY = "conclave.io/gang-topology"
"""The annotation for what the API has no field for; ``-preferred`` after it forbids nothing and is not judged."""


@dataclass(frozen=True, slots=True)
class AuditedGroupFacts:
    """One group as an audit line showed it. ``minimum`` 1: no gang. ``topology`` "": its members may go anywhere."""

    minimum: int = 1
    topology: str = ""
    whole: bool = False
    """A preemption takes all of it or nothing."""
    priority: int | None = None
    evicts: bool = False
    """When it breaks its members are to leave."""
    timeout_s: float = TIMEOUT_S
    """So long after it broke."""
    labels: tuple[tuple[str, str], ...] = ()
    demands: tuple[tuple[str, int], ...] = ()
    """It is not to be tried before all nodes together have so much."""
    refused: bool = False
    """It says what the scheduler does not honour, so it is told so and not tried."""


def group_facts(obj: Json) -> AuditedGroupFacts:
    """Read a PodGroup of either API."""
    meta, spec = obj["metadata"], obj.get("spec") or {}
    annotations = meta.get("annotations") or {}
    if _api_group(obj) == PLUGINS:
        minimum, topology, whole = spec.get("minMember") or 1, str(annotations.get(TOPOLOGY) or ""), False
    else:
        minimum = ((spec.get("schedulingPolicy") or {}).get("gang") or {}).get("minCount") or 1
        wanted = (spec.get("schedulingConstraints") or {}).get("topology") or ()
        topology = str((wanted[0].get("key") if wanted else annotations.get(TOPOLOGY)) or "")
        mode = spec.get("disruptionMode")
        whole = "all" in mode if isinstance(mode, dict) else mode == "PodGroup"
    return AuditedGroupFacts(
        minimum=int(minimum),
        topology=topology,
        whole=whole,
        priority=spec.get("priority"),
        evicts=annotations.get(GANG_BROKEN) == "evict",
        timeout_s=float(spec.get("scheduleTimeoutSeconds") or TIMEOUT_S),
        labels=tuple(sorted((meta.get("labels") or {}).items())),
        demands=_demands(spec.get("minResources")),
        refused=bool(spec.get("parentCompositePodGroupName")) or _misspelt(annotations) or _claims_nothing(spec),
    )


def _claims_nothing(spec: Json) -> bool:
    """Whether an entry of its claims names neither a claim nor a template."""
    claims = spec.get("resourceClaims") or ()
    return not all(one.get("resourceClaimName") or one.get("resourceClaimTemplateName") for one in claims)


def _misspelt(annotations: Json) -> bool:
    """Whether an annotation says what nobody understands."""
    return annotations.get(GANG_BROKEN, "keep") not in ("keep", "evict")


def _demands(quantities: Json | None) -> tuple[tuple[str, int], ...]:
    try:
        return tuple(sorted(amounts(quantities).items()))
    except ValueError:
        return ()  # the object is told so by others


def job_facts(job: Json, namespace_asks: bool) -> AuditedGroupFacts:
    """Read a Job. Where nobody asked that it be a gang, or it is not Indexed, its minimum is 1."""
    meta, spec = job["metadata"], job.get("spec") or {}
    annotations = meta.get("annotations") or {}
    asked = annotations.get(GANG, "true" if namespace_asks else "")
    if asked != "true" or spec.get("completionMode") != "Indexed":
        return AuditedGroupFacts(refused=spec.get("completionMode") == "Indexed" and asked not in ("true", "false", ""))
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    parallelism = 1 if parallelism is None else int(parallelism)
    text = annotations.get(GANG_MIN_COUNT, str(parallelism))
    whole_number = text.isascii() and text.isdigit()
    minimum = int(text) if whole_number else parallelism
    refused = not (whole_number and 1 <= minimum <= parallelism)
    if completions is not None:  # no more run at once than have yet to complete
        minimum = min(minimum, completions - int((job.get("status") or {}).get("succeeded") or 0))
    return AuditedGroupFacts(
        minimum=max(1, minimum),
        topology=str(annotations.get(TOPOLOGY) or ""),
        evicts=annotations.get(GANG_BROKEN) == "evict",
        labels=tuple(sorted((meta.get("labels") or {}).items())),
        refused=refused or _misspelt(annotations),
    )


def _api_group(obj: Json) -> str:
    return str(obj.get("apiVersion") or "").partition("/")[0]


@dataclass(slots=True)
class AuditedGroup:
    """One group's name and what it was lately. ``facts`` None: there is no such object."""

    key: str
    facts: AuditedGroupFacts | None = None
    changed_s: float = float("-inf")
    lately: deque[tuple[float, AuditedGroupFacts | None]] = field(default_factory=deque)
    """What it was before, and until when: the last ``GRACE_S`` only."""

    def change(self, facts: AuditedGroupFacts | None, time_s: float) -> None:
        """The object came, changed or (None) went."""
        if facts != self.facts:
            self.lately.append((time_s, self.facts))
            self.facts, self.changed_s = facts, time_s
        while self.lately and self.lately[0][0] < time_s - GRACE_S:
            self.lately.popleft()

    def seen(self, time_s: float) -> list[AuditedGroupFacts | None]:
        """Every form in which somebody may have seen it at that time."""
        return [self.facts, *(facts for until_s, facts in self.lately if until_s >= time_s - GRACE_S)]

    def least(self, time_s: float) -> int:
        """The smallest minimum that somebody may have gone by; 1 where it is not there. That it was not there a moment
        before lowers nothing: the members of a missing group wait."""
        return min((facts.minimum for facts in self.seen(time_s) if facts), default=1)


class Groups:
    """Every group by key, from the objects that make them."""

    def __init__(self) -> None:
        self._groups: dict[str, AuditedGroup] = {}
        self._jobs: dict[str, Json] = {}
        self._asking: set[str] = set()

    def change(self, kind: str, obj: Json, *, gone: bool, time_s: float) -> str | None:
        """A PodGroup, Job or Namespace came, changed or went; the key of the group that it is, if it is one."""
        meta = obj["metadata"]
        name, namespace = meta["name"], meta.get("namespace") or ""
        if kind == "PodGroup":
            source = "x-podgroup" if _api_group(obj) == PLUGINS else "podgroup"
            key = f"{source} {namespace}/{name}"
            self.get(key).change(None if gone else group_facts(obj), time_s)
            return key
        if kind == "Job":
            key = f"job {namespace}/{name}"
            self._jobs[key] = obj
            self._job(key, gone=gone, time_s=time_s)
            return key
        if kind == "Namespace":
            asks = not gone and (meta.get("annotations") or {}).get(GANG) == "true"
            if asks != (name in self._asking):
                (self._asking.add if asks else self._asking.discard)(name)
                for key in [key for key in self._jobs if key.startswith(f"job {name}/")]:
                    self._job(key, gone=False, time_s=time_s)
        return None

    def _job(self, key: str, *, gone: bool, time_s: float) -> None:
        job = self._jobs.pop(key) if gone else self._jobs[key]
        asks = (job["metadata"].get("namespace") or "") in self._asking
        # what a deleted Job leaves is no gang any more, and waits for nothing
        self.get(key).change(AuditedGroupFacts() if gone else job_facts(job, asks), time_s)

    def get(self, key: str) -> AuditedGroup:
        """The group of that key, there or not."""
        return self._groups.setdefault(key, AuditedGroup(key))

    def of(self, pod: Json) -> AuditedGroup | None:
        """The group that a pod is a member of; None: it stands alone."""
        meta = pod["metadata"]
        namespace = meta.get("namespace") or ""
        name = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
        if name:
            return self.get(f"podgroup {namespace}/{name}")
        name = (meta.get("labels") or {}).get(MEMBER_LABEL)
        if name:
            return self.get(f"x-podgroup {namespace}/{name}")
        for owner in meta.get("ownerReferences") or ():
            if owner.get("kind") == "Job" and owner.get("controller"):
                found = self.get(f"job {namespace}/{owner['name']}")
                return found if found.facts is not None else None
        return None
