"""What a node uses now, from two looks at its counters: rates, and the name of everything that could not be told. Pure.

    Counters --Sensor.take--> Reading          the first look tells memory and pressure; rates take two

Rules: a part that cannot be told is None and named in ``missing``; nothing is guessed, and nothing old stands in.
A counter that went back is one that began anew (a driver reloaded, a disk taken out and put in): its interval is left
out. One of 32 bits that passed its end is read on where that gives a believable amount. When the clock and the look
before are too far apart (the machine slept, the process hung), the interval says nothing about now and is left out too.
Its length is told by the node's own clock, /proc/uptime, which is read with the counters: on a full node we wait for a
CPU between a clock of ours and them.

Shares are of what the node has: of disks by the time in which the busiest of them had work, of the network by the speed
its links claim; or, where the operator says what the node can do (``NodeLimits``), by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shared.agent.counters import Counters, Disk, Link

LONGEST_S = 60.0
"""An interval above it tells about the past: a node's use of a minute ago is none of a decision's business."""
SHORTEST_S = 0.2
"""Below it, ticks of 10 ms are too coarse."""
WRAP = 1 << 32
SLACK = 1.25
"""By how much a counter may outrun the clock (both are read one after the other)."""
MOST_BYTES_PER_S = 1e11
"""No node moves more: 800 Gbit/s. Above it a counter is broken."""
MOST_NOTES = 16
STILL = "cpu, memory, disk, network: /proc/stat stands still; it is not this node's, or a copy of it"
"""CPUs without work count their ticks too: where none are counted, nothing else there is of now."""


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """What the node can do, in bytes per second; 0: its disks' busy time and its links' speeds say so."""

    disk_bytes_per_s: float = 0.0
    network_bytes_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class HostReading:
    """What a node used over the last interval, ``at_s`` of the reader's clock. None: not told, see ``missing``.

    ``disk`` and ``network``: shares of what the node can do; ``..._bytes_per_s``: both directions together.
    ``pressure``: share of the last 10 s in which tasks waited, by cpu, memory and io. ``oom_kills``: of the interval.
    """

    at_s: float
    cpu_millis: int | None = None
    memory_bytes: int | None = None
    disk: float | None = None
    network: float | None = None
    disk_bytes_per_s: float | None = None
    network_bytes_per_s: float | None = None
    pressure: tuple[tuple[str, float], ...] = ()
    oom_kills: int | None = None
    missing: tuple[str, ...] = ()


class Sensor:
    """Of one node. ``ticks_per_s``: of /proc/stat (``sysconf(_SC_CLK_TCK)``)."""

    def __init__(self, *, ticks_per_s: int = 100, limits: NodeLimits | None = None) -> None:
        self._ticks_per_s = ticks_per_s
        self._limits = limits or NodeLimits()
        self._before: Counters | None = None

    def take(self, now: Counters) -> HostReading:
        """What was used since the look before."""
        before, self._before = self._before, now
        notes = list(now.problems)
        reading = HostReading(
            at_s=now.at_s,
            memory_bytes=_used(now),
            pressure=tuple(sorted(now.pressure.items())),
        )
        elapsed_s = now.at_s - before.at_s if before is not None else 0.0
        if before is None:
            notes.append("cpu, disk, network: the first look; rates take two")
        elif not SHORTEST_S <= elapsed_s <= LONGEST_S:
            notes.append(f"cpu, disk, network: {elapsed_s:.1f} s since the look before; that tells nothing about now")
        elif now.total_ticks is not None and now.total_ticks == before.total_ticks:
            reading = HostReading(at_s=now.at_s)
            notes.append(STILL)
        elif not SHORTEST_S <= (elapsed_s := _elapsed_s(before, now)) <= LONGEST_S:
            notes.append(f"cpu, disk, network: {elapsed_s:.1f} s by /proc/uptime; that tells nothing about now")
        else:
            reading = self._rates(reading, before, now, elapsed_s, notes)
        return replace(reading, missing=tuple(dict.fromkeys(notes))[:MOST_NOTES])

    def _rates(
        self, reading: HostReading, before: Counters, now: Counters, elapsed_s: float, notes: list[str]
    ) -> HostReading:
        disk, disk_rate = self._disks(before.disks, now.disks, elapsed_s, notes)
        network, network_rate = self._links(before.links, now.links, elapsed_s, notes)
        return replace(
            reading,
            cpu_millis=self._cpu(before, now, elapsed_s, notes),
            disk=disk,
            disk_bytes_per_s=disk_rate,
            network=network,
            network_bytes_per_s=network_rate,
            oom_kills=_kills(before.oom_kills, now.oom_kills),
        )

    def _cpu(self, before: Counters, now: Counters, elapsed_s: float, notes: list[str]) -> int | None:
        if before.busy_ticks is None or now.busy_ticks is None:
            return None
        spent = now.busy_ticks - before.busy_ticks
        seconds = spent / self._ticks_per_s
        most = max(1, now.cpus, before.cpus) * elapsed_s * SLACK
        if spent < 0:
            notes.append("cpu: its counter went back")
            return None
        if seconds > most + 0.1:
            notes.append(f"cpu: {seconds:.1f} s of work in {elapsed_s:.1f} s on {now.cpus} CPUs cannot be")
            return None
        return min(round(seconds / elapsed_s * 1000), max(1, now.cpus) * 1000)

    def _disks(
        self, before: Mapping[str, Disk] | None, now: Mapping[str, Disk] | None, elapsed_s: float, notes: list[str]
    ) -> tuple[float | None, float | None]:
        """(share, bytes per second) of the disks that both looks saw."""
        if before is None or now is None:
            return None, None
        notes += [f"disk: {name} vanished" for name in before if name not in now]
        busiest, total, told = 0.0, 0.0, 0
        for name, disk in now.items():
            old = before.get(name)
            if old is None:
                continue  # it has just come: told from the next look on
            most = MOST_BYTES_PER_S * elapsed_s
            read = _delta(old.read_bytes, disk.read_bytes, most)
            written = _delta(old.written_bytes, disk.written_bytes, most)
            busy_ms = _delta(old.busy_ms, disk.busy_ms, elapsed_s * 1000 * SLACK + 100)
            if read is None or written is None or busy_ms is None:
                notes.append(f"disk: a counter of {name} went back or jumped")
                continue
            told += 1
            total += read + written
            busiest = max(busiest, min(1.0, busy_ms / 1000 / elapsed_s))
        if not told:
            if not before or not now:
                notes.append("disk: none is there")
            return None, None
        rate, limit = total / elapsed_s, self._limits.disk_bytes_per_s
        return (rate / limit if limit else busiest), rate

    def _links(
        self, before: Mapping[str, Link] | None, now: Mapping[str, Link] | None, elapsed_s: float, notes: list[str]
    ) -> tuple[float | None, float | None]:
        """(share, bytes per second). Both directions count together against a given limit; a link is as full as its
        fuller direction."""
        if before is None or now is None:
            return None, None
        notes += [f"network: {name} vanished" for name in before if name not in now]
        fullest, total, told, unclear = 0.0, 0.0, 0, []
        for name, link in now.items():
            old = before.get(name)
            if old is None:
                continue
            most = min(MOST_BYTES_PER_S, link.bits_per_s / 8 * SLACK or MOST_BYTES_PER_S) * elapsed_s + (1 << 20)
            received = _delta(old.received_bytes, link.received_bytes, most)
            sent = _delta(old.sent_bytes, link.sent_bytes, most)
            if received is None or sent is None:
                notes.append(f"network: a counter of {name} went back or jumped")
                continue
            told += 1
            total += received + sent
            if link.bits_per_s:
                fullest = max(fullest, max(received, sent) * 8 / elapsed_s / link.bits_per_s)
            elif received or sent:
                unclear.append(name)
        if not told:
            if not before or not now:
                notes.append("network: no interface is there")
            return None, None
        rate, limit = total / elapsed_s, self._limits.network_bytes_per_s
        if limit:
            return rate / limit, rate
        if unclear:
            notes.append(f"network: {unclear[0]} does not tell its speed; set sensor_network_mbits")
            return None, rate
        return min(1.0, fullest), rate


def _elapsed_s(before: Counters, now: Counters) -> float:
    """By the node's clock, where it is told."""
    if before.uptime_s is None or now.uptime_s is None:
        return now.at_s - before.at_s
    return now.uptime_s - before.uptime_s


def _delta(before: int, after: int, most: float) -> int | None:
    """How much was counted; None where the counter began anew or jumped. A 32-bit one may have passed its end."""
    grown = after - before
    if grown < 0 and before < WRAP:
        grown += WRAP
    return grown if 0 <= grown <= most else None


def _used(now: Counters) -> int | None:
    if now.memory_total is None or now.memory_available is None:
        return None
    return now.memory_total - now.memory_available


def _kills(before: int | None, now: int | None) -> int | None:
    return now - before if before is not None and now is not None and now >= before else None
