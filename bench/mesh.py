"""The mesh's figures: medians of several demo runs, each with the load of the machine beside it.

    .venv/bin/python -m bench.mesh --trace-dir ../shared/data/openb --runs 5

Runs `conclave demo` as a user would and reads its JSON. Prints one table; nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.stand.figures import spread

KILLS = ["--kill", "leader@5", "--kill", "agent@8", "--kill", "binder@11"]


def run(arguments: list[str]) -> dict[str, Any]:
    """One demo; its JSON with the exit code and the load average before it."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "out.json")
        command = [sys.executable, "-m", "services.cli", "demo", *arguments, "--json", str(report)]
        code = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        figures: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {}
    if code.returncode or not figures:
        print(f"exit {code.returncode}: {code.stderr[-500:]}", file=sys.stderr)
    return figures | {"exit": code.returncode, "load": load}


def report(title: str, runs: list[dict[str, Any]]) -> None:
    """One block of the table."""
    good = [figures for figures in runs if "pods_bound" in figures]
    print(f"\n{title}: {len(runs)} runs, exit codes {[figures['exit'] for figures in runs]}")
    print(f"  load before            {spread([figures['load'] for figures in runs])}")
    for key in ("pods_submitted", "pods_bound", "pods_unschedulable", "double_bound", "overcommitted_nodes"):
        print(f"  {key:<22} {sorted({figures[key] for figures in good})}")
    for key in ("pods_per_s", "bytes_per_decision"):
        print(f"  {key:<22} {spread([figures[key] for figures in good])}")
    for quantile in ("p50", "p99"):
        values = [figures["schedule_latency_ms"][quantile] for figures in good]
        print(f"  latency {quantile} ms         {spread(values)}")
    for key in ("rss_mb", "cpu_ms_per_pod"):
        for service in good[0][key] if good else ():
            values = [figures[key][service] for figures in good if service in figures[key]]
            print(f"  {key} {service:<14} {spread(values)}")
    kills = [failover["recovery_s"] for figures in good for failover in figures["failovers"]]
    recoveries = [seconds for seconds in kills if seconds is not None]
    if kills:
        print(f"  recovery_s             {spread(recoveries)}, {len(recoveries)} of {len(kills)} kills")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace-dir", default="../shared/data/openb", help="folder of the openb trace")
    parser.add_argument("--runs", type=int, default=5, help="runs of each workload")
    options = parser.parse_args()
    openb = ["--workload", "openb", "--trace-dir", options.trace_dir]
    small = ["--workload", "uniform", "--speed", "20"]
    if Path(options.trace_dir).is_dir():
        report("openb, 1,213 nodes", [run(openb) for _ in range(options.runs)])
        report("openb with kills", [run([*openb, *KILLS]) for _ in range(options.runs)])
    else:
        print(f"no trace in {options.trace_dir}: openb is left out", file=sys.stderr)
    report("uniform, 4 nodes", [run([*small, "--seed", str(seed)]) for seed in range(options.runs)])


if __name__ == "__main__":
    main()
