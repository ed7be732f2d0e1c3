"""What of ``jobs-dl2``'s training makes the difference, and how soon it is at home on GPUs that it never saw.

    .venv/bin/python -m bench.policies.jobs_dl2 ablation [--seeds 1000-1001] [--rounds 4] [--json OUT]
    .venv/bin/python -m bench.policies.jobs_dl2 new-gpu  [--seeds 1000-1001] [--rounds 4] [--compute 0.25] [--json OUT]

``ablation``, on an eighth of Twin A: without any imitation, so that all there is was learned by reward; equally many
rounds for each variant, and the final policy counts, not the best one. ``new-gpu``, on a quarter: weights that imitate
Optimus on Twin A's GPUs go on learning where a GPU needs ``--compute`` of the time for the same work; the level is
their hours beside Optimus' on the same GPUs, and it is the old one when it is within 1 % of what it was. Both are
judged by the best actions on the validation seeds 100-109.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from lab.evaluation.seeds import parse_seeds
from lab.learner.jobs.dl2_training import VALIDATION_SEEDS, Dl2Run, Dl2Settings
from lab.learner.jobs.rollout import Credit, play
from lab.learner.jobs.teachers import teacher_of
from shared.errors import ConclaveError

SMALL = Dl2Settings(nodes=6, jobs=15, window=15, hidden=(32, 32), episodes_per_round=8, kept=0.5, learning_rate=1e-3)
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "all": {},
    "no critic": {"critic": False},
    "no exploration": {"explores": False},
    "no replay": {"replay": False},
    "credit by slot": {"credit": Credit(slot=True)},
}
DL2_SAYS = {"no critic": 21.1, "no exploration": 28.8, "no replay": 39.6}
"""Percent by which DL2's mean completion time grows without it (TPDS 2021, section 6)."""
SAME = 0.01


def hours(run: Dl2Run) -> float:
    """Of the run's best actions, as it is now."""
    plays = run.plays(seeds=VALIDATION_SEEDS, kept=0.0, best=True)
    return fmean(play(plays, run.actor.arrays()).completion_h)


def going_on(settings: Dl2Settings, rounds: int, state: Mapping[str, Any]) -> Iterator[Dl2Run]:
    """The run from ``state`` after 0, 1, ... ``rounds`` further rounds."""
    run = Dl2Run(replace(settings, rounds=rounds + 1, validate_every=rounds + 1), teacher_of(settings.teacher))
    run.set_state({**state, "rounds": 0, "imitated": True})
    yield run
    yield from (run for _ in islice(run.run(), rounds))


def by_rule(settings: Dl2Settings, name: str) -> float:
    """Hours of a rule on the same workloads."""
    teacher = teacher_of(name)
    plays = Dl2Run(settings, teacher).plays(seeds=VALIDATION_SEEDS, teacher=teacher.of, kept=0.0)
    return fmean(play(plays, None).completion_h)


def ablation(seeds: Sequence[int], rounds: int) -> dict[str, Any]:
    """By variant: final hours by seed, and those of the weights that all begin with."""
    found: dict[str, list[float]] = {name: [] for name in ("untrained", *VARIANTS)}
    for seed in seeds:
        settings = replace(SMALL, seed=seed)
        state = Dl2Run(settings, teacher_of("drf")).get_state()
        for name, changes in VARIANTS.items():
            *_, last = going_on(replace(settings, **changes), rounds, state)
            found[name].append(hours(last))
            print(f"seed {seed}, {name}: {found[name][-1]:.3f} h", file=sys.stderr, flush=True)
        found["untrained"].append(hours(next(going_on(settings, rounds, state))))
    return {"rules": {name: by_rule(SMALL, name) for name in ("drf", "optimus")}, "hours": found}


def ablation_lines(found: Mapping[str, Any]) -> list[str]:
    """The table of docs/policies/jobs.md."""
    whole = fmean(found["hours"]["all"])
    lines = [f"`{name}`: {one:.3f} h" for name, one in found["rules"].items()]
    lines += ["", "| | mean, h | worse, % | DL2 says, % |", "|---|---|---|---|"]
    for name, each in found["hours"].items():
        spread = f" ± {stdev(each):.3f}" if len(each) > 1 else ""
        said = f"{DL2_SAYS[name]:+.1f}" if name in DL2_SAYS else ""
        lines.append(f"| {name} | {fmean(each):.3f}{spread} | {100.0 * (fmean(each) / whole - 1.0):+.1f} | {said} |")
    return lines


def new_gpu(seeds: Sequence[int], rounds: int, compute: float) -> dict[str, Any]:
    """By seed: the level on the old GPUs, and on the new ones after 0, 1, ... rounds."""
    old = Dl2Settings()
    rules = {"old": by_rule(old, "optimus"), "new": by_rule(replace(old, compute=compute), "optimus")}
    found = {}
    for seed in seeds:
        run = Dl2Run(replace(old, seed=seed), teacher_of("optimus"))
        next(run.run())
        level = hours(run) / rules["old"]
        there = going_on(replace(old, seed=seed, compute=compute), rounds, run.get_state())
        levels = [hours(one) / rules["new"] for one in there]
        needed = next((at for at, one in enumerate(levels) if one <= level * (1 + SAME)), None)
        found[seed] = {"old": level, "new": levels, "rounds": needed}
        print(f"seed {seed}: {found[seed]}", file=sys.stderr, flush=True)
    return {"optimus": rules, "seeds": found}


def new_gpu_lines(found: Mapping[str, Any]) -> list[str]:
    """A row for each training seed: hours beside Optimus'."""
    lines = [
        "| training seed | old GPUs | new GPUs, at once | at the end | rounds to the old level |",
        "|---|---|---|---|---|",
    ]
    for seed, one in found["seeds"].items():
        needed = "not reached" if one["rounds"] is None else one["rounds"]
        lines.append(f"| {seed} | {one['old']:.3f} | {one['new'][0]:.3f} | {one['new'][-1]:.3f} | {needed} |")
    return lines


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("ablation", "new-gpu"))
    parser.add_argument("--seeds", default="1000-1001")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--compute", type=float, default=0.25)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    seeds = parse_seeds(given.seeds)
    if given.what == "ablation":
        found = ablation(seeds, given.rounds)
        lines = ablation_lines(found)
    else:
        found = new_gpu(seeds, given.rounds, given.compute)
        lines = new_gpu_lines(found)
    print("\n".join(lines))
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ConclaveError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
