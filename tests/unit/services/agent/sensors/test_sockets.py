"""Probes and targets over real sockets of the loopback, and what is told to the leader."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from services.agent.sensors.echo import opened_echo
from services.agent.sensors.reporting import UNKNOWN_ROUTE_S, Reporter, Self
from services.agent.sensors.sensing import opened_sensing, reached_at
from services.agent.sensors.targets import Targets
from services.agent.settings import AgentSettings
from shared.adapters.peers.client import PeerClient
from shared.agent import echo as datagrams
from shared.agent.probing import Probing
from shared.agent.readings import HostReading
from shared.agent.target_times import TargetTimes
from shared.election.record import LeaderRecord
from shared.errors import ConfigError, PeerRejected
from shared.wire.codec import decode, encode
from shared.wire.messages import VERSION, Readings, ReadingsAck
from shared.wire.readings import ProbePeer, ProbeTarget
from tests.patience import PATIENCE_S

KEY = b"k" * 32


def probing(seed: int) -> Probing:
    found = Probing(Random(seed), lambda: os.urandom(16))
    found.use_keys([KEY])
    return found


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110  sockets have no event for it
            await asyncio.sleep(0.01)


async def test_agents_of_both_families_find_each_other_by_ipv4_addresses() -> None:
    a, b = probing(1), probing(2)
    try:
        async with opened_echo(a, "::", 0) as (echo_a, at_a), opened_echo(b, "127.0.0.1", 0) as (echo_b, at_b):
            a.here, b.here = ("127.0.0.1", at_a[1]), at_b
            a.meet([b.here])
            b.meet([a.here])
            running = [asyncio.create_task(one.run()) for one in (echo_a, echo_b)]
            await until(lambda: a.coordinate is not None and b.coordinate is not None)
            for task in running:
                task.cancel()
    except ConfigError:
        pytest.skip("this machine has no IPv6")


async def test_two_agents_find_each_other_over_udp_and_a_forged_datagram_gets_no_answer() -> None:
    a, b = probing(1), probing(2)
    async with opened_echo(a, "127.0.0.1", 0) as (echo_a, at_a), opened_echo(b, "127.0.0.1", 0) as (_, at_b):
        a.here, b.here = at_a, at_b
        a.meet([at_b])
        running = asyncio.create_task(echo_a.run())
        await until(lambda: a.coordinate is not None)
        running.cancel()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
            forger.sendto(datagrams.probe(b"f" * 32, bytes(16), at_a, at_b), at_b)
            await until(lambda: b.counts.forged == 1)
            forger.setblocking(False)
            with pytest.raises(BlockingIOError):
                forger.recv(1)


async def test_an_address_that_is_taken_is_named() -> None:
    async with opened_echo(probing(1), "127.0.0.1", 0) as (_, (host, port)):
        with pytest.raises(ConfigError, match=f"probe_listen: 127.0.0.1:{port} cannot be bound"):
            async with opened_echo(probing(2), host, port):
                pass


@pytest.mark.parametrize(
    ("url", "bound", "reached"),
    [
        ("http://10.0.0.7:8700", "0.0.0.0", "10.0.0.7"),
        ("http://10.0.0.7:8700", "10.0.0.8", "10.0.0.8"),
        ("http://[fd00::7]:8700", "::", "fd00::7"),
        ("http://localhost:8700", "0.0.0.0", "127.0.0.1"),
        ("http://no..name:8700", "0.0.0.0", None),
    ],
)
async def test_others_are_told_an_ip_address_whatever_the_url_names(url: str, bound: str, reached: str | None) -> None:
    assert await reached_at(url, (bound, 8703)) == ((reached, 8703) if reached else None)


async def test_a_target_is_timed_and_one_that_refuses_is_a_failure() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = int(unused.getsockname()[1])
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    times = TargetTimes(Random(1))
    async with server:
        there = int(server.sockets[0].getsockname()[1])
        targets = [("there", "127.0.0.1", there), ("closed", "127.0.0.1", closed), ("unnamed", "no such host", 1)]
        times.follow([ProbeTarget(name, host, port, 100) for name, host, port in targets], time.monotonic())
        running = asyncio.create_task(Targets(times).run())
        told = lambda: {one.target: one for one in times.told(time.monotonic())}  # noqa: E731
        await until(
            lambda: told()["there"].samples > 0 and told()["closed"].failed > 0 and told()["unnamed"].failed > 0
        )
        running.cancel()
    assert told()["there"].failed == 0
    assert told()["closed"].samples == 0


class Leader(PeerClient):
    """Takes readings, or refuses them."""

    def __init__(self, refusal: str = "") -> None:
        super().__init__()
        self.refusal = refusal
        self.heard: list[Readings] = []
        self.came = asyncio.Event()

    async def call(self, base_url: str, route: str, body: bytes, **_: object) -> bytes:  # type: ignore[override]
        assert (base_url, route) == ("http://leader", "/v1/readings")
        self.heard.append(decode(body, Readings))
        self.came.set()
        if self.refusal:
            raise PeerRejected("no", code=self.refusal)
        targets = [ProbeTarget("shop", "shop.example", 443)]
        return encode(ReadingsAck(VERSION, 1, 1, 7, 100, [KEY], [ProbePeer("10.0.0.9", 8703)], targets))


def reporter(leader: Leader) -> tuple[Reporter, Probing, TargetTimes]:
    probes, times = Probing(Random(1), lambda: os.urandom(16)), TargetTimes(Random(1))
    who = Self("a", "incarnation", "node")
    found = Reporter(leader, who, probes, times, probed_at=("10.0.0.1", 8703), term=lambda: 7, clock=lambda: 12.0)
    found.follow(LeaderRecord(identity="c", incarnation="i", url="http://leader"))
    return found, probes, times


async def test_a_reading_is_told_with_its_age_and_the_answer_says_what_to_probe() -> None:
    leader = Leader()
    telling, probes, times = reporter(leader)
    running = asyncio.create_task(telling.run())
    telling.read(HostReading(10.5, cpu_millis=1500, memory_bytes=7, network=0.25, missing=("disk: sda vanished",)))
    async with asyncio.timeout(PATIENCE_S):
        await leader.came.wait()
    await until(lambda: telling.sent == 1)
    running.cancel()
    [message] = leader.heard
    [reading] = message.readings
    assert (message.agent, message.incarnation, message.term) == ("a", "incarnation", 7)
    assert (reading.node, reading.age_ms, reading.cpu_millis, reading.disk, reading.network) == (
        "node", 1500, 1500, -1.0, 0.25,
    )  # fmt: skip
    assert reading.missing == ["disk: sda vanished"]
    assert probes.neighbours == [("10.0.0.9", 8703)]
    assert [one.target for one in times.told(time.monotonic())] == ["shop"]
    await leader.close()


async def test_kills_of_readings_that_were_not_told_are_told_once_with_the_next() -> None:
    leader = Leader("not_leader")
    telling, _, _ = reporter(leader)
    record = LeaderRecord(identity="c", incarnation="i", url="http://leader")
    for kills, told, refusal in [(2, 2, "not_leader"), (1, 3, ""), (0, 0, ""), (None, -1, "")]:
        leader.refusal, reading = refusal, HostReading(10.0, oom_kills=kills)
        telling.read(reading)
        await telling._tell(record, reading)
        assert leader.heard[-1].readings[0].oom_kills == told
    await leader.close()


@pytest.mark.parametrize(("code", "silent_s"), [("route_unknown", UNKNOWN_ROUTE_S), ("not_leader", 2.0)])
async def test_a_coordinator_that_takes_no_readings_is_asked_again_later(code: str, silent_s: float) -> None:
    leader = Leader(code)
    telling, _, _ = reporter(leader)
    record = LeaderRecord(identity="c", incarnation="i", url="http://leader")
    assert await telling._tell(record, HostReading(10.0)) == silent_s
    assert (telling.sent, telling.failed) == (0, 1)
    await leader.close()


async def test_a_file_of_delays_stands_for_a_longer_way_and_a_line_that_is_none_is_a_failure(tmp_path: Path) -> None:
    delays = tmp_path / "delays"
    delays.write_text("far 250\nodd many\nbehind nan\n")
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    times = TargetTimes(Random(1))
    async with server:
        there = int(server.sockets[0].getsockname()[1])
        names = ("near", "far", "odd", "behind")
        times.follow([ProbeTarget(name, "127.0.0.1", there, 100) for name in names], time.monotonic())
        running = asyncio.create_task(Targets(times, delays).run())
        told = lambda: {one.target: one for one in times.told(time.monotonic())}  # noqa: E731
        await until(lambda: all(one.samples + one.failed > 0 for one in told().values()))
        running.cancel()
    assert told()["far"].median_us > 250_000
    assert told()["near"].samples > 0
    assert told()["odd"].samples == told()["behind"].samples == 0


async def test_a_file_of_delays_that_is_not_there_is_named_at_start(tmp_path: Path) -> None:
    settings = AgentSettings(node="n", target_delays=tmp_path / "none")
    who = Self("a", "i", "n")
    with pytest.raises(ConfigError, match=r"target_delays: .*/none is no file"):
        async with opened_sensing(settings, PeerClient(), who, url="http://127.0.0.1:1", term=lambda: 0):
            pass
