"""Whether two checkouts give the same figures: small settings of suites, the same seeds, JSON compared byte for byte.

    .venv/bin/python -m bench.same_results OTHER_CHECKOUT [--only openb,jobs]

Each run is a process of its own with the checkout before all else on its path. Figures and goals whose name says that a
clock gave them (as "decision p99 ms") cannot be the same twice and are left out; so is the command. Exits with 1 where
anything else differs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[1]
SETTINGS = {
    "openb": ["--suite", "openb", "--seeds", "42", "--policies", "kube-default,fgd"],
    "thesis": ["--suite", "thesis", "--seeds", "42"],
    "deepsets": ["--suite", "deepsets", "--seeds", "42"],
    "jobs": ["--suite", "jobs", "--seeds", "42", "--workloads", "1", "--loads", "1.0", "--policies",
             "elastic,marginal,pollux,jobs-sets,fifo"],
    "jobs-twin-a": ["--suite", "jobs-twin-a", "--seeds", "42", "--policies", "fifo,elastic,drf"],
    "autoscaling": ["--suite", "autoscaling", "--seeds", "42", "--policies", "hpa,keda,predictive,karma"],
}  # fmt: skip
MEASURED = re.compile(r"decision p99 ms|decide_(p99_)?ms|decision_ms|p99 decision|CPU m")
"""In the name of a figure or goal: a clock gave it."""


def figures(checkout: Path, arguments: list[str], out: Path) -> Any:
    """What ``conclave evaluate`` writes there; it is run with this interpreter."""
    environment = {"CONCLAVE_SHARED": str(HERE.parent / "shared"), **os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-m", "services.cli", "evaluate", *arguments, "--json", str(out), "--quiet"]
    done = subprocess.run(command, cwd=checkout, env=environment, check=False, capture_output=True, text=True)
    if not out.exists():
        raise SystemExit(f"{checkout}: evaluate {' '.join(arguments)}: {done.stderr[-500:]}")
    return without_clocks(json.loads(out.read_text()))


def without_clocks(found: Any) -> Any:
    """The document without what a clock gave."""
    if isinstance(found, dict):
        if MEASURED.search(str(found.get("goal", "")) + str(found.get("metric", ""))):
            return {key: value for key, value in found.items() if isinstance(value, str)}
        kept = {key: value for key, value in found.items() if key != "command" and not MEASURED.search(key)}
        return {key: without_clocks(value) for key, value in kept.items()}
    return [without_clocks(one) for one in found] if isinstance(found, list) else found


def differences(one: Any, other: Any, path: str = "$") -> list[str]:
    """Paths at which two documents differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted(one.keys() | other.keys())
        return [line for key in keys for line in differences(one.get(key), other.get(key), f"{path}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for at, (mine, theirs) in pairs for line in differences(mine, theirs, f"{path}[{at}]")]
    # a NaN is the same as a NaN
    return [] if json.dumps(one) == json.dumps(other) else [f"{path}: {str(one)[:60]} against {str(other)[:60]}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--only", default=",".join(SETTINGS))
    given = parser.parse_args()
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only.split(","):
            mine, theirs = (
                figures(checkout.resolve(), SETTINGS[name], Path(folder) / f"{name}-{number}.json")
                for number, checkout in enumerate((HERE, given.other))
            )
            found = differences(mine, theirs)
            worst = max(worst, len(found))
            print(f"{name}: {'the same' if not found else f'{len(found)} differ'}", *found[:10], sep="\n    ")
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
