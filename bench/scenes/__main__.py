"""What a pod costs in each scene of docs/performance.md, in opcodes of each core: whether that is what was recorded.

    python -m bench.scenes [--scene NAME,...] [--record] [--json FILE]

The scenes are those of the table in small (``scenes.py``), the same on every machine of one minor version of Python.
``tests/unit/bench/test_scenes.py`` compares them with ``counts.json``; who makes one cheaper, or dearer for a reason,
runs ``--record`` in the same commit, which writes the opcodes on the page too. Exits 1 where one is off by more than
the tolerance.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.in_process.counts import python
from bench.scenes.counts import COUNTED, RECORDED, Counts, counted, problems, read, written
from bench.scenes.page import PAGE, rewritten
from bench.scenes.world import STAGES
from bench.stand.figures import table


def scenes(text: str) -> list[str]:
    """Names of scenes. ``argparse.ArgumentTypeError``: there is no such one."""
    names = text.split(",")
    for name in names:
        if name not in COUNTED:
            raise argparse.ArgumentTypeError(f"{name!r} is no scene; there are {', '.join(COUNTED)}")
    return names


def main() -> None:
    """Count, print, compare, record."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.scenes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scene", type=scenes, default=list(COUNTED), help="some by comma; all")
    parser.add_argument("--record", action="store_true", help=f"write {RECORDED.name} and the page: they are so now")
    parser.add_argument("--json", metavar="FILE", type=Path, help="the counts, also as JSON")
    options = parser.parse_args()
    found: Counts = {name: counted(name) for name in options.scene}
    rows = [
        (name, *(f"{of.get(stage, 0.0):,.0f}" for stage in STAGES), f"{sum(of.values()):,.0f}")
        for name, of in found.items()
    ]
    print(*table(("scene", *STAGES, "opcodes of one"), rows), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    recorded = read()
    if options.record:
        counts = recorded["counts"] | found
        RECORDED.write_text(written(counts), encoding="utf-8")
        PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), counts), encoding="utf-8")
    elif python() != recorded["python"]:
        print(f"recorded by Python {recorded['python']}, this is {python()}: not compared", file=sys.stderr)
    elif told := problems(found, recorded["counts"]):
        sys.exit("\n".join(told))


if __name__ == "__main__":
    main()
