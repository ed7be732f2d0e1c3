"""Reads learned twins, series and service graphs from files; what is wrong with one is a line that names the flag."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from lab.autoscaling.judging import TwinJudgement
from lab.reading import read_bytes, read_text
from lab.worlds.learned.model import FILE, MAX_BYTES, LearnedTwin, decode
from lab.worlds.learned.series import MOST_BYTES
from lab.worlds.services.loads import LoadTrace, parse_trace
from lab.worlds.services.topology import ServiceGraph, default_topology, parse_topology
from shared.autoscaling.roles.organisation import Organisation
from shared.autoscaling.roles.reading import parse_organisation
from shared.errors import ConfigError

MOST_TOPOLOGY = 1 << 20


def read_twin(flag: str, path: Path) -> tuple[LearnedTwin, str]:
    """(the twin, sha256 of its file) in a file, or in the folder of ``conclave train services-twin``."""
    file = path / FILE if path.is_dir() else path
    data = read_bytes(flag, file, MAX_BYTES, "give the folder of 'conclave train services-twin'")
    return decode(data, f"{flag}: {file}"), hashlib.sha256(data).hexdigest()


def read_series(flag: str, file: Path) -> bytes:
    """The bytes of a file of series."""
    return read_bytes(flag, file, MOST_BYTES, "give a file of 'conclave twin series' or 'conclave twin capture'")


def read_judgement(flag: str, file: Path, twin: str) -> TwinJudgement:
    """What ``conclave twin judge`` found of the twin whose file has this sha256."""
    remedy = "judge it: conclave twin judge"
    try:
        found = msgspec.json.decode(read_bytes(flag, file, MOST_TOPOLOGY, remedy), type=TwinJudgement)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{flag}: {file}: {error}; {remedy}") from None
    if found.twin != twin:
        raise ConfigError(f"{flag}: {file} is of another twin (sha256 {found.twin[:12]}); {remedy}")
    return found


def read_topology(file: Path | None) -> ServiceGraph:
    """The service graph of ``--topology``; None: the default one."""
    if file is None:
        return default_topology()
    text = read_text("--topology", file, MOST_TOPOLOGY, "give a service graph, see docs/autoscaling-twin.md")
    return parse_topology(text, f"--topology: {file}")


def read_load(flag: str, file: Path) -> LoadTrace:
    """The load of a file, in the form of ``conclave evaluate --trace``."""
    return parse_trace(
        read_text(flag, file, MOST_BYTES, "give one rate per line, or a time and a rate"), f"{flag}: {file}"
    )


def read_organisation(flag: str, file: Path) -> Organisation:
    """The roles and missions of a YAML file. ``ConfigError``: it is none, or they contradict."""
    text = read_text(flag, file, MOST_TOPOLOGY, "give roles and missions, see docs/autoscaling-twin.md")
    return parse_organisation(text, f"{flag}: {file}")


def digest_of(file: Path) -> str:
    """sha256 of a file that was read."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
