"""Probes as data: what is signed counts once, from whom was asked; all else changes nothing, within bounds."""

from __future__ import annotations

from random import Random

import pytest

from shared.agent import echo
from shared.agent.echo import Address, EchoAnswer, Probe
from shared.agent.probing import Probing, ProbingSettings
from shared.agent.vivaldi import Coordinate

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
A: Address = ("10.0.0.1", 9000)
B: Address = ("10.0.0.2", 9000)
C: Address = ("10.0.0.3", 9000)


def agent(here: Address, seed: int, **settings: float) -> Probing:
    drawn = Random(f"nonce{seed}")
    probing = Probing(Random(seed), lambda: drawn.randbytes(16), here=here, settings=ProbingSettings(**settings))  # type: ignore[arg-type]
    probing.use_keys([KEY])
    return probing


def asked(a: Probing, b: Probing, now_s: float = 10.0) -> tuple[bytes, bytes]:
    """A probe of a to B, and b's answer to it."""
    a.meet([B])
    [(to, datagram)] = a.due(now_s)
    assert to == B
    back = b.received(datagram, A, now_s)
    assert back is not None
    assert back[0] == A
    return datagram, back[1]


def test_a_probe_and_its_answer_are_one_sample() -> None:
    a, b = agent(A, 1), agent(B, 2)
    b.meet([C])
    b.vivaldi.take(C, 5.0, Coordinate())
    standing = b.coordinate
    _, answer = asked(a, b)
    assert a.coordinate is None
    assert a.received(answer, B, 10.020) is None
    assert a.coordinate is not None
    assert a.vivaldi.known(B) == pytest.approx(20.0)
    assert C in a.neighbours, "an answer names peers of its sender"
    assert b.coordinate == standing, "whoever is asked learns nothing"


def test_nobody_is_named_to_others_who_never_answered() -> None:
    a, b = agent(A, 1), agent(B, 2)
    b.meet([C])
    _, answer = asked(a, b)
    assert a.received(answer, B, 10.020) is None
    assert a.neighbours == [B]


def test_an_address_that_nobody_has_is_soon_probed_no_more() -> None:
    """Agents that told each other of what they only heard of would keep it alive for ever."""
    places = [(f"10.0.1.{number}", 9000) for number in range(12)]
    mesh = {here: agent(here, number) for number, here in enumerate(places)}
    for one in mesh.values():
        one.meet(places)
    mesh[places[0]].meet([C])
    now_s = 0.0
    for step in range(1200):
        now_s = step * 0.25
        for here, one in mesh.items():
            for to, datagram in one.due(now_s):
                back = mesh[to].received(datagram, here, now_s) if to in mesh else None
                if back is not None:
                    one.received(back[1], to, now_s + 0.01)
    assert [here for here, one in mesh.items() if C in one.neighbours] == []
    assert all(one.coordinate is not None for one in mesh.values())


@pytest.mark.parametrize(
    ("host", "may"), [("::1", True), ("127.0.0.1", True), ("fd00::7", True), ("240.0.0.1", False), ("ff02::1", False),
                      ("255.255.255.255", False), ("::", False), ("::ffff:10.0.0.1", False), ("shop.example", False)],
)  # fmt: skip
def test_an_address_that_may_be_probed_is_one_hosts(host: str, may: bool) -> None:
    assert echo.may_be_probed((host, 9000)) is may


@pytest.mark.parametrize("spoil", ["key", "bit", "short", "long", "kind", "empty"])
def test_a_forged_datagram_changes_nothing_and_gets_no_answer(spoil: str) -> None:
    a, b = agent(A, 1), agent(B, 2)
    if spoil == "key":
        b.use_keys([OTHER_KEY])
    probe = echo.probe(KEY, bytes(16), A, B)
    forged = {
        "key": probe, "bit": probe[:40] + b"\x01" + probe[41:], "short": probe[:-1], "long": probe + b"\0",
        "kind": probe[:5] + b"\x02" + probe[6:], "empty": b"",
    }[spoil]  # fmt: skip
    if spoil == "key":
        a.meet([B])
        [(_, sent)] = a.due(1.0)
        lone = Probing(Random(3), lambda: bytes(16), here=C)
        lone.use_keys([OTHER_KEY])
        assert lone.received(sent, A, 1.0) is None
        assert lone.counts.forged == 1
        return
    assert b.received(forged, A, 10.0) is None
    assert (b.counts.served, b.counts.forged, b.coordinate) == (0, 1, None)


