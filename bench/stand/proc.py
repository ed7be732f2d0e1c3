"""CPU and memory of processes, from /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
CALIBRATION_TURNS = 50_000


def descendants(pid: int) -> dict[int, str]:
    """Pids below ``pid`` with the words that tell them apart; without those that end meanwhile."""
    found: dict[int, str] = {}
    for child in _read(f"/proc/{pid}/task/{pid}/children").split():
        words = _read(f"/proc/{child}/cmdline").split("\0")
        module = words[words.index("-m") + 1] if "-m" in words else Path(words[0]).name
        identity = words[words.index("--id") + 1] if "--id" in words else ""
        found[int(child)] = f"{module} {identity}".strip()
        found |= descendants(int(child))
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Whether there is such a process here."""
    return Path(f"/proc/{pid}").exists()


def cpu_s(pid: int) -> float:
    """CPU seconds used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_mb(pid: int) -> float:
    """Resident set in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def calibration_ms() -> float:
    """CPU of a fixed piece of Python, the best of three: how much dearer CPU is now than on another day or machine.

    Work beside it on the same cores takes caches and cycles away, from this as from what is measured.
    """

    def once() -> float:
        table: dict[int, tuple[int, str]] = {}
        began = time.thread_time()
        for number in range(CALIBRATION_TURNS):
            table[number & 1023] = (number, str(number))
        return 1000 * (time.thread_time() - began)

    return round(min(once() for _ in range(3)), 2)
