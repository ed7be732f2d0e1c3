"""Settings of a coordinator. The machinery is in ``shared.runtime.process.settings``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from services.coordinator.core.state import LEAST_REQUEST_TIMEOUT_S, CoreSettings
from services.coordinator.usage.prometheus import QUERIES, UsageQueries
from shared.hostport import server_of, split_host_port
from shared.model.gpu_shares import DEFAULT_TEXT as GPU_SHARES
from shared.model.load import DEFAULT_TEXT as LOAD_PARTS
from shared.model.qos import LENT_DOMAIN
from shared.policy.domain import PLACEMENT
from shared.policy.registry import make_policy
from shared.policy.rollout.judging import RolloutSettings
from shared.runtime.lease.settings import LeaderSettings
from shared.runtime.process.plugins import plugins_of, profile_of
from shared.runtime.process.process import SchedulerName, Standby, check_prometheus
from shared.runtime.process.profiles_file import profiles_of
from shared.runtime.process.runtime_settings import RuntimeTable
from shared.scheduling.lending.rule import LENDING_DEFAULTS, LendingRule
from shared.scheduling.preemption.delays import parse_delays
from shared.scheduling.profiles import Profiles


@dataclass(frozen=True, kw_only=True)
class CoordinatorSettings(LeaderSettings):
    """What a coordinator is told beside what every service is."""

    cluster_name: Annotated[
        str, msgspec.Meta(max_length=64, pattern=r"^[^\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]*$")
    ] = ""
    """What people call the cluster, in headers and titles; empty: the kubeconfig's cluster, else kube-system's uid."""
    scheduler_name: SchedulerName = "conclave"
    """Pods with this ``spec.schedulerName`` are ours."""
    policy: str = "kube-default"
    """Which policy the agents decide by, recorded on every pod that is bound."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    """Breaks ties between agents: same seed and events, same placements."""
    cluster_lease_s: Annotated[int, msgspec.Meta(ge=0, le=3600)] = 30
    """Duration of the Lease in the cluster that keeps a second mesh from the same scheduler name; a mesh that is gone
    is succeeded by another one this much later. 0: none is asked for."""
    standby: Standby = "warm"
    """What this process keeps while another one leads. warm: what it would list, so that it takes over without listing;
    1.0 to 1.5 KB a pod. cold: nothing; a takeover lists everything, which takes seconds where there are 50,000 pods."""
    batch_units: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 64
    """Units in one scheduling cycle."""
    dispatch: Literal["auto", "broadcast", "partition", "least-loaded", "best-nodes"] = "auto"
    """Whom a cycle asks about plain pods of a class: all agents, of many the most promising (``broadcast``); one, in
    turn (``partition``), that whose nodes are used least (``least-loaded``) or that which owns the best nodes by the
    policy (``best-nodes``); ``auto``: the latter while more pods wait than one offer takes or pods of several classes
    come together, else all."""
    open_cycles: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    """Cycles that are open at a time. Above 1, where one agent decides alone about a class, another agent is given the
    next units meanwhile. See docs/adr/0045."""
    asked_agents: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 16
    """Of more than twice so many agents only those are asked about a pod that own the most promising nodes: so many,
    and at most as many of whom too little is known. All are where none of them takes it. 0: all are always. See
    docs/adr/0077."""
    embedded_agent: bool = False
    """While no agent is registered the leader decides for all nodes itself, in its own process: for small clusters that
    need no agents, or to go on when all are gone. See docs/adr/0027."""
    plans_in_flight: Annotated[int, msgspec.Meta(ge=1, le=64)] = 3
    """Plans at the binder at a time; more cycles wait, unless fewer than 12 units are there in all."""
    offer_deadline_ms: Annotated[int, msgspec.Meta(ge=10, le=10_000)] = 300
    """A cycle goes on without agents that are silent for so long."""
    preemption_pdb: Literal["best-effort", "strict"] = "best-effort"
    """Whether preemption may violate a disruption budget when no other victims would do, as kube-scheduler does."""
    preemption_delay: str = ""
    """How long pods that find no room wait before anybody is evicted for them, so that an autoscaler may add a node
    first: PRIORITY=SECONDS, comma-separated, each for that priority and above. Empty: nobody waits. See
    docs/operations/autoscalers.md."""
    hold_nodes: Literal["beside-others", "always"] = "beside-others"
    """When nodes where room is made or kept bear a taint and what keeps autoscalers from removing them: while another
    scheduler is at work, or always, for clusters whose nodes come and go. See docs/operations/autoscalers.md."""
    offline_eviction: Literal["off", "on"] = "off"
    """Whether offline pods are evicted from nodes where less is lent than they hold. See docs/offline.md."""
    offline_margin: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.05
    """So much of what offline pods hold of a node may be missing before anybody leaves for it, as a share."""
    offline_grace_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0
    """For so long a node lends less than offline pods hold before anybody leaves for it."""
    offline_min_runtime_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """For so long after its start an offline pod does not give way, but to its queue; its annotation may say otherwise.
    """
    keep_room: Literal["off", "on"] = "off"
    """Whether a Reservation is made for what a pod leaves that bears conclave.io/keep-room. Whoever may annotate pods
    has room kept by it, without the right to make Reservations."""
    offline_preemption: Literal["off", "on"] = "off"
    """Whether online pods preempt offline ones of the same priority, and offline pods no online ones whatever their
    priority; what queues take back is not judged by it. See docs/offline.md."""
    gang_timeout_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 300.0
    """How long nodes are kept for a gang that does not come about, and how long a broken one is waited for before its
    members are evicted where it says so; a pod group may set its own."""
    gang_patience_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0
    """A gang that has found no room for so long has nodes kept for it, one gang at a time, for as long again, and while
    pods end there for longer, at most its timeout: they are not replaced. 0: no gang has."""
    api_writers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 48
    """Conditions of pending pods in flight to the API server; fewer while it says that it has too much to do."""
    notice_repeat_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0
    """A pending pod's message that differs in its counts alone is not written again before so long; a new reason is."""

    admin_listen: str = ""
    """HOST:PORT of the admin API and the dashboard; port 0 takes a free one. Empty: none. Needs ``admin_token_file``
    or the TLS files."""
    admin_token_file: Path | None = None
    """File with the admin API's tokens, one ``TOKEN ROLE [NAME]`` a line; roles are viewer, operator and admin."""
    runbooks_url: str = ""
    """Where people find the runbooks, for the links of findings: a page whose headings are the alerts' names. Empty:
    the dashboard's own page of them, ``/ui/runbooks.html``."""

    metrics_every_s: Annotated[float, msgspec.Meta(ge=0.01, le=3600)] = 15.0
    """How often the metrics API is asked what nodes use, while a policy wants to know; where nodes lend, pods too."""
    prometheus: str = ""
    """URL of a Prometheus that scrapes the nodes' exporters, asked as often, about nodes. Agents on
    their nodes need none; with agents of many nodes it tells disk and network. Empty: none."""
    prometheus_token_file: Path | None = None
    """File with a bearer token for it, read before each query."""
    prometheus_ca: Path | None = None
    """CA that signs its certificate (PEM), where that is none of the system's; read again when it changes."""
    prometheus_node_label: str = "node"
    """The label that names the node in its answers; of HOST:PORT the host."""
    prometheus_cpu: str = QUERIES["cpu"]
    """Query: cores in use by node. Empty: not asked; likewise below."""
    prometheus_memory: str = QUERIES["memory"]
    """Query: bytes in use by node."""
    prometheus_disk: str = QUERIES["disk"]
    """Query: share, 0 to 1, of what a node's disks can do."""
    prometheus_network: str = QUERIES["network"]
    """Query: share, 0 to 1, of what a node's links can do."""
    target_egress: str = ""
    """NAMESPACE/NAME of the NetworkPolicy whose ways out follow the addresses of LatencyTargets, for sensors; the
    component ``sensors`` brings it and the right to change it. Empty: none is written."""
    lend: Literal["off", "on"] = "off"
    """Whether nodes lend to offline pods what online pods request and do not use; the component ``lending`` brings the
    right to write it. off: what was lent is taken away. See docs/colocation.md."""
    lend_domain: Annotated[str, msgspec.Meta(max_length=240, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")] = LENT_DOMAIN
    """What comes before /batch-cpu and /batch-memory in the names of what is lent."""
    lend_cpu_percent: Annotated[float, msgspec.Meta(gt=0, le=100)] = LENDING_DEFAULTS.cpu_percent
    """So much of a node's CPU is used at most, by all pods together."""
    lend_memory_percent: Annotated[float, msgspec.Meta(gt=0, le=100)] = LENDING_DEFAULTS.memory_percent
    """The same of its memory."""
    lend_margin_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = LENDING_DEFAULTS.margin_percent
    """So much of what could be lent is kept back."""
    lend_percentile: Annotated[float, msgspec.Meta(ge=1, le=100)] = LENDING_DEFAULTS.percentile
    """Which percentile counts of what was taken within ``lend_window_s``, where it is more than what is taken now."""
    lend_window_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = LENDING_DEFAULTS.window_s
    """How far back it is looked; nothing more is lent before metrics have come without a gap for so long."""
    lend_degrade_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = LENDING_DEFAULTS.degrade_s
    """A node of which no metric came for so long lends nothing."""
    lend_change_percent: Annotated[float, msgspec.Meta(ge=0, le=100)] = LENDING_DEFAULTS.change_percent
    """A node is written at once where what it may lend differs by more than so much from what it says."""
    lend_rewrite_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = LENDING_DEFAULTS.rewrite_s
    """Where it differs by less, so long after it was written."""
    workload_speed: Annotated[float, msgspec.Meta(gt=0, le=10_000)] = 1.0
    """Pods live so many seconds per second: above 1 only against a twin that plays faster than life."""
    rollout_window_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 30.0
    """Length of a window in which a candidate policy is compared with the active one; see docs/policies/rollout.md."""
    rollout_min_samples: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 20
    """Decisions that both were asked about before a window may end."""
    rollout_good_windows: Annotated[int, msgspec.Meta(ge=1, le=1000)] = PLACEMENT.good_windows
    """Windows not worse than the active policy, for each step from shadow to 1, 10, 50, 100 % and to active."""
    rollout_promotion: Literal["manual", "auto"] = "manual"
    """Who takes a candidate to its next step: an operator, or good windows. ``activate`` may say otherwise of one."""
    rollout_goal: Literal[
        "card", "neutral", "balance", "gpus", "joules", "latency", "nodes", "packing", "room"
    ] = "card"  # fmt: skip
    """By which goal a candidate is compared with the active policy; ``card``: by what it is for. ``activate`` may say
    otherwise of one."""
    rehearse_every_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0
    """How often it is looked whether the demand has changed, while a policy is at work in whose place another may
    place; 0: every policy places by itself. See docs/policies/frag.md."""
    validate: bool = False
    """Check every invariant of the core after each batch of events, and end the term where one is broken, with the
    stories of the pods it names. For tests and for hunting a bug: it costs as much as all pods, each time."""
    gpu_shares: str = GPU_SHARES
    """What policies see as a GPU, comma-separated: RESOURCE=THOUSANDTHS of a device plugin's unit, or
    DRIVER[:CAPACITY]=THOUSANDTHS of a device that claims are given; the same for agents and coordinators. See
    docs/gpus.md."""
    power_curves: Path | None = None
    """A file that says what your nodes and GPUs draw; empty: published figures. The same for agents and coordinators.
    See docs/policies/power.md."""
    load_parts: str = LOAD_PARTS
    """Of what a node's load is the mean, which ee, lb, el and the goal balance go by: cpu, memory, disk, network, pods,
    comma-separated; the same for agents and coordinators. See docs/policies/deepsets.md."""
    unknown_zones: Literal["taken", "free"] = "taken"
    """How that counts of a node's zones which its object does not say: what init containers hold, which zones share
    memory, whom a late object knows; the same for coordinators and binders. See docs/numa.md."""
    profiles: Path | None = None
    """A file of profiles: schedulerNames that are served beside ``scheduler_name``, each with its filters, scores,
    arguments and policy; empty: none. The same for agents, coordinators and binders. See docs/profiles.md."""
    plugins: tuple[str, ...] = ()
    """Filters, scores and policies of installed packages that are used, by the names of their entry points,
    comma-separated; the same for agents, coordinators and binders. See docs/plugins.md."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.admin_listen:
            split_host_port(self.admin_listen, "admin_listen")
            if self.admin_token_file is None and self.tls_cert is None:
                raise ValueError("admin_listen: needs credentials; give admin_token_file, or the tls_* files")
        elif self.admin_token_file is not None:
            raise ValueError("admin_token_file: is for the admin API; give admin_listen too")
        if self.target_egress and not re.fullmatch(r"[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9.-]*", self.target_egress):
            raise ValueError(f"target_egress: {self.target_egress!r} is not NAMESPACE/NAME of a NetworkPolicy")
        check_prometheus(self.prometheus, self.prometheus_token_file, self.prometheus_ca)
        if self.runbooks_url:
            check_runbooks_url(self.runbooks_url)
        parse_delays(self.preemption_delay)
        profile_of(self.plugins, self.gpu_shares, self.power_curves, self.load_parts)
        make_policy(self.policy)
        self.served()

    @property
    def lending(self) -> LendingRule:
        """How much nodes lend."""
        return LendingRule(
            cpu_percent=self.lend_cpu_percent,
            memory_percent=self.lend_memory_percent,
            margin_percent=self.lend_margin_percent,
            percentile=self.lend_percentile,
            window_s=self.lend_window_s,
            degrade_s=self.lend_degrade_s,
            change_percent=self.lend_change_percent,
            rewrite_s=self.lend_rewrite_s,
        )

    @property
    def prometheus_asked(self) -> UsageQueries:
        """What Prometheus is asked."""
        queries = {part: getattr(self, f"prometheus_{part}") for part in QUERIES}
        return UsageQueries(queries, self.prometheus_node_label)

    def served(self) -> Profiles:
        """The profiles beside the mesh's own."""
        scores = plugins_of(self.plugins).profile.scores
        return profiles_of(self.profiles, tuple(one.name for one in scores), make_policy)

    def names(self) -> frozenset[str]:
        """Every schedulerName that is served."""
        return self.served().names | {self.scheduler_name}

    def core(self) -> CoreSettings:
        """What the core is told."""
        return CoreSettings(
            profiles=self.served(),
            profile=profile_of(self.plugins, self.gpu_shares, self.power_curves, self.load_parts),
            preemption_strict=self.preemption_pdb == "strict",
            preemption_delays=parse_delays(self.preemption_delay),
            hold_always=self.hold_nodes == "always",
            batch_units=self.batch_units,
            dispatch=self.dispatch,
            open_cycles=self.open_cycles,
            asked_agents=self.asked_agents,
            plans_in_flight=self.plans_in_flight,
            offline_eviction=self.offline_eviction == "on",
            offline_margin=self.offline_margin,
            offline_grace_s=self.offline_grace_s,
            offline_min_runtime_s=self.offline_min_runtime_s,
            keep_room=self.keep_room == "on",
            offline_preemption=self.offline_preemption == "on",
            gang_timeout_s=self.gang_timeout_s,
            gang_patience_s=self.gang_patience_s,
            notices_in_flight=self.api_writers,
            notice_repeat_s=self.notice_repeat_s,
            offer_deadline_s=self.offer_deadline_ms / 1000,
            # an answer that the cycle still waits for must not be cut off on its way
            request_timeout_s=max(LEAST_REQUEST_TIMEOUT_S, 2 * self.offer_deadline_ms / 1000),
            speed=self.workload_speed,
            trust_zones=self.unknown_zones == "free",
            validate=self.validate,
            rollout=RolloutSettings(
                window_s=self.rollout_window_s,
                min_samples=self.rollout_min_samples,
                good_windows=self.rollout_good_windows,
                promotion=self.rollout_promotion,
                goal=self.rollout_goal,
            ),
        )


def check_runbooks_url(url: str) -> None:
    """``ValueError`` naming the setting: no address that a reader's browser could follow, or that takes no section."""
    try:
        scheme = server_of(url).scheme
    except ValueError:
        scheme = ""
    if scheme not in ("http", "https") or "#" in url or not url.isprintable() or " " in url:
        raise ValueError(
            f"runbooks_url: {url!r} is no address of a page; give one without #, such as https://wiki/conclave/runbooks"
        )


RUNTIME_SETTINGS = RuntimeTable(
    CoordinatorSettings,
    (
        "batch_units",
        "dispatch",
        "open_cycles",
        "asked_agents",
        "plans_in_flight",
        "offer_deadline_ms",
        "preemption_pdb",
        "hold_nodes",
        "offline_eviction",
        "offline_margin",
        "offline_grace_s",
        "offline_min_runtime_s",
        "gang_timeout_s",
        "gang_patience_s",
        "api_writers",
        "notice_repeat_s",
        "metrics_every_s",
        "lend",
        "lend_cpu_percent",
        "lend_memory_percent",
        "lend_margin_percent",
        "lend_percentile",
        "lend_window_s",
        "lend_degrade_s",
        "lend_change_percent",
        "lend_rewrite_s",
        "rollout_window_s",
        "rollout_min_samples",
        "rollout_good_windows",
        "rollout_promotion",
        "rollout_goal",
        "rehearse_every_s",
        "log_level",
    ),
)
"""What may change while coordinators run, for all of them at once."""
