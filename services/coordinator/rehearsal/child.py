"""The process that rehearses: one order on its standard input, one verdict on its standard output, then it ends.

It runs at the lowest priority, takes a bounded amount of memory, and is killed with the leader that started it: that
shares a container's limit with it, and where the kernel finds no memory, all that run there can end.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from pathlib import Path

import msgspec

from shared.policy.rehearsal.mesh_rehearsal import verdict_on
from shared.policy.rehearsal.situation import RehearsalOrder, RehearsalVerdict
from shared.runtime.process.linux import die_with_parent

NICE = 19
MOST_MIB = 192
"""Of memory, its own. A thousand kinds of pods on the most nodes that are rehearsed take two thirds of it."""


def main() -> None:
    """Read, play, write. The only argument: the process id of who started us."""
    os.nice(NICE)
    with contextlib.suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text("1000")
    most = MOST_MIB << 20
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    die_with_parent()
    if os.getppid() != int(sys.argv[1]):  # it ended before we asked to end with it
        return
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=RehearsalOrder)
    try:
        verdict = verdict_on(order)
    except MemoryError:
        verdict = RehearsalVerdict(
            problem=f"it takes more than {MOST_MIB} MiB: the pods ask for too many different things"
        )
    verdict = msgspec.structs.replace(verdict, cpu_s=time.process_time())
    sys.stdout.buffer.write(msgspec.msgpack.encode(verdict))


if __name__ == "__main__":
    main()
