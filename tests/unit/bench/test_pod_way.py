"""A lone pod pays for no gang and no queue: where there are none, nothing of theirs is asked about it."""

from __future__ import annotations

import pytest

from bench.parts.pod_way import functions_of_a_pod
from services.coordinator.core.core import Core

OF_OTHERS = (
    "services.binder.core.gangs",
    "services.binder.cycle.evictions",
    "services.binder.cycle.gang_cycle",
    "services.coordinator.groups.",
    "services.coordinator.preemption.groups",
    "services.coordinator.queues.",
    "shared.scheduling.groups.",
    "shared.scheduling.pod_groups",
    "shared.scheduling.queues.",
)


def others_asked() -> list[str]:
    """Modules of gangs, queues and victims that a lone pod passes through."""
    return sorted(module for module in functions_of_a_pod() if module.startswith(OF_OTHERS))


def test_a_lone_pod_passes_through_nothing_of_gangs_and_queues() -> None:
    assert others_asked() == []


def test_ablation_a_keeper_that_is_asked_in_every_turn_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = Core._advance

    def asking(core: Core, work: int) -> None:
        advance(core, work)
        core.queues.step()

    monkeypatch.setattr(Core, "_advance", asking)
    assert others_asked() == ["services.coordinator.queues.keeper"]
