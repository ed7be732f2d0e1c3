"""How many requests come: constant, drawn, or from a file with one number a line; brought to a share of capacity.

A file is text: one rate per line, or a time and a count. Times are seconds, or what the column's name says (``second``,
``tensec``, ``minute``, ``hour``), or dates as ISO 8601 writes them. A file whose first column is a date and that has
three or more columns holds one request per line, and they are counted by the second. Steps longer than
``LONGEST_STEP_S`` are replayed at that length, so that half an hour of an episode has something to follow; the suite
says so. Times that go back, NaN and negative rates are refused with the line and the column.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from shared.errors import ConfigError

LOW, HIGH = 0.4, 0.8
"""The shares of capacity that a load is brought to (targets T5)."""
LONGEST_STEP_S = 10.0
FEWEST = 2
MOST_LINES = 5_000_000
REMEDY = "give one rate per line, or a time and a rate"
UNITS = {"second": 1.0, "tensec": 10.0, "minute": 60.0, "hour": 3600.0}
LOAD_STREAM = 11
DRAWN, CONSTANT, DIURNAL, NOISY, BURSTY = "drawn", "constant", "diurnal", "noisy", "bursty"
PATTERNS = (DRAWN, CONSTANT, DIURNAL, NOISY, BURSTY)
"""The twin's own, and the four shapes that autoscalers are usually shown on (Wang et al. 2024, Autothrottle)."""
DAY_S = 3600.0
NOISE_S = 30
BURST_S, BURST_GAP_S = (30.0, 180.0), 180.0
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LoadTrace:
    """Rates at equal steps of ``step_s`` seconds; ``told_s`` is the step that the file has."""

    rates: Floats
    step_s: float
    told_s: float
    name: str = "trace"


def constant(capacity: float, seconds: int, share: float = (LOW + HIGH) / 2) -> Floats:
    """The same rate all the time: float64 [seconds], requests per second."""
    return np.full(seconds, share * capacity)


