"""Whose scheduler name it is: a foreign Lease is respected while it is renewed, by our own clock, and never longer."""

from __future__ import annotations

import random

import pytest

from shared.election.cluster_lease import (
    LONGEST_S,
    CreateLease,
    HeldLease,
    Keep,
    StayOut,
    TakeLease,
    WatchedLease,
    decide,
)


def held(holder: str, version: str = "1", duration_s: int = 30) -> HeldLease:
    return HeldLease(holder, duration_s, version, transitions=4)


def test_where_there_is_none_it_is_made() -> None:
    assert decide("a", None, None, 5.0) == (CreateLease(), None)


def test_our_own_is_kept_at_once_whoever_of_us_renewed_it() -> None:
    assert decide("a", held("a", "7"), None, 5.0) == (Keep("7", 4), None)


def test_nobodys_is_taken_at_once() -> None:
    assert decide("a", held("", "7"), None, 5.0) == (TakeLease("7", 5, ""), None)


def test_a_foreign_one_is_taken_after_its_own_duration_without_a_change_and_not_before() -> None:
    decision, watched = decide("a", held("b"), None, 100.0)
    assert decision == StayOut(held("b"), 130.0)
    assert decide("a", held("b"), watched, 129.9)[0] == StayOut(held("b"), 130.0)
    assert decide("a", held("b"), watched, 130.0) == (TakeLease("1", 5, "b"), None)


def test_each_renewal_begins_the_wait_anew() -> None:
    _, watched = decide("a", held("b"), None, 100.0)
    decision, watched = decide("a", held("b", "2"), watched, 129.0)
    assert decision == StayOut(held("b", "2"), 159.0)
    assert isinstance(decide("a", held("b", "2"), watched, 158.0)[0], StayOut)


def test_how_long_it_was_not_looked_at_does_not_count() -> None:
    """Its renewTime is another host's clock: only what we saw ourselves ends it."""
    _, watched = decide("a", held("b", "1"), None, 0.0)
    assert isinstance(decide("a", held("b", "900"), watched, 10_000.0)[0], StayOut)


@pytest.mark.parametrize(("duration_s", "after_s"), [(0, 1), (-5, 1), (10**9, LONGEST_S)])
def test_an_absurd_duration_is_bounded(duration_s: int, after_s: int) -> None:
    decision, _ = decide("a", held("b", duration_s=duration_s), None, 0.0)
    assert isinstance(decision, StayOut)
    assert decision.until == after_s


@pytest.mark.parametrize("respectful", [True, False])
def test_of_two_meshes_that_renew_in_time_one_alone_acts(respectful: bool) -> None:
    """Any order of looks, against a server that compares versions. Ablation: who takes what it sees acts beside it."""
    both = 0
    for seed in range(200):
        rng, lease, version, now = random.Random(seed), None, 0, 0.0
        acting: dict[str, float] = {}
        memory: dict[str, WatchedLease | None] = {"a": None, "b": None}
        for _ in range(60):
            now += rng.uniform(0.1, 9.0)
            for mesh in rng.sample(["a", "b"], 2):
                if mesh in acting or rng.random() < 0.5:  # who holds it renews at each turn, in time
                    decision, memory[mesh] = decide(mesh, lease, memory[mesh], now)
                    if not respectful and isinstance(decision, StayOut):
                        decision = TakeLease(decision.held.version, 0, decision.held.holder)
                    if isinstance(decision, StayOut):
                        acting.pop(mesh, None)
                        continue
                    version += 1
                    lease, acting[mesh] = HeldLease(mesh, 30, str(version)), now
            both += len(acting) > 1
    assert (both == 0) is respectful
