"""Random kills of random services under load: the demo with a long schedule of SIGKILLs, judged by its audit.

    .venv/bin/python -m bench.chaos --kills 200 --seed 1

Work goes on being submitted until the last kill has recovered. Exits 0 only if every kill happened and recovered and
the audit shows double_bound = 0, overcommitted_nodes = 0, lost = 0.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

VICTIMS = ("leader", "agent", "binder", "etcd")


def schedule(kills: int, seed: int, gap_s: tuple[float, float]) -> list[str]:
    """``victim@seconds`` for each kill, gaps uniform in ``gap_s``."""
    rng, at, out = random.Random(seed), 3.0, []
    for _ in range(kills):
        out.append(f"{rng.choice(VICTIMS)}@{at:.1f}")
        at += rng.uniform(*gap_s)
    return out


def main() -> int:
    """Run in rounds of 25 kills, each on a fresh mesh, and add up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gap", type=float, nargs=2, default=(2.0, 6.0), metavar=("MIN", "MAX"), help="seconds")
    options = parser.parse_args()
    left, number, failed = options.kills, options.seed, 0
    recoveries: dict[str, list[float]] = {victim: [] for victim in VICTIMS}
    totals = dict.fromkeys(("pods_bound", "double_bound", "overcommitted_nodes", "lost"), 0)
    while left > 0:
        kills = schedule(min(left, 25), number, tuple(options.gap))
        left -= len(kills)
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "out.json")
            command = [sys.executable, "-m", "services.cli", "demo", "--workload", "uniform", "--speed", "30"]
            command += ["--seed", str(number), "--json", str(report)]
            for kill in kills:
                command += ["--kill", kill]
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
            figures = json.loads(report.read_text()) if report.exists() else {}
        failed += done.returncode != 0
        for key in totals:
            totals[key] += figures.get(key, 0)
        for failover in figures.get("failovers", []):
            if failover["recovery_s"] is not None:
                recoveries[failover["victim"]].append(failover["recovery_s"])
        print(f"seed {number}: {len(kills)} kills, exit {done.returncode}, {figures.get('pods_bound')} pods bound")
        if done.returncode:
            print(f"  again with: {' '.join(command[1:])}\n  {done.stderr[-800:]}", file=sys.stderr)
        number += 1
    recovered = sum(len(seconds) for seconds in recoveries.values())
    print(f"{totals}, kills recovered {recovered} of {options.kills}")
    for victim, seconds in recoveries.items():
        if seconds:
            print(
                f"  {victim}: {len(seconds)} kills, median {statistics.median(seconds):.2f} s, max {max(seconds):.2f} s"
            )
    broken = failed or recovered != options.kills or totals["double_bound"] or totals["overcommitted_nodes"]
    return 1 if broken or totals["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
