"""Settings of an agent. The machinery is in ``shared.runtime.process.settings``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from shared.runtime.process.plugins import plugins_of
from shared.runtime.process.process import ProcessSettings


@dataclass(frozen=True, kw_only=True)
class AgentSettings(ProcessSettings):
    """What an agent is told beside what every service is."""

    policy: str = "kube-default"
    """Which policy ranks the nodes until etcd names one; an unknown name is refused at start with those there are."""
    policy_deadline_ms: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 50
    """CPU time of one answer of a policy; one that is late 3 times in a row, or takes 3 times as long, rests, and the
    heuristic decides meanwhile."""
    reward_delay_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 15.0
    """From a decision to the reading of its reward for the learner: what a pod needs to show in its node's use."""
    workload_speed: Annotated[float, msgspec.Meta(gt=0, le=10_000)] = 1.0
    """Pods live so many seconds per second: above 1 only against a twin that plays faster than life."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    """Breaks ties, together with the id: same seed, same id, same offers, same decisions."""
    node: str = ""
    """The one node this agent serves (a DaemonSet's, from ``spec.nodeName``); empty: a share of all nodes."""
    plugins: tuple[str, ...] = ()
    """Filters, scores and policies of installed packages that are used, by the names of their entry points,
    comma-separated; the same for agents, coordinators and binders. See docs/plugins.md."""

    def __post_init__(self) -> None:
        super().__post_init__()
        plugins_of(self.plugins)
