"""Counters of one term, as plain numbers: the core counts, ``peer_routes.py`` and the metrics read."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Stats:
    """Everything since this process began to lead. Latencies are in seconds."""

    pods_seen: int = 0
    """Pending pods of ours that were seen for the first time."""
    rounds: int = 0
    """Rounds begun: offers to the agents about up to batch_units units."""
    rounds_cut: int = 0
    """Rounds that ended at the deadline, without the silent agents."""
    units_offered: int = 0
    """Units put to agents; one that comes back and is offered again counts again."""
    answers: int = 0
    """(unit, node) answers received: what ``bytes_per_decision`` divides by."""
    refusals: int = 0
    """Answers by which an agent has no node for a class."""
    refused_nodes: int = 0
    """Nodes that such answers stand for."""
    stale_answers: int = 0
    """Answers taken although their node had changed since they were given."""
    misfits: int = 0
    """Answers whose node did not take the unit any more on assumed state."""
    all_rejected: int = 0
    """Units placed on a node that the policy advised against, since none was accepted."""
    resyncs: int = 0
    """Views sent again from the beginning."""
    silences: int = 0
    """Times an agent did not answer and was suspected."""
    plans: int = 0
    """Plans made, those of evictions alone included."""
    plans_resent: int = 0
    """Plans sent again, since the binder had changed or had not answered."""
    placements: int = 0
    """Placements in plans."""
    bound: int = 0
    """Placements that the binder says are bound."""
    conflicts: int = 0
    """Candidates that the binder refused, also where a next-best one was taken."""
    given_back: int = 0
    """Placements none of whose candidates fitted at the binder."""
    losses: int = 0
    """Units that lost a race and were tried again."""
    elsewhere: int = 0
    """Placements whose pod somebody else had bound."""
    gone: int = 0
    """Placements whose pod was deleted or recreated."""
    refused: int = 0
    """Placements whose Binding the API server refused for good."""
    unresolved: int = 0
    """Placements still on their way when their plan was answered."""
    parked: int = 0
    """Units that no node took and that wait for an event that may help."""
    woken: int = 0
    """Parked units that an event woke."""
    invalid_pods: int = 0
    """Pods whose spec cannot be read, or asks for what is not supported."""
    conditions: int = 0
    """Patches of PodScheduled conditions."""
    conditions_failed: int = 0
    """Such patches that did not get through, and are made again."""
    events: int = 0
    """Kubernetes events about pods; what became of them: ``conclave_events_written``."""
    partitions: int = 0
    """Partitions published."""
    fetches: int = 0
    """Pods looked up by a GET, since the watch had not shown what became of them."""
    preemption_searches: int = 0
    """Searches for pods whose leaving would make room for a lone pod."""
    preemptions: int = 0
    """Nominations made for pods that need room."""
    victims: int = 0
    """Pods that the API server has agreed to evict."""
    gangs_placed: int = 0
    """Pod groups of which at least the minimum was placed."""
    gangs_refused: int = 0
    """Times a pod group had no room for its minimum, and none of it was placed."""
    gangs_partial: int = 0
    """Gangs of which a plan left some members bound, fewer than their minimum: 0 unless Bindings are refused."""
    group_preemption_searches: int = 0
    """Searches, over the whole cluster, for pods whose leaving would make room for a pod group."""
    reclaimed: int = 0
    """Pods that were asked to leave so that a queue has what it is guaranteed, or keeps to a lowered limit."""
    asked_to_give_way: int = 0
    """Offline pods that were asked to leave since less was lent on a node than they held."""
    gave_way: int = 0
    """Those of them that the API server has agreed to evict."""
    inherited_intents: int = 0
    """Intents of an earlier term found at the takeover."""
    latencies_s: list[float] = field(default_factory=list)
    """Of pods bound since they were last taken away: watch event seen to Binding sent, an upper bound."""
    rounds_s: list[float] = field(default_factory=list)
    """Of cycles ended since then: offers handed over to plan handed over."""
    attempts_s: list[tuple[str, float, str]] = field(default_factory=list)
    """Of attempts ended since then: result (scheduled, unschedulable, error), from taking the pod off the queue, and
    the pod's schedulerName."""
    scheduled_s: list[tuple[int, float]] = field(default_factory=list)
    """Of pods bound since then: which attempt it was, from 1, and from first seeing the pod to its Binding,
    without the time for which it was gated."""
    victims_s: list[int] = field(default_factory=list)
    """Of nominations made since then: how many pods are to leave for a lone pod."""
    gang_attempts_s: list[tuple[str, float]] = field(default_factory=list)
    """Of attempts at pod groups ended since then: result (scheduled, unschedulable), and from taking them off the
    queue."""
    gang_spans_s: list[float] = field(default_factory=list)
    """Of gangs bound since then: between the first and the last Binding."""
    group_searches_s: list[float] = field(default_factory=list)
    """Of searches for pod groups ended since then: how long each took, in whole turns."""
    group_victims_s: list[int] = field(default_factory=list)
    """Of nominations made for pod groups since then: how many pods are to leave."""

    def take_samples(self) -> tuple[list[float], list[float]]:
        """Hand over (latencies, rounds), for the quantiles kept outside the core."""
        taken = self.latencies_s, self.rounds_s
        self.latencies_s, self.rounds_s = [], []
        return taken

    def take_attempts(self) -> tuple[list[tuple[str, float, str]], list[tuple[int, float]], list[int]]:
        """Hand over (attempts, scheduled, victims), for the histograms kept outside the core."""
        taken = self.attempts_s, self.scheduled_s, self.victims_s
        self.attempts_s, self.scheduled_s, self.victims_s = [], [], []
        return taken

    def take_gangs(self) -> tuple[list[tuple[str, float]], list[float]]:
        """Hand over (attempts, spans) of pod groups, for the histograms kept outside the core."""
        taken = self.gang_attempts_s, self.gang_spans_s
        self.gang_attempts_s, self.gang_spans_s = [], []
        return taken

    def take_group_preemptions(self) -> tuple[list[float], list[int]]:
        """Hand over (searches, victims) of pod groups, for the histograms kept outside the core."""
        taken = self.group_searches_s, self.group_victims_s
        self.group_searches_s, self.group_victims_s = [], []
        return taken

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return {name: getattr(self, name) for name in self.__slots__ if not name.endswith("_s")}
