"""What of ``jobs-dl2``'s training makes the difference, and how soon it is at home on GPUs that it never saw.

    .venv/bin/python -m bench.jobs_dl2 ablation [--seeds 1000-1001] [--rounds 8] [--teacher drf] [--json OUT]
    .venv/bin/python -m bench.jobs_dl2 new-gpu  [--seeds 1000-1001] [--rounds 12] [--compute 0.25] [--json OUT]

``ablation``: all variants of a training seed begin at the
same imitating weights and get equally many rounds; what counts is the final policy, not the best one, on the
validation seeds 100-109. ``new-gpu``: weights that imitate Optimus on Twin A's GPUs and then learned for as many rounds
go on where a GPU needs ``--compute`` of the time for the same work; the level is their hours beside Optimus' on the
same GPUs, and it is the old one when it is within 1 % of what it was.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch

from services.learner.jobs.dl2_training import Dl2Run, Dl2Settings
from services.learner.jobs.rollout import Credit, play
from services.learner.jobs.teachers import teacher_of
from shared.errors import ConclaveError
from shared.experiments.evaluation.seeds import parse_seeds

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


def imitating(settings: Dl2Settings) -> dict[str, Any]:
    """The state of a run that has only imitated."""
    run = Dl2Run(settings, teacher_of(settings.teacher))
    next(run.run())
    return run.get_state()


def after(settings: Dl2Settings, state: dict[str, Any]) -> list[float]:
    """Validation hours after each further round from ``state``."""
    run = Dl2Run(settings, teacher_of(settings.teacher))
    run.set_state(state | {"rounds": 0})
    return [float(report.scalars["validation/completion_h"]) for report in run.run() if report.validated]


def by_rule(settings: Dl2Settings, name: str) -> float:
    """Hours of a rule on the same workloads."""
    run = Dl2Run(settings, teacher_of(name))
    played = play(run.judged(teacher=teacher_of(name).of), None)
    return fmean(played.completion_h)


def ablation(seeds: Sequence[int], rounds: int, teacher: str) -> dict[str, Any]:
    """By variant: final hours by seed, and the imitating ones."""
    found: dict[str, list[float]] = {name: [] for name in ("imitating", *VARIANTS)}
    for seed in seeds:
        settings = Dl2Settings(seed=seed, rounds=rounds, teacher=teacher)
        state = imitating(settings)
        found["imitating"].append(float(state["warm_score"]))
        for name, changes in VARIANTS.items():
            found[name].append(after(replace(settings, **changes, validate_every=rounds), state)[-1])
            print(f"seed {seed}, {name}: {found[name][-1]:.3f} h", file=sys.stderr)
    return {"teacher": by_rule(Dl2Settings(teacher=teacher), teacher), "hours": found}


def ablation_lines(found: Mapping[str, Any], teacher: str) -> list[str]:
    """The table of docs/policies/jobs.md."""
    whole = fmean(found["hours"]["all"])
    lines = [
        f"`{teacher}` itself: {found['teacher']:.3f} h",
        "",
        "| | mean, h | worse, % | DL2 says, % |",
        "|---|---|---|---|",
    ]
    for name, hours in found["hours"].items():
        spread = f" ± {stdev(hours):.3f}" if len(hours) > 1 else ""
        worse = 100.0 * (fmean(hours) / whole - 1.0)
        said = f"{DL2_SAYS[name]:+.1f}" if name in DL2_SAYS else ""
        lines.append(f"| {name} | {fmean(hours):.3f}{spread} | {worse:+.1f} | {said} |")
    return lines


def new_gpu(seeds: Sequence[int], rounds: int, compute: float) -> dict[str, Any]:
    """By seed: the level on the old GPUs, and on the new ones after 0, 1, ... rounds."""
    old = Dl2Settings(rounds=rounds)
    new = replace(old, compute=compute)
    rules = {name: by_rule(one, "optimus") for name, one in (("old", old), ("new", new))}
    found = {}
    for seed in seeds:
        run = Dl2Run(replace(old, seed=seed, validate_every=rounds), teacher_of("optimus"))
        list(run.run())
        there = Dl2Run(replace(new, seed=seed), teacher_of("optimus"))
        there.set_state(run.get_state() | {"rounds": 0})
        levels = [there.validate() / rules["new"]]
        levels += [hours / rules["new"] for hours in after(replace(new, seed=seed, validate_every=1), run.get_state())]
        level = run.validate() / rules["old"]
        needed = next((at for at, one in enumerate(levels) if one <= level * (1 + SAME)), None)
        found[seed] = {"old": level, "new": levels, "rounds": needed}
        print(f"seed {seed}: {found[seed]}", file=sys.stderr)
    return {"optimus": rules, "seeds": found}


def new_gpu_lines(found: Mapping[str, Any]) -> list[str]:
    """A row for each training seed."""
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
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--teacher", default="drf", choices=("drf", "optimus"))
    parser.add_argument("--compute", type=float, default=0.25)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    seeds = parse_seeds(given.seeds)
    if given.what == "ablation":
        found = ablation(seeds, given.rounds or 8, given.teacher)
        lines = ablation_lines(found, given.teacher)
    else:
        found = new_gpu(seeds, given.rounds or 12, given.compute)
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
