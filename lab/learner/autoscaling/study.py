"""Looks for settings of ``karma`` by short trainings: a study of Optuna (Akiba et al. 2019), on validation seeds alone.

A trial is a training of ``TRIAL_ROUNDS`` rounds by settings that the tree-structured Parzen estimator proposes; what it
is worth is its best validation score. The first trial has the settings that are there, so the study is never worse than
those. The trials lie in ``study.journal`` of the training's folder: an interrupted study goes on where it was.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lab.autoscaling.episode import Setup
from lab.learner.autoscaling.training import KarmaRun, KarmaRunSettings
from lab.workers import Workers
from shared.errors import ConfigError

if TYPE_CHECKING:
    import optuna

TRIAL_ROUNDS = 5
JOURNAL = "study.journal"
LOOKED_FOR = ("learning_rate", "entropy", "discount", "trace", "epochs")


def chosen_settings(
    settings: KarmaRunSettings, trials: int, out: Path, workers: Workers, *, world: Setup
) -> KarmaRunSettings:
    """``settings`` with what the best of so many trials in ``world`` had; those that are in ``out`` already count.

    ``ConfigError``: Optuna is not installed.
    """
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        raise ConfigError(
            "--trials: optuna is missing; install the extra: pip install 'conclave-scheduler[learn]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        study_name=settings.policy,
        storage=JournalStorage(JournalFileBackend(str(out / JOURNAL))),
        sampler=optuna.samplers.TPESampler(seed=settings.seed, n_startup_trials=4),
        direction="maximize",
        load_if_exists=True,
    )
    if not study.trials:
        study.enqueue_trial({name: getattr(settings, name) for name in LOOKED_FOR})
    done = [trial for trial in study.trials if trial.state is optuna.trial.TrialState.COMPLETE]
    for number in range(len(done), trials):
        study.optimize(lambda trial: _score(proposed(settings, trial), workers, world), n_trials=1)
        told = f"best validation score {study.best_value:.2f}"
        click.echo(f"{settings.policy}: {number + 1} of {trials} trials, {told}", err=True)
    return replace(settings, **{name: study.best_params[name] for name in LOOKED_FOR})


def proposed(settings: KarmaRunSettings, trial: optuna.Trial) -> KarmaRunSettings:
    """``settings`` for a trial: short, with what it proposes."""
    return replace(
        settings,
        rounds=min(TRIAL_ROUNDS, settings.rounds),
        learning_rate=trial.suggest_float("learning_rate", 1e-4, 3e-3, log=True),
        entropy=trial.suggest_float("entropy", 1e-4, 3e-2, log=True),
        discount=trial.suggest_float("discount", 0.85, 0.99),
        trace=trial.suggest_float("trace", 0.7, 0.98),
        epochs=trial.suggest_int("epochs", 2, 8),
    )


def _score(settings: KarmaRunSettings, workers: Workers, world: Setup) -> float:
    run = KarmaRun(settings, workers, world=world)
    for _ in run.run():
        pass
    return run.best.score
