"""A cluster that is not what its topology file says: the ground truth that a learned twin is measured against.

The service twin again, but played on parameters that nobody wrote down: each service's throughput, times, errors and
crashes are off by a factor drawn once from ``seed``, every start takes up to ``start_jitter`` longer, and readings are
scraped seldom, seen late, noisy, and now and then missing. Bounds, requests and calls are as written, since the API
server tells those. Who learns sees the series alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np

from lab.worlds.services.readings import ServiceSensing
from lab.worlds.services.topology import ServiceGraph

HIDDEN_STREAM = 41
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Hidden:
    """Factors are drawn uniformly, a service at a time. The defaults are the ground truth of the suite."""

    seed: int = 7
    throughput: Range = (0.85, 1.15)
    service_time: Range = (0.8, 1.6)
    start_delay: Range = (1.2, 2.2)
    start_jitter: float = 0.8
    cpu_when_full: Range = (0.85, 1.1)
    queue: Range = (0.7, 1.4)
    errors: Range = (1.0, 4.0)
    crashes: Range = (1.0, 4.0)
    sensing: ServiceSensing = field(
        default_factory=lambda: ServiceSensing(scrape_s=10, delay_s=4.0, noise=0.08, missing=0.03)
    )

    def topology(self, written: ServiceGraph) -> ServiceGraph:
        """The graph as it really is."""
        rng = np.random.default_rng([self.seed, HIDDEN_STREAM])
        services = {}
        for name in written.order:
            one = written.services[name]
            queue = msgspec.structs.replace(one.queue, per_replica=one.queue.per_replica * rng.uniform(*self.queue))
            start = rng.uniform(*self.start_delay)
            services[name] = msgspec.structs.replace(
                one,
                throughput=one.throughput * rng.uniform(*self.throughput),
                service_time_s=one.service_time_s * rng.uniform(*self.service_time),
                start_delay_s=one.start_delay_s * start,
                image_pull_s=one.image_pull_s * start,
                start_jitter=self.start_jitter,
                cpu_when_full=min(one.cpu_when_full * rng.uniform(*self.cpu_when_full), 1.0),
                error_probability=min(one.error_probability * rng.uniform(*self.errors), 1.0),
                crash_probability=min(one.crash_probability * rng.uniform(*self.crashes), 1.0),
                queue=queue,
            )
        return msgspec.structs.replace(written, services=services)
