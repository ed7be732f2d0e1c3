"""A new leader lets sensors out to whom it knows: not before targets, and Services that they may name, are listed."""

from __future__ import annotations

from random import Random

from services.coordinator.app import _opened
from services.coordinator.settings import CoordinatorSettings
from services.coordinator.standby import core_of
from services.coordinator.usage.desk import ReadingsDesk
from shared.kube.nodes.latency_targets import LatencyTarget
from shared.model.cluster_events import Listed, ObjectChanged
from shared.scheduling.shards import Shards

SHOP = LatencyTarget("shop", "api.shop.svc", 443)


def test_targets_count_when_they_and_services_are_listed_though_a_leader_begins_without_some_lists() -> None:
    core = core_of(7, CoordinatorSettings(), Shards())
    desk = ReadingsDesk(b"k" * 32, Random(1), term=7, region_of=lambda _: "")
    core.state.started = True
    core.takeover.listed("services")
    assert _opened(desk, core) is None
    desk.changed([ObjectChanged("latencytargets", "shop", SHOP), Listed("latencytargets")])
    assert _opened(desk, core) == [SHOP]
    core.state.started = False
    assert _opened(desk, core) is None
    late = core_of(7, CoordinatorSettings(), Shards())
    late.state.started = True
    assert _opened(desk, late) is None, "its grace is over, and Services are not listed"
