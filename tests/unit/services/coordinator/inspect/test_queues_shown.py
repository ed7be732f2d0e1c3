"""Queues for people, from facts made by hand, and what a simulation is asked and says."""

from __future__ import annotations

from fractions import Fraction

import pytest

from services.coordinator.inspect.queues import UNITS_SHOWN, QueueFacts, UnitFacts, shown, whole
from services.coordinator.inspect.simulation import SimulatedJob, requests_of, summary_of
from shared.model.units.queue import Queue

CAPACITY = {"cpu": 100_000, "memory": 1000, "nvidia.com/gpu": 0}
VISION = Queue(
    "vision", parent="research", weight=Fraction(3, 2), guaranteed={"cpu": 8000}, maximum={"cpu": 16_000},
    borrowing={"nvidia.com/gpu": 2, "cpu": 4000}, namespaces=("v",), reclaim=True,
)  # fmt: skip


def facts(**changes: object) -> QueueFacts:
    told = {"used": {"memory": 300, "cpu": 12_000, "example.com/x": 2}, "pods": 4, "pending_units": 2}
    return QueueFacts(VISION, ["research", "vision"], **(told | changes))  # type: ignore[arg-type]


def test_a_queue_tells_used_guaranteed_maximum_and_borrowed_of_each_resource() -> None:
    found = shown(facts(), CAPACITY)
    assert [one.name for one in found.resources] == ["cpu_millis", "memory_bytes", "example.com/x"]
    cpu, memory, other = found.resources
    assert (cpu.used, cpu.guaranteed, cpu.maximum, cpu.borrowed, cpu.share) == (12_000, 8000, 16_000, 4000, 0.12)
    assert (memory.guaranteed, memory.maximum, memory.borrowed, memory.share) == (None, None, 300, 0.3)
    assert other.share is None
    assert (found.share, found.dominant) == (0.3, "memory_bytes")
    assert (found.path, found.depth, found.weight) == (["research", "vision"], 1, "3/2")


def test_limits_of_what_is_not_used_are_shown_too() -> None:
    found = shown(facts(used={}), CAPACITY)
    assert [(one.name, one.used, one.borrowed) for one in found.resources] == [("cpu_millis", 0, 0)]
    assert (found.share, found.dominant) == (0.0, "")


def test_a_queue_that_cannot_be_used_says_why() -> None:
    assert shown(facts(problem="spec.parent: there is no Queue base"), CAPACITY).problem.startswith("spec.parent")
    warned = shown(facts(warnings=["spec.guaranteed[cpu]: too much"]), CAPACITY)
    assert (warned.problem, warned.warnings) == ("", ["spec.guaranteed[cpu]: too much"])


def test_units_of_a_queue_have_places_and_are_bounded() -> None:
    unit = UnitFacts("podgroup:v/a", "v", "a", "podgroup", 5, 8, 3.0, {"memory": 1, "cpu": 2}, "held", "")
    found = whole(facts(pending=[unit] * (UNITS_SHOWN + 5), past={"cpu": 7}), CAPACITY)
    assert [one.position for one in found.units[:2]] == [1, 2]
    assert len(found.units) == UNITS_SHOWN
    assert found.units[0].requests == {"cpu_millis": 2, "memory_bytes": 1}
    assert list(found.borrowing or {}) == ["cpu_millis", "nvidia.com/gpu"]
    assert (found.lending, found.past, found.reclaim) == (None, {"cpu_millis": 7}, True)


def test_requests_are_written_as_in_a_pod() -> None:
    assert requests_of("cpu=500m, memory=1Gi,nvidia.com/gpu=2") == (
        ("cpu", 500), ("memory", 2**30), ("nvidia.com/gpu", 2),
    )  # fmt: skip
    assert requests_of("") == requests_of("cpu=0") == ()


@pytest.mark.parametrize("text", ["cpu", "cpu=", "=1", "cpu=much", "cpu=-1"])
def test_requests_that_cannot_be_name_what_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"^requests: .*; |^requests: cpu: "):
        requests_of(text)


def test_a_job_asks_for_its_minimum_at_once() -> None:
    assert SimulatedJob("q", "d", 8, 6, (("cpu", 500),)).asks == (("cpu", 3000), ("pods", 6))


@pytest.mark.parametrize(
    ("starts_in_s", "told", "said"),
    [
        (0.0, {}, "it would start at once"),
        (0.0, {"ahead": 1}, "it would start at once, after 1 unit ahead of it"),
        (0.0, {"fits": 3}, "its queue lets it go, but 3 of 4 members fit on the nodes as they are"),
        (
            0.0,
            {"lets": 1},
            "it would start at once, with 1 of its 4 members; the limits of its queue have no room for more now",
        ),
        (30.0, {"ahead": 2}, "it would start in 30 s, after 2 units ahead of it"),
        (60.0, {"displaced": 2}, "it would start in 60 s, once 2 pods have been evicted for it"),
        (None, {"reason": "the cluster is full"}, "nobody can say when it would start: the cluster is full"),
        (None, {"reason": "too large", "never": True}, "it would never start as things are: too large"),
    ],
)
def test_a_simulation_says_it_in_one_sentence(starts_in_s: float | None, told: dict[str, int], said: str) -> None:
    known = {"fits": 4, "lets": 4, "ahead": 0, "displaced": 0, "reason": ""} | told
    assert summary_of(SimulatedJob("q", "d", 4, 4, ()), starts_in_s, **known) == said  # type: ignore[arg-type]
