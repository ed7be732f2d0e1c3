"""A training script for ``torchrun``: a line through points, by gradient descent over gloo, with checkpoints on disk.

Each step sums the gradients of all workers' shares of the same points, so the result is that of one worker, however
many there are. It goes as far as the number in the file ``limit`` and waits there: so a test says where a change of
workers meets it. Rank 0 keeps the checkpoint and reports.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from pathlib import Path

import torch
import torch.distributed as dist

FOLDER = Path(os.environ["CONCLAVE_CHECKPOINT"])
STEPS, EVERY, RATE, POINTS = 60, 8, 0.05, 32


def report(**said: object) -> None:
    """Tell the jobs service; a report that is lost costs nothing."""
    request = urllib.request.Request(
        os.environ["CONCLAVE_REPORT_URL"],
        data=json.dumps({"job": os.environ["CONCLAVE_JOB"], **said}).encode(),
        headers={"Authorization": f"Bearer {os.environ['CONCLAVE_REPORT_TOKEN']}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=3) as answer:
            answer.read()
    except OSError:
        (FOLDER / "unreported").touch()


def main() -> None:
    """Train from the checkpoint to the end."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    kept = FOLDER / "checkpoint.json"
    state = json.loads(kept.read_text()) if kept.exists() else {"step": 0, "weights": [0.0, 0.0]}
    step = saved = resumed = int(state["step"])
    weights = torch.tensor(state["weights"], dtype=torch.float64)
    x = torch.linspace(-1, 1, POINTS, dtype=torch.float64)
    y = 3 * x - 1
    if rank == 0:
        with (FOLDER / "runs.jsonl").open("a") as log:
            log.write(json.dumps({"world": world, "from": resumed}) + "\n")
        report(steps=step, resumed_steps=resumed, checkpoint_steps=saved)
    while step < STEPS:
        told = False
        while step >= int((FOLDER / "limit").read_text() or 0):
            if rank == 0 and not told:
                told = True
                report(steps=step, resumed_steps=resumed, checkpoint_steps=saved, progress=step / STEPS)
                (FOLDER / "at").write_text(f"{step} {world}")
            time.sleep(0.02)
        mine = slice(rank, None, world)
        error = weights[0] * x[mine] + weights[1] - y[mine]
        gradient = torch.stack([(error * x[mine]).sum(), error.sum()]) * 2 / POINTS
        dist.all_reduce(gradient)
        weights = weights - RATE * gradient
        step += 1
        if rank == 0 and step % EVERY == 0:
            temporary = kept.with_suffix(".new")
            temporary.write_text(json.dumps({"step": step, "weights": weights.tolist()}))
            temporary.replace(kept)
            saved = step
    if rank == 0:
        (FOLDER / "result.json").write_text(json.dumps(weights.tolist()))
        report(steps=step, resumed_steps=resumed, checkpoint_steps=saved, progress=1.0)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
