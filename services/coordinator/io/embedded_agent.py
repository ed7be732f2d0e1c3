"""The leader's own agent: it decides for all nodes while no agent is registered, in the leader's process.

    registered: none --> the leader's own: views and offers are calls
    registered: some --> they share the nodes; the leader's own has none

For a small cluster that is one process less and no message for a decision; for a large one, what goes on when every
agent is gone. To the core it is an agent like any other: it is told its view, asked by offers, refused by epoch, dealt
with by ``registry.py``. It lives as long as the term, so it knows no other coordinator.

Not its job: deciding (``shared/agent/core.py``, as in an agent's own process).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from services.coordinator.settings import CoordinatorSettings
from shared.agent.core import AgentCore
from shared.policy.registry import make_policy, ref_of
from shared.runtime.process.plugins import profile_of, profile_titles, titles_of
from shared.runtime.process.process import identity
from shared.version import CONCLAVE_VERSION
from shared.wire.messages import VERSION, Decisions, Offer, ViewAck, ViewUpdate
from shared.wire.records import AgentRecord

URL = "embedded:"
"""Where the leader's own agent is to be had: nowhere else."""


class EmbeddedAgent:
    """One term's. Judging counts as CPU time of this thread, as it does at an agent."""

    def __init__(self, settings: CoordinatorSettings, *, term: int, clock: Callable[[], float]) -> None:
        """``clock``: seconds, for what is recorded of decisions."""
        name = identity(settings)
        self.core = AgentCore(
            make_policy(settings.policy),
            Random(f"{settings.seed}:{name}"),
            ref=ref_of(settings.policy),
            clock=time.thread_time,
            speed=settings.workload_speed,
            profile=profile_of(settings.plugins, settings.gpu_shares, settings.power_curves, settings.load_parts),
        )
        for policy in settings.served().policies():
            self.core.lanes.own(policy)
        self.record = AgentRecord(
            id=name, url=URL, incarnation=str(term), protocol=VERSION, version=CONCLAVE_VERSION,
            plugins=titles_of(settings.plugins, settings.power_curves, settings.load_parts)
            + profile_titles(settings.served()),
        )  # fmt: skip
        self._clock = clock

    def decide(self, offer: Offer) -> Decisions:
        """As ``POST /v1/offers`` of an agent. Refused with ``WireError``."""
        self.core.now_s = self._clock()
        return self.core.decide(offer)

    def update(self, update: ViewUpdate) -> ViewAck:
        """As ``POST /v1/views`` of an agent. Refused with ``WireError``."""
        return self.core.update(update)
