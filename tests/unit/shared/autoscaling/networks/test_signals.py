"""What readings mean: how much a replica can answer, how much will come, who is stuck; and the rule that goes by it."""

from __future__ import annotations

import pytest

from shared.autoscaling.networks.demand import DemandPolicy, DemandSettings
from shared.autoscaling.networks.features import CLIP, FEATURES, features, inputs_of
from shared.autoscaling.networks.signals import SignalReader
from shared.autoscaling.observation import Bounds, ScalingObservation, ServiceObservation


def service(**more):
    parts = {
        "replicas": 2, "ready": 2, "bounds": Bounds(1, 6), "requests": {"cpu": 0.5}, "usage": {"cpu": 0.3},
        "arrivals": 120.0, "served": 120.0, "failed": 0.0, "latency_s": 0.05, "queue": 0.0, "age_s": 2.0,
    }  # fmt: skip
    return ServiceObservation(**{**parts, **more})


def seen(now=10.0, calls=(), **services):
    return ScalingObservation(now=now, services=services, calls=calls, latency_objective_s=0.5)


def test_what_a_replica_can_answer_follows_from_the_cpu_it_uses():
    one = SignalReader().read(seen(web=service()))["web"]
    assert one.per_replica == pytest.approx(60 * 0.85 / 0.6)
    assert one.needed == pytest.approx(120 / 85)


def test_a_service_that_is_full_answers_what_it_can_and_teaches_what_full_is():
    reader = SignalReader()
    for step in range(12):
        full = service(arrivals=300.0, served=140.0, failed=160.0, queue=80.0, usage={"cpu": 0.35})
        one = reader.read(seen(now=10.0 * step, web=full))["web"]
    assert one.per_replica == pytest.approx(70.0)
    one = reader.read(seen(now=130.0, web=service(arrivals=70.0, served=70.0, usage={"cpu": 0.175})))["web"]
    assert one.per_replica == pytest.approx(70.0, rel=0.02)  # half the cpu, half the requests


def test_failures_that_load_does_not_explain_teach_nothing():
    reader = SignalReader()
    before = reader.read(seen(web=service()))["web"].per_replica
    broken = service(served=60.0, failed=60.0, usage={"cpu": 0.15})
    assert reader.read(seen(now=20.0, web=broken))["web"].per_replica == before


def test_demand_sees_through_a_caller_that_is_too_small():
    calls = (("web", "db"),)
    reader = SignalReader()
    reader.read(seen(calls=calls, web=service(), db=service()))
    flood = service(arrivals=510.0, served=170.0, failed=340.0, queue=50.0, usage={"cpu": 0.425})
    found = reader.read(seen(now=20.0, calls=calls, web=flood, db=service(arrivals=170.0, served=170.0)))
    assert found["db"].inflation == pytest.approx(3.0, rel=0.05)
    assert found["db"].demand == pytest.approx(510.0, rel=0.05)


def test_who_is_not_ready_and_was_not_asked_for_lately_is_stuck():
    reader = SignalReader()
    reader.read(seen(web=service(replicas=3, ready=3)))
    assert reader.read(seen(now=20.0, web=service(replicas=3, ready=2, starting=1)))["web"].stuck == 1
    grown = service(replicas=4, ready=3, starting=1)
    reader = SignalReader()
    reader.read(seen(web=service(replicas=3, ready=3)))
    assert reader.read(seen(now=20.0, web=grown))["web"].stuck == 0
    assert reader.read(seen(now=60.0, web=grown))["web"].stuck == 1


@pytest.mark.parametrize("reading", [None, float("nan"), -5.0, float("inf")])
def test_a_reading_that_is_none_or_nonsense_keeps_the_last_demand(reading):
    reader = SignalReader()
    before = reader.read(seen(web=service()))["web"]
    after = reader.read(seen(now=20.0, web=service(arrivals=reading, served=reading)))["web"]
    assert after.missing
    assert (after.demand, after.per_replica) == (before.demand, before.per_replica)


