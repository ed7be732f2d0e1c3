"""What stands in a cluster costs no pause: pods are not the garbage collector's business."""

from __future__ import annotations

import gc

from shared.scheduling.state.cluster_state import ClusterState
from tests.builders import make_node, make_pod


def tracked() -> int:
    gc.collect()
    return len(gc.get_objects())


def test_the_garbage_collector_visits_no_standing_pod() -> None:
    state = ClusterState()
    state.upsert_node(make_node("n").node())

    def take_in(name: str) -> None:
        builder = make_pod(name).cpu("10m").set(labels={"app": "web"})
        state.observe(builder.on("n").pod())
        state.cache.assume(f"assumed-{name}", "n", builder.pod().pod_class, 0.0)

    take_in("first")  # of its labels and its class
    before = tracked()
    for number in range(300):
        take_in(f"p{number}")
    assert tracked() - before < 30
