"""Runs the training of marl-dqn, its published variant or the single DQN over some seeds: files, progress, card.

The thin shell around ``MarlRun``. In ``out`` it keeps ``seed-N.ckpt`` (written whole), ``curves-N.jsonl`` for the
report, ``logs/seed-N`` (TensorBoard scalars), and at the end ``POLICY.npz`` with the best validated weights of all
seeds and ``POLICY.json``, the card's contents. Scalars, against rounds: ``train/imbalance`` and ``train/reward`` (of
the round's episodes, exploration included), ``train/epsilon``, ``train/loss`` (Huber), ``train/q_mean`` (of the actions
learned from), ``train/gradient_norm`` (before clipping), ``validation/imbalance`` (greedy, seeds 500-509, both
workloads).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
import msgspec
from torch.utils.tensorboard import SummaryWriter

from services.learner.checkpoint import load_checkpoint, save_checkpoint, settings_digest
from services.learner.marl_settings import FIRST_TRAINING_SEED, MarlSettings, settings_for
from services.learner.marl_training import VALIDATION_SEEDS, MarlRun, Report
from services.learner.marl_warm_up import spelled, warm_up
from services.learner.request import TrainRequest
from services.learner.vector import Workers
from shared.errors import ConfigError
from shared.policy.weights import WeightsFile, decode, encode

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
    known = [path for path in (_checkpoint(out, one) for one in settings) if path.exists()]
    if known and not request.resume:
        raise ConfigError(f"--out: {known[0]} is there already; go on with --resume, or give another folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out: {out} cannot be made ({error.strerror}); give a folder") from error
    with Workers(request.workers) as workers:
        finished = [_train_seed(one, out, workers, source) for one in settings]
    best = min(finished, key=lambda run: run.best_imbalance)
    weights = _weights(best, finished, seeds, source)
    data = encode(weights)
    decode(data, policy=request.policy)
    _write(out / f"{request.policy}.npz", data)
    card = json.dumps(msgspec.to_builtins(decode(data, policy=request.policy).card), indent=2, sort_keys=True)
    _write(out / f"{request.policy}.json", card.encode() + b"\n")
    click.echo(
        f"{request.policy}: seed {best.settings.seed} has the least validation imbalance, {best.best_imbalance:.5f};"
        f" weights in {out / request.policy}.npz"
    )


def _weights(best: MarlRun, finished: list[MarlRun], seeds: tuple[int, ...], source: str) -> WeightsFile:
    policy = best.settings.policy
    return best.weights(
        version=VERSION,
        trained={
            "command": f"python -m services.learner train {policy} --seeds {_spell(seeds)} --out DIR"
            + (f" --warm-up {Path(source).name}" if source else ""),
            "seeds": {"training": list(seeds), "chosen": best.settings.seed, "validation": list(VALIDATION_SEEDS)},
            "data": "none: pods drawn by shared.twin.thesis_workload, seeds from 100,000,000 on",
            "settings": best.settings.as_json(),
        },
        figures={
            "validation imbalance, mean of both workloads, by training seed": {
                str(run.settings.seed): round(run.best_imbalance, 5) for run in finished
            }
        },
        limits=SINGLE_LIMITS if best.settings.kind != "shared" else LIMITS,
    )


def _checkpoint(out: Path, settings: MarlSettings) -> Path:
    return out / f"seed-{settings.seed}.ckpt"


def _train_seed(settings: MarlSettings, out: Path, workers: Workers, source: str) -> MarlRun:
    """Train one seed, or take over what its checkpoint holds."""
    run = MarlRun(settings)
    path, digest = _checkpoint(out, settings), settings_digest(settings.as_json())
    if path.exists():
        run.set_state(load_checkpoint(path, digest=digest))
    if run.finished:
        return run
    label = f"{settings.policy} seed {settings.seed}"
    shown = sys.stderr.isatty()
    writer = SummaryWriter(str(out / "logs" / f"seed-{settings.seed}"), purge_step=run.rounds)
    try:
        with (
            _ending_by_signal(),
            (out / f"curves-{settings.seed}.jsonl").open("a", encoding="utf-8") as curves,
            click.progressbar(length=settings.rounds, label=label, file=sys.stderr, hidden=not shown) as bar,
        ):
            bar.update(run.rounds)
            if source and not run.rounds:
                for taught in warm_up(run, source):
                    writer.add_scalar("warm_up/agreement", taught.agreement, taught.epoch)
                click.echo(f"{label}: agrees with {source} in {taught.agreement:.1%} of what was held back", err=True)
            for report in run.run(workers):
                scalars = _scalars(report)
                for name, value in scalars.items():
                    writer.add_scalar(name, value, report.rounds)
                curves.write(json.dumps({"step": report.rounds} | scalars) + "\n")
                curves.flush()
                bar.update(report.rounds - bar.pos)
                if report.validation is not None and not shown:
                    told = f"{label}: round {report.rounds} of {settings.rounds}"
                    click.echo(f"{told}, validation imbalance {report.validation:.5f}", err=True)
                if run.rounds % CHECKPOINT_EVERY == 0 or run.finished:
                    save_checkpoint(path, run.get_state(), digest=digest)
    finally:
        writer.close()
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


@contextmanager
def _ending_by_signal() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: the last checkpoint is kept."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _write(path: Path, data: bytes) -> None:
    partial = path.with_suffix(path.suffix + ".partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _spell(seeds: tuple[int, ...]) -> str:
    """``1000-1002`` where they are consecutive, else a list."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}-{seeds[-1]}"
    return ",".join(str(seed) for seed in seeds)
