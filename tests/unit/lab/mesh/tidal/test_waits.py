"""What online pods waited: to the second of their Binding, with a grace taken off only where one left for them."""

from __future__ import annotations

from lab.mesh.tidal.waits import Waits, later

A, B = ("web", 100.0, 0), ("web", 100.0, 1)


def test_a_wait_without_anybody_who_leaves_is_told_whole():
    waits = Waits()
    waits.bound(A, 0, 130.0)
    assert waits.seconds == {A: 30.0}


def test_the_grace_of_who_left_the_node_for_an_online_pod_is_taken_off():
    waits = Waits()
    waits.asked("job-1-0", 0, 110.0)
    waits.gone("job-1-0", 140.0)
    waits.bound(A, 0, 145.0)
    waits.bound(B, 1, 145.0)
    assert waits.seconds == {A: 15.0, B: 45.0}


def test_only_grace_while_the_pod_waited_counts_and_only_once():
    waits = Waits()
    for uid, asked, gone in (("a", 80.0, 110.0), ("b", 120.0, 150.0), ("c", 200.0, 230.0)):
        waits.asked(uid, 0, asked)
        waits.gone(uid, gone)
    waits.bound(A, 0, 240.0)
    assert waits.seconds == {A: 140.0 - 30.0}


def test_who_left_for_no_online_pod_excuses_nothing():
    waits = Waits()
    waits.gone("job-1-0", 140.0)
    waits.bound(A, 0, 140.0)
    assert waits.seconds == {A: 40.0}


def test_a_pod_that_ends_unbound_has_waited_until_then():
    waits = Waits()
    waits.in_vain(A, 400.0)
    assert waits.seconds == {A: 300.0}


def test_waits_are_compared_pod_by_pod():
    """As long a longest wait as alone, but of another pod."""
    assert later({A: 0.0, B: 420.0}, {A: 420.0, B: 0.0}) == 420.0
    assert later({A: 420.0, B: 0.0}, {A: 420.0, B: 0.0}) == 0.0
    assert later({A: 7.0}, {}) == 7.0
    assert later({}, {A: 7.0}) == 0.0