def test_a_loop_that_somebody_let_in_is_read_all_the_same():
    found = SignalReader().read(seen(calls=(("a", "b"), ("b", "a")), a=service(), b=service()))
    assert set(found) == {"a", "b"}


def test_the_rule_wants_what_demand_takes_with_headroom():
    rule = DemandPolicy(DemandSettings(headroom=1.5))
    assert rule.decide(seen(web=service())) == {"web": 3}  # 1.41 * 1.5


def test_the_rule_comes_down_only_after_its_window():
    rule = DemandPolicy(DemandSettings(headroom=1.2, hold_s=60))
    rule.decide(seen(now=0.0, web=service(replicas=5, ready=5, arrivals=300.0, served=300.0)))
    low = service(replicas=5, ready=5, arrivals=60.0, served=60.0, usage={"cpu": 0.06})
    assert rule.decide(seen(now=50.0, web=low))["web"] == 5
    assert rule.decide(seen(now=61.0, web=low))["web"] < 5


def test_the_rule_takes_nothing_away_blind():
    rule = DemandPolicy(DemandSettings(hold_s=0))
    assert rule.decide(seen(web=service(replicas=5, ready=5, arrivals=None, served=None, usage={})))["web"] == 5
    assert rule.decide(seen(now=500.0, web=service(replicas=5, ready=5, arrivals=None, served=None)))["web"] == 5


def test_the_rule_replaces_what_is_stuck_beside_it_or_first_gives_it_up():
    rule = DemandPolicy()
    busy = {"arrivals": 200.0, "served": 200.0}
    rule.decide(seen(web=service(replicas=4, ready=4, usage={"cpu": 0.25}, **busy)))
    stuck = service(replicas=4, ready=3, starting=1, usage={"cpu": 0.33}, **busy)
    assert rule.decide(seen(now=20.0, web=stuck))["web"] == 5
    rule = DemandPolicy()
    capped = {"bounds": Bounds(1, 4)}
    rule.decide(seen(web=service(replicas=4, ready=4, usage={"cpu": 0.25}, **busy, **capped)))
    stuck = service(replicas=4, ready=3, starting=1, usage={"cpu": 0.33}, **busy, **capped)
    assert rule.decide(seen(now=20.0, web=stuck))["web"] == 3


def test_without_room_every_service_gets_the_same_share_of_its_need():
    rule = DemandPolicy(DemandSettings(headroom=1.0, hold_s=0))
    hog = service(replicas=5, ready=5, arrivals=100.0, served=100.0, usage={"cpu": 0.1})
    short = service(replicas=4, ready=1, pending=3, arrivals=200.0, served=60.0, failed=140.0, usage={"cpu": 0.42})
    wanted = rule.decide(seen(hog=hog, short=short))
    assert wanted["hog"] < 5
    assert wanted["hog"] + wanted["short"] <= 6  # six replicas are on nodes, all of half a core


def test_room_that_nobody_is_short_of_is_used_up_to_what_is_wanted():
    rule = DemandPolicy(DemandSettings(headroom=3.0, hold_s=0))
    rule.decide(seen(a=service(replicas=3, ready=3), b=service(replicas=3, ready=3)))
    pending = service(replicas=4, ready=3, pending=1)  # each needs 1.4 of its replicas, six are on nodes
    assert rule.decide(seen(now=20.0, a=pending, b=service(replicas=3, ready=3))) == {"a": 3, "b": 3}


def test_features_are_bounded_named_and_follow_no_name():
    reader = SignalReader()
    wild = service(arrivals=1e9, served=1.0, failed=1e9, queue=1e9, latency_s=1e3)
    signals = reader.read(seen(a=service(), b=wild))
    rows = features(inputs_of(signals, {"a": 3, "b": 6}, {}, tight=True))
    assert rows.shape == (2, len(FEATURES))
    assert abs(rows).max() <= CLIP
    swapped = features(inputs_of(dict(reversed(signals.items())), {"a": 3, "b": 6}, {}, tight=True))
    assert (swapped[::-1] == rows).all()
