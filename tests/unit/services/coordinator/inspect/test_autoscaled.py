"""What is made of an autoscaler's records: sums with a part missing, cost over uneven times, what the go is worth."""

from __future__ import annotations

from typing import Any

import pytest

from services.coordinator.inspect.autoscaled import shown, whole
from shared.runtime.records.autoscaling import DecidedService, DecisionRecord, ForeignDecision, GivenGo, SeenService
from shared.wire.records import AutoscaleRecord


def record(number: int = 2) -> AutoscaleRecord:
    return AutoscaleRecord(uid="u", term=1, number=number, at=0.0)


def decision(number: int, at: str, replicas: int, rule: int | None, *, arrivals: float | None = 90.0) -> DecisionRecord:
    """A calls b; b has what a has."""
    services = [
        DecidedService(name=name, replicas=replicas, ready=replicas, allowed=replicas, rule=rule) for name in ("a", "b")
    ]
    seen = {name: SeenService(arrivals=arrivals, usage={"cpu": 0.5}) for name in ("a", "b")}
    return DecisionRecord(
        at=f"2026-11-23T10:{at}Z", term=1, number=number, mode="act-on-scale", services=services,
        seen=ForeignDecision(services=seen, calls=[("a", "b")]),
    )  # fmt: skip


def test_replica_hours_are_weighed_by_the_time_between_decisions():
    ring = [decision(1, "00:00", 2, 3), decision(2, "30:00", 9, None), decision(3, "31:00", 1, 1)]
    cost = whole("shop/graph", record(3), ring).cost
    # half an hour at 2 of each service, a minute at 9; without a rule it is taken to have had what there was
    assert (cost.seconds, cost.replica_hours) == (1860.0, pytest.approx(4 * 0.5 + 18 / 60))
    assert cost.hpa_replica_hours == pytest.approx(6 * 0.5 + 18 / 60)


def test_load_is_what_comes_to_the_entries_and_a_part_is_no_sum():
    known, unknown = decision(1, "00:00", 4, 3), decision(2, "10:00", 4, 3, arrivals=None)
    history = whole("shop/graph", record(), [known, unknown]).history
    assert [(one.arrivals, one.cores, one.replicas, one.hpa) for one in history] == [
        (90.0, 4.0, 8, 6),
        (None, 4.0, 8, 6),
    ]


@pytest.mark.parametrize(
    ("mode", "digest", "gates", "go"),
    [
        ("observe", "", {"a": ("Observing", "spec.mode is observe")}, ""),
        ("act-on-scale", "", {"a": ("NotApproved", "nobody has given a go")}, "none"),
        ("act-on-scale", "sha256:x", {"a": ("NotApproved", "what was approved has changed")}, "void"),
        ("act-on-scale", "sha256:x", {"a": ("Canary", "not in the 10 %")}, "counts"),
    ],
)
def test_what_the_go_is_worth(mode: str, digest: str, gates: dict[str, tuple[str, str]], go: str):
    found = DecisionRecord(
        at="2026-11-23T10:00:00Z", term=1, number=2, mode=mode, go=GivenGo(by="ada", digest=digest), gates=gates
    )
    assert shown("shop/graph", record(), found).go == go


@pytest.mark.parametrize(
    ("found", "trouble"),
    [
        ({"gates": {"a": ("SharedTarget", "Deployment/a is scaled by shop/b too")}}, "SharedTarget: Deployment/a"),
        ({"gates": {"a": ("ForeignWriter", "somebody else set 9")}}, "ForeignWriter: somebody else set 9"),
        ({"gates": {"a": ("Recommending", "spec.mode is recommend")}}, ""),
        ({"lacking": {"a": "karma needs arrivals"}}, "SignalsMissing: a: karma needs arrivals"),
        ({"unknown": {"a": "it fails"}}, "CapacityUnknown: a: it fails"),
        ({"refused": {"a": ("FailedGetResourceMetric", "no request")}}, "FailedGetResourceMetric: a: no request"),
        ({"drifting": "unlike its training", "lacking": {"a": "x"}}, "unlike its training"),
    ],
)
def test_what_keeps_decisions_from_being_carried_out_is_a_trouble(found: dict[str, Any], trouble: str):
    one = DecisionRecord(at="2026-11-23T10:00:00Z", term=1, number=2, mode="act-on-scale", **found)
    said = shown("shop/graph", record(), one).trouble
    assert said.startswith(trouble)
    assert bool(said) == bool(trouble)


def test_a_ring_whose_newest_is_not_the_last_records_shows_no_services():
    """The decision was torn, or of a version that this one cannot read: nothing old is shown as now."""
    found = whole("shop/graph", record(5), [decision(4, "00:00", 2, 3)])
    assert (found.services, found.at, len(found.history)) == ([], "", 1)
