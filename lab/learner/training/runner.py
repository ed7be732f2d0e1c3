"""Runs a training to its end: a run per seed, each with checkpoints, curves, TensorBoard and progress.

A policy brings its settings, its ``TrainingRun`` (what a step is and how it is validated) and the card of its weights;
what is the same for all is here. In ``out`` a run keeps ``seed-N.ckpt`` (after every validation), ``curves-N.jsonl``
and ``logs/seed-N`` (``run_files``). Runs are functions of their settings: how many processes there are changes nothing.
"""

from __future__ import annotations

import multiprocessing
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import click
import torch

from lab.algorithms.imitation import ImitationReport
from lab.evaluation.seeds import spelled_seeds
from lab.learner.training.checkpoint import load_checkpoint, save_checkpoint, settings_digest
from lab.learner.training.run_files import checkpoint_of, recording
from lab.worlds.services.attacker import AttackerTerms
from shared.errors import ConclaveError, ConfigError
from shared.runtime.process.linux import end_with_parent

ALGORITHMS = ("dqn", "double", "distributional", "ppo")
Algorithm = Literal["", "dqn", "double", "distributional", "ppo"]
"""What a policy learns by; "": what its recipe found best."""
FIRST_TRAINING_SEED = 1000
"""Seeds below are for validation and tests."""


@dataclass(frozen=True, slots=True)
class SignalSource:
    """``signals``: NAME=QUERY each; ``prometheus``: who is asked."""

    signals: tuple[str, ...] = ()
    prometheus: str = ""
    token_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """Of ``karma``: which of its parts are trained; "": as the shipped weights."""

    agents: str = ""
    """multi or single."""
    roles: str = ""
    """hard, soft or none."""
    missions: str = ""
    """on or off; "": on where there are roles."""
    start: str = ""
    """imitation or scratch."""
    episode_seconds: str = ""
    """How long an episode of training is."""

    def flags(self) -> str:
        """As on the command line."""
        return "".join(f" --{name.replace('_', '-')} {value}" for name, value in asdict(self).items() if value)


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """One order, the same for every policy. A trainer raises ``ConfigError`` naming what it cannot do."""

    policy: str
    out: Path
    """Where weights, card, curves and checkpoints go."""
    seeds: tuple[int, ...] = (FIRST_TRAINING_SEED,)
    """Training seeds; the default is that of the shipped weights."""
    resume: bool = False
    """Go on from the checkpoints in ``out``."""
    workers: int = 1
    """Processes that may be used."""
    warm_up: str = ""
    """First imitate this policy, or the decisions recorded in this file."""
    steps: int | None = None
    """How long to train, in the trainer's own steps; None: as the shipped weights."""
    mixture: str = ""
    """Of ``hybrid``: which policies are mixed, in short form or a file."""
    reward: str = ""
    """A reward of the user's own, in place of the shipped one; "": that one."""
    signals: SignalSource = SignalSource()
    """What such a reward reads beside the features."""
    ray: str = ""
    """A Ray cluster that plays episodes instead of processes, by its address."""
    variant: Variant = Variant()
    trials: int = 0
    """Of ``karma``: so many short trainings look for settings first."""
    series: Path | None = None
    """Of ``services-twin``: the recorded series."""
    topology: Path | None = None
    """Of ``services-twin`` and ``karma``: the service graph; None: the default one."""
    trace: Path | None = None
    """Of ``karma``: the load; None: the twin's own."""
    twin: Path | None = None
    """Of ``karma``: the learned twin to train in; None: the service twin."""
    organisation: Path | None = None
    """Of ``karma``: roles and missions of the user's own; None: those that are shipped."""
    attacker: AttackerTerms | None = None
    """Of ``karma``: the attacker that trains along; None: there is none."""
    cluster: Path | None = None
    """A capture whose cluster is learned on; None: what the shipped weights learned on."""
    algorithm: Algorithm = ""
    per: str = ""
    """A label of nodes: those of each value learn a network of their own; "": all share one."""


Trainer = Callable[[TrainRequest], None]


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """After a step of a run: where it stands, its scalars by name, and what a validation found, for people.

    ``validated`` is "" where no validation was due. ``saveable``: a checkpoint can be taken now.
    """

    step: int
    scalars: Mapping[str, float]
    validated: str = ""
    saveable: bool = True


class RunSettings(Protocol):
    """What decides a run."""

    @property
    def seed(self) -> int: ...

    def as_json(self) -> Mapping[str, Any]:
        """JSON values: what a checkpoint's digest is taken of."""
        ...


