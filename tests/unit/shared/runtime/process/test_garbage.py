"""The collector's pauses do not grow with what a service holds."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from shared.runtime.process import garbage


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    if garbage._collected in gc.callbacks:
        gc.callbacks.remove(garbage._collected)
    gc.freeze()  # as ``tests/conftest.py`` leaves it: all that these tests found there


def visited(held: list[list[int]]) -> int:
    """How many of ``held`` the next full collection would visit."""
    ours = {id(one) for one in held}
    return sum(id(one) in ours for one in gc.get_objects())


def test_a_full_collection_does_not_visit_what_survived_the_one_before() -> None:
    garbage.keep_pauses_short()
    held = [[n] for n in range(1000)]
    assert visited(held) == 1000
    gc.collect()
    assert visited(held) == 0


def test_without_it_a_full_collection_visits_all_again() -> None:
    held = [[n] for n in range(1000)]
    gc.collect()
    assert visited(held) == 1000


def grown_until_full(most: int) -> bool:
    """Whether a full collection comes while so many containers are made."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            seen.append(len(held))

    held: list[list[int]] = []
    gc.callbacks.append(note)
    try:
        while len(held) < most:
            held.append([0])
    finally:
        gc.callbacks.remove(note)
    return bool(seen)


def test_the_first_full_collection_comes_before_much_has_gathered() -> None:
    before = [[n] for n in range(200_000)]
    garbage.keep_pauses_short()
    assert grown_until_full(40_000), "the 200,000 that lived before put the first one off"
    del before


async def test_after_all_was_visited_the_next_full_collection_is_not_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [[n] for n in range(200_000)]
    garbage.keep_pauses_short()
    await as_if_grown(monkeypatch)
    assert grown_until_full(40_000), "what was visited put the next one off"
    del before


async def as_if_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has doubled, and a full collection sees it; the loop turns."""
    with monkeypatch.context() as patch:
        patch.setattr(garbage, "GROWTH", 0.0)
        gc.collect()
        await asyncio.sleep(0)


class Ring:
    """Refers to itself: no reference count frees it."""

    def __init__(self) -> None:
        self.self = self


def test_a_young_cycle_is_collected_as_ever() -> None:
    garbage.keep_pauses_short()
    left = weakref.ref(Ring())
    gc.collect()
    assert left() is None


async def test_a_cycle_that_outlived_a_full_collection_goes_once_the_process_grew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    garbage.keep_pauses_short()
    ring = Ring()
    gc.collect()
    left = weakref.ref(ring)
    del ring
    gc.collect()
    assert left() is not None
    await as_if_grown(monkeypatch)
    assert left() is None


async def test_all_is_visited_between_two_turns_not_in_the_middle_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    garbage.keep_pauses_short()
    ring = Ring()
    gc.collect()
    left = weakref.ref(ring)
    del ring
    with monkeypatch.context() as patch:  # no longer, or the loop's end would visit all again and again
        patch.setattr(garbage, "GROWTH", 0.0)
        gc.collect()
        assert left() is not None, "the turn that goes on paid for it"
        await asyncio.sleep(0)
    assert left() is None


def test_a_process_that_does_not_grow_visits_what_lives_no_second_time() -> None:
    garbage.keep_pauses_short()
    held = [[n] for n in range(1000)]
    for _ in range(10):
        gc.collect()
        assert visited(held) == 0
