"""What services keep in etcd for each other to read, as JSON, so that ``etcdctl get`` shows it to people.

Binder and coordinator share intents, agents and coordinator share registrations; services never import each other, so
the shapes are here. Unknown fields are ignored, so that versions can be mixed; a value that does not decode is None and
the reader's to count: it refuses to guess.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

R = TypeVar("R")


class IntentClaim(msgspec.Struct, frozen=True):
    """A claim of the pod of an intent: its name in the pod's namespace, and its uid. ``fresh``: it gets its devices for
    this pod, or got them in an attempt before, and nobody else uses it. ``made``: it is made for the pod's extended
    resources, and deleted where it never binds; its uid is "", as it has none before. ``group``: its pod group has it
    for all members, so that it is never given back for one; not ``fresh`` then."""

    name: str
    uid: str
    fresh: bool = True
    made: bool = False
    group: bool = False


class IntentPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pod of an intent. ``rv``: the resourceVersion its Binding will name; ``devices``: GPU devices picked;
    ``unit``: a member's own number, 0 for the only pod of a unit; ``claims``: of devices; ``reservation``: uid of that
    whose room it is to have."""

    uid: str
    ns: str
    name: str
    rv: str
    node: str
    devices: tuple[int, ...] = ()
    unit: int = 0
    claims: tuple[IntentClaim, ...] = ()
    reservation: str = ""

    @property
    def named(self) -> int:
        """How many objects it names: itself, and its claims."""
        return 1 + len(self.claims)


class Intent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A committed plan of one unit, not yet confirmed bound: the value under ``Keys.intent(unit key)``.

    The key of a single pod's unit is the pod's uid, a gang's is ``gang_key``. ``group``: the pod group's key, "" for a
    lone pod; ``min_count``: so many of ``pods`` are to be bound at least. A gang too large for one value continues
    under ``links`` further keys, which are written first: without this one they mean nothing. ``term`` is the binder's
    that wrote it, ``coordinator_term`` and ``unit`` together are the cause id; ``policy``: ``name@version``. ``shard``:
    whose binder committed it, and finishes or withdraws it.
    """

    plan_id: int
    coordinator_term: int
    unit: int
    pods: tuple[IntentPod, ...]
    term: int = 0
    policy: str = ""
    group: str = ""
    min_count: int = 1
    links: int = 0
    shard: str = "0"

    @property
    def named(self) -> int:
        """How many pods and claims it names, by which transactions are measured."""
        return sum(pod.named for pod in self.pods)


GANG = "gang:"
"""How the unit keys of gangs begin; no pod's uid does."""


def gang_key(coordinator_term: int, unit: int, link: int = 0) -> str:
    """The unit key of a gang's intent; ``link`` above 0: of its continuation. No pod's uid looks like it."""
    return f"{GANG}{coordinator_term:x}-{unit:x}" + (f":{link}" if link else "")


def gang_part(unit_key: str) -> tuple[str, int] | None:
    """Of which gang's intent a unit key names a part: the intent's own key, and the link's number (0: that key itself).

    None for the key of a lone pod.
    """
    if not unit_key.startswith(GANG):
        return None
    name, _, link = unit_key.removeprefix(GANG).partition(":")
    return (f"{GANG}{name}", int(link or 0)) if (link or "0").isdecimal() else None


class ShardsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The shards of nodes: the value under ``Keys.binder_shards``. ``generation`` counts its changes."""

    names: tuple[str, ...]
    generation: int
    by: str = ""
    reason: str = ""
    since: str = ""


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's registration: the value under ``Keys.agent(id)``, which lives as long as the agent's lease.

    ``node``: the one node it serves (a DaemonSet's agent), empty for any. ``protocol``: major version of the messages.
    ``incarnation``: another one means another process, which knows nothing of the view that was sent to the last.
    """

    id: str
    url: str
    incarnation: str
    node: str = ""
    protocol: int = 1
    version: str = ""
    """Of Conclave; one of another major version is refused."""
    warnings: tuple[str, ...] = ()
    """What people should correct about this process (``shared.runtime.process.health``)."""
    plugins: tuple[str, ...] = ()
    """What users bring, ``kind name@release`` each (``shared.runtime.process.plugins``)."""
    sensors: bool = False
    """Whether it measures its node, and so tells what that uses (``Readings``)."""


CURVES = "power-curves"
"""How a process tells which power curves it was given, among the titles of its plug-ins: with their digest."""
OF_LOAD = "load-parts"
"""Likewise of what its nodes' load is, where that is not the default: with the names of the parts."""
PROFILED = "profiles"
"""Likewise of its file of profiles: with a digest of what it says."""


