"""Many who want room on full nodes: bare deletes and Bindings, kube-scheduler and Conclave on them in turns.

    .venv/bin/python -m bench.preemption [--scenes plain,gangs,reclaim] [--preemptors 100,400,1000,4000]
        [--kubeconfig FILE] [--kube-scheduler BINARY] [--grace-s 30] [--json FILE]
    .venv/bin/python -m bench.preemption core [--profile FILE]: the cores alone, in virtual time

``plain``: lone pods of one GPU and high priority onto nodes of eight, full of low priority; ``gangs``: the same in
gangs of four; ``reclaim``: a Queue takes back as many GPUs of all that it lent. Against any API server, or the twin's,
started here. Medians over the rounds, with the least and the most; what everything stands for is told in ``run.py``.
Nothing is asserted.
"""

from __future__ import annotations

import argparse
import sys

from bench.gangs.run import GATES
from bench.preemption import core_run
from bench.preemption.load import GANGS, GPUS, MEMBERS, SCENES
from bench.preemption.run import report, run
from bench.stand.contest import add_arguments, numbers, tell


def scenes(text: str) -> list[str]:
    """``plain,gangs``."""
    found = text.split(",")
    if unknown := [name for name in found if name not in SCENES]:
        raise argparse.ArgumentTypeError(f"{unknown[0]}: no such scene; take of {', '.join(SCENES)}")
    return found


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="python -m bench.preemption", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(made)
    made.set_defaults(nodes=[500], gates=GATES)
    made.add_argument("--scenes", type=scenes, default=list(SCENES), help=f"of {', '.join(SCENES)}; all")
    made.add_argument("--preemptors", type=numbers, default=[100, 400, 1000, 4000], help="100,400,1000,4000")
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--grace-s", type=int, default=0, help="what every pod asks for, and takes, to leave (0)")
    made.add_argument("--longest-s", type=float, default=300.0, help="longest wait until all is bound (300)")
    return made


def main() -> None:
    """Run and print."""
    if sys.argv[1:2] == ["core"]:
        core_run.main(sys.argv[2:])
        return
    made = parser()
    options = made.parse_args()
    most, there = max(options.preemptors), GPUS * min(options.nodes)
    if most > there:
        made.error(f"--preemptors {most}: --nodes {min(options.nodes)} have {there} GPUs; take fewer, or more nodes")
    if GANGS in options.scenes and any(count % MEMBERS for count in options.preemptors):
        made.error(f"--preemptors: {GANGS} are of {MEMBERS} each; take multiples of {MEMBERS}")
    tell(options, run, report, scenes=options.scenes, grace_s=options.grace_s)


if __name__ == "__main__":
    main()
