"""What the kernel counts about one node, read from the texts of /proc and /sys. Pure: texts in, numbers out.

    /proc/uptime, stat, meminfo, diskstats, net/dev and so on --parse--> Counters --two, ``readings.py``--> Reading

A file that is missing or reads oddly is *absent* here (None, or not in the map) and named in ``problems``: nothing is
guessed. Formats: Linux Documentation/filesystems/proc.rst, admin-guide/iostats.rst, accounting/psi.rst.

Not its job: opening files, rates, limits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

UPTIME, STAT, MEMINFO, VMSTAT = "uptime", "stat", "meminfo", "vmstat"
DISKSTATS, NETDEV = "diskstats", "net/dev"
PRESSURES = ("cpu", "memory", "io")
MAX_DEVICES = 512
"""Disks, and interfaces, of one node that are looked at; the first by name."""

SECTOR_BYTES = 512
"""Of diskstats, whatever the disk's own sectors are."""

_PART = re.compile(r"(?:z?ram|loop|fd|sr|dm-|md|nbd)\d+.*|(?:h|s|v|xv)d[a-z]+\d+|(?:nvme\d+n|mmcblk)\d+p\d+")
"""No disk of its own: a partition, or what is stacked on other disks and would count their work twice."""
_VIRTUAL = re.compile(
    r"(?:lo|docker|veth|cali|cilium|lxc|flannel|cni|tunl|kube-|virbr|br-|vxlan|tap|dummy|ifb|nodelocal|bond|team|ovs).*"
    r"|.*\.\d+"
)
"""Interfaces through which no traffic leaves the node that another one does not count."""


@dataclass(frozen=True, slots=True)
class Disk:
    """Totals since the node's start. ``busy_ms`` is 32 bits wide in the kernel and wraps after 49 days of work."""

    read_bytes: int
    written_bytes: int
    busy_ms: int


@dataclass(frozen=True, slots=True)
class Link:
    """One interface's totals since it was made; ``bits_per_s``: of the link, 0 where it does not say."""

    received_bytes: int
    sent_bytes: int
    bits_per_s: int = 0


@dataclass(frozen=True, slots=True)
class Counters:
    """One look at a node, at ``at_s`` of a clock that never goes back. ``busy_ticks``: of all CPUs together, waiting
    for disks left out, stolen time counted (it is gone all the same); ``cpus``: how many of them there are."""

    at_s: float
    uptime_s: float | None = None
    """What the node's own clock said beside its counters."""
    busy_ticks: int | None = None
    cpus: int = 0
    total_ticks: int | None = None
    """Busy or not, of all CPUs together: it goes on whatever the node does, or nobody writes these texts any more."""
    memory_total: int | None = None
    memory_available: int | None = None
    oom_kills: int | None = None
    disks: Mapping[str, Disk] | None = None
    links: Mapping[str, Link] | None = None
    pressure: Mapping[str, float] = field(default_factory=dict)
    """Share of the last 10 s in which some task waited for it (0 to 1), by ``PRESSURES``."""
    problems: tuple[str, ...] = ()


def parse(at_s: float, files: Mapping[str, str], link_speeds: Mapping[str, str]) -> Counters:
    """``files``: texts by their names under /proc (``pressure/cpu`` and so on), those that could be read;
    ``link_speeds``: what /sys says of each interface, in Mbit/s."""
    problems: list[str] = []

    def read(name: str, how: str) -> str:
        text = files.get(name)
        if text is None:
            problems.append(f"{how}: /proc/{name} is not there to be read")
        return text or ""

    busy, ticks, cpus = _cpu(read(STAT, "cpu"))
    memory = _amounts(read(MEMINFO, "memory"))
    disks, links = read(DISKSTATS, "disk"), read(NETDEV, "network")
    total, available = memory.get("MemTotal"), memory.get("MemAvailable")
    if MEMINFO in files and (total is None or available is None or not 0 <= available <= total):
        problems.append("memory: /proc/meminfo does not tell MemTotal and MemAvailable")
        total = available = None
    if STAT in files and busy is None:
        problems.append("cpu: /proc/stat has no line of all CPUs")
    return Counters(
        at_s=at_s,
        uptime_s=uptime_of(files.get(UPTIME)),
        busy_ticks=busy,
        cpus=cpus,
        total_ticks=ticks,
        memory_total=total * 1024 if total is not None else None,
        memory_available=available * 1024 if available is not None else None,
        oom_kills=_amounts(files.get(VMSTAT, "")).get("oom_kill"),
        disks=_disks(disks) if DISKSTATS in files else None,
        links=_links(links, link_speeds) if NETDEV in files else None,
        pressure={name: share for name in PRESSURES if (share := _pressure(files.get(f"pressure/{name}"))) is not None},
        problems=tuple(problems),
    )


def uptime_of(text: str | None) -> float | None:
    """Seconds since the node's start, to 10 ms; None where /proc/uptime does not say."""
    match = re.match(r"(\d{1,10}\.\d+) ", text or "", re.ASCII)
    return float(match[1]) if match is not None else None


def _cpu(text: str) -> tuple[int | None, int | None, int]:
    """(busy ticks of all CPUs, all their ticks, how many CPUs). user and nice hold the guests' time already."""
    busy, total, cpus = None, None, 0
    for line in text.splitlines():
        name, *rest = line.split()[:9] or [""]
        if not name.startswith("cpu"):
            if cpus:
                break
            continue
        ticks = _numbers(rest)
        if name != "cpu":
            cpus += 1
        elif len(ticks) >= 7:
            user, nice, system, _, _, irq, softirq, *more = ticks
            busy, total = user + nice + system + irq + softirq + sum(more[:1]), sum(ticks)
    return busy, total, cpus


def _amounts(text: str) -> dict[str, int]:
    """``Name: number kB`` or ``name number``, one a line."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and (numbers := _numbers(words[1:2])):
            found[words[0].rstrip(":")] = numbers[0]
    return found


def _disks(text: str) -> dict[str, Disk]:
    found: dict[str, Disk] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 13 or _PART.fullmatch(words[2]):
            continue
        counts = _numbers(words[3:14])
        if len(counts) >= 10:
            found[words[2]] = Disk(counts[2] * SECTOR_BYTES, counts[6] * SECTOR_BYTES, counts[9])
    return dict(sorted(found.items())[:MAX_DEVICES])


def _links(text: str, speeds: Mapping[str, str]) -> dict[str, Link]:
    found: dict[str, Link] = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        name, counts = name.strip(), _numbers(rest.split())
        if colon and name and len(counts) >= 9 and not _VIRTUAL.fullmatch(name):
            mbits = _numbers([speeds.get(name, "").strip()])
            found[name] = Link(counts[0], counts[8], mbits[0] * 1_000_000 if mbits else 0)
    return dict(sorted(found.items())[:MAX_DEVICES])


def _pressure(text: str | None) -> float | None:
    """``some avg10=1.23 ...`` as a share; None where the kernel keeps none."""
    match = re.search(r"^some avg10=(\d{1,3}\.\d+) ", text or "", re.MULTILINE)
    return min(1.0, float(match[1]) / 100.0) if match is not None else None


def _numbers(words: list[str]) -> list[int]:
    """The whole numbers; none of them where one is not (a speed of -1 is no speed)."""
    return [int(word) for word in words] if all(word.isascii() and word.isdigit() for word in words) else []
