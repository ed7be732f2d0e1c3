"""The sensor's composition root and its first thread: read the node, tell the leader, hear what to probe.

    /proc, /sys --NodeFiles--> Counters --Sensor--> Reading --POST /v1/readings--> leader --> keys, peers, targets

It keeps nothing and decides nothing: a sensor that is started again tells its first reading some seconds later, and a
leader that is new hears from it with its next. It imports neither asyncio nor structlog, for their memory.
"""

from __future__ import annotations

import gc
import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

import msgspec

from services.sensor.leader import READINGS, LeaderCaller
from services.sensor.log import SensorLog
from services.sensor.probes import Names, Probes, nonce
from services.sensor.settings import SensorSettings
from shared.adapters.node_files import NodeFiles
from shared.agent.counters import parse
from shared.agent.echo import Address
from shared.agent.probing import Probing, ProbingSettings
from shared.agent.readings import HostReading, NodeLimits, Sensor
from shared.agent.target_times import TargetTimes
from shared.agent.telling import standing, told
from shared.errors import ConfigError, PeerRejected, PeerUnknown
from shared.hostport import split_host_port
from shared.runtime.process.settings import help_text, load, parse_flags
from shared.wire.messages import VERSION, Readings, ReadingsAck
from shared.wire.readings import Boot, ProbePeer

EXIT_FAILED, EXIT_CONFIG = 1, 2
REFUSED_S = 15.0
"""Silence after an answer that will not be another one soon."""
UNANSWERED_S = 2.0
HUNG_TURNS = 12.0
"""The first thread hangs when no turn has ended for so many of them, and a minute."""
UNKNOWN_BOOT = "unknown"
COLLECT_EVERY = 50_000

REMEDIES = {
    "forbidden": "give it a certificate, or a token, of the role sensor",
    "foreign_agent": "the certificate names another node; one for all sensors is sensor:*",
    "node_unknown": "give --node the node's name in the cluster",
    "past_boot": "another boot of the node, or another machine of its name, has spoken since; end one of the two",
    "superseded": "one sensor or agent a node is enough",
    "peer_untrusted": "compare the certificates of both ends, and their clocks",
    "not_leader": "look whether a coordinator leads (conclave status)",
    "peer_unreachable": "look whether coordinators run, and whether the network lets us reach them",
}


