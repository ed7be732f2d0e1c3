"""The flow of requests, what disturbs it, and what is seen of it."""

from __future__ import annotations

import numpy as np
import pytest

from lab.worlds.services.attacker import ACTIONS, Attacker, Opportunist
from lab.worlds.services.disturbances import Disturbance, DisturbanceKind
from lab.worlds.services.readings import ServiceSensing
from lab.worlds.services.scenarios import SCENARIOS, events_of
from lab.worlds.services.topology import default_topology, parse_topology
from lab.worlds.services.world import ServiceWorld
from shared.errors import ConfigError

ONE = """
name: one
nodes: [{name: n, cpu: "8", memory: 8Gi}]
entries: {web: 1}
services:
  web:
    throughput: 100
    replicas: {minimum: 1, maximum: 4, start: 2}
    requests: {cpu: 500m, memory: 1Gi}
    cpu_when_full: 0.9
    queue: {per_replica: 50, timeout_s: 2}
"""
EXACT = ServiceSensing(noise=0.0)


def world(rates, events=(), *, text=ONE, seed=1):
    return ServiceWorld(parse_topology(text), rates, events, seed=seed, sensing=EXACT)


def test_what_capacity_covers_is_answered_and_nothing_waits():
    one = world([100.0] * 60)
    one.run(60)
    assert sum(one.seconds.answered) == pytest.approx(sum(one.seconds.offered))
    assert sum(one.seconds.waiting) == 0
    assert one.over


def test_above_capacity_a_queue_fills_and_the_rest_fails():
    one = world([400.0] * 60)
    one.run(60)
    assert sum(one.seconds.answered[20:]) / 40 == pytest.approx(200.0)  # two replicas of 100
    assert max(one.seconds.waiting) == pytest.approx(100.0)  # 50 for each
    seen = one.observe().services["web"]
    assert seen.failed == pytest.approx(200.0, rel=0.1)
    assert seen.usage["cpu"] == pytest.approx(0.45, rel=0.05)  # 90 % of 500 m
    assert not one.validate()


def test_no_ready_replica_answers_nothing_and_has_no_reading():
    one = world([100.0] * 60)
    for pod in list(one.fleet.pods[0]):
        one.fleet.crash_one(0, 0.0)
        assert pod is not None
    one.run(9)
    assert sum(one.seconds.answered) == 0
    one.run(1)
    seen = one.observe().services["web"]
    assert seen.ready == 0
    assert seen.usage["cpu"] is None
    assert seen.latency_s is None


def test_a_request_fails_where_one_of_its_calls_does():
    chain = default_topology()
    one = ServiceWorld(chain, [100.0] * 60, seed=1, sensing=EXACT)
    for _ in range(len(one.fleet.pods[3])):
        one.fleet.crash_one(3, 0.0)
    one.run(5)
    assert sum(one.seconds.answered) == 0
    assert one.fleet.ready[0] > 0


def test_where_all_replicas_of_a_caller_hang_nothing_less_than_nothing_is_called():
    chain = default_topology()
    surge = [Disturbance(DisturbanceKind.SURGE, 0, 60, 0.27, "a")]  # rates that 3 does not divide exactly
    one = ServiceWorld(chain, np.linspace(100.0, 199.0, 60), surge, seed=1, sensing=EXACT)
    for pod in one.fleet.pods[0]:
        pod.hung_until_s = pod.until_s = 60.0
    one.fleet._count(0)
    one.run(60)
    assert sum(one.seconds.answered) == 0
    assert min(one.seconds.served) >= 0


def test_a_surge_is_load_but_only_genuine_requests_count():
    calm, surge = world([100.0] * 60), world([100.0] * 60, [Disturbance(DisturbanceKind.SURGE, 10, 40, 3.0, "web")])
    calm.run(60)
    surge.run(60)
    assert surge.seconds.offered == calm.seconds.offered
    assert sum(surge.seconds.answered[15:40]) < 0.7 * sum(calm.seconds.answered[15:40])
    assert sum(surge.seconds.answered[45:]) == pytest.approx(sum(calm.seconds.answered[45:]), rel=0.02)


def test_dearer_calls_take_capacity_away():
    one = world([150.0] * 60, [Disturbance(DisturbanceKind.DEARER, 0, 60, 1.0, "web")])
    one.run(60)
    assert sum(one.seconds.answered[10:]) / 50 == pytest.approx(100.0)


