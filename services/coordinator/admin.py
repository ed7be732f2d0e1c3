"""What operators may ask a coordinator: who leads, who decides for what, what waits.

Read-only here; ``/v1/stats`` and ``/metrics`` come with ``shared.runtime.http``. It shows no pod's spec and no label.
"""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from services.coordinator.core import Core
from services.coordinator.peers import Peers
from shared.election.record import decode_record
from shared.runtime.http import Authenticator, guarded
from shared.runtime.leadership import Leadership
from shared.runtime.metrics import Metrics


class Admin:
    """Figures of this process; ``core`` and ``peers`` are there while it leads."""

    def __init__(self, service_id: str) -> None:
        self.service_id = service_id
        self.leadership: Leadership | None = None
        self.core: Core | None = None
        self.peers: Peers | None = None

    def routes(self, authenticator: Authenticator) -> list[web.RouteDef]:
        """``GET /v1/status``."""

        async def status(_: web.Request) -> web.Response:
            return web.Response(body=msgspec.json.encode(self.status()), content_type="application/json")

        return [web.get("/v1/status", guarded(authenticator, status))]

    def register(self, metrics: Metrics) -> None:
        """Show the figures at ``/v1/stats`` and the gauges at ``/metrics``."""
        metrics.figure("coordinator", self.stats)
        metrics.gauge_of("leader", "1 while this process leads", lambda: float(self._term() > 0))
        metrics.gauge_of("agents", "Agents registered", lambda: float(len(self.core.roster.views) if self.core else 0))
        metrics.gauge_of("nodes", "Nodes known", lambda: float(self._nodes()))
        for place in ("active", "backoff", "unschedulable", "in_flight"):
            metrics.gauge_of(
                f"pending_pods_{place}",
                f"Pending pods that are {place}",
                lambda place=place: float(self._queue().get(place, 0)),  # type: ignore[misc]  # bound per gauge
            )

    def status(self) -> dict[str, Any]:
        """Who leads, since which term; agents with the size of their partition; the queue."""
        leader = self.leadership.leader if self.leadership is not None else None
        record = decode_record(leader.value) if leader is not None else None
        answer: dict[str, Any] = {"id": self.service_id, "leading": self._term() > 0, "term": self._term()}
        if leader is not None and record is not None:
            answer["leader"] = {"id": record.identity, "url": record.url, "term": leader.term}
        core = self.core
        if core is not None:
            ownership = core.roster.ownership
            answer |= {
                "synced": core.state.started,
                "missing": core.takeover.missing,
                "partition_epoch": ownership.epoch,
                "nodes": self._nodes(),
                "nodes_unowned": len(ownership.unowned),
                "agents": [
                    {
                        "id": agent,
                        "url": view.record.url,
                        "node": view.record.node,
                        "nodes": ownership.sizes.get(agent, 0),
                        "revision": view.revision,
                        "suspect": view.suspect,
                    }
                    for agent, view in sorted(core.roster.views.items())
                ],
                "binder": {"url": core.ledger.binder.url, "term": core.ledger.binder.term},
                "queue": self._queue(),
                "plans_open": len(core.ledger.plans),
                "placements_open": len(core.ledger.placed),
                "intents_held": len(core.takeover.held),
            }
        return answer

    def stats(self) -> dict[str, Any]:
        """Counters of the term, bytes per hop, and what ``bytes_per_decision`` is made of."""
        figures: dict[str, Any] = {"id": self.service_id, "leading": self._term() > 0, "term": self._term()}
        if self.core is not None:
            figures |= self.core.state.stats.as_dict()
            figures["queue"] = self._queue()
        if self.peers is not None:
            figures |= self.peers.figures()
        return figures

    def _term(self) -> int:
        return self.leadership.term if self.leadership is not None else 0

    def _nodes(self) -> int:
        return len(self.core.state.cache.table.row_of) if self.core is not None else 0

    def _queue(self) -> dict[str, int]:
        if self.core is None:
            return {}
        return {place.value: count for place, count in self.core.state.queue.count().items()}
