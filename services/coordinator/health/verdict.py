"""One verdict over a leader: ok, degraded or bad, with what is wrong, since when, how much, and what to do about it.

    signals (once a second) --> RULES --> findings, each with the time since which it holds --> the worst is the verdict

It is about the scheduler and not about the cluster: pods that fit nowhere are no illness of ours (``pending.py`` tells
of them). A threshold is what people feel: a pod that is placed seconds late, not a pause of a quarter of a second. What
heals by itself (a binder's failover, an agent that is silent for a moment) is told once it lasts, and pauses right
after a take-over are expected: the leader lists the cluster then. Codes are stable: alerts, runbooks and scripts go by
them. Pure; no clock and no loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec import Struct

NEVER = float("inf")
OK, DEGRADED, BAD = "ok", "degraded", "bad"
LEVELS = {OK: 0, DEGRADED: 1, BAD: 2}

RUNBOOKS = "/ui/runbooks.html"
"""Where every coordinator serves docs/operations/runbooks.md: a link for who knows the server's address."""
NAMES_TOLD = 5

ROLLED_BACK_TOLD_S = 3600.0
"""How long a policy that was withdrawn is told of."""

LATE_S, VERY_LATE_S = 2.0, 10.0
"""Kubernetes' own goal for a pod's start is five seconds: two of them lost are felt, ten are an outage."""

SETTLING_S = 90.0
"""After a take-over: half a minute in which pauses are expected, and the minute over which they are measured."""

FAILOVER_S = 10.0
"""What another process's failover, or an agent's return, may take: a lease, and as long again on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSignals:
    """What is measured of a leader. Ages and times in seconds; 0.0 where there is nothing."""

    at: float = 0.0
    """When, in seconds of the leader's clock."""
    led_s: float = NEVER
    """For how long the leader has known the whole cluster."""
    turn_longest_s: float = 0.0
    """In the last minute."""
    turn_busy_share: float = 0.0
    events_waiting: int = 0
    """The most that one turn took in, in the last minute."""
    events_waited_s: float = 0.0
    agents: int = 0
    suspects: Sequence[str] = ()
    nodes: int = 0
    nodes_unowned: int = 0
    writes_queued: int = 0
    writes_oldest_s: float = 0.0
    plans_open: int = 0
    plans_oldest_s: float = 0.0
    unbound_shards: Sequence[str] = ()
    """Those that no binder leads."""
    shards: int = 1
    active_pods: int = 0
    standstill_s: float = 0.0
    """For how long there have been pods to try and none was tried to the end."""
    paused_by: str | None = None
    etcd_renewal_s: float = 0.0
    """What the last renewal of our lease took."""
    etcd_refuses: str = ""
    """Why etcd takes no writes."""
    etcd_fill: float = 0.0
    """The fullest member's size as a share of its quota."""
    watches_lost: Sequence[str] = ()
    """Kinds whose watch hears nothing, or did not in the last minute."""
    watch_lost_s: float = 0.0
    """The longest of them."""
    rolled_back: str = ""
    """Which policy was withdrawn in the last hour, and why."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that is wrong. ``value`` over ``threshold`` made it a finding; ``runbook``: what to do, at length."""

    code: str
    severity: str
    since: str
    value: float
    threshold: float
    unit: str
    message: str
    remedy: str
    alert: str
    runbook: str


class Health(Struct, frozen=True, kw_only=True):
    """``since``: for how long the verdict has been this one."""

    verdict: str
    since: str
    findings: list[Finding]


class HealthRule(Struct, frozen=True):
    """Above ``degraded`` it is a finding, above ``bad`` a bad one. ``alert`` names the runbook's section too."""

    code: str
    alert: str
    unit: str
    degraded: float
    bad: float
    value: Callable[[HealthSignals], float]
    message: Callable[[HealthSignals], str]
    remedy: str
    lasts_s: float = 0.0
    """Told once it has held for so long."""
    settles_s: float = 0.0
    """For so long after a take-over only a bad one is told."""


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_TOLD} more" if len(names) > NAMES_TOLD else ""
    return f"{', '.join(names[:NAMES_TOLD])}{more}"


