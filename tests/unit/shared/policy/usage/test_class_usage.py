"""What pods really use is found from nodes' measurements, and only from those."""

from __future__ import annotations

import numpy as np
import pytest

from shared.policy.usage import class_usage
from shared.policy.usage.class_usage import LIMIT, OTHER, ClassUsage

REAL = np.array([[0.075, 0.005, 0.0, 0.0], [0.0125, 0.0026, 0.0, 0.04], [0.02, 0.0157, 0.05, 0.0]])
REQUESTED = np.array([0.025, 0.0084, 0.0, 0.0])
ONE = np.ones((1, 4))


def learned(samples: int, *, noise: float = 0.0, seed: int = 1) -> tuple[ClassUsage, list[int]]:
    rng = np.random.default_rng(seed)
    usage = ClassUsage()
    columns = [usage.column(name, REQUESTED) for name in "abc"]
    for _ in range(samples):
        counts = np.zeros((4, usage.columns))
        counts[:, columns] = rng.integers(0, 5, (4, 3))
        measured = counts[:, columns] @ REAL * rng.uniform(1 - noise, 1 + noise, (4, 4))
        usage.learn(counts, measured, np.ones((4, 4)))
    return usage, columns


def test_use_per_workload_is_recovered_from_sums_alone() -> None:
    usage, columns = learned(20)
    np.testing.assert_allclose(usage.use[columns], REAL, atol=5e-4)


def test_noisy_measurements_are_averaged_out() -> None:
    usage, columns = learned(400, noise=0.1)
    np.testing.assert_allclose(usage.use[columns], REAL, atol=2e-3)


def test_a_workload_never_seen_counts_by_its_requests() -> None:
    usage = ClassUsage()
    column = usage.column("new", REQUESTED)
    np.testing.assert_allclose(usage.use[column], REQUESTED)
    assert usage.evidence(column) == 0.0


def test_a_full_node_teaches_nothing() -> None:
    usage = ClassUsage()
    column = usage.column("a", REQUESTED)
    counts = np.zeros((1, usage.columns))
    counts[0, column] = 40
    usage.learn(counts, np.array([[1.0, 0.2, 0.0, 0.0]]), ONE)
    np.testing.assert_allclose(usage.use[column], REQUESTED)


def test_without_that_rule_a_full_node_would_hide_what_pods_want(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_usage, "CENSORED", 2.0)
    usage = ClassUsage()
    column = usage.column("a", REQUESTED)
    counts = np.zeros((1, usage.columns))
    counts[0, column] = 40
    usage.learn(counts, np.array([[1.0, 0.2, 0.0, 0.0]]), ONE)
    assert usage.use[column, 0] < 0.03  # 40 pods of 0.075 would be 3


def test_a_bigger_node_shows_smaller_shares_of_the_same_pod() -> None:
    usage = ClassUsage()
    column = usage.column("a", REQUESTED)
    counts = np.zeros((2, usage.columns))
    counts[:, column] = 4
    scale = np.array([[1.0] * 4, [16.0, 16.0, 1.0, 1.0]])
    for _ in range(50):
        usage.learn(counts, 4 * REAL[0] / scale, scale)
    np.testing.assert_allclose(usage.use[column, 0] * 4 + usage.use[0, 0], 4 * REAL[0, 0], rtol=0.01)


def test_a_change_of_use_is_followed() -> None:
    usage = ClassUsage()
    column = usage.column("a", REQUESTED)
    rng = np.random.default_rng(2)
    for real in (0.02, 0.06):
        for _ in range(20_000):
            counts = np.zeros((4, usage.columns))
            counts[:, column] = rng.integers(0, 5, 4)
            usage.learn(counts, counts[:, [column]] * np.full((4, 4), real), np.ones((4, 4)))
    assert usage.use[column, 0] == pytest.approx(0.06, abs=0.003)


def test_workloads_beyond_the_limit_count_as_one() -> None:
    usage = ClassUsage()
    columns = {usage.column(f"w{number}") for number in range(LIMIT + 10)}
    assert len(columns) == LIMIT + 1
    assert OTHER in columns
    assert usage.column("") == OTHER


def test_what_is_forgotten_leaves_what_was_learned_of_the_others() -> None:
    usage, columns = learned(20)
    usage.forget("b")
    np.testing.assert_allclose(usage.use[[columns[0], columns[2]]], REAL[[0, 2]], atol=1e-3)
    assert usage.column("d", REQUESTED) == columns[1]
    np.testing.assert_allclose(usage.use[columns[1]], REQUESTED)
    assert usage.evidence(columns[1]) == 0.0


def test_cutting_a_workload_out_would_give_its_use_to_the_others() -> None:
    """Ablation: without integrating out, the sums it was part of are the others' alone."""
    usage, columns = learned(20)
    usage._gram[columns[0], :] = usage._gram[:, columns[0]] = 0.0
    usage._use = None
    assert np.abs(usage.use[[columns[1], columns[2]]] - REAL[[1, 2]]).max() > 5e-3


def test_what_is_taught_counts_and_nothing_is_learned_beside_it() -> None:
    usage, columns = learned(20)
    usage.teach(columns[0], REAL[1], 0.5)
    usage.learn(np.ones((1, usage.columns)), ONE * 0.9, ONE)
    np.testing.assert_allclose(usage.use[columns[0]], REAL[1])
    np.testing.assert_allclose(usage.use[columns[1]], REQUESTED)
    assert (usage.evidence(columns[0]), usage.evidence(columns[1])) == (0.5, 0.0)
