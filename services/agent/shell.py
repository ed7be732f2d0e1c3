"""The agent's HTTP face: bytes of offers and views in, bytes of decisions out, and what to count about them.

Judging runs on the event loop: a batch takes about a millisecond, less than handing it to a thread and back would.
A term that is higher than any seen is believed only when etcd names it: a message alone, once believed, would lock the
true coordinator out (I4). That costs one read per new leader.
Not its job: deciding (``core.py``), authentication and limits (``shared.runtime.http.peers``).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import structlog

from shared.agent.core import AgentCore
from shared.errors import ConfigError, StoreError, WireError
from shared.model.units.unit import cause_id
from shared.runtime.http.callers import Caller
from shared.runtime.http.peers import PeerRoute
from shared.runtime.http.refusals import RequestRefused
from shared.runtime.observe.hops import Hops
from shared.runtime.observe.metrics import Metrics
from shared.wire.codec import MAX_BODY_BYTES, decode, encode
from shared.wire.messages import Decisions, Offer, PolicyFailure, ViewUpdate

log = structlog.get_logger()

COORDINATOR = frozenset({"coordinator"})

WORKLOADS_SHOWN = 32
"""Workloads whose estimated use ``/v1/stats`` shows."""


class AgentShell:
    """Routes of one agent and its figures."""

    def __init__(
        self,
        core: AgentCore,
        metrics: Metrics,
        *,
        agent_id: str,
        read_term: Callable[[], Awaitable[int]],
        hops: Hops | None = None,
    ) -> None:
        """``read_term``: the coordinator's term as etcd has it now, 0 for none; may raise ``StoreError``."""
        self._core = core
        self._id = agent_id
        self._read_term = read_term
        self._hops = hops or Hops()
        self._offer_cpu_s = 0.0
        self._offer_cpu_us = metrics.quantiles("offer_cpu_us")
        metrics.figure("agent", self.stats)
        metrics.gauge_of("agent_nodes", "Nodes this agent decides for", lambda: len(core.replica.row_of_slot))
        metrics.gauge_of("policy_fallback", "Decisions made by the heuristic instead", lambda: core.policy_fallbacks)
        metrics.counter_of(
            "policy_members_left_out_total", "Answers of a mixture's members that could not be used",
            lambda: sum(core.lanes.members_left_out().values()),
        )  # fmt: skip
        metrics.counter_of("agent_offers_total", "Offers answered", lambda: core.offers)
        metrics.counter_of("agent_answers_total", "Nodes named in answers", lambda: core.answers)
        metrics.counter_of("agent_resyncs_total", "Full views asked for", lambda: core.resyncs)
        metrics.counter_of("agent_stale_terms_total", "Messages of deposed coordinators", lambda: core.stale_terms)
        metrics.counter_of("agent_offer_cpu_seconds_total", "CPU time of answers", lambda: self._offer_cpu_s)

    def routes(self) -> tuple[PeerRoute, ...]:
        """POST routes, for coordinators only."""
        return (
            PeerRoute("/v1/offers", self.offers, roles=COORDINATOR, max_body_bytes=MAX_BODY_BYTES, max_in_flight=8),
            PeerRoute("/v1/views", self.views, roles=COORDINATOR, max_body_bytes=MAX_BODY_BYTES, max_in_flight=8),
        )

    async def offers(self, body: bytes, caller: Caller) -> bytes:  # noqa: ARG002
        """Offer to Decisions. Refused: ``WireError`` (400), 409 ``stale_term``, 503 ``not_ready``."""
        started = time.thread_time()
        term = self._core.term
        offer = decode(body, Offer)
        await self._confirm(offer.term)
        self._core.now_s = time.monotonic()
        decisions = self._core.decide(offer)
        answer = encode(decisions)
        spent = time.thread_time() - started
        self._offer_cpu_s += spent
        self._offer_cpu_us.record(spent * 1e6)
        if self._hops.on:
            self._tell(offer, decisions, spent)
        if self._core.term != term:
            log.info("coordinator_changed", term=self._core.term)
        if not decisions.revision:
            log.info("view_wanted", term=self._core.term, message_id=decisions.follows)
        return answer

    def _tell(self, offer: Offer, decisions: Decisions, spent_s: float) -> None:
        """Each unit that was judged, with how many nodes were named for it; ``spent_s``: CPU time of the offer."""
        named = Counter(answer.unit for answer in decisions.answers)
        for unit in (unit for group in offer.groups for unit in group.units):
            cause = cause_id(offer.term, unit)
            self._hops.line("unit_judged", cause, agent=self._id, nodes_named=named[unit])
            self._hops.span("decide", cause, spent_s, agent=self._id, nodes_named=named[unit])

    async def views(self, body: bytes, caller: Caller) -> bytes:  # noqa: ARG002
        """ViewUpdate to ViewAck. Refused: ``WireError`` (400), 409 ``stale_term``, 503 ``not_ready``."""
        update = decode(body, ViewUpdate)
        await self._confirm(update.term)
        return encode(self._core.update(update))

    async def _confirm(self, term: int) -> None:
        """Refuse a new term that etcd does not name: 409 ``stale_term``; 503 when etcd cannot be asked."""
        if term <= self._core.term:
            return
        try:
            leads = await self._read_term()
        except (StoreError, ConfigError) as error:  # ConfigError: the lease thread is not up yet
            log.warning("term_unconfirmed", term=term, error=error)
            raise RequestRefused(f"term {term} is new and etcd cannot be asked", code="not_ready") from error
        if term != leads:
            log.warning("term_forged", term=term, leads=leads)
            raise WireError(f"term {term} does not lead; etcd says {leads}", code="stale_term")

    def stats(self) -> dict[str, Any]:
        """Figures for ``/v1/stats``."""
        core = self._core
        return {
            "id": self._id,
            "term": core.term,
            "policy": core.policy.name,
            "policy_version": core.policy.version,
            "policy_placed_by": getattr(core.policy, "placed_by", core.policy.name),
            "policy_fallback": core.policy_fallbacks,
            "candidate": core.lanes.candidate.ref.title if core.lanes.candidate is not None else "",
            "policy_failures": _failures(core.lanes.failures()),
            "policy_members_left_out": core.lanes.members_left_out(),
            "transitions": core.experience.recorded,
            "transitions_dropped": core.experience.dropped,
            "epoch": core.replica.epoch,
            "revision": core.replica.revision,
            "nodes": len(core.replica.row_of_slot),
            "offers": core.offers,
            "answers": core.answers,
            "resyncs": core.resyncs,
            "stale_terms": core.stale_terms,
            "offer_cpu_s": self._offer_cpu_s,
            "workload_use": core.residents.estimates(WORKLOADS_SHOWN),
        }


def _failures(told: Iterable[PolicyFailure]) -> dict[str, int]:
    """By policy and what went wrong, however many lanes it decides in."""
    counted = Counter[str]()
    for one in told:
        counted[f"{one.policy} {one.failure}"] += one.count
    return dict(counted)
