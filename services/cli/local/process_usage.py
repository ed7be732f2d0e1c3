"""What a process costs: CPU and memory, read from /proc while it lives and from its exit status when it has ended.

Memory is the peak of the resident set since its exec (``VmHWM``). The kernel's ``ru_maxrss`` is not used: it keeps the
size of the process that forked it. A process that is not ours or not there reads as zero.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """``cpu_s``: user and system, all threads. ``peak_rss_bytes``: largest resident set so far."""

    cpu_s: float = 0.0
    peak_rss_bytes: int = 0
    rss_bytes: int = 0


def read_usage(pid: int) -> ProcessUsage:
    """Usage of a live process; zeros where it cannot be read."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ProcessUsage()
    # The command name is in parentheses and may hold anything: fields are counted from behind it.
    fields = stat.rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0
    return ProcessUsage(ticks / _TICKS_PER_S, _kilobytes(status, "VmHWM:"), _kilobytes(status, "VmRSS:"))


def _kilobytes(status: str, name: str) -> int:
    for line in status.splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0
