"""Where a plan's cluster comes from: the API server, a dump of objects as ``explain --batch`` reads, or a twin file."""

from __future__ import annotations

import difflib
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shared.errors import ConfigError, ObjectError
from shared.kube.cluster_objects import AskedInput
from shared.kube.pods.standing_pods import CapturedState, StandingCluster
from shared.rebalance.planner import ClusterSituation
from shared.rebalance.residents import seconds_of
from shared.runtime.kube.moves.reading import situation_of
from shared.scheduling.state.cluster_load import load_cluster

TWIN_FILE_SCHEMA = 1
KEYS_OF_DUMP = frozenset(one.encode_name for one in msgspec.structs.fields(AskedInput))
KEYS_OF_TWIN_FILE = frozenset({*CapturedState.__struct_fields__, "step_s", "notes"})
"""What those files may hold at their top: a key that nobody knows is a kind that would silently be missing."""
MOST_BYTES = 1 << 30
GZIP = b"\x1f\x8b"


def read_file(file: Path) -> tuple[ClusterSituation, float]:
    """A cluster from a file, and the moment that it is of (seconds since 1970; of a dump the newest that it tells, 0
    where it tells none). ``ConfigError``:
    what is wrong with it."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"--capture: {file}: {error.strerror}; give a file that can be read") from None
    if data.startswith(GZIP):
        return _twin_file(data, file)
    try:
        dump = msgspec.json.decode(data, type=StandingCluster)
        state = load_cluster(dump)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ObjectError) as error:
        raise ConfigError(
            f"--capture: {file}: {error}; give a file of 'conclave twin capture', or JSON with nodes, pods, pdbs, ..."
        ) from None
    _check_keys(data, file, KEYS_OF_DUMP, "leave it out, or correct it")
    if not dump.nodes:
        raise ConfigError(f"--capture: {file}: nodes: there are none; give the cluster's nodes and pods")
    stamps = [item.metadata.creation_timestamp or "" for item in (*dump.nodes, *(dump.pods or ()))]
    return situation_of(state, dump.pods or (), {}, ()), max(map(seconds_of, stamps))


def _twin_file(data: bytes, file: Path) -> tuple[ClusterSituation, float]:
    try:
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        text = unpacker.decompress(data, MOST_BYTES)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise ConfigError(f"--capture: {file}: it is cut, or unpacks to more than {MOST_BYTES} bytes")
        found = msgspec.json.decode(text, type=CapturedState)
    except (zlib.error, msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"--capture: {file}: {error}; give a file of 'conclave twin capture'") from None
    if found.schema != TWIN_FILE_SCHEMA:
        raise ConfigError(f"--capture: {file}: schema {found.schema} is not {TWIN_FILE_SCHEMA}; capture again")
    _check_keys(text, file, KEYS_OF_TWIN_FILE, "capture the cluster again")
    standing = [one.pod for one in found.pods if one.ended_s is None or one.ended_s > found.length_s]
    try:
        state = load_cluster(StandingCluster(nodes=found.nodes, pods=standing))
    except ObjectError as error:
        raise ConfigError(f"--capture: {file}: {error}; capture the cluster again") from None
    used: dict[str, tuple[float, float]] = {}
    for node, series in found.series.items():
        cpu, memory = (_last(series.get(part, ())) for part in ("cpu", "memory"))
        if cpu is not None and memory is not None:
            used[node] = (cpu, memory)
    notes = ("a twin file holds no budgets, no volumes' sources and no workloads: what they protect is not known",)
    return situation_of(state, standing, used, notes), seconds_of(found.started_at) + found.length_s


def _check_keys(data: bytes, file: Path, known: frozenset[str], remedy: str) -> None:
    """``ConfigError``: a key at the top that is none of these."""
    for key in sorted(msgspec.json.decode(data, type=dict[str, msgspec.Raw]).keys() - known):
        near = difflib.get_close_matches(key, sorted(known), n=1)
        raise ConfigError(
            f"--capture: {file}: {key[:64]!r} is not read; {f'did you mean {near[0]}?' if near else remedy}"
        )


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)
