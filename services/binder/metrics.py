"""What a binder counts of devices under kube-scheduler's names: claims that it made, how waiting for binding conditions
ended.

kube-scheduler waits in PreBind, here the unit waits between its intent and its Binding. ``status`` is success, failure
(a failure condition holds), timeout, or error (given up for another reason).
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Counter, Histogram

from services.binder.core.state import ConditionsAwaited
from shared.runtime.observe.metrics import Metrics

WAIT_BUCKETS_S = tuple(0.1 * 2**n for n in range(14))
"""kube-scheduler's own (pkg/scheduler/metrics/metrics.go), so that quantiles compare."""

MOST_DRIVERS = 64
"""Drivers that are told apart: allocations name them, and a series is never dropped."""

OTHER = "other"

LABELS = ("profile", "driver", "status")


class DeviceMetrics:
    """Of one process. ``profile``: the scheduler's name."""

    def __init__(self, metrics: Metrics, *, profile: str) -> None:
        self._profile = profile
        self._drivers: set[str] = set()
        self._creates = Counter(
            "scheduler_resourceclaim_creates",
            "Claims made for pods' extended resources, by what came of the request",
            ("status",), registry=metrics.registry,
        )  # fmt: skip
        self._allocations = Counter(
            "scheduler_dra_bindingconditions_allocations",
            "Allocations of devices with BindingConditions, per driver and attempt, by what came of the wait",
            LABELS, registry=metrics.registry,
        )  # fmt: skip
        self._waited = Histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Waiting for BindingConditions of devices before a Binding",
            LABELS, buckets=WAIT_BUCKETS_S, registry=metrics.registry,
        )  # fmt: skip

    def created(self, status: str) -> None:
        """A claim was asked for: success or failure."""
        self._creates.labels(status).inc()

    def observe(self, ended: Iterable[ConditionsAwaited]) -> None:
        """Take over what ended since the last turn."""
        for one in ended:
            if len(self._drivers) < MOST_DRIVERS:
                self._drivers.add(one.driver)
            driver = one.driver if one.driver in self._drivers else OTHER
            self._allocations.labels(self._profile, driver, one.status).inc()
            self._waited.labels(self._profile, driver, one.status).observe(one.waited_s)
