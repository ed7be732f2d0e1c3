"""Counters of one term, as plain numbers: the core counts, ``admin.py`` and the metrics read."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Stats:
    """Everything since this process began to lead. Latencies are in seconds."""

    pods_seen: int = 0
    rounds: int = 0
    rounds_cut: int = 0
    """Rounds that ended at the deadline, without the silent agents."""
    units_offered: int = 0
    answers: int = 0
    """(unit, node) answers received: what ``bytes_per_decision`` divides by."""
    refusals: int = 0
    refused_nodes: int = 0
    stale_answers: int = 0
    misfits: int = 0
    """Answers whose node did not take the unit any more on assumed state."""
    all_rejected: int = 0
    resyncs: int = 0
    silences: int = 0
    plans: int = 0
    plans_resent: int = 0
    placements: int = 0
    bound: int = 0
    conflicts: int = 0
    """Candidates that the binder refused, also where a next-best one was taken."""
    given_back: int = 0
    """Placements none of whose candidates fitted at the binder."""
    losses: int = 0
    """Units that lost a race and were tried again."""
    elsewhere: int = 0
    gone: int = 0
    refused: int = 0
    unresolved: int = 0
    parked: int = 0
    woken: int = 0
    invalid_pods: int = 0
    conditions: int = 0
    events: int = 0
    events_left_out: int = 0
    """Events ``Scheduled`` that were not sent, since there were too many."""
    partitions: int = 0
    fetches: int = 0
    preemptions: int = 0
    """Nominations made for pods that need room."""
    victims: int = 0
    """Pods that the API server has agreed to evict."""
    inherited_intents: int = 0
    latencies_s: list[float] = field(default_factory=list)
    """Of pods bound since they were last taken away: watch event seen to Binding sent, an upper bound."""
    rounds_s: list[float] = field(default_factory=list)
    """Of rounds ended since then: offers handed over to plan handed over."""

    def take_samples(self) -> tuple[list[float], list[float]]:
        """Hand over (latencies, rounds), for the quantiles kept outside the core."""
        taken = self.latencies_s, self.rounds_s
        self.latencies_s, self.rounds_s = [], []
        return taken

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return {name: getattr(self, name) for name in self.__slots__ if not name.endswith("_s")}