class TrainingRun(Protocol):
    """One seed's training and all its state. It does no I/O and shows nothing."""

    @property
    def unit(self) -> str:
        """What its steps are called."""
        ...

    @property
    def settings(self) -> RunSettings: ...

    @property
    def done(self) -> int:
        """Steps so far, of ``length``."""
        ...

    @property
    def length(self) -> int: ...

    @property
    def finished(self) -> bool: ...

    def run(self) -> Iterator[TrainingReport]:
        """Go on to the end; it may be stopped at any report."""
        ...

    def get_state(self) -> dict[str, Any]:
        """Everything but the settings, for a checkpoint."""
        ...

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        ...


R = TypeVar("R", bound=TrainingRun)
WarmUp = Callable[[R, str], Iterator[ImitationReport]]
"""Lets a run imitate a source before its first step."""


def check_seed(seed: int) -> None:
    """Raises ``ConfigError`` for a seed that figures are reported on."""
    if seed < FIRST_TRAINING_SEED:
        raise ConfigError(f"--seeds: {seed} is kept for validation and tests; train on {FIRST_TRAINING_SEED} or more")


def train_seeds(
    request: TrainRequest,
    starts: Sequence[Callable[[], R]],
    *,
    warm_up: WarmUp[R] | None = None,
    beside: bool = False,
) -> list[R]:
    """Every run at its end; what a checkpoint holds is taken over. ``beside``: seeds train in processes of their own.

    Raises ``ConfigError``: a checkpoint is of another run.
    """
    if beside and request.workers > 1 and len(starts) > 1:
        _train_beside([(request, start, warm_up) for start in starts])
    return [_train_seed(request, start, warm_up) for start in starts]


def trained_as(
    request: TrainRequest, run: TrainingRun, *, validation_seeds: Sequence[int], data: object, steps: int | None = None
) -> dict[str, Any]:
    """The entry ``trained`` of a card whose weights are those of ``run``. ``steps``: named in the command."""
    command = f"python -m lab.learner train {request.policy} --seeds {spelled_seeds(request.seeds)}"
    command += (f" --steps {steps}" if steps is not None else "") + " --out DIR"
    command += f" --warm-up {Path(request.warm_up).name}" if request.warm_up else ""
    command += f" --algorithm {request.algorithm}" if request.algorithm else ""
    command += f" --per {shlex.quote(request.per)}" if request.per else ""
    command += f" --reward {shlex.quote(request.reward)}" if request.reward else ""
    command += "".join(f" --signal {shlex.quote(signal)}" for signal in request.signals.signals)
    command += request.variant.flags() + (f" --trials {request.trials}" if request.trials else "")
    files = {"topology": request.topology, "trace": request.trace, "twin": request.twin, "cluster": request.cluster,
             "organisation": request.organisation}  # fmt: skip
    command += request.attacker.flags() if request.attacker is not None else ""
    command += "".join(f" --{name} {shlex.quote(file.name)}" for name, file in files.items() if file is not None)
    seeds = {"training": list(request.seeds), "chosen": run.settings.seed, "validation": list(validation_seeds)}
    return {"command": command, "seeds": seeds, "data": data, "settings": run.settings.as_json()}


def _train_seed(request: TrainRequest, start: Callable[[], R], warm_up: WarmUp[R] | None) -> R:
    run = start()
    seed = run.settings.seed
    path, digest = checkpoint_of(request.out, seed), settings_digest(run.settings.as_json())
    if path.exists():
        run.set_state(load_checkpoint(path, digest=digest))
    if run.finished:
        return run
    label = f"{request.policy} seed {seed}"
    with recording(request.out, seed, label=label, done=run.done, length=run.length) as record:
        if warm_up is not None and request.warm_up and not run.done:
            for taught in warm_up(run, request.warm_up):
                record.writer.add_scalar("warm_up/loss", taught.loss, taught.epoch)
                record.writer.add_scalar("warm_up/agreement", taught.agreement, taught.epoch)
            agreement = f"{taught.agreement:.1%} of the decisions held back"
            click.echo(f"{label}: agrees with {request.warm_up} in {agreement}", err=True)
        for report in run.run():
            record.note(report.step, report.scalars)
            if not report.validated:
                continue
            if not record.shown:
                click.echo(f"{label}: {report.step} of {run.length} {run.unit}, {report.validated}", err=True)
            if report.saveable:
                save_checkpoint(path, run.get_state(), digest=digest)
    return run


Job = tuple[TrainRequest, Callable[[], R], WarmUp[R] | None]


def _train_beside(jobs: list[Job[R]]) -> None:
    """Train each seed in a process of its own, ``workers`` at a time; what they reach lies in their checkpoints."""
    context = multiprocessing.get_context("spawn")
    waiting = [context.Process(target=_train_alone, args=job, daemon=True) for job in jobs]
    running: list[SpawnProcess] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs[0][0].workers:
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


def _train_alone(request: TrainRequest, start: Callable[[], R], warm_up: WarmUp[R] | None) -> None:
    end_with_parent()
    torch.set_num_threads(1)
    try:
        _train_seed(request, start, warm_up)
    except KeyboardInterrupt:
        sys.exit(130)
