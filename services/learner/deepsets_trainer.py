"""Runs the training of ``ee``, ``lb`` or ``el`` over some seeds: checkpoints, TensorBoard, progress, weights, card.

The thin shell around ``DeepSetsRun``. In ``out`` it keeps ``seed-N.ckpt`` (written whole, removed by nobody),
``logs/seed-N`` (TensorBoard scalars), and at the end ``POLICY.npz`` with the best validated weights of all seeds and
``POLICY.json``, the card's contents. Scalars, against placements made: ``train/reward`` (mean published reward of the
episode, exploration included), ``train/epsilon``, ``train/loss`` (Huber), ``train/q_mean`` (of the actions learned
from), ``train/gradient_norm`` (before clipping), ``validation/regret`` (to the oracle, greedy, seeds 500-509).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
from torch.utils.tensorboard import SummaryWriter

from services.learner.checkpoint import load_checkpoint, save_checkpoint, settings_digest
from services.learner.deepsets_settings import DeepSetsSettings, settings_for
from services.learner.deepsets_training import VALIDATION_SEEDS, DeepSetsRun, Report
from shared.errors import ConfigError
from shared.policy.weights import decode, encode

VERSION = 1
CHECKPOINT_EVERY = 5_000
LIMITS = [
    "trained on 2 to 16 nodes; larger clusters rest on the network's invariance and on the suite's measurements",
    "trained with exact, current observations; late or noisy ones cost what the suite's lag and noise columns show",
    "sees cpu, memory, pod counts and latency; GPUs, disks and network load are left to the filters",
]


def train_deep_sets(policy: str, seeds: tuple[int, ...], out: Path, resume: bool, decisions: int | None) -> None:
    """Train every seed to its end and write the best. Raises ``ConfigError`` on what cannot be used."""
    runs = [settings_for(policy, seed, decisions) for seed in seeds]
    known = [path for path in (out / f"seed-{seed}.ckpt" for seed in seeds) if path.exists()]
    if known and not resume:
        raise ConfigError(f"out: {known[0]} is there already; go on with --resume, or give another --out")
    if resume and not known:
        raise ConfigError(f"resume: {out} holds no checkpoint of seeds {list(seeds)}; leave out --resume")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out: {out} cannot be made ({error.strerror}); give a directory") from error
    finished = [_train_seed(settings, out) for settings in runs]
    best = min(finished, key=lambda run: run.best_regret)
    regrets = {str(run.settings.seed): round(run.best_regret, 5) for run in finished}
    weights = best.weights(
        version=VERSION,
        trained={
            "command": f"python -m services.learner train {policy} --seeds {_spell(seeds)} --out DIR",
            "seeds": {"training": list(seeds), "chosen": best.settings.seed, "validation": list(VALIDATION_SEEDS)},
            "data": "none: scenarios drawn by shared.twin.placement_scenarios.training_scenario",
            "settings": best.settings.as_json(),
        },
        figures={"validation regret to the oracle, by training seed": regrets},
        limits=LIMITS,
    )
    data = encode(weights)
    decode(data, policy=policy)
    _write(out / f"{policy}.npz", data)
    card = json.dumps(msgspec.to_builtins(weights.card), indent=2, sort_keys=True)
    _write(out / f"{policy}.json", card.encode() + b"\n")
    click.echo(f"{policy}: seed {best.settings.seed}, validation regret {best.best_regret:.4f} -> {out / policy}.npz")


def _train_seed(settings: DeepSetsSettings, out: Path) -> DeepSetsRun:
    run = DeepSetsRun(settings)
    path, digest = out / f"seed-{settings.seed}.ckpt", settings_digest(settings.as_json())
    if path.exists():
        run.set_state(load_checkpoint(path, digest=digest))
    saved = run.decisions
    writer = SummaryWriter(str(out / "logs" / f"seed-{settings.seed}"), purge_step=run.decisions)
    label = f"{settings.policy} seed {settings.seed}"
    try:
        with (
            _ending_by_signal(),
            click.progressbar(length=settings.decisions, label=label, file=sys.stderr) as bar,
        ):
            bar.update(run.decisions)
            for report in run.run():
                _log(writer, report)
                bar.update(report.decisions - bar.pos)
                if run.decisions - saved >= CHECKPOINT_EVERY or run.finished:
                    save_checkpoint(path, run.get_state(), digest=digest)
                    saved = run.decisions
    finally:
        writer.close()
    return run


def _log(writer: Any, report: Report) -> None:
    step = report.decisions
    scalars = {"train/reward": report.reward, "train/epsilon": report.epsilon}
    if report.update is not None:
        scalars["train/loss"] = report.update.loss
        scalars["train/q_mean"] = report.update.q_mean
        scalars["train/gradient_norm"] = report.update.gradient_norm
    if report.regret is not None:
        scalars["validation/regret"] = report.regret
    for name, value in scalars.items():
        writer.add_scalar(name, value, step)


@contextmanager
def _ending_by_signal() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: between two steps, with the last checkpoint kept."""

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
