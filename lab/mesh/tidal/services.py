"""Online services over a day: how many replicas each has, what they use, and who is served badly.

A replica shares its service's demand with the others. It never uses more than its limit. A
*scaled* service follows the HPA's rule (target, tolerance, at most doubled at once, down to the highest wish of the
last five minutes); any other has the replicas that the peak of its trace needs. Pure.

The latency proxy: a request waits as in a queue of one server, 1 / (1 - rho) times what it takes on an idle machine.
``rho`` is the larger of how busy its replica is (of the limit) and how busy its node is (everybody's use, offline
included, of its cores): nothing is credited to the kernel's shares, which in truth protect online pods. A request is
*violated* where rho is above the line.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lab.mesh.tidal.levels import TidalLevels
from lab.traces.tidal import Tide

Floats = NDArray[np.float64]
FEWEST = 2


@dataclass(slots=True)
class TidalService:
    """One of them. ``peak_cores``: what its trace's peak demands."""

    name: str
    scaled: bool
    peak_cores: float
    replicas: int
    wishes: deque[tuple[float, int]] = field(default_factory=deque)
    """(when, replicas) that the HPA would have had, of the last minutes."""

    def follow(self, now_s: float, used_share: float, ready: int, levels: TidalLevels) -> int:
        """The HPA's next replicas, by what ``ready`` ones use of their requests."""
        if not self.scaled or not ready:
            return self.replicas
        ratio = used_share / levels.target
        wanted = self.replicas if abs(ratio - 1.0) <= levels.tolerance else math.ceil(ratio * ready)
        self.wishes.append((now_s, wanted))
        while self.wishes[0][0] < now_s - levels.down_after_s:
            self.wishes.popleft()
        if wanted < self.replicas:
            wanted = min(self.replicas, max(wish for _, wish in self.wishes))
        self.replicas = max(FEWEST, min(wanted, max(2 * self.replicas, self.replicas + 4)))
        return self.replicas


def services_of(tides: tuple[Tide, ...], first: Floats, levels: TidalLevels) -> list[TidalService]:
    """The services of these tides, sized for ``first`` where they are scaled. Every other one of requests is scaled."""
    cores = levels.nodes * levels.cores
    requests = sum(not tide.of_use for tide in tides)
    found = []
    for number, tide in enumerate(tides):
        alike = len(tides) - requests if tide.of_use else requests
        asked = cores * (levels.uses_share if tide.of_use else levels.requests_share) / alike
        most = max(FEWEST, round(asked / levels.replica_cores))
        peak = most * levels.replica_cores * (1.0 if tide.of_use else levels.target)
        scaled = not tide.of_use and number % 2 == 0
        replicas = max(FEWEST, math.ceil(most * min(1.0, float(first[number])))) if scaled else most
        found.append(TidalService(tide.name, scaled, peak, replicas))
    return found


@dataclass(frozen=True, slots=True)
class TidalStep:
    """What is so for one step: cores that a replica of each service uses, cores used online and offline on each node,
    the share of their demand that offline workers get there, and requests (in cores of demand) served and violated."""

    replica: Floats
    online: Floats
    offline: Floats
    speed: Floats
    demanded: float
    violated: float


def moment(demand: Floats, ready: Floats, offline: Floats, levels: TidalLevels) -> TidalStep:
    """``demand``: cores by service; ``ready``: replicas by service and node; ``offline``: cores that workers there
    would use."""
    count = ready.sum(axis=1)
    each = np.divide(demand, count, out=np.full_like(demand, np.inf), where=count > 0)
    limit = levels.replica_cores * levels.limit
    busy = each / limit
    replica = np.minimum(each, limit)
    online = np.minimum(replica[count > 0] @ ready[count > 0], levels.cores)
    left = levels.cores - online
    speed = np.divide(left, offline, out=np.ones_like(left), where=offline > left)
    given = np.minimum(offline, left)
    rho_node = (online + given) / levels.cores
    slow = np.maximum(busy[:, None], rho_node[None, :]) > levels.line
    at = np.where(count[:, None] > 0, ready * np.where(np.isfinite(each), each, 0.0)[:, None], 0.0)
    unserved = float(demand[count == 0].sum())
    return TidalStep(replica, online, given, speed, float(demand.sum()), float(at[slow].sum()) + unserved)
