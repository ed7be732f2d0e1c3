"""Counters of a node into rates: what wraps, goes back, jumps or vanishes is masked and named, never guessed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.agent.counters import Counters, Disk, Link, parse
from shared.agent.readings import STILL, HostReading, NodeLimits, Sensor

STAT = """cpu  100 5 50 1000 20 3 2 4 7 0
cpu0 50 2 25 500 10 1 1 2 3 0
cpu1 50 3 25 500 10 2 1 2 4 0
intr 5 1 2
ctxt 9
"""
MEMINFO = "MemTotal:        8000 kB\nMemFree:         1000 kB\nMemAvailable:    5000 kB\n"
DISKSTATS = """   8       0 sda 10 0 100 5 20 0 200 6 0 40 50
   8       1 sda1 10 0 100 5 20 0 200 6 0 40 50
 259       0 nvme0n1 1 0 2 3 4 0 6 7 0 9 10 0 0 0 0
 253       0 dm-0 10 0 100 5 20 0 200 6 0 40 50
   7       0 loop0 10 0 100 5 20 0 200 6 0 40 50
"""
NETDEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0
  eth0: 1000 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0
veth12: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0
 bond0: 7 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0
"""
PSI = "some avg10=12.50 avg60=1.00 avg300=0.10 total=1\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=0\n"
FILES = {
    "uptime": "8100.25 16000.00\n",
    "stat": STAT, "meminfo": MEMINFO, "vmstat": "nr_free_pages 5\noom_kill 3\n", "diskstats": DISKSTATS,
    "net/dev": NETDEV, "pressure/cpu": PSI,
}  # fmt: skip

FIRST = Counters(
    at_s=100.0, busy_ticks=1000, cpus=4, memory_total=8 << 30, memory_available=6 << 30, oom_kills=0,
    disks={"sda": Disk(0, 0, 0)}, links={"eth0": Link(0, 0, 1_000_000_000)},
)  # fmt: skip


def read(before: Counters, after: Counters, limits: NodeLimits | None = None) -> HostReading:
    sensor = Sensor(limits=limits)
    sensor.take(before)
    return sensor.take(after)


def test_the_kernels_texts_are_read() -> None:
    found = parse(1.0, FILES, {"eth0": "10000\n", "lo": "-1"})
    assert (found.busy_ticks, found.cpus) == (100 + 5 + 50 + 3 + 2 + 4, 2)
    assert found.total_ticks == 100 + 5 + 50 + 1000 + 20 + 3 + 2 + 4, "a guest's time is its host's already"
    assert (found.memory_total, found.memory_available, found.oom_kills) == (8000 * 1024, 5000 * 1024, 3)
    assert found.disks == {"nvme0n1": Disk(1024, 3072, 9), "sda": Disk(51200, 102400, 40)}
    assert found.links == {"eth0": Link(1000, 2000, 10_000_000_000)}
    assert found.pressure == {"cpu": 0.125}
    assert found.uptime_s == 8100.25
    assert found.problems == ()


@pytest.mark.parametrize("name", ["stat", "meminfo", "diskstats", "net/dev"])
def test_a_text_that_is_missing_or_broken_is_named_and_costs_the_others_nothing(name: str) -> None:
    without = parse(1.0, {key: text for key, text in FILES.items() if key != name}, {})
    assert [problem for problem in without.problems if name in problem]
    for rubbish in ("", "cpu x y", "\0\0", "MemTotal: -5 kB\nMemAvailable: nan kB", "eth0: 1 2", "8 0 sda 1"):
        broken = parse(1.0, {**FILES, name: rubbish}, {})
        kept = [broken.busy_ticks, broken.memory_total, broken.disks or None, broken.links or None]
        assert sum(part is None for part in kept) == 1


def test_rates_are_what_was_counted_over_the_time() -> None:
    after = replace(
        FIRST, at_s=110.0, busy_ticks=3000, memory_available=5 << 30, oom_kills=2,
        disks={"sda": Disk(10_000_000, 40_000_000, 2500)}, links={"eth0": Link(125_000_000, 250_000_000, 10**9)},
    )  # fmt: skip
    found = read(FIRST, after)
    assert (found.cpu_millis, found.memory_bytes, found.oom_kills) == (2000, 3 << 30, 2)
    assert (found.disk, found.disk_bytes_per_s) == (0.25, 5_000_000)
    assert (found.network, found.network_bytes_per_s) == (0.2, 37_500_000)
    assert found.missing == ()
    limited = read(FIRST, after, NodeLimits(disk_bytes_per_s=10e6, network_bytes_per_s=75e6))
    assert (limited.disk, limited.network) == (0.5, 0.5)


def test_the_first_look_tells_memory_alone() -> None:
    found = Sensor().take(FIRST)
    assert (found.cpu_millis, found.disk, found.network, found.memory_bytes) == (None, None, None, 2 << 30)
    assert "first look" in found.missing[0]


def test_a_32_bit_counter_that_passed_its_end_is_read_on() -> None:
    top = (1 << 32) - 1000
    before = replace(FIRST, disks={"sda": Disk(0, 0, top)}, links={"eth0": Link(top, top, 10**9)})
    after = replace(FIRST, at_s=105.0, disks={"sda": Disk(0, 0, 1500)}, links={"eth0": Link(4000, 9000, 10**9)})
    found = read(before, after)
    assert found.disk == pytest.approx(0.5)
    assert found.network_bytes_per_s == pytest.approx((5000 + 10000) / 5)


