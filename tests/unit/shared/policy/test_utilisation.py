"""The store of what nodes use: late samples are brought up to now, and what is missing says so."""

from __future__ import annotations

import numpy as np
import pytest

from shared.policy.utilisation import OLD_SAMPLE_S, VIEWS, UtilisationStore

NOW, MODELLED, YOUNG, YOUNGER = range(len(VIEWS))
CPU_POD = np.array([0.075, 0.005, 0.0, 0.0])


def taught(*, pods: int = 4) -> UtilisationStore:
    """Two nodes; ``a`` runs ``pods`` pods of one workload since 0 s, well measured."""
    store = UtilisationStore(start_delay_s=1.0)
    for node in ("a", "b"):
        store.slot(node)
    for number in range(pods):
        store.bound(f"p{number}", "a", "w", now_s=0.0)
    for at_s in np.arange(2.0, 60.0, 2.0):
        store.measure_all(np.array([pods * CPU_POD, np.zeros(4)]), at_s=float(at_s))
    store.advance(60.0)
    return store


def look(store: UtilisationStore) -> np.ndarray:
    return store.look(np.array([0, 1])).parts


def test_a_pod_bound_after_the_sample_counts_at_once() -> None:
    store = taught()
    store.bound("late", "b", "w", now_s=60.0)
    np.testing.assert_allclose(look(store)[1, NOW], CPU_POD, atol=2e-3)


def test_a_pod_that_ended_after_the_sample_counts_no_more() -> None:
    store = taught()
    store.ended("p0", now_s=60.0)
    np.testing.assert_allclose(look(store)[0, NOW], 3 * CPU_POD, atol=2e-3)


def test_a_sample_that_shows_the_change_is_not_counted_twice() -> None:
    store = taught()
    store.bound("late", "b", "w", now_s=60.0)
    store.measure_all(np.array([4 * CPU_POD, CPU_POD]), at_s=61.5)
    np.testing.assert_allclose(look(store)[1, NOW], CPU_POD, atol=1e-6)


def test_a_pod_that_starts_after_the_sample_is_still_awaited() -> None:
    store = taught()
    store.bound("late", "b", "w", now_s=60.0)
    store.measure_all(np.array([4 * CPU_POD, np.zeros(4)]), at_s=60.5)
    np.testing.assert_allclose(look(store)[1, NOW], CPU_POD, atol=2e-3)


def test_one_nodes_sample_leaves_the_others_changes_alone() -> None:
    store = taught()
    store.bound("x", "b", "w", now_s=60.0)
    store.measure("a", 4 * CPU_POD, at_s=62.0)
    np.testing.assert_allclose(look(store)[1, NOW], CPU_POD, atol=2e-3)
    store.measure("b", CPU_POD, at_s=62.0)
    np.testing.assert_allclose(look(store)[1, NOW], CPU_POD, atol=1e-6)


def test_samples_that_cannot_be_are_ignored() -> None:
    store = taught()
    before = look(store).copy()
    store.measure("a", np.array([np.nan, 0, 0, 0]), at_s=70.0)
    store.measure("a", np.array([-0.1, 0, 0, 0]), at_s=70.0)
    store.measure("a", np.zeros(4), at_s=3.0)  # older than the last one
    np.testing.assert_equal(look(store), before)


def test_use_grows_old() -> None:
    store = taught()
    store.advance(89.0)
    assert look(store)[0, YOUNGER, 0] > 0.2
    store.advance(91.0)
    assert look(store)[0, YOUNGER, 0] == 0
    assert look(store)[0, YOUNG, 0] > 0.2
    store.advance(181.0)
    assert look(store)[0, YOUNG, 0] == 0
    assert look(store)[0, MODELLED, 0] > 0.2


@pytest.mark.parametrize("ended_s", [70.0, 100.0, 200.0])
def test_an_end_takes_from_the_ages_that_still_hold_the_pod(ended_s: float) -> None:
    store = taught(pods=1)
    store.advance(ended_s)
    store.ended("p0", now_s=ended_s)
    store.advance(500.0)
    assert not look(store)[:, YOUNG:].any()


def test_events_heard_twice_change_nothing() -> None:
    store = taught()
    store.bound("p0", "a", "w", now_s=61.0)
    store.ended("p1", now_s=61.0)
    store.ended("p1", now_s=61.0)
    store.ended("never heard of", now_s=61.0)
    np.testing.assert_allclose(look(store)[0, NOW], 3 * CPU_POD, atol=2e-3)


def test_a_node_without_a_sample_or_with_an_old_one_says_so() -> None:
    store = taught()
    assert store.look(np.array([0, -1])).known.tolist() == [True, False]
    store.advance(60.0 + OLD_SAMPLE_S)
    assert not store.look(np.array([0])).known[0]
    assert not UtilisationStore().look(np.array([-1, -1])).known.any()


def test_limits_of_a_node_never_heard_of_are_kept() -> None:
    """The slot was made after the array was taken hold of: the first node ended in an IndexError."""
    store = UtilisationStore()
    for name in ("n1", "n2", "n3"):
        store.limits(name, np.array([2.0, 1.0, 1.0, 1.0]))
    assert store.look(np.array([0, 1, 2])).scale[:, 0].tolist() == [2.0, 2.0, 2.0]