def test_pressure_evicts_and_gives_back():
    one = world([100.0] * 120, [Disturbance(DisturbanceKind.PRESSURE, 10, 60, 0.95, "n")])
    one.run(30)
    assert one.fleet.counts(0)[2] == 2
    one.run(90)
    assert one.fleet.counts(0) == (2, 0, 0)


def test_more_latency_with_more_load():
    light, heavy = world([40.0] * 30), world([190.0] * 30)
    light.run(30)
    heavy.run(30)
    assert np.mean(light.seconds.latency_s) < np.mean(heavy.seconds.latency_s)


def test_readings_are_late_and_replicas_are_not():
    one = world([50.0] * 60)
    one.run(30)
    one.apply({"web": 4})
    seen = one.observe()
    assert seen.services["web"].replicas == 4
    assert 1.0 <= seen.services["web"].age_s <= 10.0
    one.sensors.blind = True
    one.run(20)
    assert one.observe().services["web"].age_s > 20.0


def test_nothing_was_read_yet_is_none_and_not_zero():
    seen = world([50.0] * 10).observe().services["web"]
    assert seen.arrivals is None
    assert seen.queue is None


def test_the_same_seed_gives_the_same_seconds_and_another_gives_others():
    chain = default_topology()

    def played(seed):
        one = ServiceWorld(chain, [150.0] * 300, events_of("mixed", chain, 300, 5, 1.0), seed=seed)
        one.run(300)
        return one.seconds

    assert played(3) == played(3)
    assert played(3) != played(4)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_breaks_under_any_scenario_and_any_decisions(scenario):
    chain, rng = default_topology(), np.random.default_rng(11)
    intensity = {"ddos": 6.0, "failures": 0.3, "pressure": 0.8}.get(scenario, 1.5)
    events = events_of(scenario, chain, 900, 9, intensity)
    assert events
    one = ServiceWorld(chain, [180.0] * 900, events, seed=9)
    while not one.over:
        one.apply({name: int(rng.integers(-1, 9)) for name in chain.order})
        one.run(10)
        assert not one.validate()
    assert all(0.0 <= share <= 1.0 for share in one.seconds.entries_up)


def test_validate_sees_answers_to_requests_that_never_came():
    one = world([50.0] * 10)
    one.run(10)
    one.seconds.answered.append(1000.0)
    assert any(line.startswith("W2") for line in one.validate())
    one._genuine[0] = 5.0
    assert any(line.startswith("W1") for line in one.validate())


def test_an_attacker_sends_no_more_than_its_budget():
    one = world([100.0] * 600)
    attacker = Attacker(one, budget=0.2)
    while not one.over:
        attacker.act(ACTIONS - 1)
        one.run(10)
    genuine = sum(one.seconds.offered)
    assert 0.15 * genuine < one.attack_requests < 0.2 * genuine + 4 * 10 * 130  # one step beyond at most


def test_an_attacker_by_rule_waits_and_strikes():
    one = world([100.0] * 900)
    attacker = Opportunist(Attacker(one, budget=0.5))
    attacked = []
    while not one.over:
        attacker.step(one.observe())
        before = one.attack_requests
        one.run(10)
        attacked.append(one.attack_requests > before)
    assert any(attacked)
    assert not all(attacked)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        pytest.param(lambda: world([1.0, float("nan")]), "rates: a rate is negative or no number", id="nan"),
        pytest.param(lambda: world([-1.0]), "rates: a rate is negative", id="negative"),
        pytest.param(
            lambda: world([1.0], [Disturbance(DisturbanceKind.SURGE, 5, 3, 1.0, "web")]),
            "is not after since_s",
            id="time back",
        ),
        pytest.param(
            lambda: world([1.0], [Disturbance(DisturbanceKind.SURGE, 0, 3, 1.0, "x")]),
            "surge of 'x': there is none",
            id="who",
        ),
        pytest.param(
            lambda: world([1.0], [Disturbance(DisturbanceKind.SURGE, 0, 3, -1.0, "web")]), "amount: -1", id="strength"
        ),
        pytest.param(lambda: world([1.0]).apply({"x": 1}), "decision.x: no such service", id="decision"),
        pytest.param(lambda: events_of("flood", default_topology(), 10, 1, 1.0), "'flood' is not known", id="scenario"),
        pytest.param(lambda: events_of("failures", default_topology(), 10, 1, 2.0), "give 0 to 1", id="intensity"),
        pytest.param(lambda: Attacker(world([1.0]), budget=-1), "budget: -1", id="budget"),
        pytest.param(lambda: Attacker(world([1.0])).act(99), "action: 99", id="action"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(make, told):
    with pytest.raises(ConfigError, match=told):
        make()
