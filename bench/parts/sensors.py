"""What an agent's sensors cost, whether they agree with psutil, and how good delays between 1,000 nodes are.

    python -m bench.parts.sensors [--looks 40] [--delays]

CPU: of one reading (files in a thread, parsing, rates), one each 5 s. Memory: what an agent process grows by when
it begins to sense. Agreement: over the same 5 s, ours and psutil's, which reads the kernel by code of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import psutil

from shared.agent.counters import parse
from shared.agent.readings import Sensor

EVERY_S = 5.0
GROWTH = """
import asyncio, os, sys
import shared.runtime.process.lean
import services.agent.app
from services.agent.settings import AgentSettings
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
async def main():
    await asyncio.sleep(0)
    before = rss()
    from services.agent.sensors.reporting import Self
    from services.agent.sensors.sensing import opened_sensing
    settings = AgentSettings(node="n")
    async with opened_sensing(settings, None, Self("a", "i", "n"), url="http://127.0.0.1:1", term=lambda: 0) as sensing:
        for _ in range(50):
            await sensing.reader.look()
        print(before, rss())
asyncio.run(main())
"""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--looks", type=int, default=40, help="readings whose CPU time is measured")
    parser.add_argument("--delays", action="store_true", help="network coordinates of 1,000 simulated nodes too (12 s)")
    arguments = parser.parse_args()
    spent_s = asyncio.run(cost(arguments.looks))
    print(f"CPU of one reading: {spent_s * 1000:.2f} ms; one each {EVERY_S:g} s is {spent_s / EVERY_S:.3%} of a core")
    before, after = grown()
    print(f"memory: {after - before:.1f} MB more than an agent without sensors ({before:.1f} MB)")
    for name, ours, theirs in agreement():
        print(f"{name}: {ours:.4g}, psutil {theirs:.4g}, off by {abs(ours - theirs) / max(abs(theirs), 1e-9):.2%}")
    if arguments.delays:
        delays()


async def cost(looks: int) -> float:
    """CPU seconds of one reading, threads included."""
    from services.agent.sensors.sensing import NodeReader
    from shared.adapters.node_files import NodeFiles

    reader = NodeReader(NodeFiles(Path("/proc"), Path("/sys")), Sensor(), every_s=EVERY_S)
    await reader.look()
    began = time.process_time()
    for _ in range(looks):
        await reader.look()
    return (time.process_time() - began) / looks


def grown() -> tuple[float, float]:
    """(MB before, MB after) of an agent's process."""
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    out = subprocess.run([sys.executable, "-c", GROWTH], env=environ, capture_output=True, text=True, check=True)
    before, after = map(float, out.stdout.splitlines()[-1].split())
    return before, after


def agreement() -> list[tuple[str, float, float]]:
    """(part, ours, psutil's) over the same seconds."""
    from shared.adapters.node_files import NodeFiles

    files, sensor = NodeFiles(Path("/proc"), Path("/sys")), Sensor(ticks_per_s=os.sysconf("SC_CLK_TCK"))

    def look() -> tuple[float, float, float, float]:
        times, disk, net = psutil.cpu_times(), psutil.disk_io_counters(), psutil.net_io_counters(pernic=True)
        busy = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
        moved = sum(one.bytes_recv + one.bytes_sent for name, one in net.items() if name.startswith(("e", "w")))
        return (
            time.monotonic(),
            busy,
            float(disk.read_bytes + disk.write_bytes if disk is not None else 0),
            float(moved),
        )

    first = files.look()
    sensor.take(parse(time.monotonic(), first.files, first.speeds))
    before = look()
    block = os.urandom(1 << 20)
    with Path("bench-sensors.tmp").open("wb") as file:
        for _ in range(48):  # some work for every counter
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.1)
    Path("bench-sensors.tmp").unlink()
    second = files.look()
    reading, after = sensor.take(parse(time.monotonic(), second.files, second.speeds)), look()
    memory = psutil.virtual_memory()
    passed_s = after[0] - before[0]
    found = [("memory bytes", float(reading.memory_bytes or 0), float(memory.total - memory.available))]
    found.append(("cpu millicores", float(reading.cpu_millis or 0), (after[1] - before[1]) / passed_s * 1000))
    found.append(("disk bytes/s", reading.disk_bytes_per_s or 0.0, (after[2] - before[2]) / passed_s))
    found.append(("network bytes/s", reading.network_bytes_per_s or 0.0, (after[3] - before[3]) / passed_s))
    return found


def delays() -> None:
    """How far estimates are from the truth, after as many probes as the test has."""
    from shared.agent.vivaldi import delay_ms
    from tests.delays import Net, settled

    nodes, rounds = 1000, 240
    net = Net(nodes, seed=42)
    found, rng, off = settled(net, nodes, rounds, seed=43), Random(44), []
    for _ in range(20_000):
        a, b = rng.sample(range(nodes), 2)
        truth = net.truth(a, b)
        off.append(abs(delay_ms(found[a].here, found[b].here) - truth) / max(0.1 * truth, 1.0))
    within = sum(one <= 1.0 for one in off) / len(off)
    print(f"delays of {nodes} nodes after {rounds} probes each: {within:.1%} of pairs within 10 % or 1 ms")


if __name__ == "__main__":
    main()
