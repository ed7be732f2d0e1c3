"""Gangs as fast as they go: upstream's shapes on 5,000 nodes, beside lone pods, beside kube-scheduler.

.venv/bin/python -m bench.gangs [SHAPE ...] [--kubeconfig FILE] [--kube-scheduler BINARY] [--kill binder] [--json FILE]
.venv/bin/python -m bench.gangs core [SHAPE ...] [--profile FILE]: the cores alone, in virtual time
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.gangs import core_run
from bench.gangs.load import RACKS, SHAPES
from bench.gangs.run import GATES, run
from bench.stand.ending import run_to_its_end
from bench.stand.figures import lines


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="python -m bench.gangs", description=__doc__)
    made.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"of {', '.join(one.name for one in SHAPES)}; all")
    made.add_argument("--kubeconfig", type=Path, help="an API server to use; default: the twin's, started here")
    made.add_argument("--kube-scheduler", metavar="BINARY", help="measure this one after the mesh, the same load")
    made.add_argument("--only-kube-scheduler", action="store_true", help="leave out the mesh")
    made.add_argument("--gates", default=GATES, help="of that kube-scheduler; default %(default)s")
    made.add_argument("--nodes", type=int, default=5000)
    made.add_argument("--racks", type=int, default=RACKS)
    made.add_argument("--scale", type=float, default=1.0, help="the shapes in small: this share of their pods")
    made.add_argument("--agents", type=int, default=2)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--kill", choices=["binder", "coordinator"], default="", help="kill who leads, in the middle")
    made.add_argument("--json", metavar="FILE", default="", help="the figures, also as JSON")
    return made


def main() -> None:
    """Run it and print it."""
    if sys.argv[1:2] == ["core"]:
        core_run.main(sys.argv[2:])
        return
    made = parser()
    options = made.parse_args()
    known = {shape.name: shape for shape in SHAPES}
    if unknown := [name for name in options.shapes if name not in known]:
        made.error(f"{unknown[0]}: no such shape; take of {', '.join(known)}")
    options.shapes = [known[name].scaled(options.scale) for name in options.shapes or known]
    found = run_to_its_end(run(options))
    print("\n".join(lines(found)))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
