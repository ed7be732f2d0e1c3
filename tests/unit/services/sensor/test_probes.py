"""The sensor's sockets: probes between two, targets that answer or do not, names, and the kubelet's question."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from services.sensor.log import SensorLog
from services.sensor.probes import AT_ONCE, KEPT_S, MOST_ASKING, RESOLVED_S, Names, Probes, nonce
from shared.agent.probing import Probing, ProbingSettings
from shared.agent.target_times import TargetTimes
from shared.wire.readings import ProbeTarget
from tests.patience import PATIENCE_S

KEY = b"k" * 32


class One:
    """One sensor's probing."""

    def __init__(self, seed: int, *, alive: Callable[[], bool] = lambda: True) -> None:
        rng = random.Random(seed)
        self.lines: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.probing = Probing(rng, nonce, settings=ProbingSettings(per_s=50.0, answers_per_s=1000.0))
        self.times = TargetTimes(rng)
        self.names = Names()
        log = SensorLog("n", "debug", write=lambda line: self.lines.append(json.loads(line)))
        self.probes = Probes(self.probing, self.times, self.names, self.lock, log, alive=alive)

    def listen(self, host: str = "127.0.0.1") -> tuple[str, int]:
        at = self.probes.listen((host, 0), ("127.0.0.1", 0))
        assert at is not None
        self.probing.here = at if host == "127.0.0.1" else ("127.0.0.1", at[1])
        self.probing.use_keys([KEY])
        return self.probing.here

    def until(self, true: Callable[[], bool]) -> None:
        """Take turns until it is true."""
        end = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < end
            self.probes.turn(0.01)


@contextmanager
def running(one: One) -> Iterator[One]:
    stopping = threading.Event()
    thread = threading.Thread(target=one.probes.run, args=(stopping,))
    thread.start()
    try:
        yield one
    finally:
        stopping.set()
        thread.join()
        one.probes.close()


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_two_sensors_measure_the_way_between_them(host: str) -> None:
    mine, other = One(1), One(2)
    there = other.listen(host)
    mine.listen()
    mine.probing.meet([there])
    with running(other):
        mine.until(lambda: mine.probing.counts.answered >= 3)
    assert mine.probing.coordinate is not None
    assert other.probing.counts.served >= 3
    assert other.probing.counts.misled == other.probing.counts.forged == 0
    mine.probes.close()


def test_an_answer_of_somebody_else_counts_for_nothing() -> None:
    """A stranger without the key, and one with an old recording, change no coordinate."""
    mine = One(1)
    here = mine.listen()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.settimeout(PATIENCE_S)
        mine.probing.meet([stranger.getsockname()])
        mine.until(lambda: mine.probing.counts.sent > 0)
        probe, _ = stranger.recvfrom(512)
        for answer in (b"x" * 192, probe, b""):
            stranger.sendto(answer, here)
        mine.until(lambda: mine.probing.counts.forged >= 1 and mine.probing.counts.misled >= 1)
    assert mine.probing.counts.answered == 0
    assert mine.probing.coordinate is None
    mine.probes.close()


def test_targets_are_tried_by_a_handshake_and_who_is_not_there_fails() -> None:
    mine = One(1)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        targets = [
            ProbeTarget("shop", "127.0.0.1", server.getsockname()[1], 100),
            ProbeTarget("shut", "127.0.0.1", closed.getsockname()[1], 100),
            ProbeTarget("unnamed", "no-such-host.invalid", 443, 100),
        ]
        mine.names.want(targets)
        mine.names.resolve()
        mine.times.follow(targets, time.monotonic())

        def told() -> dict[str, Any]:
            return {one.target: one for one in mine.times.told(time.monotonic())}

        mine.until(lambda: told()["shop"].samples >= 3 and told()["shut"].failed >= 3 and told()["unnamed"].failed >= 1)
    assert 0 < told()["shop"].median_us < PATIENCE_S * 1e6
    assert told()["shut"].samples == told()["unnamed"].samples == 0
    mine.probes.close()


def test_silent_targets_hold_all_places_for_a_while_and_the_others_come_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("services.sensor.probes.TIMEOUT_S", 0.3)
    mine = One(1)
    with silent_port() as silent, socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        targets = [ProbeTarget(f"silent-{number}", "127.0.0.1", silent, 100) for number in range(AT_ONCE)]
        targets += [ProbeTarget(f"t{number}", "127.0.0.1", server.getsockname()[1], 10_000) for number in range(30)]
        mine.names.want(targets)
        mine.names.resolve()
        mine.times.follow(targets[:AT_ONCE], time.monotonic())
        mine.until(lambda: len(mine.probes._attempts) == AT_ONCE)
        mine.times.follow(targets, time.monotonic())

        def told() -> dict[str, Any]:
            return {one.target: one for one in mine.times.told(time.monotonic())}

        mine.until(
            lambda: all(one.failed if name.startswith("silent") else one.samples for name, one in told().items())
        )
    mine.probes.close()


@contextmanager
def silent_port() -> Iterator[int]:
    """One whose queue is full: nobody who connects there gets an answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as held:
        for _ in range(8):
            one = held.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def test_names_are_asked_for_anew_after_a_minute_and_others_are_forgotten() -> None:
    now = [0.0]
    names = Names(clock=lambda: now[0])
    shop = ProbeTarget("shop", "127.0.0.1", 443)
    names.want([shop])
    assert names.find(shop) is None
    names.resolve()
    first = names.find(shop)
    assert first is not None
    assert first[1][:2] == ("127.0.0.1", 443)
    names.want([])
    names.resolve()
    assert names.find(shop) is None


def test_a_name_that_nobody_answers_for_leads_where_it_led_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    names = Names(clock=lambda: now[0])
    shop = ProbeTarget("shop", "127.0.0.1", 443)
    names.want([shop])
    names.resolve()

    def away(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", away)
    for now[0] in (RESOLVED_S, KEPT_S - 1.0):
        names.resolve()
        assert names.find(shop) is not None
    now[0] = KEPT_S
    names.resolve()
    assert names.find(shop) is None


def test_names_that_are_not_known_are_asked_for_first_and_those_that_failed_after_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, asked = [0.0], list[str]()
    names = Names(clock=lambda: now[0])

    def answer(host: str, port: int, **_: object) -> list[Any]:
        asked.append(host)
        if host == "silent":
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    known, silent, new = (ProbeTarget(name, name, 443) for name in ("known", "silent", "new"))
    names.want([known, silent])
    names.resolve()
    asked.clear()
    now[0] = RESOLVED_S
    names.want([known, silent, new])
    names.resolve()
    assert asked == ["new", "silent", "known"]


def test_names_end_when_they_are_told_to() -> None:
    names, stopping = Names(), threading.Event()
    thread = threading.Thread(target=names.run, args=(stopping,))
    thread.start()
    stopping.set()
    names.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def asked(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", "/livez")
    return connection.getresponse().status


def test_a_kubelet_hears_whether_the_first_thread_makes_progress() -> None:
    alive = [True]
    mine = One(1, alive=lambda: alive[0])
    mine.listen()
    with running(mine):
        assert asked(mine.probes.live_port) == 200
        alive[0] = False
        assert asked(mine.probes.live_port) == 503


def test_who_connects_and_says_nothing_keeps_nobody_out() -> None:
    mine = One(1)
    mine.listen()
    with running(mine):
        port = mine.probes.live_port
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(MOST_ASKING)]
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                assert asked(port) == 200
                break
            except (OSError, http.client.HTTPException):
                assert time.monotonic() < end
                time.sleep(0.1)  # the silent ones are left after some seconds
        for one in silent:
            one.close()
