"""The process that rehearses: one order on its standard input, one verdict on its standard output, then it ends.

It runs at the lowest priority and is killed with the leader that started it.
"""

from __future__ import annotations

import os
import sys
import time

import msgspec

from shared.experiments.evaluation.suites.mesh_rehearsal import verdict_on
from shared.experiments.evaluation.suites.situation import Order
from shared.runtime.process.linux import die_with_parent

NICE = 19


def main() -> None:
    """Read, play, write. The only argument: the process id of who started us."""
    os.nice(NICE)
    die_with_parent()
    if os.getppid() != int(sys.argv[1]):  # it ended before we asked to end with it
        return
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Order)
    verdict = msgspec.structs.replace(verdict_on(order), cpu_s=time.process_time())
    sys.stdout.buffer.write(msgspec.msgpack.encode(verdict))


if __name__ == "__main__":
    main()
