"""Whether an agent's readings agree with node exporter's, on this node over the same window, with disk and CPU at work.

    python -m bench.parts.node_exporter [--exporter PATH] [--seconds 10]

Node exporter (Debian: prometheus-node-exporter) is started on loopback by the path given, or as found on PATH. Both
read the kernel's counters, one after the other, at the window's begin and end: ours, its /metrics, ours again. So each
of its amounts must lie between what ours say of the shorter and of the longer window; the figures are of the rates.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from shared.adapters.node_files import NodeFiles
from shared.agent.counters import Counters, parse
from shared.agent.readings import HostReading, Sensor

NAMES = ("prometheus-node-exporter", "node_exporter")
COLLECTORS = ("cpu", "meminfo", "diskstats", "netdev")
NOT_BUSY = {"idle", "iowait"}
START_S = 30.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
Totals = dict[str, float]
"""CPU seconds, bytes of disks, seconds of the busiest disk's work by disk, bytes of links; memory in bytes."""


@dataclass(frozen=True, slots=True)
class Look:
    """Ours, the exporter's, and ours again; ``at_s`` of the exporter's."""

    before: Counters
    theirs: Totals
    at_s: float
    after: Counters


def found(given: Path | None = None) -> Path | None:
    """The exporter's program; None where there is none."""
    if given is not None:
        return given
    return next((Path(path) for name in NAMES if (path := shutil.which(name))), None)


@contextlib.contextmanager
def running(program: Path) -> Iterator[str]:
    """The URL of its metrics. It takes no free port by itself, so one is looked for; it ends with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    flags = [f"--collector.{name}" for name in COLLECTORS]
    command = [str(program), f"--web.listen-address=127.0.0.1:{port}", "--collector.disable-defaults", *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/metrics"
        deadline_s = time.monotonic() + START_S
        while True:
            with (
                contextlib.suppress(urllib.error.URLError, ConnectionError),
                urllib.request.urlopen(url, timeout=START_S),
            ):
                break
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"{program} does not answer at {url}")
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()


def looked(files: NodeFiles, url: str) -> Look:
    """Both, now."""
    before = _ours(files)
    began_s = time.monotonic()
    with urllib.request.urlopen(url, timeout=START_S) as answer:
        text = answer.read().decode()
    at_s = (began_s + time.monotonic()) / 2
    return Look(before, totals_of(text, before), at_s, _ours(files))


def _ours(files: NodeFiles) -> Counters:
    found = files.look()
    return parse(time.monotonic(), found.files, found.speeds)


def totals_of(text: str, ours: Counters) -> Totals:
    """What the exporter says of the disks and links that we look at."""
    found: Totals = {"memory": 0.0, "cpu": 0.0, "disk": 0.0, "network": 0.0}
    disks, links = ours.disks or {}, ours.links or {}
    for family in text_string_to_metric_families(text):
        for name, labels, value, *_ in family.samples:
            device = labels.get("device", "")
            if name == "node_cpu_seconds_total" and labels["mode"] not in NOT_BUSY:
                found["cpu"] += value
            elif name in ("node_disk_read_bytes_total", "node_disk_written_bytes_total") and device in disks:
                found["disk"] += value
            elif name == "node_disk_io_time_seconds_total" and device in disks:
                found[f"busy {device}"] = value
            elif name in ("node_network_receive_bytes_total", "node_network_transmit_bytes_total") and device in links:
                found["network"] += value
            elif name == "node_memory_MemTotal_bytes":
                found["memory"] += value
            elif name == "node_memory_MemAvailable_bytes":
                found["memory"] -= value
    return found


def own_totals(counters: Counters) -> Totals:
    """The same of ours."""
    disks, links = counters.disks or {}, counters.links or {}
    return {
        "memory": float((counters.memory_total or 0) - (counters.memory_available or 0)),
        "cpu": (counters.busy_ticks or 0) / TICKS_PER_S,
        "disk": float(sum(disk.read_bytes + disk.written_bytes for disk in disks.values())),
        "network": float(sum(link.received_bytes + link.sent_bytes for link in links.values())),
        **{f"busy {name}": disk.busy_ms / 1000 for name, disk in disks.items()},
    }


@contextlib.contextmanager
def working() -> Iterator[None]:
    """Something for every counter: a core that spins, a disk that is written to."""
    ended = threading.Event()
    spin = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    def write() -> None:
        block = os.urandom(1 << 20)
        with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
            while not ended.wait(0.02):
                file.write(block)
                file.flush()
                os.fsync(file.fileno())
                if file.tell() > 64 << 20:
                    file.seek(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        spin.kill()
        spin.wait()


def window(url: str, seconds: float) -> tuple[Look, Look]:
    """Two looks so far apart, with work between them."""
    files = NodeFiles(Path("/proc"), Path("/sys"))
    with working():
        first = looked(files, url)
        time.sleep(seconds)
        return first, looked(files, url)


def reading(first: Look, second: Look) -> HostReading:
    """What our sensor makes of the counters just before the exporter's."""
    sensor = Sensor(ticks_per_s=TICKS_PER_S)
    sensor.take(first.before)
    return sensor.take(second.before)


def rates(first: Look, second: Look) -> list[tuple[str, float, float]]:
    """(part, ours, the exporter's); only what both tell."""
    ours, took_s = reading(first, second), second.at_s - first.at_s
    theirs = {name: (value - first.theirs.get(name, 0.0)) / took_s for name, value in second.theirs.items()}
    busy = [value for name, value in theirs.items() if name.startswith("busy ")]
    compared = [
        ("memory, bytes", ours.memory_bytes, second.theirs["memory"]),
        ("cpu, millicores", ours.cpu_millis, theirs["cpu"] * 1000),
        ("disk, bytes/s", ours.disk_bytes_per_s, theirs["disk"]),
        ("disk, share", ours.disk, max(busy, default=0.0)),
        ("network, bytes/s", ours.network_bytes_per_s, theirs["network"]),
    ]
    return [(name, float(own), their) for name, own, their in compared if own is not None]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exporter", type=Path, help="node exporter's program; default: as found on PATH")
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    program = found(given.exporter)
    if program is None:
        sys.exit(
            f"node exporter is not on PATH ({' or '.join(NAMES)}); install prometheus-node-exporter or give --exporter"
        )
    with running(program) as url:
        for name, ours, theirs in rates(*window(url, given.seconds)):
            print(
                f"{name}: {ours:.5g}, node exporter {theirs:.5g}, off by {abs(ours - theirs) / max(theirs, 1e-9):.2%}"
            )


if __name__ == "__main__":
    main()
