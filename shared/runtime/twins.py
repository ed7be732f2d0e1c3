"""Reads learned twins, series and service graphs from files; what is wrong with one is a line that names the flag."""

from __future__ import annotations

import hashlib
from pathlib import Path

from shared.errors import ConfigError
from shared.twin.learned.model import FILE, MAX_BYTES, LearnedTwin, decode
from shared.twin.learned.series import MOST_BYTES
from shared.twin.services.topology import Topology, default_topology, parse_topology

MOST_TOPOLOGY = 1 << 20


def read_twin(flag: str, path: Path) -> tuple[LearnedTwin, str]:
    """(the twin, sha256 of its file) in a file, or in the folder of ``conclave train services-twin``."""
    file = path / FILE if path.is_dir() else path
    data = read_bytes(flag, file, MAX_BYTES, "give the folder of 'conclave train services-twin'")
    return decode(data, f"{flag}: {file}"), hashlib.sha256(data).hexdigest()


def read_series(flag: str, file: Path) -> bytes:
    """The bytes of a file of series."""
    return read_bytes(flag, file, MOST_BYTES, "give a file of 'conclave twin series' or 'conclave twin capture'")


def read_topology(file: Path | None) -> Topology:
    """The service graph of ``--topology``; None: the default one."""
    if file is None:
        return default_topology()
    data = read_bytes("--topology", file, MOST_TOPOLOGY, "give a service graph, see docs/autoscaling-twin.md")
    try:
        return parse_topology(data.decode(), f"--topology: {file}")
    except UnicodeDecodeError:
        raise ConfigError(f"--topology: {file}: not UTF-8 text; give a service graph") from None


def read_bytes(flag: str, file: Path, most: int, remedy: str) -> bytes:
    """The file's bytes. ``ConfigError``: it cannot be read, or has more than ``most``."""
    try:
        with file.open("rb") as opened:
            data = opened.read(most + 1)
    except OSError as error:
        raise ConfigError(f"{flag}: {file}: {error.strerror}; {remedy}") from None
    if len(data) > most:
        raise ConfigError(f"{flag}: {file}: more than {most} bytes; {remedy}")
    return data
