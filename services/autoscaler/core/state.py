"""What the parts of the core share: settings, figures, objects and the cluster, in one term. Pure data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from services.autoscaler.core.cluster import ScaledCluster
from services.autoscaler.core.watched import WatchedScaler
from shared.autoscaling.observation import Policy

PolicyMaker = Callable[[str, Mapping[str, object]], Policy]
"""A policy by name and settings; ``ConfigError`` says in one line why there is none."""


@dataclass(frozen=True, kw_only=True)
class ScalerCoreSettings:
    """What the core is told."""

    decide_every_s: float = 10.0
    most_rounds: int = 16
    """Objects whose round goes on at once."""
    record_every_s: float = 300.0
    """A decision like the one before is recorded so often all the same."""
    history: int = 64
    """Decisions kept per object, with their inputs."""
    tell_every_s: float = 5.0
    """A status is written at most so often."""


@dataclass(slots=True)
class ScalerStats:
    """What was counted in this term."""

    rounds: int = 0
    decisions: int = 0
    incomplete_rounds: int = 0
    writes: int = 0
    conflicts: int = 0
    writes_refused: int = 0
    writes_unknown: int = 0
    commits_refused: int = 0
    commits_unknown: int = 0
    policy_failures: int = 0
    drifting_decisions: int = 0
    bad_readings: int = 0
    foreign_writes: int = 0
    broken_rules: int = 0
    events: int = 0
    events_withheld: int = 0
    """Kubernetes events that were too many at once."""
    safeguards: dict[str, int] = field(default_factory=dict)
    """How often each safeguard changed a number."""


@dataclass(slots=True)
class ScalerState:
    """One term. ``leads_since``: monotonic seconds; ``stopwatch``: the thread's own time, which a policy takes."""

    term: int
    settings: ScalerCoreSettings
    leads_since: float
    stopwatch: Callable[[], float]
    cluster: ScaledCluster = field(default_factory=ScaledCluster)
    objects: dict[str, WatchedScaler] = field(default_factory=dict)
    claims: dict[str, set[str]] = field(default_factory=dict)
    """By what is scaled, the objects whose mode lets them write it."""
    stats: ScalerStats = field(default_factory=ScalerStats)
    to_tell: dict[str, None] = field(default_factory=dict)
    """Objects whose status may differ from what the API server has."""
    rounds: int = 0
    """Numbers of rounds, over all objects: an answer to an old one is never taken for a new one's."""
