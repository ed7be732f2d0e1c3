"""Step times of training with parameter servers, by workers and servers: the formula that Optimus fits to what it
measures (Peng et al., EuroSys 2018, section 3.2, synchronous training at a fixed global batch):

    step = compute_s / workers + fixed_s + push_s · workers / servers + worker_s · workers + server_s · servers

A worker more takes a part of the batch off the others, and makes the servers take one copy of the gradients more. So at
a fixed batch there is a best number of each, and beyond it more workers are slower.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTimes:
    """One model's, seconds; ``compute_s`` is the whole batch on one worker. What is beyond the counts cannot run."""

    compute_s: float
    fixed_s: float
    push_s: float
    worker_s: float
    server_s: float
    most_workers: int = 12
    most_servers: int = 20

    def step_s(self, workers: int, servers: int) -> float | None:
        """Seconds of one step; None: it cannot run so."""
        if not (1 <= workers <= self.most_workers and 1 <= servers <= self.most_servers):
            return None
        return (
            self.compute_s / workers
            + self.fixed_s
            + self.push_s * workers / servers
            + self.worker_s * workers
            + self.server_s * servers
        )

    def usual(self, workers: int) -> int:
        """Servers where nobody chose: one for each worker."""
        return min(workers, self.most_servers)
