"""CPU of every process of an idle mesh: `conclave twin serve` and `conclave up`, nothing to schedule.

    .venv/bin/python -m bench.idle --seconds 30

Prints each process's CPU as a share of one core, from /proc, and its memory.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from pathlib import Path

from bench.stand.ending import run_to_its_end
from bench.stand.proc import cpu_s, descendants, rss_mb
from bench.stand.processes import BenchMesh, start_twin, stop

SETTLE_S = 5.0


async def measure(seconds: float) -> None:
    """Start, wait, measure, stop."""
    with tempfile.TemporaryDirectory() as folder:
        twin, kubeconfig = start_twin(Path(folder))
        mesh = BenchMesh(kubeconfig, Path(folder), 2)
        try:
            await mesh.ready()
            await asyncio.sleep(SETTLE_S)
            processes = {twin.pid: "twin"} | descendants(mesh.process.pid)
            before = {pid: cpu_s(pid) for pid in processes}
            await asyncio.sleep(seconds)
            print(f"load {os.getloadavg()[0]:.2f}; {seconds:.0f} s")
            for pid, name in processes.items():
                share = (cpu_s(pid) - before[pid]) / seconds
                print(f"{name:<40} {100 * share:5.2f} % of a core  {rss_mb(pid):6.1f} MB")
        finally:
            await mesh.close()
            stop(twin)


def main() -> None:
    """Read the flags and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    run_to_its_end(measure(parser.parse_args().seconds))


if __name__ == "__main__":
    main()
