"""What is played, the same for every arrangement: nodes, load levels, delays, the proxy's line.

``docs/tidal.md`` says how it was chosen. The nodes are openb's second commonest kind (104 cores, 512 GiB, with two T4
or none). Online services request 60 % of all cores in the busiest hour of a usual day, and use half of that or less, as
an HPA with a usual target leaves it: some 25 % of the pool in that hour and 17 % over the day, which is what data
centres tell of themselves. Two static pools then split the nodes 2 to 1, since the online one has to hold the peaks of
all. Offline there is always more to do than there is room for, as in openb's own experiment: jobs wait in a backlog
that is topped up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.model.node import Node
from shared.model.resources import CPU, MEMORY, PODS
from shared.scheduling.lending.rule import LendingRule

GIB = 1024**3
GPU = "nvidia.com/gpu"
POOL = "conclave.io/pool"
ONLINE_POOL, OFFLINE_POOL = "online", "offline"
ONLINE_PRIORITY, GPU_PRIORITY, OFFLINE_PRIORITY = 9000, 5500, 5000
"""In Koordinator's bands for ``koord-prod`` and ``koord-batch``; of offline jobs those with GPUs first."""


@dataclass(frozen=True, slots=True)
class TidalLevels:
    """Seconds, cores and shares. ``nodes``: with two GPUs are as many as the offline pool has."""

    nodes: int = 6
    cores: int = 104
    memory_bytes: int = 512 * GIB
    gpus_each: int = 2
    online_nodes_share: float = 2 / 3
    """Of two static pools: 4 of 6 nodes, without GPUs, since 60 % of all cores must fit there at once."""
    requests_share: float = 0.50
    """What the services of request traces request of all cores in the busiest hour of a usual day, in equal parts."""
    uses_share: float = 0.12
    """The same for services of traces of CPU use, at any time."""
    replica_cores: int = 8
    replica_bytes: int = 16 * GIB
    replica_used_bytes: int = 10 * GIB
    limit: float = 2.0
    """An online pod's limit of CPU, in requests: what comes above the request comes out of what is not lent."""
    target: float = 0.5
    """Of an online pod's request: where the HPA aims, and what a fixed service is sized by."""
    tolerance: float = 0.1
    down_after_s: float = 300.0
    """The HPA's own defaults."""
    offline_use: tuple[float, float] = (0.85, 1.0)
    """What an offline worker uses of what it asked for: between these, drawn for each job."""
    backlog: int = 4
    """Jobs of each kind that wait for their first worker, at any time."""
    gpu_workers: int = 2
    plain_workers: int = 2
    """Most workers of a job with GPUs (half of them all) and without; larger ones of the trace are left out."""
    executor_millis: int = 8000
    """A worker without a GPU that asks for more is played as several: openb's ask for 8 to 32 cores at once, and what
    runs on lent room comes in executors."""
    checkpoint_s: float = 600.0
    restore_s: float = 60.0
    """How often a job saves, and what a worker that begins again costs before it goes on."""
    start_s: float = 5.0
    grace_s: float = 30.0
    """From a worker's Binding to its start, and Kubernetes' own grace period; nobody saves within it."""
    step_s: float = 15.0
    """Everything is measured so often, and heard of a step later: the metrics server's own default."""
    warm_up_s: float = 1800.0
    """Played before the day, and not counted."""
    hours: float = 24.0
    line: float = 0.8
    """Of the latency proxy 1 / (1 - rho): beyond it requests take over five times as long as on an idle machine."""
    rule: LendingRule = field(default_factory=lambda: LendingRule(cpu_percent=76.5, window_s=900.0, change_percent=3.0))
    """Koordinator's formula; its 60 % could not reach 60 % of CPU used. Jobs use less than they ask for, so this leaves
    room below the line for what demand rises until somebody has left. Over a quarter of an hour, so that what comes and
    goes within minutes is not lent; written at once by small steps, so that who has to leave hears of it."""

    offline_margin: float = 0.01
    """Offline pods leave where so much of what they hold is missing. Little: online pods miss it."""

    @property
    def gpu_nodes(self) -> int:
        """The last so many nodes."""
        return self.nodes - round(self.nodes * self.online_nodes_share)

    def pool(self) -> list[Node]:
        """The nodes, those with GPUs last."""
        found = []
        for row in range(self.nodes):
            offline = row >= self.nodes - self.gpu_nodes
            amounts = {CPU: self.cores * 1000, MEMORY: self.memory_bytes, PODS: 250}
            if offline:
                amounts[GPU] = self.gpus_each
            labels = {POOL: OFFLINE_POOL if offline else ONLINE_POOL}
            found.append(Node(name=f"node-{row:02d}", labels=labels, allocatable=amounts))
        return found
