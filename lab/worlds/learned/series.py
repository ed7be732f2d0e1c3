"""Recorded series of a service graph: what a policy would have seen, at equal steps, as CSV.

One row per moment and service. ``scenario`` is a word for what went on (``live`` where nobody says), an ``episode`` a
stretch without a gap. What was asked for between two rows is ``replicas`` of the later one, so no column is needed for
it. A cell that is empty is a reading that was missing; NaN, negative or infinite ones are refused, with their line.
"""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan

import numpy as np
from numpy.typing import NDArray

from shared.autoscaling.observation import ScalingObservation, ServiceObservation
from shared.errors import ConfigError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LIVE = "live"
"""The scenario of series to which nobody gave a word."""
KEYS = ("scenario", "episode", "time_s", "service")
COUNTS = ("replicas", "ready", "starting", "pending")
MEASURES = ("arrivals", "served", "failed", "queue", "latency_s", "cpu_cores")
REQUIRED = (*KEYS, *COUNTS, *MEASURES)
TROUBLE = ("restarts", "crash_loop", "oom_killed", "hung")
"""Pods, as a capture tells them."""
NUMBERS = ("age_s", "memory_bytes", "cpu_request", "maximum", "objective_s", *TROUBLE)
BESIDE = (*NUMBERS, "calls")
"""Columns that there may be beside, for what is lost (``lost.py``); of these ``age_s`` alone is learned from."""
HEADER = (*REQUIRED, *BESIDE)
MOST_ROWS = 5_000_000
MOST_BYTES = 512 << 20
MOST_REPLICAS = 10_000
UNEVEN = 0.5
"""Share of a step by which two rows may be nearer or farther apart; beyond it a new episode begins."""
REMEDY = "give a file of 'conclave twin series' or 'conclave twin capture --services'"


@dataclass(frozen=True, slots=True)
class RecordedStretch:
    """A stretch without a gap. ``counts`` [moments, services, 4] (``COUNTS``), ``measures`` [moments, services, 6]
    (``MEASURES``, NaN: missing), ``age_s`` [moments, services]."""

    scenario: str
    name: str
    counts: Ints
    measures: Floats
    age_s: Floats


