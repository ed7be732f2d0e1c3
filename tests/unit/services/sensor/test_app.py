"""The sensor's first thread: what it tells, what it does with the answer, and that it goes on whatever comes back."""

from __future__ import annotations

import dataclasses
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.sensor.app import App, boot_of
from services.sensor.log import SensorLog
from services.sensor.settings import SensorSettings
from shared.agent.readings import STILL
from shared.errors import ConfigError
from shared.wire.codec import decode, encode
from shared.wire.messages import VERSION, Readings, ReadingsAck
from shared.wire.readings import ProbePeer, ProbeTarget
from tests.unit.services.sensor.test_leader import Coordinator, refusal, serving


class FakeProc:
    """A /proc of files; ``tick`` lets time pass in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ticks = 0
        self.kills = 0
        (folder / "sys/kernel/random").mkdir(parents=True)
        (folder / "sys/kernel/random/boot_id").write_text("this-boot\n")
        self.tick()

    def tick(self, ticks: int = 100) -> None:
        self.ticks += ticks
        busy = self.ticks // 100
        (self.folder / "stat").write_text(f"cpu  {busy} 0 0 {self.ticks} 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
        (self.folder / "meminfo").write_text("MemTotal: 8388608 kB\nMemAvailable: 7000000 kB\n")
        (self.folder / "vmstat").write_text(f"oom_kill {self.kills}\n")
        (self.folder / "diskstats").write_text("   8 0 sda 1 0 0 1 1 0 0 1 0 0 0\n")


class Leading:
    """Takes readings, and answers with what it is told to."""

    def __init__(self) -> None:
        self.heard: list[Readings] = []
        self.targets: list[ProbeTarget] = []
        self.peers: list[ProbePeer] = []

    def __call__(self, body: bytes) -> tuple[int, bytes]:
        message = decode(body, Readings)
        self.heard.append(message)
        ack = ReadingsAck(VERSION, 1, message.message_id, 7, 100, [b"k" * 32], self.peers, self.targets)
        return 200, encode(ack)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


@pytest.fixture
def leading() -> Iterator[tuple[Leading, Coordinator]]:
    answer = Leading()
    with serving(answer) as server:
        yield answer, server


def app_of(proc: FakeProc, server: Coordinator, **changes: Any) -> tuple[App, list[dict[str, Any]]]:
    lines: list[dict[str, Any]] = []
    settings = SensorSettings(
        node="n1", coordinators=(server.at,), host_proc=proc.folder, sensor_network="none", **changes
    )
    return App(settings, SensorLog("n1", write=lambda line: lines.append(json.loads(line))), random.Random(1)), lines


def turns(app: App, proc: FakeProc, count: int) -> None:
    """Take so many, each told at once whatever was asked for."""
    for _ in range(count):
        proc.tick()
        app._sensor._before = None if app._sensor._before is None else _earlier(app._sensor._before)
        app._silent_until_s = 0.0
        app.turn()


def _earlier(counters: Any) -> Any:
    return dataclasses.replace(counters, at_s=counters.at_s - 1.0)


def test_it_says_its_node_its_boot_and_where_it_is_probed(proc: FakeProc, leading: tuple[Leading, Coordinator]) -> None:
    answer, server = leading
    app, lines = app_of(proc, server)
    app.look()
    turns(app, proc, 2)
    first, second = answer.heard
    assert (first.agent, first.incarnation, first.readings[0].node) == ("n1", "", "n1")
    assert first.boot == second.boot == app._boot
    assert app._boot.boot_id == "this-boot"
    assert first.probed_at is not None
    assert first.probed_at.address == "127.0.0.1"
    assert (first.term, second.term) == (0, 7)
    assert second.readings[0].memory_bytes == (8388608 - 7000000) * 1024
    assert second.readings[0].cpu_millis >= 0
    assert second.readings[0].network == -1.0, "the pod's own interfaces are not the node's"
    assert [line["event"] for line in lines if line["level"] == "warning"] == []
    app.close()


def test_what_the_leader_says_is_done(proc: FakeProc, leading: tuple[Leading, Coordinator]) -> None:
    answer, server = leading
    answer.targets, answer.peers = [ProbeTarget("shop", "127.0.0.1", 9)], [ProbePeer("192.0.2.1", 8703)]
    app, _ = app_of(proc, server)
    turns(app, proc, 1)
    assert app.probing.neighbours == [("192.0.2.1", 8703)]
    assert app.times.next_s() is not None
    assert app.probing.next_s is not None, "it has a key"
    app.close()


def test_kills_of_readings_that_nobody_took_are_told_with_the_next(
    proc: FakeProc, leading: tuple[Leading, Coordinator]
) -> None:
    answer, server = leading
    app, _ = app_of(proc, server)
    app.look()
    server.answer = refusal(503, "not_ready")
    proc.kills = 2
    turns(app, proc, 1)
    server.answer = answer
    proc.kills = 3
    turns(app, proc, 2)
    assert [one.readings[0].oom_kills for one in answer.heard] == [3, 0]
    app.close()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (409, "superseded"), (409, "past_boot"), (404, "node_unknown"), (403, "forbidden"), (421, "not_leader"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line_with_a_remedy_and_it_goes_on(
    proc: FakeProc, leading: tuple[Leading, Coordinator], status: int, code: str
) -> None:
    answer, server = leading
    app, lines = app_of(proc, server)
    server.answer = refusal(status, code)
    turns(app, proc, 5)
    (line,) = [line for line in lines if line["level"] == "warning"]
    assert (line["event"], line["code"]) == ("readings_refused", code)
    assert line["remedy"]
    server.answer = answer
    turns(app, proc, 1)
    assert len(answer.heard) == 1
    app.close()


@pytest.mark.parametrize("body", [b"", b"\xc1", msgspec.msgpack.encode([10, 9, 1, 1, 7, 100]), b"<html>"])
def test_an_answer_that_is_no_message_is_one_line_and_it_goes_on(
    proc: FakeProc, leading: tuple[Leading, Coordinator], body: bytes
) -> None:
    answer, server = leading
    app, lines = app_of(proc, server)
    server.answer = lambda _: (200, body)
    turns(app, proc, 3)
    assert len([line for line in lines if line["level"] == "warning"]) == 1
    server.answer = answer
    turns(app, proc, 1)
    assert len(answer.heard) == 1
    app.close()


def test_files_that_stand_still_are_named_and_nothing_is_told_of_them(
    proc: FakeProc, leading: tuple[Leading, Coordinator]
) -> None:
    """A copy of /proc, or a sandbox's: its clock of ticks does not go on."""
    answer, server = leading
    app, lines = app_of(proc, server)
    app.look()
    app._sensor._before = _earlier(app._sensor._before)
    app.turn()
    (told,) = answer.heard[-1].readings
    assert (told.cpu_millis, told.memory_bytes, told.disk) == (-1, -1, -1.0)
    assert STILL in told.missing
    assert any("stands still" in str(line.get("missing")) for line in lines)
    turns(app, proc, 1)
    assert answer.heard[-1].readings[0].memory_bytes > 0
    app.close()


def test_it_ends_when_it_is_asked_to(proc: FakeProc, leading: tuple[Leading, Coordinator]) -> None:
    _, server = leading
    app, _ = app_of(proc, server, sensor_every_s=60.0)
    thread = threading.Thread(target=app.run)
    thread.start()
    app.stop()
    thread.join(60.0)
    assert not thread.is_alive()


def test_who_is_asked_to_end_twice_ends_once(proc: FakeProc, leading: tuple[Leading, Coordinator]) -> None:
    """The second signal comes when the pipe is closed already."""
    app, _ = app_of(proc, leading[1])
    app.close()
    app.stop()


def test_a_node_that_does_not_tell_its_boot_has_one_all_the_same(tmp_path: Path) -> None:
    assert boot_of(tmp_path).boot_id == "unknown"
    assert boot_of(Path("/proc")).began_ms <= boot_of(Path("/proc")).began_ms


def test_certificates_that_cannot_be_used_are_a_line(proc: FakeProc, leading: tuple[Leading, Coordinator]) -> None:
    _, server = leading
    none = proc.folder / "stat"
    with pytest.raises(ConfigError, match="tls_ca, tls_cert, tls_key: not usable"):
        app_of(proc, server, tls_ca=none, tls_cert=none, tls_key=none)