@pytest.mark.parametrize(
    ("change", "part", "words"),
    [
        ({"busy_ticks": 10}, "cpu_millis", "cpu: its counter went back"),
        ({"busy_ticks": 10**9}, "cpu_millis", "cannot be"),
        ({"disks": {"sda": Disk(0, 0, 10**6)}}, "disk", "went back or jumped"),
        ({"disks": {}}, "disk", "disk: sda vanished"),
        ({"links": {"eth0": Link(10**14, 0, 10**9)}}, "network", "went back or jumped"),
        ({"links": {"eth1": Link(5, 5, 10**9)}}, "network", "network: eth0 vanished"),
        ({"links": {"eth0": Link(5, 5, 0)}}, "network", "does not tell its speed; set sensor_network_mbits"),
    ],
)
def test_what_cannot_be_told_is_masked_and_named(change: dict[str, object], part: str, words: str) -> None:
    before = replace(FIRST, disks={"sda": Disk(10**13, 10**13, 5000)})
    after = replace(FIRST, at_s=105.0, busy_ticks=1100, disks={"sda": Disk(10**13, 10**13, 5100)})
    found = read(before, replace(after, **change))  # type: ignore[arg-type]
    assert getattr(found, part) is None
    assert [note for note in found.missing if words in note]
    others = {"cpu_millis", "disk", "network"} - {part}
    assert all(getattr(found, other) is not None for other in others)


@pytest.mark.parametrize("at_s", [100.0, 99.0, 100.05, 100.0 + 3600])
def test_an_interval_in_which_the_clock_jumped_or_the_machine_slept_tells_no_rate(at_s: float) -> None:
    sensor = Sensor()
    sensor.take(FIRST)
    slept = sensor.take(replace(FIRST, at_s=at_s, busy_ticks=1001))
    assert (slept.cpu_millis, slept.disk, slept.network) == (None, None, None)
    assert "that tells nothing about now" in slept.missing[0]
    again = sensor.take(replace(FIRST, at_s=at_s + 5, busy_ticks=1001 + 500))
    assert again.cpu_millis == 1000


def test_without_the_bound_on_a_jump_a_disk_would_be_busier_than_time_allows() -> None:
    """The safeguard switched off: a counter that jumped passes as a rate beyond all reason."""
    jumped = 10**6 - 5000
    assert jumped / 1000 / 5 > 1.0
    before = replace(FIRST, disks={"sda": Disk(0, 0, 5000)})
    assert read(before, replace(FIRST, at_s=105.0, disks={"sda": Disk(0, 0, 10**6)})).disk is None


def test_texts_that_stand_still_tell_nothing_of_now() -> None:
    """CPUs without work count their ticks too: a copy of /proc, or a sandbox's, is known by that."""
    looked = replace(FIRST, total_ticks=5000)
    found = read(looked, replace(looked, at_s=105.0))
    assert (found.cpu_millis, found.memory_bytes, found.disk, found.network, found.pressure) == (None,) * 4 + ((),)
    assert found.missing == (STILL,)
    moved = read(looked, replace(looked, at_s=105.0, total_ticks=5001))
    assert moved.memory_bytes == 2 << 30


def test_without_that_check_a_copy_would_be_an_idle_node() -> None:
    """The safeguard switched off: who does not tell all ticks is believed."""
    assert read(FIRST, replace(FIRST, at_s=105.0)).cpu_millis == 0


def worked(uptime_s: float | None, at_s: float, share: float, passed_s: float) -> Counters:
    """Counters of a node whose CPU and disk worked for such a share of the time that passed."""
    return replace(
        FIRST, at_s=at_s, uptime_s=uptime_s, busy_ticks=round(1000 + 100 * share * passed_s),
        disks={"sda": Disk(0, 0, round(1000 * share * passed_s))},
    )  # fmt: skip


@pytest.mark.parametrize("waited_s", [0.0, 0.1, 4.0])
def test_a_rate_is_over_the_time_between_the_counters_however_late_they_were_read(waited_s: float) -> None:
    """A full node lets us wait between our clock and its counters, and at the next look not at all."""
    before = worked(500.0 + waited_s, 100.0, 0.5, waited_s)
    found = read(before, worked(505.0, 105.0, 0.5, 5.0))
    assert found.disk == pytest.approx(0.5, abs=0.005)
    assert found.cpu_millis == pytest.approx(500, abs=10)


def test_by_a_clock_of_our_own_a_node_that_let_us_wait_would_seem_idle() -> None:
    """The safeguard switched off: who does not tell the node's clock is judged by ours."""
    assert read(worked(None, 100.0, 0.5, 4.0), worked(None, 105.0, 0.5, 5.0)).disk == pytest.approx(0.1)


@pytest.mark.parametrize("uptime_s", [500.1, 499.0, 600.0])
def test_counters_that_are_too_close_to_those_before_or_too_far_tell_no_rate(uptime_s: float) -> None:
    found = read(worked(500.0, 100.0, 0.5, 0.0), worked(uptime_s, 105.0, 0.5, 1.0))
    assert (found.cpu_millis, found.disk, found.network) == (None, None, None)
    assert "by /proc/uptime; that tells nothing about now" in found.missing[0]
    assert found.memory_bytes == 2 << 30
