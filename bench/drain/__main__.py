"""Pods that are pending before a scheduler starts: bare Bindings, kube-scheduler and Conclave on them in turns.

    .venv/bin/python -m bench.drain --nodes 5000 --pods 5000 [--kubeconfig FILE] [--kube-scheduler BINARY] [--json FILE]

Against any API server, or the twin's, started here. ``--nodes 1000,5000,20000``, ``--pods``, ``--agents 1,2,4,8`` and
``--binders 1,2`` (each for a shard of the nodes) take several: how it grows. Medians over the rounds, with the least
and the most; what everything stands for is told in ``run.py``. Nothing is asserted.
"""

from __future__ import annotations

import argparse

from bench.drain.run import report, run
from bench.stand.contest import add_arguments, numbers, tell


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.drain", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--pods", type=numbers, default=[5000], help="pending at the start (5000)")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    tell(options, run, report, shapes=options.shapes)


if __name__ == "__main__":
    main()