def filters_in(plugins: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the filters among these plug-ins, sorted."""
    titles = (title.removeprefix("filter ") for title in plugins if title.startswith("filter "))
    return tuple(sorted(title.partition("@")[0] for title in titles))


def plugins_differ(service: str, theirs: tuple[str, ...], leaders: tuple[str, ...]) -> str:
    """What people should correct where a process has other plug-ins than the leading coordinator; "" for the same."""
    if service not in ("agent", "coordinator"):  # it ranks nothing
        others = (f"{CURVES}@", f"{OF_LOAD}@", *((f"{PROFILED}@",) if service != "binder" else ()))
        leaders = tuple(title for title in leaders if not title.startswith(others))
    if sorted(theirs) == sorted(leaders):
        return ""
    both = f"has the plugins {', '.join(theirs) or 'none'}, the coordinator {', '.join(leaders) or 'none'}"
    remedy = "give every service the same setting and install the same releases"
    if filters_in(theirs) == filters_in(leaders):
        return f"{both}: they may rank differently; {remedy}"
    harm = "it gets no nodes" if service == "agent" else "it may refuse what the coordinator places"
    return f"{both}: the filters differ, so {harm}; {remedy}"


class PolicyRef(msgspec.Struct, frozen=True):
    """One version of one policy. ``sha256`` names its weights in etcd; empty for a heuristic, which has none.
    ``members``: the policies of a mixture, so that what they need is known without its weights."""

    name: str
    version: int
    sha256: str = ""
    members: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """``name@version``, as annotations, logs and tables write it."""
        return f"{self.name}@{self.version}"


class Rehearsed(msgspec.Struct, frozen=True, kw_only=True):
    """What a rehearsal said of one policy's weights (``sha256``). ``policy``: its title; ``places``: which policy
    places, it or the one in its place; ``told``: by how much, for people."""

    policy: str
    sha256: str
    places: str
    told: str


class PolicyPointer(msgspec.Struct, frozen=True, kw_only=True):
    """Which policy decides: the value under ``Keys.policies_active``, changed by compare-and-swap only.

    ``candidate`` None: no rollout. ``stage``: candidate, shadow, canary or active (see ``policy/rollout.py``);
    ``percent``: share of pods that the candidate decides for. ``number`` grows by one with each change and names its
    record in the history; ``reason``: why it was made, ``by``: by whom. Of the candidate, "" for what the coordinators'
    settings say: ``promotion``, manual or auto, and ``goal``, by which the policies are compared; ``made_for``: the
    goal that the candidate is for; ``proposed_by``: who published it. ``rehearsed``: of the active policy and the
    candidate, what rehearsals on this cluster's demand said; nothing: each places by itself. ``forced``: the change
    took a policy further without the windows that would speak for it.
    """

    active: PolicyRef
    previous: PolicyRef | None = None
    candidate: PolicyRef | None = None
    stage: str = "active"
    percent: int = 0
    number: int = 0
    reason: str = ""
    by: str = ""
    promotion: str = ""
    goal: str = ""
    rehearsed: tuple[Rehearsed, ...] = ()
    forced: bool = False
    made_for: str = ""
    proposed_by: str = ""


class PolicyValue(msgspec.Struct, frozen=True, kw_only=True):
    """What the choices of the policies were worth by one goal in one window, 0 to 1; null: it told no nodes apart.
    ``candidate`` is null too where there was none."""

    goal: str
    active: float | None
    candidate: float | None = None


class PolicyConduct(msgspec.Struct, frozen=True, kw_only=True):
    """What both policies did in one window beside choosing. ``decisions``: groups that were judged; ``fallbacks``: by
    the heuristic in their place; ``placements``, ``rejected``: pods bound, and those that the binder refused;
    ``waited_s``: for how long they were pending, on the mean; ``evictions``: pods that left for pods of its share.
    ``hot``: share of the measured nodes that run hot, ``hot_before``: before the candidate placed any; null: not known.
    """

    p99_ms: float
    decisions: int
    fallbacks: int
    placements: int
    rejected: int
    active_p99_ms: float
    active_decisions: int
    active_fallbacks: int
    active_placements: int
    active_rejected: int
    waited_s: float = 0.0
    evictions: int = 0
    active_waited_s: float = 0.0
    active_evictions: int = 0
    hot: float | None = None
    hot_before: float | None = None


class PolicyWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One window that was closed: a value under ``Keys.policy_window``, kept for people.

    ``number`` grows by one with each; ``time``: when it was closed. ``candidate`` "": none was compared. ``values``:
    by the goal that decides, then by others. ``samples``: decisions that were judged; ``agreed``: on which both chose
    the same node. ``verdict``: good, unsure or bad for the candidate, "" without one; ``why``: in what it was worse.
    ``conduct`` null: there was no candidate.
    """

    number: int
    time: str
    active: str
    candidate: str = ""
    stage: str = "active"
    percent: int = 0
    values: tuple[PolicyValue, ...] = ()
    samples: int = 0
    agreed: int = 0
    verdict: str = ""
    why: str = ""
    conduct: PolicyConduct | None = None


class TotalsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted over all terms: the value under ``Keys.coordinator_totals``. ``bound``: pods that we bound."""

    bound: int = 0
    term: int = 0


class QueueHistoryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Past use of queues: the value under ``Keys.queue_history``. ``past``: by queue and resource, in thousandths of
    the resource's unit, as it was at ``time`` (seconds since 1970). ``term``: of the coordinator that wrote it."""

    time: int
    past: dict[str, dict[str, int]]
    term: int = 0


class NominationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod that waits is to go once others have left there: the value under ``Keys.nomination(uid)``, written
    before anybody is asked to leave. ``pod``: ``namespace/name``; ``term``: of the coordinator that wrote it."""

    pod: str
    node: str
    term: int = 0


class LearnerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A learner's registration under ``Keys.member("learner", id)``: where agents send what they lived through."""

    id: str
    url: str
    incarnation: str
    policy: str
    protocol: int = 1
    version: str = ""
    warnings: tuple[str, ...] = ()


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One that leads or is a standby: its registration under ``Keys.member(service, id)``. ``version``: of Conclave;
    ``admin_url``: where people find a coordinator's admin API, empty for others; ``stands_for``: the leader's key that
    it is a candidate for, empty of releases that did not say."""

    id: str
    url: str
    incarnation: str
    version: str = ""
    protocol: int = 1
    warnings: tuple[str, ...] = ()
    admin_url: str = ""
    plugins: tuple[str, ...] = ()
    stands_for: str = ""


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    """Scheduling is paused: the value under ``Keys.control_paused``. ``since``: RFC 3339 in UTC, as all times here."""

    by: str
    reason: str
    since: str

    @property
    def text(self) -> str:
        """For people: by whom, and why if that was said."""
        return ": ".join(part for part in (self.by, self.reason) if part) or "somebody"


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """A node gets no new pods from us: the value under ``Keys.control_drained(node)``."""

    node: str
    by: str
    reason: str
    since: str

    @property
    def text(self) -> str:
        """For people: by whom, and why if that was said."""
        return ": ".join(part for part in (self.by, self.reason) if part) or "somebody"


class RuntimeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that were changed while running: the value under ``Keys.settings_current``, by compare-and-swap only.

    ``values``: only what differs from how each process was started. ``number`` grows by one with each change and names
    its record in the history.
    """

    number: int
    values: dict[str, int | float | str]
    by: str
    reason: str
    time: str


class TermRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One term of a coordinator: the value under ``Keys.coordinator_term(term)``. The next one's begin is its end."""

    term: int
    id: str
    url: str
    began: str


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One change somebody asked for, written before it took effect: the value under ``Keys.audit(number)``.

    ``route``: method and route; ``target``: what was to be changed, such as a node's name. ``result``: ok, or the
    code it failed with; empty where the process ended before it could be noted.
    """

    number: int
    time: str
    by: str
    role: str
    route: str
    target: str
    reason: str
    request_id: str
    result: str = ""


Record = (
    Intent
    | ShardsRecord
    | AgentRecord
    | PolicyPointer
    | PolicyWindow
    | LearnerRecord
    | MemberRecord
    | Paused
    | Drained
    | RuntimeSettings
    | TermRecord
    | TotalsRecord
    | QueueHistoryRecord
    | NominationRecord
    | AuditRecord
)

_encoder = msgspec.json.Encoder()


def encode_record(record: Record) -> bytes:
    """The value to write."""
    return _encoder.encode(record)


def decode_record(value: bytes, kind: type[R]) -> R | None:
    """The record in a value; None where it is not one of that kind."""
    try:
        return msgspec.json.decode(value, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


# --- autoscaling ----------------------------------------------------------------------------------------------------


class ScaledTo(msgspec.Struct, frozen=True):
    """One service in the last decision: it had ``before``, and was to get ``wrote`` (replicas, or an HPA's minimum)."""

    before: int
    wrote: int


class ForeignSeen(msgspec.Struct, frozen=True):
    """Somebody else set ``value``; ``go`` (by, digest, at) is the operator's word that was in force then. ``at``: when
    it was found, seconds since 1970; ``times``: how often such a write was; ``kept``: nothing falls below it."""

    value: int
    by: str
    go: tuple[str, str, str]
    at: float = 0.0
    times: int = 1
    kept: bool = True


class AutoscaleRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was last decided for one object: the value under ``Keys.autoscaler_last``, written before the cluster is.

    ``uid``: the object's own; a record of another uid is of an object that is gone. ``term``: who decided. ``number``
    counts an object's records. ``at``: seconds since 1970. ``go``: the operator's word (by, digest, at) it was made on.
    ``weights``: digest of the policy's weights, "" without any. ``slot``: where the ring has the decision.
    """

    uid: str
    term: int
    number: int
    at: float
    go: tuple[str, str, str] = ("", "", "")
    services: dict[str, ScaledTo] = {}
    foreign: dict[str, ForeignSeen] = {}
    weights: str = ""
    slot: int = 0