def _suspects(seen: HealthSignals) -> str:
    return f"{len(seen.suspects)} of {seen.agents} agents do not answer in time: {_named(seen.suspects)}"


def _of_shards(seen: HealthSignals) -> str:
    return f" shard {', '.join(seen.unbound_shards)}" if seen.shards > 1 else ""


RULES: tuple[HealthRule, ...] = (
    HealthRule(
        "leader_late", "ConclaveLeaderLate", "s", LATE_S, VERY_LATE_S, lambda seen: seen.turn_longest_s,
        lambda seen: f"the leader's loop stood still for {seen.turn_longest_s:.2f} s in the last minute: pods were "
        "placed so much later",
        "give the leader a core of its own; if it comes again and again, take a dump (conclave dump) for the report",
        settles_s=SETTLING_S,
    ),
    HealthRule(
        "events_behind", "ConclaveEventsBehind", "s", LATE_S, VERY_LATE_S, lambda seen: seen.events_waited_s,
        lambda seen: f"events waited up to {seen.events_waited_s:.2f} s for the leader; {seen.events_waiting} at once",
        "look what changes so often in the cluster; give the leader more CPU", settles_s=SETTLING_S,
    ),
    HealthRule(
        "no_agents", "ConclaveNoAgents", "nodes", 0.0, 0.0, lambda seen: 0.0 if seen.agents else float(seen.nodes),
        lambda seen: f"no agent is registered: nobody decides for {seen.nodes} node(s)",
        "start agents, or look why they do not reach etcd", lasts_s=FAILOVER_S,
    ),
    HealthRule(
        "agents_suspected", "ConclaveAgentsSuspected", "agents", 0.0, NEVER, lambda seen: float(len(seen.suspects)),
        _suspects, "look at their CPU, their log and the network between; their nodes get no pods until they answer",
        lasts_s=FAILOVER_S, settles_s=SETTLING_S,
    ),
    HealthRule(
        "nodes_unowned", "ConclaveNodesUnowned", "nodes", 0.0, NEVER,
        lambda seen: float(seen.nodes_unowned) if seen.agents else 0.0,
        lambda seen: f"no agent decides for {seen.nodes_unowned} of {seen.nodes} nodes",
        "start an agent that is not bound to one node, or one on each of these nodes", lasts_s=FAILOVER_S,
        settles_s=SETTLING_S,
    ),
    HealthRule(
        "writes_queued", "ConclaveWritesQueued", "s", 10.0, 60.0, lambda seen: seen.writes_oldest_s,
        lambda seen: f"{seen.writes_queued} conditions and events are not out yet, the oldest for "
        f"{seen.writes_oldest_s:.0f} s",
        "look whether the API server throttles (429) or is slow; raise api_writers",
    ),
    HealthRule(
        "no_binder", "ConclaveNoBinder", "", 0.0, 0.0, lambda seen: float(len(seen.unbound_shards)),
        lambda seen: f"no binder leads{_of_shards(seen)}: pods are given nodes and nobody binds them",
        "start a binder (--shard), or look why none reaches etcd", lasts_s=FAILOVER_S,
    ),
    HealthRule(
        "plans_waiting", "ConclavePlansWaiting", "s", 5.0, 30.0, lambda seen: seen.plans_oldest_s,
        lambda seen: f"{seen.plans_open} plan(s) are at the binder without an answer, the oldest for "
        f"{seen.plans_oldest_s:.0f} s",
        "look at the binder's log and at the API server's latency for Bindings", settles_s=SETTLING_S,
    ),
    HealthRule(
        "not_placing", "ConclaveNotPlacing", "s", 20.0, 60.0, lambda seen: seen.standstill_s,
        lambda seen: f"{seen.active_pods} pods wait to be tried and for {seen.standstill_s:.0f} s none was",
        "look at the other findings first; without any, take a dump (conclave dump) and restart the leader",
    ),
    HealthRule(
        "scheduling_paused", "ConclaveSchedulingPaused", "", 0.0, NEVER,
        lambda seen: 0.0 if seen.paused_by is None else 1.0,
        lambda seen: f"scheduling is paused by {seen.paused_by}", "conclave resume, when it is over",
    ),
    HealthRule(
        "etcd_slow", "ConclaveEtcdSlow", "s", 1.0, 2.0, lambda seen: seen.etcd_renewal_s,
        lambda seen: f"renewing the lease in etcd took {seen.etcd_renewal_s:.2f} s",
        "look at etcd's disk and network; a lease that is not renewed in time costs the leadership",
    ),
    HealthRule(
        "etcd_full", "ConclaveEtcdFull", "", 0.0, 0.0, lambda seen: 1.0 if seen.etcd_refuses else 0.0,
        lambda seen: seen.etcd_refuses,
        "compact, defragment each member, then etcdctl alarm disarm; it goes on by itself from there",
    ),
    HealthRule(
        "etcd_short", "ConclaveEtcdSpace", "", 0.8, NEVER, lambda seen: 0.0 if seen.etcd_refuses else seen.etcd_fill,
        lambda seen: f"etcd has used {seen.etcd_fill:.0%} of its quota: history and recordings rest, placements go on",
        "compact and defragment it, or give it a larger quota, before it refuses every write",
    ),
    HealthRule(
        "watches_blind", "ConclaveWatchesBlind", "s", 0.0, 45.0, lambda seen: seen.watch_lost_s,
        lambda seen: f"nothing was heard of {_named(seen.watches_lost)} from the API server for up to "
        f"{seen.watch_lost_s:.0f} s: what changed meanwhile was not known",
        "look at what stands between (a balancer, a NAT, the network): it loses connections without ending them",
    ),
    HealthRule(
        "policy_rolled_back", "ConclavePolicyRolledBack", "", 0.0, NEVER,
        lambda seen: 1.0 if seen.rolled_back else 0.0, lambda seen: f"a policy was withdrawn: {seen.rolled_back}",
        "conclave policy show tells why; correct it before it is tried again",
    ),
)  # fmt: skip


