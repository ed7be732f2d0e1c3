"""Replicas: scheduled before they run, started, crashed, stuck, evicted; who goes first when there are too many."""

from __future__ import annotations

import numpy as np
import pytest

from lab.worlds.services.pods import Fleet, ReplicaState
from lab.worlds.services.topology import parse_topology
from shared.policy.heuristics import KubeDefault

GRAPH = """
name: pods
nodes: [{name: n, cpu: "2", memory: 8Gi}]
entries: {web: 1}
services:
  web:
    throughput: 100
    replicas: {minimum: 1, maximum: 10, start: 2}
    requests: {cpu: 500m, memory: 1Gi}
    start_delay_s: 8
    image_pull_s: 12
"""


def fleet(text=GRAPH):
    return Fleet(parse_topology(text), KubeDefault(), np.random.default_rng(1))


def states(one):
    return [pod.state for pod in one.pods[0]]


def test_an_episode_begins_with_replicas_that_are_ready():
    one = fleet()
    assert states(one) == [ReplicaState.READY, ReplicaState.READY]
    assert one.counts(0) == (2, 0, 0)


def test_a_new_replica_is_placed_first_and_ready_after_its_start_delay():
    one = fleet()
    one.scale(0, 3)
    assert one.counts(0) == (2, 0, 1)
    one.advance(10.0)
    assert one.counts(0) == (2, 1, 0)
    one.advance(17.9)
    assert one.counts(0) == (2, 1, 0)
    one.advance(18.0)  # the image was there
    assert one.counts(0) == (3, 0, 0)


def test_an_image_that_is_not_on_the_node_is_pulled_first():
    two = GRAPH.replace('cpu: "2", memory: 8Gi', 'cpu: "1", memory: 8Gi, count: 2').replace("start: 2", "start: 1")
    one = fleet(two)
    one.scale(0, 2)
    one.advance(0.0)
    assert {pod.node for pod in one.pods[0]} == {0, 1}  # kube-default spreads them
    one.advance(19.9)
    assert one.ready[0] == 1
    one.advance(20.0)
    assert one.ready[0] == 2


def test_a_replica_that_no_node_takes_stays_pending_until_there_is_room():
    one = fleet()
    one.scale(0, 6)
    one.advance(0.0)
    assert one.counts(0) == (2, 2, 2)  # 2 cores, 500 m each
    assert one.placed() == 4
    assert not one.validate()
    one.press(0, 0.0, 1.0)
    assert one.counts(0)[2] == 2


def test_pending_goes_first_then_who_is_not_ready_then_the_youngest():
    one = fleet()
    one.scale(0, 6)
    one.advance(0.0)
    one.scale(0, 4)
    assert one.counts(0) == (2, 2, 0)
    one.scale(0, 3)
    assert one.counts(0) == (2, 1, 0)
    one.advance(50.0)
    one.scale(0, 1)
    assert [pod.number for pod in one.pods[0]] == [1]
    assert not one.validate()


def test_back_off_doubles_with_each_crash():
    one = fleet(GRAPH.replace("start: 2", "start: 1"))
    now, waited = 0.0, []
    for _ in range(7):
        one.crash_one(0, now)
        assert states(one) == [ReplicaState.BACKOFF]
        waited.append(one.pods[0][0].until_s - now)
        now = one.pods[0][0].until_s
        one.advance(now)
        now += 8.0
        one.advance(now)
        assert states(one) == [ReplicaState.READY]
    assert waited == [10, 20, 40, 80, 160, 300, 300]


def test_who_hangs_is_ready_until_the_probe_fails_then_stuck_until_it_is_restarted_or_given_up():
    one = fleet()
    while not one.hung[0]:
        one.fail(0, 1.0, 500.0, 0.0)
        one.advance(0.0)
    hangs = next(pod for pod in one.pods[0] if pod.hung_until_s)
    assert hangs.state is ReplicaState.READY
    one.advance(hangs.until_s)
    assert hangs.state is ReplicaState.STUCK
    assert one.hung[0] == 0
    one.scale(0, 1)  # it goes before those that are ready
    assert hangs not in one.pods[0] or one.ready[0] == 0


def test_neighbours_evict_the_youngest_and_these_come_back_as_pending():
    one = fleet(GRAPH.replace("start: 2", "start: 4"))
    one.press(0, 0.5, 5.0)
    assert one.counts(0) == (2, 0, 2)
    assert sorted(pod.number for pod in one.pods[0] if pod.state is ReplicaState.READY) == [1, 2]
    assert not one.validate()
    one.press(0, 0.0, 60.0)
    assert one.counts(0) == (2, 2, 0)


def test_a_budget_is_never_exceeded():
    one = fleet(GRAPH.replace("name: pods", "replica_budget: 3"))
    one.scale(0, 9)
    assert one.asked == [3]
    assert one.refused == 6


@pytest.mark.parametrize("broken", ["F1", "F2", "F3"])
def test_validate_sees_what_is_broken(broken):
    one = fleet()
    if broken == "F1":
        one.table.requested[0, 0] = 10_000
    elif broken == "F2":
        one.asked[0] = 5
    else:
        one.pods[0][0].node = -1
    assert any(line.startswith(broken) for line in one.validate())
