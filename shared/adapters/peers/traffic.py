"""Requests and bytes per route as plain integers: what the wire costs, counted without cost.

The peer client and the server side both count here; ``shared.runtime.observe.metrics`` reads the figures when it is
scraped. Bodies only (headers and TLS are the transport's). It does not know about any metrics library.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_OUTCOMES = 64
"""Codes counted apart per route: ours are some twenty, a peer's are its own text, and each would be a time series."""
OTHER = "other"


@dataclass(slots=True)
class RouteTraffic:
    """What went over one route. Byte counts are of bodies as they are on the wire."""

    requests: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    """Requests by ``ok`` or by stable error code; beyond ``MOST_OUTCOMES`` of them by ``other``."""

    def count(self, *, sent: int, received: int, outcome: str) -> None:
        """Add one finished request."""
        self.requests += 1
        self.bytes_sent += sent
        self.bytes_received += received
        if outcome not in self.outcomes and len(self.outcomes) >= MOST_OUTCOMES:
            outcome = OTHER
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


class Traffic:
    """Traffic by route. Routes are those of the code, never text from a peer, so the dict stays small."""

    def __init__(self) -> None:
        self.routes: dict[str, RouteTraffic] = {}

    def route(self, name: str) -> RouteTraffic:
        """The counters of ``name``, made at first use."""
        counters = self.routes.get(name)
        if counters is None:
            counters = self.routes[name] = RouteTraffic()
        return counters

    def as_dict(self) -> dict[str, dict[str, object]]:
        """Everything as JSON-able figures, for ``/v1/stats``."""
        return {
            name: {
                "requests": counters.requests,
                "bytes_sent": counters.bytes_sent,
                "bytes_received": counters.bytes_received,
                "outcomes": dict(counters.outcomes),
            }
            for name, counters in self.routes.items()
        }
