"""Every learned policy trained anew with other training seeds, and what its figures then are on the test seeds.

    .venv/bin/python -m bench.training_seeds [--policies ee,lb] [--seeds 1003-1006] [--out training/seeds]
                                             [--nodes 3,10,100] [--share 0.1]

Each run is ``conclave train POLICY --seeds N``, nothing else changed, in ``OUT/POLICY/N``; shipped weights are read and
never written. What comes out is measured on seeds 42-51 by the suites' own experiments, those that carry goals: without
the robustness columns; ``frag`` by the openb suite's default trace, and by the compiled experiment on all. ``--nodes``
and ``--share`` shorten those of ``ee``, ``lb`` and ``el``. The figures lie in ``OUT/POLICY/N.json`` in the form of
``conclave evaluate --json``. It goes on where it was interrupted, and prints the tables of docs/policies at the end.
Nothing is chosen here: every seed counts.
"""

from __future__ import annotations

import shared.runtime.process.one_core  # noqa: F401  first: it must be set before numpy is loaded

# isort: split
import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import click

from bench.training_seeds.frag import gains, goals_of
from bench.training_seeds.tables import SHIPPED, TABLES, lines_of
from lab.evaluation.results import SuiteResult, from_json, silent
from lab.evaluation.seeds import TEST_SEEDS, parse_seeds
from lab.learner.frag.trainer import POD_LIST, data_folder
from lab.suites import deepsets, openb, thesis
from lab.suites.suites import SuiteInput
from services.cli.inputs import read_weights
from services.cli.terminal.output_file import write_whole
from shared.errors import ConclaveError
from shared.policy.deepsets.policy import DEEP_SETS_POLICIES
from shared.policy.frag.value import NAME as FRAG
from shared.policy.weights import WeightsFile, shipped

SEEDS = "1003-1006"
BASELINES = ("single-dqn", "kube-default", "greedy")
TRACE = "default"


def train(policy: str, seed: int, folder: Path) -> Path:
    """The weights of one run, which is taken up where it was left."""
    weights = folder / f"{policy}.npz"
    if not weights.exists():
        again = ["--resume"] if any(folder.glob("*.ckpt")) else []
        order = ["train", policy, "--seeds", str(seed), "--out", str(folder), *again]
        subprocess.run([sys.executable, "-m", "services.cli", *order], check=True, stdout=sys.stderr)
    return weights


@dataclass(frozen=True, slots=True)
class Length:
    """Which experiments of ``ee``, ``lb`` and ``el``: on so many nodes, so much of their length (1: as promised)."""

    nodes: tuple[int, ...] = deepsets.SIZES
    share: float = 1.0


def measure(policy: str, weights: WeightsFile, command: str, length: Length) -> SuiteResult:
    """The figures that carry goals, on the test seeds."""
    if policy in DEEP_SETS_POLICIES:
        all_of_them = deepsets.experiments(length.nodes, share=length.share, objectives=[policy])
        promised = [one for one in all_of_them if one.promised]
        planned = [replace(one, deciders=(policy, "oracle")) for one in promised]
        given = SuiteInput(TEST_SEEDS, command, (policy,), weights={policy: weights})
        return deepsets.run_suite(given, planned=planned)
    if policy == FRAG:
        folder = data_folder()
        files = {name: (folder / name).read_text() for name in (openb.NODE_LIST, POD_LIST.format(TRACE))}
        given = SuiteInput(TEST_SEEDS, command, (FRAG,), files, weights={FRAG: weights})
        found, more = openb.run_suite(given, silent), gains(weights, TEST_SEEDS)
        return replace(found, policies={FRAG: {**found.policies[FRAG], **more}}, goals=(*found.goals, *goals_of(more)))
    compared = tuple(dict.fromkeys((policy, *BASELINES)))
    given = SuiteInput(TEST_SEEDS, command, compared, weights={policy: weights})
    return thesis.run_suite(given, conditions=thesis.CONDITIONS[:1])


def result_of(policy: str, name: str, file: Path, weights: WeightsFile, length: Length) -> SuiteResult:
    """The figures in ``file``; measured and written there if they are of other weights, or of another length."""
    command = f"python -m bench.training_seeds --policies {policy} --seeds {name}"
    if policy in DEEP_SETS_POLICIES:
        command += f" --nodes {','.join(map(str, length.nodes))} --share {length.share:g}"
    if file.exists():
        found = from_json(json.loads(file.read_text()))
        if (found.card_digests.get(policy), found.command) == (weights.sha256, command):
            return found
    found = measure(policy, weights, command, length)
    write_whole("--out", file, f"{json.dumps(found.to_json(), indent=2, allow_nan=False)}\n".encode())
    return found


def run(policy: str, seeds: tuple[int, ...], out: Path, length: Length) -> Mapping[str, SuiteResult]:
    """Figures by training seed, the shipped weights' first."""
    folder = out / policy
    folder.mkdir(parents=True, exist_ok=True)
    found = {SHIPPED: result_of(policy, SHIPPED, folder / f"{SHIPPED}.json", shipped(policy), length)}
    for seed in seeds:
        started_s = time.monotonic()
        weights = read_weights([train(policy, seed, folder / str(seed))])[policy]
        trained_s = time.monotonic()
        found[str(seed)] = result_of(policy, str(seed), folder / f"{seed}.json", weights, length)
        told = f"trained in {trained_s - started_s:.0f} s, measured in {time.monotonic() - trained_s:.0f} s"
        click.echo(f"{policy}, training seed {seed}: {told}", err=True)
    return found


def main() -> None:
    """Train and measure what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description="The spread of the learned policies over training seeds.")
    parser.add_argument("--policies", default=",".join(TABLES), help="comma-separated")
    parser.add_argument("--seeds", default=SEEDS, help="training seeds, from 1001 on: 1000 is the shipped weights'")
    parser.add_argument("--out", type=Path, default=Path("training/seeds"))
    parser.add_argument(
        "--nodes", default=",".join(map(str, deepsets.SIZES)), help="on which ee, lb and el are measured"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the length of these experiments")
    given = parser.parse_args()
    policies, seeds = given.policies.split(","), parse_seeds(given.seeds)
    length = Length(parse_seeds(given.nodes, flag="--nodes"), given.share)
    unknown = [policy for policy in policies if policy not in TABLES]
    if unknown:
        parser.error(f"--policies: {unknown[0]!r} is not trained here; choose of {', '.join(TABLES)}")
    try:
        for policy in policies:
            click.echo("\n".join(lines_of(policy, run(policy, seeds, given.out, length))))
    except ConclaveError as error:
        parser.error(str(error))
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
