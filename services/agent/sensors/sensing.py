"""What runs beside deciding in an agent on its node: reading, probing, reporting. Wires them, decides nothing."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import structlog

from services.agent.sensors.echo import Echo, opened_echo
from services.agent.sensors.reporting import Reporter, Self
from services.agent.sensors.targets import Targets
from services.agent.settings import AgentSettings
from shared.adapters.node_files import NodeFiles
from shared.adapters.peers.client import PeerClient
from shared.agent.counters import parse
from shared.agent.echo import NONCE_BYTES, Address
from shared.agent.probing import Probing, ProbingSettings
from shared.agent.readings import HostReading, NodeLimits, Sensor
from shared.agent.target_times import TargetTimes
from shared.errors import ConfigError
from shared.hostport import join_host_port, server_of, split_host_port
from shared.runtime.observe.metrics import Metrics
from shared.runtime.process.service import Service

log = structlog.get_logger()

REFUSED = ("forged", "replayed", "misled", "stray", "limited", "unbelievable")
"""Of ``Counts``: what was of no use to us, or of too much to somebody."""


@dataclass(frozen=True, slots=True)
class AgentSensing:
    """The parts, for figures and tests."""

    reader: NodeReader
    probing: Probing
    times: TargetTimes
    reporter: Reporter
    echo: Echo | None
    delays: Path | None = None
    """What is added to round trips to targets (``AgentSettings.target_delays``)."""

    def begin(self, service: Service) -> None:
        """Spawn what runs for ever."""
        service.spawn("sensors", self.reader.run(self.reporter.read))
        service.spawn("readings", self.reporter.run())
        service.spawn("targets", Targets(self.times, self.delays).run())
        if self.echo is not None:
            service.spawn("probes", self.echo.run())

    def figures(self) -> dict[str, Any]:
        """For ``/v1/stats``."""
        counts, reading = self.probing.counts, self.reporter.reading
        return {
            "reading": _shown(reading) if reading is not None else None,
            "readings_sent": self.reporter.sent,
            "readings_failed": self.reporter.failed,
            "readings_every_s": self.reporter.every_s,
            "neighbours": len(self.probing.neighbours),
            "probes": {name: getattr(counts, name) for name in counts.__slots__},
            "targets": {one.target: one.median_us / 1000 for one in self.times.told(time.monotonic()) if one.samples},
        }

    def register(self, metrics: Metrics) -> None:
        """Figures and gauges."""
        counts = self.probing.counts
        metrics.figure("sensors", self.figures)
        metrics.counter_of("agent_readings_total", "Readings that a coordinator took", lambda: self.reporter.sent)
        metrics.counter_of("agent_probes_total", "Probes sent to other agents", lambda: counts.sent)
        metrics.counter_of("agent_probes_answered_total", "Of those, answered in time", lambda: counts.answered)
        metrics.counter_of(
            "agent_probes_refused_total", "Datagrams that were forged, replayed, misled, stray or too many",
            lambda: sum(getattr(counts, name) for name in REFUSED),
        )  # fmt: skip


class NodeReader:
    """Reads the node every so often. ``run`` is eternal."""

    def __init__(self, files: NodeFiles, sensor: Sensor, *, every_s: float) -> None:
        self._files = files
        self._sensor = sensor
        self._every_s = every_s
        self._told: frozenset[str] = frozenset()

    async def run(self, took: Callable[[HostReading], None]) -> None:
        """Hand over each reading. What cannot be told is logged, once of each kind."""
        await asyncio.to_thread(self._first)
        while True:
            await asyncio.sleep(self._every_s)
            took(await self.look())

    async def look(self) -> HostReading:
        """One reading; the files are read in a thread."""
        at_s, looked = await asyncio.to_thread(self._look)
        reading = self._sensor.take(parse(at_s, looked.files, looked.speeds))
        kinds = frozenset(note.partition(":")[0] for note in reading.missing)
        if kinds - self._told:
            log.info("readings_missing", missing=list(reading.missing))
        self._told |= kinds
        return reading

    def _first(self) -> None:
        """Rates take two looks."""
        at_s, looked = self._look()
        self._sensor.take(parse(at_s, looked.files, looked.speeds))

    def _look(self) -> tuple[float, Any]:
        at_s = time.monotonic()
        return at_s, self._files.look()


@asynccontextmanager
async def opened_sensing(
    settings: AgentSettings, client: PeerClient, who: Self, *, url: str, term: Callable[[], int]
) -> AsyncIterator[AgentSensing]:
    """``url``: ours, as others are told: its host is where probes reach us. ``ConfigError``: a setting."""
    for path, name in ((settings.host_proc, "host_proc"), (settings.host_sys, "host_sys")):
        if not path.is_dir():
            raise ConfigError(f"{name}: {path} is no directory; mount the node's there, or set sensor_every_s=0")
    if settings.target_delays is not None and not settings.target_delays.is_file():
        raise ConfigError(f"target_delays: {settings.target_delays} is no file; give one, or leave it out")
    limits = NodeLimits(settings.sensor_disk_mbytes * 1e6, settings.sensor_network_mbits * 1e6 / 8)
    sensor = Sensor(ticks_per_s=os.sysconf("SC_CLK_TCK"), limits=limits)
    reader = NodeReader(
        NodeFiles(settings.host_proc, settings.host_sys, network=settings.sensor_network == "node"),
        sensor,
        every_s=settings.sensor_every_s,
    )
    rng = random.Random(f"{settings.seed}:{who.agent}:probing")
    probing = Probing(rng, _nonce, settings=ProbingSettings(per_s=settings.probes_per_s or 1.0))
    times = TargetTimes(rng)
    if not settings.probes_per_s:
        reporter = Reporter(client, who, probing, times, probed_at=None, term=term)
        yield AgentSensing(reader, probing, times, reporter, None, settings.target_delays)
        return
    beside = join_host_port(split_host_port(settings.listen)[0], 0)
    host, port = split_host_port(settings.probe_listen or beside, "probe_listen")
    async with opened_echo(probing, host, port) as (echo, bound):
        here = await reached_at(url, bound)
        probing.here = here or probing.here
        reporter = Reporter(client, who, probing, times, probed_at=here, term=term)
        yield AgentSensing(reader, probing, times, reporter, echo, settings.target_delays)


async def reached_at(url: str, bound: Address) -> Address | None:
    """Where others reach a socket bound so: at the host of our URL where the socket takes every address. None where
    that is a name that leads nowhere: others probe IP addresses alone, and the leader takes no message with a long
    name."""
    every = ip_address(bound[0])
    if not every.is_unspecified:
        return bound
    host = server_of(url).host
    try:
        # an address is taken as it is
        family = socket.AF_INET if every.version == 4 else socket.AF_UNSPEC
        found = await asyncio.get_running_loop().getaddrinfo(host, bound[1], family=family, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        remedy = "advertise an IP address, or give one to probe_listen"
        log.warning("probes_unreachable", host=host, error=error, effect="delays are not measured", remedy=remedy)
        return None
    return str(found[0][4][0]), bound[1]


def _nonce() -> bytes:
    return os.urandom(NONCE_BYTES)


def _shown(reading: HostReading) -> dict[str, Any]:
    return {
        "cpu_millis": reading.cpu_millis,
        "memory_bytes": reading.memory_bytes,
        "disk": reading.disk,
        "network": reading.network,
        "pressure": dict(reading.pressure),
        "missing": list(reading.missing),
    }
