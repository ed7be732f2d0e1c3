"""Checks a schedule by itself: it knows the file's columns and nothing of the simulator, whose code it does not share.

    python -m lab.jobs.check SCHEDULE.csv [NODES GPUS_PER_NODE]

What must hold in each seed's rows: time never runs back; a job is submitted once, first, and ends once, last; GPUs are
as many as the nodes say; a job starts only when it has none, and moves, stops or ends only when it has some; at no
moment has a node more GPUs in use than it has. One line per broken rule; completion times follow from submit and end.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

COLUMNS = ("seed", "time_s", "job", "event", "nodes", "gpus", "batch")
EVENTS = ("submit", "start", "move", "batch", "stop", "end")
SLACK_S = 1e-5
"""Times are written in millionths of a second."""


@dataclass
class CheckedSchedule:
    """What a schedule says of one seed. ``faults``: broken rules, with the line of the file."""

    faults: list[str] = field(default_factory=list)
    submitted: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    held: dict[str, dict[str, int]] = field(default_factory=dict)
    last_s: float = float("-inf")

    @property
    def completion_s(self) -> dict[str, float]:
        """Seconds from submission to end, by job that ended."""
        return {job: end - self.submitted[job] for job, end in self.ended.items() if job in self.submitted}


def check_rows(rows: Iterable[Mapping[str, str]], gpus: Mapping[str, int] | None = None) -> dict[str, CheckedSchedule]:
    """Every seed's rows, in their order. ``gpus`` by node; None: a node may hold anything, the other rules are checked.

    Rows at one moment are one change: nodes are counted when the next moment begins.
    """
    found: dict[str, CheckedSchedule] = {}
    for line, row in enumerate(rows, 2):
        missing = [column for column in COLUMNS if row.get(column) is None]
        if missing:
            raise ValueError(f"line {line}: column {missing[0]} is missing")
        checked = found.setdefault(row["seed"], CheckedSchedule())
        _check_row(checked, line, row, gpus)
    for checked in found.values():
        _check_nodes(checked, "the end", gpus)
        checked.faults += [f"{job} is never submitted" for job in checked.ended if job not in checked.submitted]
        checked.faults += [f"{job} never ends" for job in checked.submitted if job not in checked.ended]
    return found


def _check_row(checked: CheckedSchedule, line: int, row: Mapping[str, str], gpus: Mapping[str, int] | None) -> None:
    job, event, time_s = row["job"], row["event"], float(row["time_s"])
    nodes = _nodes(row["nodes"])
    faults: list[str] = []
    if time_s > checked.last_s + SLACK_S:
        _check_nodes(checked, f"line {line}", gpus)
    if time_s < checked.last_s - SLACK_S:
        faults.append("time runs back")
    checked.last_s = max(checked.last_s, time_s)
    if event not in EVENTS:
        faults.append(f"no such event as {event!r}")
    if sum(nodes.values()) != int(row["gpus"]) or min(nodes.values(), default=1) < 1:
        faults.append(f"{row['gpus']} GPUs, but nodes have {row['nodes']!r}")
    has = job in checked.held
    if event == "submit":
        if job in checked.submitted:
            faults.append("submitted twice")
        checked.submitted.setdefault(job, time_s)
    elif job not in checked.submitted or job in checked.ended:
        faults.append(f"{event} before submit or after end")
    if has != (event in ("move", "batch", "stop", "end")):
        faults.append(f"{event} of a job that {'has' if has else 'has no'} GPUs")
    if bool(nodes) != (event in ("start", "move", "batch")):
        faults.append(f"{event} with nodes {row['nodes']!r}")
    if event == "batch" and has and nodes != checked.held[job]:
        faults.append("a new batch on other nodes")
    if event == "end":
        checked.ended.setdefault(job, time_s)
    if nodes:
        checked.held[job] = nodes
    else:
        checked.held.pop(job, None)
    checked.faults += [f"line {line}, {job}: {fault}" for fault in faults]


def _check_nodes(checked: CheckedSchedule, when: str, gpus: Mapping[str, int] | None) -> None:
    used: dict[str, int] = {}
    for nodes in checked.held.values():
        for node, count in nodes.items():
            used[node] = used.get(node, 0) + count
    for node, count in used.items():
        if gpus is not None and count > gpus.get(node, 0):
            checked.faults.append(f"before {when}: node {node} has {gpus.get(node, 0)} GPUs, {count} are in use")


def _nodes(text: str) -> dict[str, int]:
    nodes: dict[str, int] = {}
    for part in text.split("|") if text else ():
        name, _, count = part.rpartition(":")
        nodes[name] = nodes.get(name, 0) + int(count)
    return nodes


def main(arguments: list[str]) -> int:
    """The command line: 0 nothing is broken, 1 something is, 2 bad input."""
    if len(arguments) not in (1, 3):
        sys.stderr.write("usage: python -m lab.jobs.check SCHEDULE.csv [NODES GPUS_PER_NODE]\n")
        return 2
    try:
        with Path(arguments[0]).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        names = sorted({name for row in rows for name in _nodes(row["nodes"])})
        gpus = None
        if len(arguments) == 3:
            if len(names) > int(arguments[1]):
                sys.stderr.write(f"{len(names)} nodes are named, more than {arguments[1]}\n")
                return 1
            gpus = dict.fromkeys(names, int(arguments[2]))
        found = check_rows(rows, gpus)
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"{arguments[0]}: {error}; give a schedule of conclave evaluate --schedule\n")
        return 2
    for seed, checked in found.items():
        times = list(checked.completion_s.values())
        mean_h = sum(times) / len(times) / 3600 if times else float("nan")
        sys.stdout.write(f"seed {seed}: {len(times)} jobs ended, mean completion {mean_h:.4f} h\n")
        sys.stdout.writelines(f"  {fault}\n" for fault in checked.faults)
    return 1 if any(checked.faults for checked in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