def test_an_answer_told_twice_late_from_elsewhere_or_unasked_changes_nothing() -> None:
    a, b = agent(A, 1), agent(B, 2)
    _, answer = asked(a, b)
    a.received(answer, C, 10.020)
    assert (a.coordinate, a.counts.stray) == (None, 1)
    a.received(answer, B, 10.020)
    known = a.coordinate
    a.received(answer, B, 10.021)
    assert (a.coordinate, a.counts.stray) == (known, 2)
    late = agent(A, 5)
    _, answer = asked(late, b, 20.0)
    late.received(answer, B, 20.0 + late.settings.open_s + 0.1)
    assert (late.coordinate, late.counts.stray) == (None, 1)
    unasked = echo.answer(KEY, bytes(16), held_us=0, coordinate=Coordinate(), peers=())
    a.received(unasked, B, 30.0)
    assert a.counts.stray == 3


def probes(count: int) -> list[bytes]:
    """Different probes of A to B."""
    return [echo.probe(KEY, number.to_bytes(16), A, B) for number in range(count)]


def test_a_recorded_probe_sent_again_gets_no_answer() -> None:
    a, b = agent(A, 1), agent(B, 2)
    probe, _ = asked(a, b)
    assert b.received(probe, A, 11.0) is None
    assert (b.counts.served, b.counts.replayed) == (1, 1)
    assert (b.coordinate, b.neighbours) == (None, [])


def test_without_its_memory_a_recorded_probe_would_be_answered_again() -> None:
    a, b = agent(A, 1), agent(B, 2)
    probe, _ = asked(a, b)
    forgetful = agent(B, 2)
    assert forgetful.received(probe, A, 11.0) is not None


def test_a_recorded_probe_is_of_no_use_once_its_keys_are_gone() -> None:
    a, forgetful = agent(A, 1), agent(B, 2)
    a.meet([B])
    [(_, probe)] = a.due(10.0)
    forgetful.use_keys([b"2" * 32, b"3" * 32])
    forgetful.use_keys([b"3" * 32, b"4" * 32])
    assert forgetful.received(probe, A, 200.0) is None
    assert forgetful.counts.forged == 1


def test_a_recorded_probe_makes_nobody_answer_another_and_no_other_agent_answer() -> None:
    a, b, c = agent(A, 1), agent(B, 2), agent(C, 3)
    a.meet([B])
    [(_, probe)] = a.due(10.0)
    assert b.received(probe, C, 11.0) is None, "its answer would go to somebody who never asked"
    assert c.received(probe, A, 11.0) is None
    assert (b.counts.misled, c.counts.misled) == (1, 1)


def test_without_the_addresses_in_it_a_recorded_probe_would_be_good_anywhere() -> None:
    """The safeguard switched off: an agent that takes itself for the one that was asked."""
    a, c = agent(A, 1), agent(B, 3)
    a.meet([B])
    [(_, probe)] = a.due(10.0)
    assert c.received(probe, A, 11.0) is not None


def test_what_is_remembered_of_answered_probes_is_bounded_and_goes_with_its_key() -> None:
    b = agent(B, 2, answers_per_s=1e9, reads_per_s=1e9, remembered=100)
    assert sum(b.received(probe, A, 5.0) is not None for probe in probes(500)) == 100
    assert b.counts.limited == 400
    b.use_keys([OTHER_KEY, KEY])
    assert b.received(echo.probe(OTHER_KEY, bytes(16), A, B), A, 6.0) is not None
    assert b.received(probes(101)[100], A, 6.0) is None, "the full key stays full"


def test_answers_are_bounded_by_a_rate() -> None:
    b = agent(B, 2, answers_per_s=10.0)
    *some, last = probes(501)
    answered = sum(b.received(probe, A, 5.0) is not None for probe in some)
    assert answered == 20
    assert b.counts.limited == 480
    assert b.received(last, A, 6.0) is not None


def test_without_the_rate_every_probe_would_be_answered() -> None:
    b = agent(B, 2, answers_per_s=1e9, reads_per_s=1e9)
    assert sum(b.received(probe, A, 5.0) is not None for probe in probes(500)) == 500


