"""``bench.quality``: regret is nothing where each pod gets the best node, and is seen where it does not."""

from typing import Any

from bench.quality import QualityWorld
from services.coordinator.core.state import CoreSettings
from shared.experiments.traces.workload import pod_json


def node(name: str, cpu: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    return {"metadata": {"name": name}, "status": {"allocatable": amounts, "capacity": amounts}}


def played(batch_units: int) -> QualityWorld:
    settings = CoreSettings(batch_units=batch_units)
    world = QualityWorld(policy="kube-default", agents=1, seed=1, settings=settings)
    for number in range(3):
        world.add_node(node(f"node-{number}", f"{8 + 8 * number}"))
    world.begin()
    world.rest(30)
    for number in range(12):
        world.add_pod(pod_json(f"pod-{number}", {"cpu": f"{1000 + 100 * (number % 4)}m", "memory": "1Gi"}))
    assert world.rest(60)
    return world


def test_pods_that_are_placed_one_by_one_have_no_regret() -> None:
    world = played(batch_units=1)
    assert len(world.bound) == 12
    assert world.regrets == [0.0] * 12


def test_pods_of_several_classes_that_are_ranked_together_have_some() -> None:
    world = played(batch_units=64)
    assert len(world.bound) == 12
    assert max(world.regrets) > 0
