"""Pods that are pending before a scheduler starts: bare Bindings, kube-scheduler and Conclave on them in turns.

    .venv/bin/python -m bench.drain --nodes 5000 --pods 5000 [--kubeconfig FILE] [--kube-scheduler BINARY] [--json FILE]

Against any API server, or the twin's, started here. ``--nodes 1000,5000,20000``, ``--pods``, ``--agents 1,2,4,8`` and
``--binders 1,2`` (each for a shard of the nodes) take several: how it grows. ``--scene`` says what the pods are, or
what they wait for (``scenes.py``), ``--running`` how many others run already. Medians over the rounds, with the least
and the most; what everything stands for is told in ``run.py``. Nothing is asserted.
"""

from __future__ import annotations

import argparse
from functools import partial

from bench.drain.run import report, run
from bench.drain.scenes import JOIN, LIKE, SCENES
from bench.stand.contest import add_arguments, numbers, tell, whole_number


def scenes(text: str) -> list[str]:
    """Names of scenes. ``argparse.ArgumentTypeError``: there is no such one."""
    names = text.split(",")
    for name in names:
        if name not in SCENES:
            raise argparse.ArgumentTypeError(f"{name!r} is no scene; there are {', '.join(SCENES)}")
    return names


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.drain", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--pods", type=numbers, default=[5000], help="pending at the start (5000)")
    parser.add_argument(
        "--scene", type=scenes, default=[LIKE], help=f"of {', '.join(SCENES)} ({LIKE}); several by comma"
    )
    parser.add_argument("--running", type=partial(whole_number, least=0), default=0, help="pods that run already (0)")
    parser.add_argument("--joining", type=whole_number, default=1000, help=f"nodes that come in {JOIN} (1000)")
    parser.add_argument("--rounds", type=whole_number, default=3)
    options = parser.parse_args()
    tell(options, run, report, shapes=options.shapes)


if __name__ == "__main__":
    main()
