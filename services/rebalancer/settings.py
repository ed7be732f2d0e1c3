"""Settings of the rebalancer. The machinery is in ``shared.runtime.process.settings``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import msgspec

from shared.errors import ConfigError
from shared.rebalance.history import MOST, MoveHistory
from shared.rebalance.limits import Caps
from shared.rebalance.plan import GoalName
from shared.rebalance.planner import PlanRequest
from shared.rebalance.protections import EXTRA, LIFTED, Protections
from shared.rebalance.windows import parse_windows
from shared.runtime.lease.settings import LeaderSettings
from shared.runtime.process.process import SchedulerName

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
Cap = Annotated[int, msgspec.Meta(ge=0, le=100_000)]


@dataclass(frozen=True, kw_only=True)
class RebalancerSettings(LeaderSettings):
    """What a rebalancer is told beside what every service is. What it moves pods for, and whether it does, is no
    setting: ``conclave policy --for rebalance``."""

    scheduler_name: SchedulerName = "conclave"
    """Whose pods may move: their replacements go where room is reserved."""
    every_s: Annotated[float, msgspec.Meta(ge=0.2, le=86_400)] = 600.0
    """From the end of one look at the cluster to the next."""
    windows: str = ""
    """When pods may be moved, in UTC, as Mon-Fri 22:00-06:00, Sun 00:00-24:00; empty: at any time. Looked is always."""
    max_moves: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 20
    """Moves of one round."""
    max_per_node: Cap = 5
    """Away from one node in a round; 0: no cap."""
    max_per_namespace: Cap = 0
    """Of one namespace in a round; 0: no cap."""
    max_per_workload: Cap = 2
    """Of one workload in a round; 0: no cap."""
    max_per_hour: Annotated[int, msgspec.Meta(ge=0, le=MOST)] = 60
    """In an hour, with those of earlier rounds and of the command; 0: no cap. No more than are remembered."""
    at_once: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 5
    """In one batch."""
    again_after_s: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] = 3600.0
    """For so long nobody moves twice, nor does a workload go back."""
    protect: str = ""
    """Protections that hold too, separated by commas: PodsWithPVC, PodsWithoutPDB."""
    unprotect: str = ""
    """Protections that do not hold: PodsWithLocalStorage, SystemCriticalPods, PodsOfOtherOwners."""
    namespaces: str = ""
    """Only pods of these, separated by commas; empty: of all."""
    min_replicas: Cap = 2
    """Workloads with fewer pods stay."""
    min_pod_age_s: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] = 300.0
    """Younger pods stay."""
    ready_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 600.0
    """A replacement that is not Ready within this ends the round."""
    most_fruitless: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3
    """Rounds in a row that move pods, after which the goal is given up where it is no nearer than before them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, known in (("protect", EXTRA), ("unprotect", LIFTED)):
            if unknown := [one for one in listed(getattr(self, field)) if one not in known]:
                raise ValueError(f"{field}: {unknown[0]!r} is not one of {', '.join(known)}")
        spaces = listed(self.namespaces) or ((self.namespaces,) if self.namespaces else ())
        if wrong := [one for one in spaces if not NAMESPACE.fullmatch(one)]:
            raise ValueError(f"namespaces: {wrong[0]!r} names no namespace; give names, separated by commas")
        try:
            parse_windows(self.windows)
        except ConfigError as error:
            raise ValueError(str(error)) from None

    def request(self, goal: GoalName, namespaces: tuple[str, ...], history: MoveHistory) -> PlanRequest:
        """What a planner is asked for. ``namespaces``: whose pods may move, () all."""
        return PlanRequest(
            goal,
            caps=Caps(
                self.max_moves, self.max_per_node, self.max_per_namespace, self.max_per_workload, self.max_per_hour,
                self.at_once,
            ),
            protections=Protections(
                listed(self.unprotect), listed(self.protect), min_replicas=self.min_replicas,
                min_age_s=self.min_pod_age_s, namespaces=namespaces, scheduler_names=(self.scheduler_name,),
            ),
            history=history,
        )  # fmt: skip


def listed(text: str) -> tuple[str, ...]:
    """Words separated by commas."""
    return tuple(filter(None, (one.strip() for one in text.split(","))))
