"""What an autoscaler's core is told. Facts of the cluster are cut down to what it reads."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from shared.autoscaling.hpa.model import CustomSeries, ExternalSeries, PodFacts, PodUsage
from shared.autoscaling.safety.readings import SignalReading
from shared.model.cluster_objects import DisruptionBudget
from shared.model.controllers.autoscaler import Autoscaler, ScalingSignal, TargetRef
from shared.turns import Tick
from shared.wire.records import AutoscaleRecord

Answered = Mapping[tuple[str, ...], tuple[CustomSeries, ...] | tuple[ExternalSeries, ...] | str]
"""By ``Metric.question``: the series, or why there are none."""


class PodFact(Struct, frozen=True, kw_only=True):
    """One pod. ``seen``: as the HPA's rule reads it; ``owner``: uid of its controller; ``node`` "": nobody has taken
    it; ``created``: RFC 3339; ``takes``: what it holds on its node, cores and bytes."""

    uid: str
    namespace: str
    seen: PodFacts
    owner: str = ""
    node: str = ""
    created: str = ""
    takes: Mapping[str, float] = {}

    @property
    def name(self) -> str:
        return self.seen.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self.seen.labels

    @property
    def ready(self) -> bool:
        return self.seen.ready == "True"

    @property
    def ended(self) -> bool:
        """Succeeded or failed: it serves nobody and holds no room any more."""
        return self.seen.phase in ("Succeeded", "Failed")

    @property
    def leaving(self) -> bool:
        """Deleted and not gone yet: it serves nobody any more, and holds its room until it is gone."""
        return self.seen.deleting

    @property
    def there(self) -> bool:
        """Whether it serves or may come to."""
        return not self.ended and not self.leaving

    def runs_s(self, wall_s: float) -> float:
        """For how long its node has had it."""
        return 0.0 if self.seen.start_s is None else wall_s - self.seen.start_s


class NodeFact(Struct, frozen=True, kw_only=True):
    """One node. ``takes``: ready and not cordoned; ``cordoned``: somebody empties it, or is about to."""

    name: str
    cpu: float
    memory: float
    pods: int
    takes: bool
    cordoned: bool


class HpaFact(Struct, frozen=True, kw_only=True):
    """One HorizontalPodAutoscaler. ``owner``: ``ScaledObject/NAME`` where KEDA made it; ``writer``: who last set it."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    ref: TargetRef
    minimum: int
    maximum: int
    owner: str = ""
    writer: str = ""


class TargetFact(Struct, frozen=True, kw_only=True):
    """A workload as read in a round. ``selector``: of its Scale; ``rollout``: what goes on with it, "" for nothing;
    ``there``: pods by its own status."""

    uid: str
    resource_version: str
    replicas: int
    there: int = 0
    selector: str = ""
    rollout: str = ""
    writer: str = ""


# --- what the watches show ------------------------------------------------------------------------------------------


class ScalerSeen(Struct, frozen=True):
    """An object of ours, new or changed."""

    scaler: Autoscaler


class ScalerGone(Struct, frozen=True):
    key: str


class ScaledPodSeen(Struct, frozen=True):
    pod: PodFact


class ScaledPodGone(Struct, frozen=True):
    uid: str


class SetSeen(Struct, frozen=True):
    """A ReplicaSet, and the uid of the Deployment that it is of ("": of none)."""

    uid: str
    owner: str


class SetGone(Struct, frozen=True):
    uid: str


class ScaledNodeSeen(Struct, frozen=True):
    node: NodeFact


class ScaledNodeGone(Struct, frozen=True):
    name: str


class HpaSeen(Struct, frozen=True):
    hpa: HpaFact


class HpaGone(Struct, frozen=True):
    key: str


class BudgetSeen(Struct, frozen=True):
    budget: DisruptionBudget


class BudgetGone(Struct, frozen=True):
    key: str


class ScaledListed(Struct, frozen=True):
    """Everything of this kind has been told once. ``served`` False: the server refused to list it, so none being told
    says nothing of what there is."""

    kind: str
    served: bool = True


# --- what became of instructions ------------------------------------------------------------------------------------


class RoundRead(Struct, frozen=True, kw_only=True):
    """What a ``ReadRound`` found. ``wall_s``: seconds since 1970, when it was asked; a text in place of a fact: why it
    could not be read, beginning with ``!`` where that is the object's own fault (no such workload)."""

    key: str
    number: int
    wall_s: float
    targets: Mapping[str, TargetFact | str]
    hpas: Mapping[str, HpaFact | str] = {}
    readings: Mapping[str, Mapping[ScalingSignal, SignalReading]] = {}
    pod_metrics: Mapping[str, PodUsage] | str = "it was not read"
    """By pod's name, of the object's namespace."""
    series: Mapping[str, Answered] = {}
    """By service, what was answered to the questions of the HPA's rule beside those about cpu and memory."""
    last: AutoscaleRecord | None = None
    last_revision: int = 0
    store_problem: str = ""
    silent_s: Mapping[str, float] = {}
    """By kind, how long its watch has said nothing, bookmarks included."""


class RecordCommitted(Struct, frozen=True):
    """``outcome``: ok, refused (somebody else wrote the record), unknown."""

    key: str
    number: int
    outcome: str


class Fenced(Struct, frozen=True):
    """etcd names another leader, or none."""

    reason: str


class ReplicasWrote(Struct, frozen=True):
    """``results``: by service, (ok | conflict | refused | unknown, what the server said)."""

    key: str
    number: int
    results: Mapping[str, tuple[str, str]]


class StatusTold(Struct, frozen=True):
    """The status was written, or could not be: then it is told again."""

    key: str
    done: bool = True


Event = (
    ScalerSeen | ScalerGone | ScaledPodSeen | ScaledPodGone | SetSeen | SetGone | ScaledNodeSeen | ScaledNodeGone
    | HpaSeen | HpaGone
    | BudgetSeen | BudgetGone | ScaledListed | RoundRead | RecordCommitted | Fenced | ReplicasWrote | StatusTold | Tick
)  # fmt: skip

KINDS = ("resilientautoscalers", "pods", "replicasets", "nodes", "horizontalpodautoscalers", "poddisruptionbudgets")
"""What is listed before the first round."""
