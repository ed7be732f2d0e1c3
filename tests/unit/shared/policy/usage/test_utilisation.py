"""The store of what nodes use: late samples are brought up to now, and what is missing says so."""

from __future__ import annotations

import numpy as np
import pytest

from shared.policy.usage import class_usage, utilisation
from shared.policy.usage.node_use import VIEWS
from shared.policy.usage.utilisation import OLD_SAMPLE_S, UtilisationStore

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


@pytest.mark.parametrize("ended_s", [70.0, 100.0, 200.0])
def test_an_end_that_is_told_before_time_goes_on_leaves_no_phantom(ended_s: float) -> None:
    store = taught(pods=1)
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


def test_a_node_that_left_is_forgotten_with_its_pods_and_its_place_is_given_anew() -> None:
    store = taught()
    store.bound("late", "a", "w", now_s=60.0)
    before = store.usage.use.copy()
    store.forget(["a", "never heard of"])
    assert list(store.nodes) == ["b"]
    assert store.standing("a") == {}
    store.ended("p0", now_s=61.0)  # it is not known any more
    np.testing.assert_array_equal(store.usage.use, before)  # what its workload uses stays learned
    slot = store.slot("c")
    seen = store.look(np.array([slot, store.nodes["b"]]))
    assert not seen.known[0]
    assert seen.pods.tolist() == [0, 0]
    np.testing.assert_allclose(seen.parts[0, YOUNG:], 0.0)
    store.bound("p0", "c", "w", now_s=61.0)
    store.advance(300.0)  # what was to grow old on the first node changes nothing on the second
    assert store.look(np.array([slot])).parts[0, YOUNG:].max() == 0.0
    assert store.standing("c") == {"w": 1}


def test_a_store_that_saw_many_nodes_come_and_go_is_as_large_as_what_is_there() -> None:
    store = UtilisationStore()
    for number in range(1000):
        store.measure(f"n{number}", CPU_POD, at_s=1.0)
        store.forget([f"n{number - 4}"])
    assert len(store.nodes) == 4
    assert store.slot("one more") < 16


def test_who_tells_of_pods_may_begin_again() -> None:
    store = taught()
    store.bound("late", "b", "w", now_s=60.0)
    store.forget_pods()
    for number in range(4):
        store.bound(f"again-{number}", "a", "w", now_s=0.0)
    store.bound("again-late", "b", "w", now_s=60.0)
    found = look(store)
    np.testing.assert_allclose(found[0, NOW], 4 * CPU_POD, atol=2e-3)  # old pods are in the sample already
    np.testing.assert_allclose(found[1, NOW], CPU_POD, atol=2e-3)
    assert found[0, YOUNGER, 0] == pytest.approx(0.3, abs=5e-3)
    store.advance(91.0)
    assert look(store)[0, YOUNGER, 0] == 0.0


def test_pods_that_live_faster_grow_old_faster() -> None:
    store = UtilisationStore(speed=10.0)
    store.measure("a", np.zeros(4), at_s=0.0)
    store.bound("p", "a", "w", now_s=0.0, requested=CPU_POD)
    store.advance(8.9)
    assert store.look(np.array([0])).parts[0, YOUNGER, 0] == pytest.approx(0.075)
    store.advance(9.1)
    assert store.look(np.array([0])).parts[0, YOUNGER, 0] == 0.0
    store.advance(OLD_SAMPLE_S / 10 + 0.1)
    assert not store.look(np.array([0])).known[0]


def test_one_changed_node_among_many_is_looked_at_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utilisation, "FEW_NODES", 0)
    rng, store = np.random.default_rng(1), UtilisationStore()
    now_s, alive = 0.0, []
    for number in range(300):
        now_s += 1.0
        store.advance(now_s)
        match int(rng.integers(4)):
            case 0 | 1:
                store.bound(f"p{number}", f"n{rng.integers(5)}", f"w{rng.integers(3)}", now_s=now_s, requested=CPU_POD)
                alive.append(f"p{number}")
            case 2 if alive:
                store.ended(alive.pop(int(rng.integers(len(alive)))), now_s=now_s)
            case _:
                store.measure(f"n{rng.integers(5)}", rng.random(4), at_s=now_s - 3.0)
        slots = np.arange(len(store.nodes))
        quick = store.look(slots).parts
        store._by_use = None  # everything from the start
        np.testing.assert_allclose(store.look(slots).parts, quick, atol=1e-12)


def test_workloads_that_are_gone_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_usage, "LIMIT", 3)
    store = taught()
    for number in range(9):
        store.bound(f"q{number}", "b", f"v{number}", now_s=60.0 + number, requested=CPU_POD)
        assert store.standing("b") == {f"v{number}": 1}
        store.measure("b", CPU_POD, at_s=61.5 + number)
        store.ended(f"q{number}", now_s=61.6 + number)
        store.measure("b", np.zeros(4), at_s=61.9 + number)
    assert "w" in store.usage.workloads  # pods of it stand
    np.testing.assert_allclose(look(store)[0, MODELLED], 4 * CPU_POD, atol=2e-3)
    for name in ("x", "y", "z"):
        store.bound(name, "b", name, now_s=70.0, requested=CPU_POD)
    assert sum(store.standing("b").values()) == 3
    assert store.standing("b")[""] == 1  # no column is free: it counts with the others


def churned(*, seconds: int) -> UtilisationStore:
    """Nobody measures; each second a pod comes, and goes half a second later; one stays."""
    store = UtilisationStore()
    store.bound("stays", "a", "w", now_s=0.0, requested=CPU_POD)
    for number in range(seconds):
        store.bound(f"p{number}", "a", "w", now_s=float(number), requested=CPU_POD)
        store.ended(f"p{number}", now_s=number + 0.5)
        store.advance(float(number))
    return store


def test_where_nobody_measures_changes_do_not_pile_up() -> None:
    store = churned(seconds=3000)
    assert sum(len(waiting) for waiting in store._unseen.values()) <= 5 * OLD_SAMPLE_S
    np.testing.assert_allclose(store.look(np.array([0])).parts[0, NOW], CPU_POD)
    store.measure("a", CPU_POD, at_s=3100.0)
    np.testing.assert_allclose(store.look(np.array([0])).parts[0, NOW], CPU_POD)  # shown, and counted once


def test_without_folding_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UtilisationStore, "_fold", lambda self, until_s: None)
    assert sum(len(waiting) for waiting in churned(seconds=3000)._unseen.values()) > 5000


def test_where_all_workloads_stand_room_is_looked_for_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy asks for each group it judges, and a look goes through all nodes."""
    monkeypatch.setattr(class_usage, "LIMIT", 3)
    store = UtilisationStore()
    for name in "abc":
        store.bound(name, "n", name, now_s=0.0)
    assert store.column("d") == class_usage.OTHER
    store.ended("a", now_s=1.0)
    store.measure("n", np.zeros(4), at_s=5.0)
    store.advance(5.0)
    assert store.column("d") == class_usage.OTHER
    store.advance(OLD_SAMPLE_S / 20)
    assert store.column("d") != class_usage.OTHER
