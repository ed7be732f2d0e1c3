"""Schedules as files: one row per job and change, from which completion times and the use of GPUs can be recomputed.

Columns: ``seed``; ``time_s`` since the workload began; ``job``; ``event``: submit, start, move (other workers or nodes:
the job restarts), batch, stop (it waits again), end; ``nodes``: GPUs by node from now on, as ``node-03:4|node-07:2``;
``gpus`` in all; ``batch``; and ``servers``, where jobs have parameter servers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lab.worlds.training.simulation import ScheduleChange

HEADER = "seed,time_s,job,event,nodes,gpus,batch"
SERVERS = "servers"
"""One column more."""


def schedule_rows(seed: int, changes: Iterable[ScheduleChange], *, servers: bool = False) -> Iterator[str]:
    """The rows of one run, without a header. ``servers``: with that column too."""
    for change in changes:
        nodes = "|".join(f"{node}:{count}" for node, count in change.placement.items())
        gpus = sum(change.placement.values())
        yield (
            f"{seed},{change.time:.6f},{change.job},{change.event},{nodes},{gpus},{change.batch}"
            + f",{change.servers}" * servers
        )
