"""What a binder counts of devices stays bounded, whatever the cluster names."""

from __future__ import annotations

from services.binder.core.state import ConditionsAwaited
from services.binder.metrics import MOST_DRIVERS, OTHER, DeviceMetrics
from shared.runtime.observe.metrics import Metrics

NAME = "scheduler_dra_bindingconditions_allocations_total"


def test_drivers_beyond_so_many_are_counted_together() -> None:
    metrics = Metrics("binder")
    devices = DeviceMetrics(metrics, profile="conclave")
    names = [f"driver-{number}" for number in range(MOST_DRIVERS + 10)]
    devices.observe([ConditionsAwaited(name, "success", 1.0) for name in [*names, *names]])

    def counted(driver: str) -> float | None:
        labels = {"profile": "conclave", "driver": driver, "status": "success"}
        return metrics.registry.get_sample_value(NAME, labels)

    assert [counted(name) for name in names] == [2.0] * MOST_DRIVERS + [None] * 10
    assert counted(OTHER) == 20.0
