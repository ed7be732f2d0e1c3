"""Pods that claim a device by a template: kube-scheduler and Conclave on them in turns.

    .venv/bin/python -m bench.claims --nodes 500 --devices 10 --pods 5000 [--cases burst,empty,half,full]
        [--kubeconfig FILE --kube-controller-manager BINARY] [--kube-scheduler BINARY] [--json FILE]

Against the twin's API server, started here, or any other: there ``--kube-controller-manager`` makes the claims, unless
somebody else does. 500 nodes with 10 devices and 5,000 pods are scheduler_perf's; of more pods than devices the rest is
not made. Medians over the rounds; what everything stands for is told in ``run.py``. Nothing is asserted.
"""

from __future__ import annotations

import argparse

from bench.claims.run import BURST, CASES, OUTSTANDING, report, run
from bench.stand.contest import add_arguments, tell, whole_number


def cases(text: str) -> list[str]:
    """``burst,full``."""
    found = text.split(",")
    if unknown := [one for one in found if one not in CASES]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(CASES)}")
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.claims", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.set_defaults(nodes=[500])
    parser.add_argument("--devices", type=whole_number, default=10, help="of each node (10)")
    parser.add_argument("--pods", type=int, default=5000, help="of a burst (5000)")
    parser.add_argument("--seconds", type=float, default=20.0, help="that a steady state is measured (20)")
    parser.add_argument("--cases", type=cases, default=list(CASES), help=f"{','.join(CASES)}")
    parser.add_argument("--kube-controller-manager", metavar="BINARY", help="makes claims from templates")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    least = options.nodes[-1] * options.devices
    if least < OUTSTANDING and set(options.cases) - {BURST}:
        parser.error(f"--devices {options.devices}: {least} on all nodes; {OUTSTANDING} pods want one at any time")
    tell(options, run, report, devices=options.devices, seconds=options.seconds)


if __name__ == "__main__":
    main()
