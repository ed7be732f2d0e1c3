"""Divides recorded series into hours to learn from and hours to judge by, row by row, as they were written. Pure."""

from __future__ import annotations

import csv
import io
import math

from lab.worlds.learned.series import KEYS, LIVE, rows_of, unpacked
from shared.errors import ConfigError

HELD_BACK = 0.2
MOST = 0.5
"""Share of the moments that whole episodes may be; of a longer one the end is held back."""
LEAST = 10
"""Moments on each side: fewer say nothing."""


def held_back(data: bytes, name: str, *, share: float = HELD_BACK) -> tuple[bytes, bytes]:
    """(to learn from, to judge by), both CSV with the header: of each scenario the last episodes, until so many moments
    are held back; of an episode longer than half of them its end.

    ``ConfigError``: the file cannot be read, or a scenario is too short to divide.
    """
    groups = rows_of(data, name)
    scenarios: dict[str, list[str]] = {}
    for scenario, episode in groups:
        scenarios.setdefault(scenario, []).append(episode)
    cuts: dict[tuple[str, str], float] = {}
    """From when on an episode is held back."""
    for scenario, episodes in scenarios.items():
        whole = sum(len(groups[scenario, episode]) for episode in episodes)
        wanted, held = whole - int((1.0 - share) * whole), 0
        if min(wanted, whole - wanted) < LEAST:
            raise ConfigError(
                f"{name}: {whole} moments of {scenario!r} are too few to hold some back; record for longer"
            )
        for episode in reversed(episodes):
            if held >= wanted:
                break
            times = sorted(groups[scenario, episode])
            if held + len(times) <= MOST * whole:
                cuts[scenario, episode], held = -math.inf, held + len(times)
            else:  # too long to be spared: its end alone
                cuts[scenario, episode], held = times[len(times) - (wanted - held)], wanted
    reader = csv.reader(io.StringIO(unpacked(data, name), newline=""))
    header = next(reader)
    places = [header.index(key) for key in KEYS[:3]]
    parts = io.StringIO(), io.StringIO()
    writers = [csv.writer(part, lineterminator="\n") for part in parts]
    for writer in writers:
        writer.writerow(header)
    for row in reader:
        scenario, episode, time_s = (row[at] for at in places)
        cut = cuts.get((scenario or LIVE, episode), math.inf)
        writers[float(time_s) >= cut].writerow(row)
    return parts[0].getvalue().encode(), parts[1].getvalue().encode()