class App:
    """One sensor. ``turn`` reads and tells once; ``run`` does so until ``stop``."""

    def __init__(self, settings: SensorSettings, log: SensorLog, rng: random.Random) -> None:
        """``ConfigError``: folders, certificates or an address that cannot be used."""
        for path, name in ((settings.host_proc, "host_proc"), (settings.host_sys, "host_sys")):
            if not path.is_dir():
                raise ConfigError(f"{name}: {path} is no directory; mount the node's there")
        self._settings = settings
        self._log = log
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.probing = Probing(rng, nonce, settings=ProbingSettings(per_s=settings.probes_per_s or 1.0))
        self.times = TargetTimes(rng)
        self.names = Names()
        self._turned_s = time.monotonic()
        self.probes = Probes(self.probing, self.times, self.names, self._lock, log, alive=self._alive)
        self._files = NodeFiles(settings.host_proc, settings.host_sys, network=settings.sensor_network == "node")
        limits = NodeLimits(settings.sensor_disk_mbytes * 1e6, settings.sensor_network_mbits * 1e6 / 8)
        self._sensor = Sensor(ticks_per_s=os.sysconf("SC_CLK_TCK"), limits=limits)
        self._boot = boot_of(settings.host_proc)
        self._leader = self._opened()
        self._bound = self._listening()
        self._asked, self._ask = os.pipe()
        self._kills = 0
        """Processes killed for memory, by readings that were not told."""
        self._silent_until_s = 0.0
        self._message_id = 0
        self._term = 0
        self._missed: frozenset[str] = frozenset()
        self._decoder = msgspec.msgpack.Decoder(ReadingsAck)
        self.sent = 0

    def run(self) -> int:
        """Until ``stop``; the exit code."""
        threads = [
            threading.Thread(target=self.probes.run, args=(self._stopping,), name="probes", daemon=True),
            threading.Thread(target=self.names.run, args=(self._stopping,), name="names", daemon=True),
        ]
        for thread in threads:
            thread.start()
        self._log.tell("info", "sensor_started", node=self._settings.node, boot=self._boot.boot_id)
        self.look()
        while not select.select([self._asked], [], [], self._settings.sensor_every_s)[0]:
            self.turn()
            if not all(thread.is_alive() for thread in threads):  # its story is on stderr
                return EXIT_FAILED
        self._stopping.set()
        self.names.stop()
        threads[0].join()
        self.close()
        return 0

    def close(self) -> None:
        """Close what is open; ``run`` does so at its end."""
        self.probes.close()
        self._leader.close()
        asked, ask = self._asked, self._ask
        self._asked = self._ask = -1
        os.close(asked)
        os.close(ask)

    def stop(self) -> None:
        """Let ``run`` end; for a signal's handler too, which may take no lock."""
        with suppress(OSError):  # it has ended
            os.write(self._ask, b".")

    def turn(self) -> None:
        """Read, and tell if it is time."""
        reading = self.look()
        self._kills += reading.oom_kills or 0
        if time.monotonic() >= self._silent_until_s:
            self._tell(reading)
        self._turned_s = time.monotonic()

    def look(self) -> HostReading:
        """One reading. What cannot be told is logged, once of each kind."""
        at_s = time.monotonic()
        looked = self._files.look()
        reading = self._sensor.take(parse(at_s, looked.files, looked.speeds))
        kinds = frozenset(note.partition(":")[0] for note in reading.missing)
        if kinds - self._missed:
            self._log.tell("info", "readings_missing", kind=",".join(sorted(kinds)), missing=list(reading.missing))
        self._missed |= kinds
        return reading

    def message(self, reading: HostReading) -> Readings:
        """As the leader is told it."""
        kills = None if reading.oom_kills is None and not self._kills else self._kills
        now = time.monotonic()
        node = self._settings.node
        with self._lock:
            here, latencies = standing(self.probing.coordinate), self.times.told(now)
        return Readings(
            VERSION,
            self._message_id,
            0,
            self._term,
            node,
            "",
            [told(node, replace(reading, oom_kills=kills), max(0.0, now - reading.at_s))],
            here,
            latencies,
            self._probed_at(),
            self._boot,
        )

    def _tell(self, reading: HostReading) -> None:
        self._message_id += 1
        began_s, kills = time.monotonic(), self._kills
        try:
            if not self._leader.connected:
                self._leader.open()  # the message says from where it comes
            body = self._leader.call(READINGS, msgspec.msgpack.encode(self.message(reading)))
            ack = self._decoder.decode(body)
            if ack.version != VERSION:
                raise PeerRejected(f"version {ack.version} is not spoken here", code="wire_unknown_version")
        except (PeerRejected, PeerUnknown) as error:
            soon = error.code in {"not_leader", "not_ready", "peer_unknown", "peer_unreachable", "overloaded"}
            self._silent_until_s = began_s + (UNANSWERED_S if soon else REFUSED_S)
            told = {"remedy": REMEDIES[error.code]} if error.code in REMEDIES else {}
            self._log.tell("warning", "readings_refused", kind=error.code, code=error.code, error=str(error), **told)
            return
        except msgspec.DecodeError as error:
            self._silent_until_s = began_s + REFUSED_S
            self._log.tell("warning", "readings_refused", kind="decode", code="wire_malformed", error=str(error))
            return
        if not self.sent:
            self._log.tell("info", "readings_taken", term=ack.term)
        self._log.over("readings_refused")
        self.sent += 1
        self._kills -= kills
        self._heard(ack, began_s)

    def _heard(self, ack: ReadingsAck, began_s: float) -> None:
        self._term = ack.term
        # a little early: the next reading must not be missed because this one was late
        self._silent_until_s = began_s + 0.9 * ack.every_ms / 1000
        with self._lock:
            self.probing.use_keys(ack.keys)
            self.probing.meet((peer.address, peer.port) for peer in ack.peers)
            self.times.follow(ack.targets, time.monotonic())
        self.names.want(ack.targets)

    def _probed_at(self) -> ProbePeer | None:
        """Where others are to probe us: the address that we are bound to, else the one from which we call."""
        if self._bound is None:
            return None
        host = self._bound[0]
        if host in ("0.0.0.0", "::"):  # noqa: S104  bound to every address
            host = self._leader.from_address
        if not host:
            return None
        with self._lock:
            self.probing.here = (host, self._bound[1])
        return ProbePeer(host, self._bound[1])

    def _alive(self) -> bool:
        return time.monotonic() - self._turned_s < max(60.0, HUNG_TURNS * self._settings.sensor_every_s)

    def _opened(self) -> LeaderCaller:
        told = self._settings
        if told.token_file is not None and not os.access(told.token_file, os.R_OK):
            raise ConfigError(f"token_file: {told.token_file} cannot be read; create it or fix its mode")
        tls = None
        if told.tls_ca is not None and told.tls_cert is not None and told.tls_key is not None:
            tls = (told.tls_ca, told.tls_cert, told.tls_key)
        try:
            return LeaderCaller(told.coordinators, self._log, token_file=told.token_file, tls=tls)
        except OSError as error:
            raise ConfigError(
                f"tls_ca, tls_cert, tls_key: not usable ({error}); give a CA and a matching pair"
            ) from error

    def _listening(self) -> Address | None:
        told = self._settings
        probe = split_host_port(told.probe_listen, "probe_listen") if told.probes_per_s else None
        live = split_host_port(told.live_listen, "live_listen") if told.live_listen else None
        try:
            return self.probes.listen(probe, live)
        except OSError as error:
            where = " and ".join(one for one in (told.probe_listen if probe else "", told.live_listen) if one)
            raise ConfigError(f"probe_listen, live_listen: {where} cannot be bound ({error}); give others") from error


def boot_of(proc: Path) -> Boot:
    """Which boot of the node this is, and how long after it we are."""
    try:
        boot_id = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:64]
    except (OSError, ValueError):
        boot_id = ""
    return Boot(boot_id or UNKNOWN_BOOT, round(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000))


def run(arguments: Sequence[str] | None = None, *, complain: Callable[[str], object] | None = None) -> int:
    """The exit code of ``python -m services.sensor ARGUMENTS``."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    gc.set_threshold(COLLECT_EVERY)
    complain = complain or sys.stderr.write
    if "--help" in words or "-h" in words:
        sys.stdout.write(help_text(SensorSettings, "sensor"))
        return 0
    try:
        flags, file = parse_flags(SensorSettings, words)
        configured = os.environ.get("CONCLAVE_CONFIG", "")
        file = file or (Path(configured) if configured else None)
        settings = load(SensorSettings, service="sensor", file=file, environ=os.environ, flags=flags)
        log = SensorLog(settings.node, settings.log_level)
        app = App(settings, log, random.Random(f"{settings.node}:{os.getpid()}:{time.time_ns()}"))
    except ConfigError as error:
        complain(f"conclave sensor: {error}\n")
        return EXIT_CONFIG

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        app.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if app.probes.live_port:
        log.tell("info", "live_listening", port=app.probes.live_port)
    return app.run()