class HealthVerdicts:
    """Remembers since when each finding holds, over one term. ``runbooks``: the page whose sections findings name."""

    def __init__(self, runbooks: str = RUNBOOKS) -> None:
        self._runbooks = runbooks
        self._since: dict[str, tuple[float, str]] = {}
        self.health = Health(verdict=OK, since="", findings=[])

    def judge(self, seen: HealthSignals, now: str) -> Health:
        """The verdict over what is measured ``now`` (RFC 3339)."""
        found = [finding for rule in RULES if (finding := self._finding(rule, seen, now)) is not None]
        found.sort(key=lambda finding: (-LEVELS[finding.severity], finding.since))
        verdict = found[0].severity if found else OK
        before = self.health
        since = before.since if before.since and before.verdict == verdict else now
        self.health = Health(verdict=verdict, since=since, findings=found)
        return self.health

    def _finding(self, rule: HealthRule, seen: HealthSignals, now: str) -> Finding | None:
        value = rule.value(seen)
        bad = value > rule.bad or (rule.code == "agents_suspected" and 0 < seen.agents <= len(seen.suspects))
        if not value > rule.degraded or (seen.led_s < rule.settles_s and not bad):
            self._since.pop(rule.code, None)
            return None
        begun, since = self._since.setdefault(rule.code, (seen.at, now))
        if seen.at - begun < rule.lasts_s:
            return None
        return Finding(
            code=rule.code,
            severity=BAD if bad else DEGRADED,
            since=since,
            value=round(value, 3),
            threshold=rule.bad if value > rule.bad else rule.degraded,
            unit=rule.unit,
            message=rule.message(seen),
            remedy=rule.remedy,
            alert=rule.alert,
            runbook=f"{self._runbooks}#{rule.alert.lower()}",
        )
