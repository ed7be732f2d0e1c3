"""A recorded schedule as a policy: what some scheduler gave each job when, to be imitated.

Rows are those of ``schedules``; of jobs with parameter servers they have the column ``servers``. Played on the
workload that was recorded, at the moments at which that scheduler decided, it decides the same again.
"""

from __future__ import annotations

import csv
import io
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from lab.jobs.schedules import HEADER, SERVERS
from shared.errors import ConfigError
from shared.jobs.observation import Decision, JobAllocation, JobsObservation

SLACK_S = 1e-5
"""Times are written in millionths of a second."""
GIVES = ("start", "move", "batch", "stop")
REMEDY = "give a schedule of conclave evaluate --schedule"


@dataclass
class Recorded:
    """One seed's schedule. ``given``: by job, (time, what it had from then on), in order of time."""

    given: Mapping[str, tuple[tuple[float, JobAllocation], ...]]
    name: str = "recorded"

    def reset(self, seed: int) -> None:
        """Nothing is drawn."""

    def decide(self, seen: JobsObservation) -> Decision:
        """What each job had at this moment. A job that the schedule does not know waits, as it did."""
        found: dict[str, JobAllocation] = {}
        for job in seen.jobs:
            rows = self.given.get(job.name, ())
            at = bisect_right([time for time, _ in rows], seen.now + SLACK_S)
            found[job.name] = rows[at - 1][1] if at else JobAllocation(workers=0)
        return found


def parse_schedule(text: str, file: str) -> dict[int, Recorded]:
    """The schedule of each seed. ``ConfigError`` names the line and what is wrong with it."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\\ufeff")))
    missing = [name for name in HEADER.split(",") if name not in (reader.fieldnames or ())]
    if missing:
        raise ConfigError(f"{file}, line 1: column {missing[0]} is missing; {REMEDY}")
    found: dict[int, dict[str, list[tuple[float, JobAllocation]]]] = {}
    for line, row in enumerate(reader, 2):
        try:
            jobs = found.setdefault(int(row["seed"]), {})
            rows = jobs.setdefault(row["job"], [])
            if row["event"] in GIVES:
                rows.append((float(row["time_s"]), _allocation(row)))
                if len(rows) > 1 and rows[-2][0] > rows[-1][0]:
                    raise ValueError("time runs back")
        except (ValueError, TypeError, AttributeError) as error:
            raise ConfigError(f"{file}, line {line}: {error}; {REMEDY}") from None
    if not found:
        raise ConfigError(f"{file}: no row follows the header; {REMEDY}")
    return {seed: Recorded({name: tuple(rows) for name, rows in jobs.items()}) for seed, jobs in found.items()}


def _allocation(row: Mapping[str, str]) -> JobAllocation:
    placement: dict[str, int] = {}
    for part in row["nodes"].split("|") if row["nodes"] else ():
        node, _, count = part.rpartition(":")
        placement[node] = int(count)
    servers = row.get(SERVERS)
    return JobAllocation(
        workers=sum(placement.values()), placement=placement, servers=int(servers) if servers else None
    )
