"""What a sensor costs its node: memory and CPU of the process, under mutual TLS, with peers and targets to probe.

    python -m bench.parts.sensor_service [--seconds 60] [--sensors 4] [--probes-per-s 0.5]

Sensors as in the component (a reading each 5 s, mutual TLS, a leader that wants every reading and names two targets)
probe each other on this machine; the leader is a thread here. Figures are of one of them, from the kernel: VmRSS (what
`top` shows), Pss (pages shared with others counted by their share) and private memory (what it alone costs), and its
CPU time after the first ten seconds.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random

from services.cli.pki.certificates import wanted_of
from services.coordinator.usage.desk import ReadingsDesk
from shared.adapters.peers.certificates import issue, make_authority, pem_of
from shared.kube.nodes.latency_targets import LatencyTarget
from shared.model.cluster_events import ObjectChanged
from shared.wire.codec import decode, encode
from shared.wire.messages import Readings

ROOT = Path(__file__).parents[2]
SETTLE_S = 10.0


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="over which CPU time is measured")
    parser.add_argument("--sensors", type=int, default=4, help="sensors that probe each other")
    parser.add_argument("--probes-per-s", type=float, default=0.5, help="as the sensors' setting")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), arguments)


def measure(folder: Path, arguments: argparse.Namespace) -> None:
    """Run sensors against a leader of this process."""
    certify(folder)
    leader = BenchLeader(folder)
    tls = [f"--tls-{what}={folder}/sensor/{file}" for what, file in
           (("ca", "ca.crt"), ("cert", "tls.crt"), ("key", "tls.key"))]  # fmt: skip
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "MALLOC_ARENA_MAX": "1"}
    sensors = [
        subprocess.Popen(
            [
                sys.executable, "-m", "services.sensor", f"--node=n{number}", f"--coordinators=127.0.0.1:{leader.port}",
                "--probe-listen=127.0.0.1:0", "--live-listen=127.0.0.1:0", f"--probes-per-s={arguments.probes_per_s}",
                "--log-level=error", *tls,
            ],
            env=environ, cwd=ROOT,
        )
        for number in range(arguments.sensors)
    ]  # fmt: skip
    try:
        time.sleep(SETTLE_S)
        one = sensors[0].pid
        before_s, heard = cpu_s(one), leader.desk.taken
        began = time.monotonic()
        time.sleep(arguments.seconds)
        passed_s = time.monotonic() - began
        share, taken = (cpu_s(one) - before_s) / passed_s, leader.desk.taken - heard
        memory = memory_mb(one)
    finally:
        for sensor in sensors:
            sensor.terminate()
        for sensor in sensors:
            sensor.wait()
        leader.close()
    probes = f"{arguments.probes_per_s:g} probes a second"
    print(f"{arguments.sensors} sensors, {passed_s:.0f} s, {taken} readings taken of all, {probes}")
    print("memory: " + ", ".join(f"{name} {amount:.1f} MB" for name, amount in memory.items()))
    print(f"CPU: {share:.3%} of a core")


def certify(folder: Path) -> None:
    """A CA, a coordinator and a sensor."""
    now = dt.datetime.now(dt.UTC)
    authority = make_authority("bench", days=2, now=now)
    for role in ("coordinator", "sensor"):
        place = folder / role
        place.mkdir()
        certificate, key = issue(authority, wanted_of(role, "", ()), days=1, now=now)
        (place / "tls.crt").write_bytes(certificate)
        (place / "tls.key").write_bytes(key)
        (place / "ca.crt").write_bytes(pem_of(authority.certificate))


class BenchLeader:
    """The leader's desk behind a plain listener: a thread for each sensor."""

    def __init__(self, folder: Path) -> None:
        self.desk = ReadingsDesk(os.urandom(32), Random(1), term=1, region_of=lambda _: "")
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._socket.getsockname()[1])
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.verify_mode = ssl.CERT_REQUIRED
        self._tls.load_verify_locations(folder / "coordinator/ca.crt")
        self._tls.load_cert_chain(folder / "coordinator/tls.crt", folder / "coordinator/tls.key")
        targets = [LatencyTarget(f"t{number}", "127.0.0.1", self.port, 10.0) for number in range(2)]
        self.desk.changed([ObjectChanged("latencytargets", target.name, target) for target in targets])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more."""
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                made, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(made,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        try:
            with self._tls.wrap_socket(plain, server_side=True) as made, made.makefile("rb") as reader:
                while head := reader.readline():
                    length = 0
                    while (line := reader.readline()) not in (b"\r\n", b""):
                        name, _, value = line.partition(b":")
                        length = int(value) if name.lower() == b"content-length" else length
                    assert head.startswith(b"POST /v1/readings")
                    message = decode(reader.read(length), Readings)
                    with self._lock:
                        answer = encode(self.desk.heard(message, {}, time.monotonic()))
                        self.desk.flush(time.monotonic())
                    made.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
        except OSError:  # an attempt of a target: it sends nothing
            plain.close()


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, to the microsecond where the kernel counts so."""
    nanoseconds = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        nanoseconds += int((task / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def memory_mb(pid: int) -> dict[str, float]:
    """What the kernel says of its memory."""
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    found = {name: int(rows[name].split()[0]) * 1024 / 1e6 for name in ("Rss", "Pss", "Private_Clean", "Private_Dirty")}
    return {
        "VmRSS": found["Rss"],
        "Pss": found["Pss"],
        "private": found["Private_Clean"] + found["Private_Dirty"],
    }


if __name__ == "__main__":
    main()
