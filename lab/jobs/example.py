"""Small tables made by hand, for tests and for a first look without measured ones: ``--tables example``.

The project ships none of the measured traces. These models are made by a formula of the same shape, in round numbers:

    step = 0.01 s + local · PER_SAMPLE + sync
    sync = 0 alone, SYNC · (workers - 1) on one node, three times that over several

*small* loses much in large batches early in training; *large* scales further. *servers* is the shape of a job with
parameter servers as in DL2 (TPDS 2021): each worker more costs the servers as much again, so that at a fixed batch its
speed has an optimum between one worker and many. DL2's measured table is not public; this one is synthetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from lab.jobs.tables import CONVERGENCE_COLUMNS, CONVERGENCE_FILE, THROUGHPUT_COLUMNS, THROUGHPUT_FILE

LOCAL = (8, 16, 32, 64)
BATCHES = (32, 64, 128, 256)
EPOCHS = 5
PER_SAMPLE_S = {"small": 0.0005, "large": 0.004, "servers": 0.002}
SYNC_S = {"small": 0.01, "large": 0.01, "servers": 0.04}
EPOCH_STEPS = {"small": 400, "large": 2_000, "servers": 1_000}
NOISE = {"small": 2.0, "large": 30.0, "servers": 30.0}
"""Variance of the gradient beside its squared norm, in the first epoch; it doubles from epoch to epoch."""
MOST_ALONE, MOST_NODES = 4, 8

WORKLOAD = """name,submit_time_s,application,num_replicas,batch_size
small-0,0,small,2,64
large-1,30,large,4,128
small-2,90,small,1,32
servers-3,100,servers,2,64
small-4,200,small,4,128
large-5,610,large,8,256
"""
"""A few jobs of these models."""


def example_tables() -> dict[str, str]:
    """The text of both files, by name."""
    return {
        THROUGHPUT_FILE: "\n".join([",".join(THROUGHPUT_COLUMNS), *_throughput(), ""]),
        CONVERGENCE_FILE: "\n".join([",".join(CONVERGENCE_COLUMNS), *_convergence(), ""]),
    }


def step_s(model: str, nodes: int, workers: int, local: int) -> tuple[float, float]:
    """(step, synchronisation) seconds by the formula."""
    sync = SYNC_S[model] * (workers - 1) * (3 if nodes > 1 else 1)
    return 0.01 + local * PER_SAMPLE_S[model] + sync, sync


def _throughput() -> Iterator[str]:
    for model in PER_SAMPLE_S:
        alone = [(count,) for count in range(1, MOST_ALONE + 1)]
        pairs = [pair for pair in product(range(1, MOST_ALONE + 1), repeat=2) if pair[0] <= pair[1]]
        for placement, local in product([*alone, *pairs], LOCAL):
            step, sync = step_s(model, len(placement), sum(placement), local)
            ring = "+".join(map(str, placement))
            yield f"{model},{sum(placement)},{len(placement)},{ring},{local},{step:.6f},{sync:.6f}"
        wide = ((nodes, each) for nodes in (4, MOST_NODES) for each in range(1, MOST_ALONE + 1))
        for (nodes, each), local in product(wide, LOCAL):
            step, sync = step_s(model, nodes, nodes * each, local)
            yield f"{model},{nodes * each},{nodes},,{local},{step:.6f},{sync:.6f}"


def _convergence() -> Iterator[str]:
    for model, batch, epoch in product(PER_SAMPLE_S, BATCHES, range(EPOCHS)):
        progress = EPOCH_STEPS[model] * (epoch + 1)
        yield f"{model},{batch},{progress},1.0,{NOISE[model] * 2**epoch}"
