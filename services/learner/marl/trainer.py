"""Runs the training of marl-dqn, its published variant or the single DQN over some seeds: files, progress, card.

The thin shell around ``MarlRun``. In ``out`` it keeps ``seed-N.ckpt`` (written whole), ``curves-N.jsonl`` for the
report, ``logs/seed-N`` (TensorBoard scalars), and at the end ``POLICY.npz`` with the best validated weights of all
seeds and ``POLICY.json``, the card's contents. Scalars, against rounds: ``train/imbalance`` and ``train/reward`` (of
the round's episodes, exploration included), ``train/epsilon``, ``train/loss`` (Huber), ``train/q_mean`` (of the actions
learned from), ``train/gradient_norm`` (before clipping), ``validation/imbalance`` (greedy, seeds 500-509, both
workloads).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from services.learner.marl.settings import FIRST_TRAINING_SEED, MarlSettings, settings_for
from services.learner.marl.training import VALIDATION_SEEDS, MarlRun, Report
from services.learner.marl.warm_up import spelled, warm_up
from services.learner.training.checkpoint import load_checkpoint, save_checkpoint, settings_digest
from services.learner.training.request import TrainRequest
from services.learner.training.run_files import checkpoint_of, open_folder, recording, spelled_seeds, write_weights
from services.learner.training.vector import Workers
from shared.policy.weights import WeightsFile

VERSION = 1
SHIPPED_SEEDS = (FIRST_TRAINING_SEED,)
CHECKPOINT_EVERY = 5
LIMITS = [
    "trained on 4 nodes with the thesis' three kinds of pods; other sizes and kinds rest on features that are relative",
    "balances utilisation; it neither packs nor saves energy, and knows nothing of GPUs",
    "without measurements of nodes it decides by requests, no better than kube-default",
]
SINGLE_LIMITS = ["a baseline, for exactly the number of nodes it was trained on"]


def train_marl(request: TrainRequest) -> None:
    """Train every seed to its end and write the best. Raises ``ConfigError`` on what cannot be used."""
    source = request.warm_up or ""
    seeds, out = request.seeds or SHIPPED_SEEDS, request.out
    settings = [settings_for(request.policy, seed, request.steps) for seed in seeds]
    if source:
        taught = spelled(source)
        settings = [replace(one, warm_up=taught, epsilon_begin=one.epsilon_end) for one in settings]
    open_folder(out, seeds, resume=request.resume)
    with Workers(request.workers) as workers:
        finished = [_train_seed(one, out, workers, source) for one in settings]
    best = min(finished, key=lambda run: run.best_imbalance)
    file = write_weights(out, _weights(best, finished, seeds, source))
    click.echo(
        f"{request.policy}: seed {best.settings.seed} has the least validation imbalance, {best.best_imbalance:.5f};"
        f" weights in {file}"
    )


def _weights(best: MarlRun, finished: list[MarlRun], seeds: tuple[int, ...], source: str) -> WeightsFile:
    policy = best.settings.policy
    return best.weights(
        version=VERSION,
        trained={
            "command": f"python -m services.learner train {policy} --seeds {spelled_seeds(seeds)} --out DIR"
            + (f" --warm-up {Path(source).name}" if source else ""),
            "seeds": {"training": list(seeds), "chosen": best.settings.seed, "validation": list(VALIDATION_SEEDS)},
            "data": "none: pods drawn by shared.experiments.environments.thesis_workload, seeds from 100,000,000 on",
            "settings": best.settings.as_json(),
        },
        figures={
            "validation imbalance, mean of both workloads, by training seed": {
                str(run.settings.seed): round(run.best_imbalance, 5) for run in finished
            }
        },
        limits=SINGLE_LIMITS if best.settings.kind != "shared" else LIMITS,
    )


def _train_seed(settings: MarlSettings, out: Path, workers: Workers, source: str) -> MarlRun:
    """Train one seed, or take over what its checkpoint holds."""
    run = MarlRun(settings)
    path, digest = checkpoint_of(out, settings.seed), settings_digest(settings.as_json())
    if path.exists():
        run.set_state(load_checkpoint(path, digest=digest))
    if run.finished:
        return run
    label = f"{settings.policy} seed {settings.seed}"
    with recording(out, settings.seed, label=label, done=run.rounds, length=settings.rounds) as record:
        if source and not run.rounds:
            for taught in warm_up(run, source):
                record.writer.add_scalar("warm_up/agreement", taught.agreement, taught.epoch)
            click.echo(f"{label}: agrees with {source} in {taught.agreement:.1%} of what was held back", err=True)
        for report in run.run(workers):
            record.note(report.rounds, _scalars(report))
            if report.validation is not None and not record.shown:
                told = f"{label}: round {report.rounds} of {settings.rounds}"
                click.echo(f"{told}, validation imbalance {report.validation:.5f}", err=True)
            if run.rounds % CHECKPOINT_EVERY == 0 or run.finished:
                save_checkpoint(path, run.get_state(), digest=digest)
    return run


def _scalars(report: Report) -> dict[str, float]:
    scalars = {
        "train/imbalance": report.imbalance,
        "train/reward": report.reward,
        "train/epsilon": report.epsilon,
        "train/loss": report.update.loss,
        "train/q_mean": report.update.q_mean,
        "train/gradient_norm": report.update.gradient_norm,
    }
    if report.validation is not None:
        scalars["validation/imbalance"] = report.validation
    return scalars
