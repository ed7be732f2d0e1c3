"""What of ``karma`` makes the difference: one agent or many, roles, missions, and the rule that it starts by.

    python -m bench.policies.autoscaling_ablation [--variants multi-hard,single-none] [--starts scratch,imitation]
                                                   [--seeds 1000-1001] [--steps 20] [--out DIR] [--json OUT]

Each variant is trained by ``conclave train karma`` with equal settings and equally many episodes, in DIR/START/VARIANT;
of its training seeds the one with the best validation (seeds 100-109) is played on the test seeds 42-51 of the mixed
scenario, once. It goes on where it was interrupted, and prints the table of docs/autoscaling-twin.md at the end.
Nothing is chosen by the test seeds.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import click

from lab.autoscaling.episode import Setup, play
from lab.autoscaling.metrics import METRICS, finite
from lab.autoscaling.policies import make
from lab.evaluation.results import ResultMetric
from lab.evaluation.seeds import TEST_SEEDS, parse_seeds
from lab.worlds.services.scenarios import intensity_of
from lab.worlds.services.topology import default_topology
from services.cli.inputs import read_weights
from services.cli.terminal.output_file import write_whole
from shared.errors import ConclaveError
from shared.policy.weights import WeightsFile

VARIANTS: Mapping[str, tuple[str, ...]] = {
    "multi-none": ("--agents", "multi", "--roles", "none"),
    "multi-soft": ("--agents", "multi", "--roles", "soft"),
    "multi-hard": ("--agents", "multi", "--roles", "hard"),
    "multi-roles-only": ("--agents", "multi", "--roles", "hard", "--missions", "off"),
    "multi-missions-only": ("--agents", "multi", "--roles", "none", "--missions", "on"),
    "single-none": ("--agents", "single", "--roles", "none"),
    "single-soft": ("--agents", "single", "--roles", "soft"),
    "single-hard": ("--agents", "single", "--roles", "hard"),
}
EPISODE_S = 600
STARTS = ("scratch", "imitation")
SHOWN = ("success", "latency_compliance", "pending", "recovery_s", "availability", "replica_hours")
BEST_FIGURE = "validation score by training seed"


def train(variant: str, start: str, seeds: str, steps: int, folder: Path) -> Path:
    """The weights of one variant, whose training is taken up where it was left."""
    found = list(folder.glob("*.npz"))
    if not found:
        again = ["--resume"] if any(folder.glob("*.ckpt")) else []
        order = ["train", "karma", *VARIANTS[variant], "--start", start, "--seeds", seeds, "--steps", str(steps)]
        order += ["--episode-seconds", str(EPISODE_S)]
        order += ["--out", str(folder), *again]
        subprocess.run([sys.executable, "-m", "services.cli", *order], check=True, stdout=sys.stderr)
        found = list(folder.glob("*.npz"))
    return found[0]


def measure(weights: WeightsFile) -> dict[str, ResultMetric]:
    """The figures of the mixed scenario on the test seeds."""
    setup = Setup(default_topology(), "mixed", intensity_of("mixed"))
    played = [play(setup, make(weights.card.policy, weights), seed).figures for seed in TEST_SEEDS]
    series = finite({name: [one[name] for one in played] for name in METRICS})
    return {name: ResultMetric.of(values) for name, values in series.items()}


def line_of(variant: str, start: str, weights: WeightsFile, metrics: Mapping[str, ResultMetric]) -> str:
    """One row of the table."""
    scores = ", ".join(f"{score:.1f}" for score in validation(weights).values())
    cells = [f"{metrics[name].mean:.1f} ± {metrics[name].sd:.1f}" if name in metrics else "" for name in SHOWN]
    return f"| {variant} | {start} | {scores} | {' | '.join(cells)} |"


def validation(weights: WeightsFile) -> dict[str, float]:
    """The best validation score of each training seed."""
    scores: dict[str, float] = weights.card.figures[BEST_FIGURE]
    return scores


def document(weights: WeightsFile, metrics: Mapping[str, ResultMetric]) -> dict[str, object]:
    """What ``--json`` has of a variant."""
    scores = validation(weights)
    return {
        "command": weights.card.trained["command"],
        "validation": scores,
        "validation_mean": fmean(scores.values()),
        "test": {name: {"mean": one.mean, "sd": one.sd, "values": one.values} for name, one in metrics.items()},
    }


def main() -> None:
    """Train what is missing, play all of it, print the table."""
    parser = argparse.ArgumentParser(description="Ablations of karma on the mixed scenario.")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="comma-separated")
    parser.add_argument("--starts", default=",".join(STARTS), help="scratch: without the rule by demand")
    parser.add_argument("--seeds", default="1000-1001", help="training seeds")
    parser.add_argument("--steps", type=int, default=20, help="rounds of 16 episodes, after 32 that are imitated")
    parser.add_argument("--out", type=Path, default=Path("training/ablation"))
    parser.add_argument("--json", type=Path, help="write the figures here")
    given = parser.parse_args()
    variants, starts = given.variants.split(","), given.starts.split(",")
    for flag, names, known in (("--variants", variants, VARIANTS), ("--starts", starts, STARTS)):
        unknown = [name for name in names if name not in known]
        if unknown:
            parser.error(f"{flag}: {unknown[0]!r} is not known; choose of {', '.join(known)}")
    lines, found = [f"| variant | start | validation | {' | '.join(SHOWN)} |", f"|{'---|' * (3 + len(SHOWN))}"], {}
    try:
        parse_seeds(given.seeds)
        for start in starts:
            for variant in variants:
                file = train(variant, start, given.seeds, given.steps, given.out / start / variant)
                (weights,) = read_weights([file]).values()
                metrics = measure(weights)
                lines.append(line_of(variant, start, weights, metrics))
                found[f"{start}/{variant}"] = document(weights, metrics)
                click.echo(lines[-1], err=True)
        if given.json is not None:
            write_whole("--json", given.json, f"{json.dumps(found, indent=2, allow_nan=False)}\n".encode())
    except ConclaveError as error:
        parser.error(str(error))
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
    click.echo("\n".join(lines))


if __name__ == "__main__":
    main()
