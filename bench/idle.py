"""CPU of every process of an idle mesh: `conclave twin serve` and `conclave up`, nothing to schedule.

    .venv/bin/python -m bench.idle --seconds 30

Prints each process's CPU as a share of one core, from /proc, and its memory.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> dict[int, str]:
    """Pids below ``pid`` with the words that tell them apart."""
    found: dict[int, str] = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        module = words[words.index("-m") + 1] if "-m" in words else Path(words[0]).name
        identity = words[words.index("--id") + 1] if "--id" in words else ""
        found[int(child)] = f"{module} {identity}".strip()
        found |= descendants(int(child))
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_mb(pid: int) -> float:
    """Resident set in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Start, wait, measure, stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    conclave = [sys.executable, "-m", "services.cli"]
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = str(Path(folder, "kubeconfig"))
        serve = [*conclave, "twin", "serve", "--port", "0", "--token", "bench", "--kubeconfig-out", kubeconfig]
        twin = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
        assert twin.stdout is not None
        twin.stdout.readline()
        mesh = subprocess.Popen([*conclave, "up", "--kubeconfig", kubeconfig], stdout=subprocess.PIPE, text=True)
        assert mesh.stdout is not None
        try:
            if not mesh.stdout.readline().startswith("ready"):
                sys.exit("the mesh did not become ready")
            time.sleep(5)
            processes = {twin.pid: "services.twin"} | descendants(mesh.pid)
            before = {pid: cpu_s(pid) for pid in processes}
            time.sleep(options.seconds)
            print(f"load {os.getloadavg()[0]:.2f}; {options.seconds:.0f} s")
            for pid, name in processes.items():
                share = (cpu_s(pid) - before[pid]) / options.seconds
                print(f"{name:<40} {100 * share:5.2f} % of a core  {rss_mb(pid):6.1f} MB")
        finally:
            for process in (mesh, twin):
                process.send_signal(signal.SIGTERM)
                process.wait(30)


if __name__ == "__main__":
    main()