@dataclass(frozen=True, slots=True)
class RecordedSeries:
    """All stretches of one graph; ``services`` is the order of the arrays' second axis."""

    services: tuple[str, ...]
    step_s: float
    episodes: tuple[RecordedStretch, ...]

    @property
    def transitions(self) -> int:
        """How many (state, action, next state) there are."""
        return sum(len(one.counts) - 1 for one in self.episodes)

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The words for what went on, sorted."""
        return tuple(sorted({one.scenario for one in self.episodes}))


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """One service at one moment. ``numbers``: the columns of ``NUMBERS`` that were told."""

    counts: tuple[int, ...]
    measures: tuple[float, ...]
    numbers: Mapping[str, float]
    calls: frozenset[str]

    def number(self, name: str) -> float:
        """One of ``NUMBERS``, NaN where it was not told."""
        return self.numbers.get(name, nan)


Moment = Mapping[str, ServiceRow]
Groups = dict[tuple[str, str], dict[float, dict[str, ServiceRow]]]
"""By scenario and episode, by time, by service."""


class Writer:
    """Makes the text of rows; who has the file appends it."""

    def __init__(self) -> None:
        self._text = io.StringIO()
        self._rows = csv.writer(self._text, lineterminator="\n")

    def header(self) -> None:
        """Once, at the beginning of a file."""
        self._rows.writerow(HEADER)

    def moment(
        self,
        scenario: str,
        episode: str,
        seen: ScalingObservation,
        *,
        beside: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        """The rows of what was seen at one moment; ``beside``: more cells of a service, by column."""
        calls: dict[str, list[str]] = {}
        for caller, callee in seen.calls:
            calls.setdefault(caller, []).append(callee)
        for name, one in seen.services.items():
            more: dict[str, object] = {
                "age_s": _cell(one.age_s), "memory_bytes": _cell(one.usage.get("memory")),
                "cpu_request": _cell(one.requests.get("cpu")), "maximum": one.bounds.maximum,
                "objective_s": _cell(seen.latency_objective_s), "calls": " ".join(calls.get(name, ())),
                **(beside or {}).get(name, {}),
            }  # fmt: skip
            self._rows.writerow(
                (
                    scenario, episode, f"{seen.now:.3f}", name, one.replicas, one.ready, one.starting, one.pending,
                    *map(_cell, measures_of(one)), *(more.get(column, "") for column in BESIDE),
                )
            )  # fmt: skip

    def take(self) -> str:
        """The text since the last call."""
        text = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return text


def episode_of(
    seen: Sequence[ScalingObservation], services: Sequence[str], *, scenario: str, name: str
) -> RecordedStretch:
    """What was seen at equal steps, in this order of the services."""
    rows = [[one.services[service] for service in services] for one in seen]
    counts = [[(one.replicas, one.ready, one.starting, one.pending) for one in row] for row in rows]
    measures = [[[nan if cell is None else cell for cell in measures_of(one)] for one in row] for row in rows]
    return RecordedStretch(
        scenario, name, np.array(counts), np.array(measures), np.array([[one.age_s for one in row] for row in rows])
    )


def measures_of(one: ServiceObservation) -> tuple[float | None, ...]:
    """``MEASURES`` of one service."""
    return one.arrivals, one.served, one.failed, one.queue, one.latency_s, one.usage.get("cpu")


def parse_series(data: bytes, name: str, *, services: Sequence[str] | None = None) -> RecordedSeries:
    """The series in a CSV file, gzipped or not. ``services``: those of the graph that it must be of.

    Raises ``ConfigError``: one line that names the file, the place and the remedy.
    """
    groups = rows_of(data, name)
    known = {service: None for moments in groups.values() for moment in moments.values() for service in moment}
    order = tuple(services) if services is not None else tuple(known)
    if set(order) != set(known):
        raise ConfigError(
            f"{name}: it is of services {_listed(known)}, the graph has {_listed(order)}; give this graph's series,"
            " or --topology of that one"
        )
    step_s = _step_s(groups, name)
    return RecordedSeries(order, step_s, tuple(_episodes(groups, order, step_s, name)))


def rows_of(data: bytes, name: str) -> Groups:
    """Every row of the file, checked. ``ConfigError`` as ``parse_series``."""
    groups: Groups = {}
    for line, cells in _rows(data, name):
        time_s = _number(cells["time_s"], name, line, "time_s")
        counts = tuple(_count(cells[column], name, line, column) for column in COUNTS)
        if max(counts) > MOST_REPLICAS:
            raise ConfigError(f"{name}: line {line}: more than {MOST_REPLICAS} pods; {REMEDY}")
        measures = tuple(_measure(cells[column], name, line, column) for column in MEASURES)
        numbers = {column: _number(cells[column], name, line, column) for column in NUMBERS if cells.get(column)}
        if not cells["service"]:
            raise ConfigError(f"{name}: line {line}: service: it is empty; {REMEDY}")
        moment = groups.setdefault((cells["scenario"] or LIVE, cells["episode"]), {}).setdefault(time_s, {})
        if cells["service"] in moment:
            raise ConfigError(
                f"{name}: line {line}: service {cells['service']!r} comes twice at {time_s:g} s; {REMEDY}"
            )
        moment[cells["service"]] = ServiceRow(counts, measures, numbers, frozenset(cells.get("calls", "").split()))
    if not groups:
        raise ConfigError(f"{name}: it has no rows; {REMEDY}")
    return groups


def unpacked(data: bytes, name: str) -> str:
    """The text of a file, gzipped or not. ``ConfigError``: it is none, or too long."""
    if data[:2] == b"\x1f\x8b":
        unpacking = zlib.decompressobj(wbits=31)
        try:
            data = unpacking.decompress(data, MOST_BYTES)
        except zlib.error as error:
            raise ConfigError(f"{name}: it cannot be unpacked ({error}); {REMEDY}") from None
        if unpacking.unconsumed_tail:
            raise ConfigError(f"{name}: more than {MOST_BYTES} bytes unpacked; give a shorter stretch")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: not UTF-8 text; {REMEDY}") from None


def _rows(data: bytes, name: str) -> Iterator[tuple[int, dict[str, str]]]:
    text = unpacked(data, name)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, [])
        missing = [column for column in REQUIRED if column not in header]
        if missing:
            raise ConfigError(f"{name}: columns missing: {', '.join(missing)}; {REMEDY}")
        for line, cells in enumerate(reader, 2):
            if line > MOST_ROWS:
                raise ConfigError(f"{name}: more than {MOST_ROWS} rows; give a shorter stretch")
            if len(cells) != len(header):
                raise ConfigError(
                    f"{name}: line {line}: {len(cells)} cells, the header has {len(header)}; take the line out"
                )
            yield line, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise ConfigError(f"{name}: line {reader.line_num}: {error}; {REMEDY}") from None


def _number(cell: str, name: str, line: int, column: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise ConfigError(f"{name}: line {line}: {column}: {cell[:40]!r} is no number; {REMEDY}") from None
    if not isfinite(value) or value < 0:
        raise ConfigError(
            f"{name}: line {line}: {column}: {cell[:40]!r} is not 0 or more; leave the cell of a missing reading empty"
        )
    return value


def _measure(cell: str, name: str, line: int, column: str) -> float:
    return _number(cell, name, line, column) if cell else nan


def _count(cell: str, name: str, line: int, column: str) -> int:
    value = _number(cell, name, line, column)
    if value != int(value):
        raise ConfigError(f"{name}: line {line}: {column}: {cell[:40]!r} is no whole number; {REMEDY}")
    return int(value)


def _step_s(groups: Groups, name: str) -> float:
    gaps = [gap for moments in groups.values() for gap in np.diff(sorted(moments)).tolist()]
    if not gaps:
        raise ConfigError(f"{name}: no two moments follow each other; record for longer")
    step_s = float(np.median(gaps))
    return float(round(step_s)) if step_s >= 1 else step_s


def _episodes(groups: Groups, order: Sequence[str], step_s: float, name: str) -> Iterator[RecordedStretch]:
    found = 0
    for (scenario, episode), moments in groups.items():
        stretch: list[float] = []
        for time_s in (*sorted(moments), inf):
            whole = time_s in moments and len(moments[time_s]) == len(order)
            near = bool(stretch) and abs(time_s - stretch[-1] - step_s) <= UNEVEN * step_s
            if stretch and not (whole and near):
                if len(stretch) > 1:
                    found += 1
                    yield _episode(scenario, episode, [moments[at] for at in stretch], order)
                stretch = []
            if whole:
                stretch.append(time_s)
    if not found:
        raise ConfigError(f"{name}: no two whole moments follow each other; record for longer")


def _episode(scenario: str, episode: str, moments: Sequence[Moment], order: Sequence[str]) -> RecordedStretch:
    rows = [[moment[name] for name in order] for moment in moments]
    return RecordedStretch(
        scenario,
        episode,
        np.array([[one.counts for one in row] for row in rows]),
        np.array([[one.measures for one in row] for row in rows]),
        np.array([[one.number("age_s") for one in row] for row in rows]),
    )


def _cell(value: float | None) -> str:
    """Nothing for what is missing: it is not zero."""
    return "" if value is None or not isfinite(value) or value < 0 else f"{value:.6g}"


def _listed(names: Iterable[str]) -> str:
    found = sorted(names)
    return ", ".join(found[:8]) + (", ..." if len(found) > 8 else "")
