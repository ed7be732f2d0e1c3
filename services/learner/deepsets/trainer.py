"""Runs the training of ``ee``, ``lb`` or ``el`` over some seeds: checkpoints, TensorBoard, progress, weights, card.

The thin shell around ``DeepSetsRun``. In ``out`` it keeps ``seed-N.ckpt`` (written whole, removed by nobody),
``curves-N.jsonl`` for the report, ``logs/seed-N`` (TensorBoard scalars), and at the end ``POLICY.npz`` with the best
validated weights of all seeds and ``POLICY.json``, the card's contents. Scalars, against placements made:
``train/reward`` (mean published reward of the episode, exploration included), ``train/epsilon``, ``train/loss``
(Huber), ``train/q_mean`` (of the actions learned from), ``train/gradient_norm`` (before clipping),
``validation/regret`` (to the oracle, greedy, seeds 500-509).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from pathlib import Path

import click
import torch

from services.learner.deepsets.settings import FIRST_TRAINING_SEED, DeepSetsSettings, settings_for
from services.learner.deepsets.training import VALIDATION_SEEDS, DeepSetsRun, Report
from services.learner.deepsets.warm_up import spelled, warm_up
from services.learner.training.checkpoint import load_checkpoint, save_checkpoint, settings_digest
from services.learner.training.request import TrainRequest
from services.learner.training.run_files import (
    Recording,
    checkpoint_of,
    open_folder,
    recording,
    spelled_seeds,
    write_weights,
)
from shared.errors import ConclaveError
from shared.runtime.process.parent_death import end_with_parent

VERSION = 1
SHIPPED_SEEDS = (FIRST_TRAINING_SEED,)
CHECKPOINT_EVERY = 5_000
EPSILON_AFTER_WARM_UP = 0.4
"""DL2's exploration (learning by doing begins where imitation ended); acting at random would forget it."""
LIMITS = [
    "trained on 2 to 16 nodes; larger clusters rest on the network's invariance and on the suite's measurements",
    "trained with exact, current observations; late or noisy ones cost what the suite's lag and noise columns show",
    "sees cpu, memory, pod counts and latency; GPUs, disks and network load are left to the filters",
]


def train_deep_sets(request: TrainRequest) -> None:
    """Train every seed to its end and write the best. Raises ``ConfigError`` on what cannot be used."""
    seeds, out, source = request.seeds or SHIPPED_SEEDS, request.out, request.warm_up or ""
    taught = spelled(source) if source else ""
    runs = [settings_for(request.policy, seed, request.steps) for seed in seeds]
    if taught:
        runs = [replace(settings, warm_up=taught, epsilon_begin=EPSILON_AFTER_WARM_UP) for settings in runs]
    open_folder(out, seeds, resume=request.resume)
    if request.workers > 1 and len(runs) > 1:
        _train_beside(runs, out, request.workers, source)
    finished = [_train_seed(settings, out, source) for settings in runs]
    best = min(finished, key=lambda run: run.best_regret)
    regrets = {str(run.settings.seed): round(run.best_regret, 5) for run in finished}
    weights = best.weights(
        version=VERSION,
        trained={
            "command": f"python -m services.learner train {request.policy} --seeds {spelled_seeds(seeds)} --out DIR"
            + (f" --warm-up {Path(source).name}" if source else ""),
            "seeds": {"training": list(seeds), "chosen": best.settings.seed, "validation": list(VALIDATION_SEEDS)},
            "data": "none: scenarios drawn by shared.experiments.environments.placement_scenarios.training_scenario",
            "settings": best.settings.as_json(),
        },
        figures={"validation regret to the oracle, by training seed": regrets},
        limits=LIMITS,
    )
    file = write_weights(out, weights)
    click.echo(
        f"{request.policy}: seed {best.settings.seed} has the least validation regret, {best.best_regret:.4f};"
        f" weights in {file}"
    )


def _train_beside(runs: list[DeepSetsSettings], out: Path, workers: int, source: str) -> None:
    """Train each seed in a process of its own, ``workers`` at a time; what they reach lies in their checkpoints."""
    context = get_context("spawn")
    waiting = [context.Process(target=_train_alone, args=(settings, out, source), daemon=True) for settings in runs]
    running: list[SpawnProcess] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                waiting[0].start()
                running.append(waiting.pop(0))
            running[0].join()
            if running[0].exitcode:
                raise ConclaveError(
                    f"train: the process of a seed ended with {running[0].exitcode}; look above, go on with --resume"
                )
            running.pop(0)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.join()


def _train_alone(settings: DeepSetsSettings, out: Path, source: str) -> None:
    end_with_parent()
    torch.set_num_threads(1)
    try:
        _train_seed(settings, out, source)
    except KeyboardInterrupt:
        sys.exit(130)


def _train_seed(settings: DeepSetsSettings, out: Path, source: str) -> DeepSetsRun:
    """Train one seed, or take over what its finished checkpoint holds."""
    run = DeepSetsRun(settings)
    path, digest = checkpoint_of(out, settings.seed), settings_digest(settings.as_json())
    if path.exists():
        run.set_state(load_checkpoint(path, digest=digest))
    if run.finished:
        return run
    saved = run.decisions
    label = f"{settings.policy} seed {settings.seed}"
    with recording(out, settings.seed, label=label, done=run.decisions, length=settings.decisions) as record:
        if source and not run.decisions:
            _warm_up(run, source, label, record)
        for report in run.run():
            record.note(report.decisions, _scalars(report))
            if report.regret is not None and not record.shown:
                told = f"{label}: {report.decisions} of {settings.decisions} placements"
                click.echo(f"{told}, validation regret {report.regret:.4f}", err=True)
            if run.decisions - saved >= CHECKPOINT_EVERY or run.finished:
                save_checkpoint(path, run.get_state(), digest=digest)
                saved = run.decisions
    return run


def _warm_up(run: DeepSetsRun, source: str, label: str, record: Recording) -> None:
    """Imitate before the first placement; a run that was cut before its first checkpoint does so anew, alike."""
    for taught in warm_up(run, source):
        record.writer.add_scalar("warm_up/loss", taught.loss, taught.epoch)
        record.writer.add_scalar("warm_up/agreement", taught.agreement, taught.epoch)
    click.echo(f"{label}: agrees with {source} in {taught.agreement:.1%} of the decisions held back", err=True)


def _scalars(report: Report) -> dict[str, float]:
    scalars = {"train/reward": report.reward, "train/epsilon": report.epsilon}
    if report.update is not None:
        scalars["train/loss"] = report.update.loss
        scalars["train/q_mean"] = report.update.q_mean
        scalars["train/gradient_norm"] = report.update.gradient_norm
    if report.regret is not None:
        scalars["validation/regret"] = report.regret
    return scalars