def test_no_more_probes_are_sent_than_the_rate_allows_whoever_is_known() -> None:
    a = agent(A, 1, per_s=4.0, failures=10**9)
    a.meet([(f"10.1.0.{number}", 9000) for number in range(1, 200)])
    assert len(a.neighbours) == a.settings.neighbours
    sent = sum(len(a.due(step / 100)) for step in range(6000))
    assert 150 <= sent <= 60 * 4


def test_without_the_rate_a_hundred_times_as_many_would_be_sent() -> None:
    a = agent(A, 1, per_s=400.0, failures=10**9)
    a.meet([B])
    assert sum(len(a.due(step / 100)) for step in range(6000)) > 60 * 50


def test_no_more_signatures_are_looked_at_than_a_rate() -> None:
    b, flood = agent(B, 2, reads_per_s=50.0), [bytes([number]) * echo.SIZE for number in range(200)]
    for datagram in flood:
        b.received(datagram, A, 5.0)
    assert (b.counts.forged, b.counts.limited) == (100, 100)
    free = agent(B, 2, reads_per_s=1e9)
    for datagram in flood:
        free.received(datagram, A, 5.0)
    assert free.counts.forged == 200, "the safeguard switched off"


def test_an_answer_is_no_larger_than_the_probe() -> None:
    answer = echo.answer(KEY, bytes(16), held_us=5, coordinate=Coordinate(), peers=[A, B, C, A])
    assert len(answer) == len(echo.probe(KEY, bytes(16), A, B)) == echo.SIZE


def test_a_neighbour_that_never_answers_is_let_go() -> None:
    a = agent(A, 1)
    a.meet([B])
    for step in range(200):
        a.due(step * 0.5)
    assert a.neighbours == []


def test_a_neighbour_that_tells_nothing_believable_is_let_go() -> None:
    a, nowhere = agent(A, 1), Coordinate((float("nan"), 0.0, 0.0), 0.1, 0.1)
    a.meet([B])
    for step in range(a.settings.failures):
        assert a.neighbours == [B]
        [(_, datagram)] = a.due(10.0 * step)
        asked = echo.read([KEY], datagram)
        assert asked is not None
        answer = echo.answer(KEY, asked[0].nonce, held_us=0, coordinate=nowhere, peers=())
        a.received(answer, B, 10.0 * step + 0.020)
    assert (a.neighbours, a.counts.unbelievable, a.coordinate) == ([], a.settings.failures, None)


def test_a_neighbour_that_is_gone_pulls_at_nobody_any_more() -> None:
    """Each sample is followed by steps against peers remembered: those that are gone would hold a node for ever."""
    a, b = agent(A, 1), agent(B, 2)
    _, answer = asked(a, b)
    a.received(answer, B, 10.020)
    assert a.vivaldi.known(B) is not None
    for step in range(200):
        a.due(20.0 + step * 0.5)
    assert a.vivaldi.known(B) is None


@pytest.mark.parametrize(
    "address", ["224.0.0.1", "255.255.255.255", "0.0.0.0", "ff02::1", "::", "no address", "10.0.0.256"]
)
def test_nobody_can_make_agents_shout_at_a_network(address: str) -> None:
    a = agent(A, 1)
    a.meet([(address, 9000), ("10.0.0.9", 0), A])
    assert a.neighbours == []


def test_a_new_leaders_key_holds_beside_the_one_before() -> None:
    a = agent(A, 1)
    a.use_keys([OTHER_KEY])
    for key in (KEY, OTHER_KEY):
        assert a.received(echo.probe(key, bytes(16), B, A), B, 1.0) is not None
    a.use_keys([b"n" * 32])
    assert a.received(echo.probe(KEY, b"1" * 16, B, A), B, 2.0) is None


def test_what_is_written_is_read() -> None:
    there = Coordinate((1.5, -2.5, 0.0), 0.25, 0.125)
    answer = echo.answer(KEY, b"n" * 16, held_us=7, coordinate=there, peers=[A, ("fd00::1", 53)])
    assert echo.read([OTHER_KEY, KEY], answer) == (EchoAnswer(b"n" * 16, 7, there, (A, ("fd00::1", 53))), KEY)
    assert echo.read([KEY], echo.probe(KEY, b"n" * 16, A, ("fd00::1", 53))) == (
        Probe(b"n" * 16, A, ("fd00::1", 53)),
        KEY,
    )
    assert echo.read([], answer) is None