def drawn(capacity: float, seconds: int, seed: int) -> Floats:
    """A load of the twin's own: two waves (10 to 40 minutes) and a slow wander, within 40 to 80 % of capacity."""
    rng = np.random.default_rng([seed, LOAD_STREAM])
    time_s = np.arange(seconds, dtype=np.float64)
    periods_s, phases = rng.uniform(600.0, 2400.0, 2), rng.uniform(0.0, 2.0 * np.pi, 2)
    shape = sum(np.sin(2.0 * np.pi * time_s / period + phase) for period, phase in zip(periods_s, phases, strict=True))
    knots = np.cumsum(rng.normal(0.0, 0.35, seconds // 60 + 2))
    shape = shape + np.interp(time_s, np.arange(len(knots)) * 60.0, knots)
    return scaled(np.asarray(shape), capacity)


def patterned(pattern: str, capacity: float, seconds: int, seed: int) -> Floats:
    """The load of a pattern (``PATTERNS``): float64 [seconds], requests per second, a function of the seed.

    ``ConfigError``: there is no such pattern.
    """
    if pattern not in PATTERNS:
        raise ConfigError(f"load: {pattern!r} is not known; choose one of {', '.join(PATTERNS)}")
    if pattern == DRAWN:
        return drawn(capacity, seconds, seed)
    if pattern == CONSTANT:
        return constant(capacity, seconds)
    rng = np.random.default_rng([seed, LOAD_STREAM, PATTERNS.index(pattern)])
    time_s = np.arange(seconds, dtype=np.float64)
    if pattern == DIURNAL:  # a day in an hour: an episode is a morning, a noon or an evening
        shape = (
            np.sin(2.0 * np.pi * (time_s / DAY_S + rng.random()))
            + rng.normal(0.0, 0.05, seconds // 10 + 1).repeat(10)[:seconds]
        )
    elif pattern == NOISY:
        shape = rng.normal(0.0, 1.0, seconds // NOISE_S + 1).repeat(NOISE_S)[:seconds]
    else:
        shape = np.zeros(seconds)
        at = rng.exponential(BURST_GAP_S)
        while at < seconds:
            end = at + rng.uniform(*BURST_S)
            shape[int(at) : int(end)] = rng.uniform(0.6, 1.0)
            at = end + rng.exponential(BURST_GAP_S)
    return scaled(shape, capacity)


def of_trace(trace: LoadTrace, capacity: float, seconds: int, seed: int, *, as_it_is: bool = False) -> Floats:
    """A stretch of the trace that the seed chooses, as float64 [seconds] requests per second: between steps a line.

    A trace that is shorter than the episode begins anew. ``as_it_is``: at its own rates, not at shares of capacity.
    """
    rng = np.random.default_rng([seed, LOAD_STREAM])
    step_s = trace.told_s if as_it_is else trace.step_s
    steps = int(np.ceil(seconds / step_s)) + 2
    first = int(rng.integers(max(1, len(trace.rates) - steps)))
    part = trace.rates[(first + np.arange(steps)) % len(trace.rates)]
    shape = np.interp(np.arange(seconds), np.arange(steps) * step_s, part)
    return shape if as_it_is else scaled(shape, capacity)


def scaled(shape: Floats, capacity: float) -> Floats:
    """The shape with its 5th and 95th percentile at 40 and 80 % of capacity; flat: 60 %. Never below 0."""
    low, high = np.percentile(shape, (5, 95))
    if high - low <= 1e-9 * max(abs(float(high)), 1.0):
        return constant(capacity, len(shape))
    rates: Floats = np.maximum((LOW + (HIGH - LOW) * (shape - low) / (high - low)) * capacity, 0.0)
    return rates


def parse_trace(text: str, source: str = "trace") -> LoadTrace:
    """The trace in a text; ``source`` names it in errors. Raises ``ConfigError`` naming line and column."""
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        raise ConfigError(f"{source}: more than {MOST_LINES} lines; give a part of it")
    rows = [(number, line.split(",")) for number, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]
    if not rows:
        raise ConfigError(f"{source}: no line with a number; {REMEDY}")
    heading: list[str] = []
    if not _is_value(rows[0][1][-1]) and not _is_date(rows[0][1][0]):
        heading = [cell.strip().lower() for cell in rows[0][1]]
        rows = rows[1:]
    if len(rows) < FEWEST:
        raise ConfigError(f"{source}: {len(rows)} rows are too few; give at least {FEWEST}")
    columns = len(rows[0][1])
    for number, cells in rows:
        if len(cells) != columns:
            raise ConfigError(f"{source}, line {number}: {len(cells)} columns, the first row has {columns}; {REMEDY}")
    if columns == 1:
        return LoadTrace(_values(rows, 0, source), 1.0, 1.0, source)
    if columns > 2:
        return _counted(rows, source)
    times = _times(rows, heading[0] if heading else "", source)
    values = _values(rows, 1, source)
    told_s = float(np.median(np.diff(times)))
    even = np.arange(times[0], times[-1] + told_s / 2, told_s)
    return LoadTrace(np.interp(even, times, values), min(told_s, LONGEST_STEP_S), told_s, source)


def _counted(rows: list[tuple[int, list[str]]], source: str) -> LoadTrace:
    """One request per row, by the second."""
    times = _times(rows, "", source, strictly=False)
    return LoadTrace(np.bincount((times - times[0]).astype(np.int64)).astype(np.float64), 1.0, 1.0, source)


def _values(rows: list[tuple[int, list[str]]], column: int, source: str) -> Floats:
    found = np.empty(len(rows))
    for at, (number, cells) in enumerate(rows):
        cell = cells[column].strip()
        where = f"{source}, line {number}, column {column + 1}"
        try:
            value = float(cell)
        except ValueError:
            raise ConfigError(f"{where}: {cell[:40]!r} is no number; {REMEDY}") from None
        if not isfinite(value) or value < 0:
            raise ConfigError(f"{where}: {cell[:40]} is negative or not finite; {REMEDY}")
        found[at] = value
    return found


def _times(rows: list[tuple[int, list[str]]], heading: str, source: str, *, strictly: bool = True) -> Floats:
    unit_s = next((unit for word, unit in UNITS.items() if word in heading), 1.0)
    found = np.empty(len(rows))
    for at, (number, cells) in enumerate(rows):
        cell = cells[0].strip()
        where = f"{source}, line {number}, column 1"
        if _is_value(cell):
            found[at] = float(cell) * unit_s
        elif _is_date(cell):
            found[at] = _date(cell).timestamp()
        else:
            raise ConfigError(f"{where}: {cell[:40]!r} is neither a number nor a date; {REMEDY}")
        if not isfinite(found[at]):
            raise ConfigError(f"{where}: {cell[:40]} is not finite; {REMEDY}")
        if at and (found[at] < found[at - 1] or (strictly and found[at] == found[at - 1])):
            raise ConfigError(f"{where}: {cell[:40]} is not after the line before; put the lines in order of time")
    return found


def _is_value(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _date(cell: str) -> datetime:
    """A date; digits below a microsecond are left out, without a zone it is UTC."""
    whole, dot, fraction = cell.strip().partition(".")
    digits = "".join(sign for sign in fraction if sign.isdigit())[:6]
    found = datetime.fromisoformat(f"{whole}.{digits.ljust(6, '0')}" if dot and digits else whole)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _is_date(cell: str) -> bool:
    try:
        _date(cell)
    except ValueError:
        return False
    return "-" in cell
