"""When watches owe a sign of life: how soon, at what load, and what follows where it does not come."""

from __future__ import annotations

from random import Random

import pytest

from shared.adapters.kube.signs import GRACE_S, LENGTH_S, LOST_S, Sign, WatchSigns, told

FOUND_WITHIN_S = 30.0


def watches(number: int) -> tuple[WatchSigns, list[Sign], list[str]]:
    """So many watches, all open since 0; what was left is told in the list."""
    signs, left = WatchSigns(Random(1)), []
    found = [signs.begin(f"kind{at}", 0.0) for at in range(number)]
    for sign in found:
        opened(signs, sign, 0.0, left)
    return signs, found, left


def opened(signs: WatchSigns, sign: Sign, now: float, left: list[str]) -> int:
    length_s = signs.length_s(sign, now)
    signs.opened(sign, now, length_s=length_s, took_s=0.01, leave=lambda: left.append(sign.plural))
    return length_s


@pytest.mark.parametrize("number", [1, 6, 18, 30, 100])
def test_a_blind_watch_is_found_within_thirty_seconds(number: int) -> None:
    signs, found, left = watches(number)
    for _ in range(50):
        for sign in found:
            length_s = opened(signs, sign, 0.0, left)
            assert length_s + GRACE_S <= FOUND_WITHIN_S
            assert sign.due_at is not None
            assert sign.due_at <= FOUND_WITHIN_S


@pytest.mark.parametrize("number", [1, 6, 18, 30, 100])
def test_a_watch_is_opened_no_oftener_than_its_sign_needs(number: int) -> None:
    signs, found, left = watches(number)
    lengths = [opened(signs, sign, 0.0, left) for sign in found for _ in range(20)]
    assert sum(lengths) / len(lengths) >= 0.9 * LENGTH_S


def test_watches_that_began_together_do_not_end_together() -> None:
    signs = WatchSigns(Random(1))
    lengths = {signs.length_s(signs.begin(f"kind{at}", 0.0), 0.0) for at in range(18)}
    assert len(lengths) > 6
    assert max(lengths) - min(lengths) > LENGTH_S / 4


def test_who_keeps_sending_is_alive_though_the_end_is_late() -> None:
    signs, (sign,), _ = watches(1)
    assert sign.due_at is not None
    late = sign.due_at + 100.0
    signs.heard(sign, late)
    assert sign.due_at == late + GRACE_S


def test_bytes_do_not_put_off_the_end_that_is_due() -> None:
    signs, (sign,), _ = watches(1)
    before = sign.due_at
    signs.heard(sign, 1.0)
    assert sign.due_at == before


def test_a_strained_server_is_asked_for_long_streams_and_its_bookmarks_are_the_signs() -> None:
    signs, (sign,), left = watches(1)
    signs.strained(0.0)
    length_s = opened(signs, sign, 10.0, left)
    assert length_s >= 290
    assert sign.due_at == 10.0 + signs.silence_s + GRACE_S
    signs.bookmarked(sign, 70.0, length_s=length_s)
    assert sign.due_at == 70.0 + signs.silence_s + GRACE_S
    assert signs.length_s(sign, 1000.0) <= LENGTH_S


def test_a_slow_answer_is_a_strained_servers() -> None:
    signs, (sign,), _ = watches(1)
    signs.opened(sign, 0.0, length_s=20, took_s=10.0, leave=lambda: None)
    assert signs.length_s(sign, 1.0) >= 290


def test_a_blind_watch_is_told_for_a_minute_and_the_silent_ones_are_left() -> None:
    signs, found, left = watches(3)
    signs.heard(found[1], 26.0)
    signs.left(found[0])
    signs.missed(found[0], 27.0)
    assert left == ["kind2"]
    for sign in (found[0], found[2]):
        opened(signs, sign, 27.5, left)
    assert [(one.plural, one.silent_s, one.over) for one in signs.lost(28.0)] == [
        ("kind0", 27.0, True),
        ("kind2", 27.0, True),
    ]
    assert "kind0, kind2 gave no sign" in told(signs.lost(28.0))
    assert signs.lost(90.0) == []
    assert told([]) == ""


def test_a_watch_that_cannot_be_opened_is_told_while_it_is_lost() -> None:
    signs, (sign,), left = watches(1)
    signs.heard(sign, 10.0)
    signs.left(sign)
    assert signs.lost(10.0 + LOST_S) == []
    (lost,) = signs.lost(11.0 + LOST_S)
    assert (lost.plural, lost.over) == ("kind0", False)
    assert "nothing is heard of kind0" in told([lost])
    opened(signs, sign, 40.0, left)
    assert signs.lost(41.0) == []


def test_what_is_listed_anew_stays_unheard_until_its_watch_goes_on() -> None:
    signs, (sign,), _ = watches(1)
    signs.left(sign)
    signs.pause(sign)
    assert [one.plural for one in signs.lost(60.0)] == ["kind0"]
    assert signs.begin("kind0", 61.0) is sign
    signs.end(sign)
    assert signs.lost(1000.0) == []
    assert signs.silent_s(1000.0) == 0.0


def test_a_kind_that_is_served_no_more_is_no_silent_watch() -> None:
    signs, (sign, other), _ = watches(2)
    for one in (sign, other):
        signs.left(one)
        signs.pause(one)
    signs.unserved("kind0")
    assert [one.plural for one in signs.lost(1000.0)] == ["kind1"]
    signs.unserved("kind1")
    assert signs.silent_s(1000.0) == 0.0
