"""Runs the training of ``frag``: reads the openb lists, checkpoints, TensorBoard, progress, weights and card.

The thin shell around ``FragRun``. In ``out`` it keeps ``seed-N.ckpt`` (written whole, after every validation),
``curves-N.jsonl`` for the report, ``logs/seed-N`` (TensorBoard; the same scalars), and at the end ``frag.npz`` with the
best validated weights and ``frag.json``, the card. Scalars, against steps of the search (rounds of policy iteration
are 0 and below): ``train/relative_error`` (squared error of the value over its variance), ``train/pair_difference``
(mean difference within an antithetic pair, percentage points), ``validation/gain`` and ``validation/least_gain`` (over
FGD on the same seeds, points, mean and least over traces), ``validation/<trace>`` (allocated percent).
"""

from __future__ import annotations

import os
from math import inf
from pathlib import Path

import click

from services.learner.frag.fit import arrays_of
from services.learner.frag.training import FIRST_SEED, VALIDATION_SEEDS, FragRun, Report, Settings
from services.learner.training.checkpoint import load_checkpoint, save_checkpoint, settings_digest
from services.learner.training.compiled import NUMBA
from services.learner.training.request import TrainRequest
from services.learner.training.run_files import checkpoint_of, open_folder, recording, write_weights
from shared.errors import ConfigError
from shared.experiments.traces.gpu_trace import GpuNodes, GpuPods, parse_gpu_nodes, parse_gpu_pods
from shared.policy.frag.features import FEATURES
from shared.policy.frag.value import FRAGMENT_PRICE, MODEL_PRICE, NAME, PRICE_SEEDS, SHAPES
from shared.policy.weights import Card, WeightsFile

VERSION = 2
NODE_LIST = "openb_node_list_gpu_node.csv"
POD_LIST = "openb_pod_list_{}.csv"
TRACES = ("default", "multigpu20", "gpushare40", "gpuspec10", "cpu050", "cpu200")
LIMITS = [
    "trained on openb's machines and requests; other machines rest on features that are relative to the demand",
    "no pod departs in training: value is what will be left when the cluster is full",
    "sees CPU, memory and GPU devices; nothing else about a node",
]


def train_frag(request: TrainRequest) -> None:
    """Train one run per seed and write the best. Raises ``ConfigError`` on what cannot be used."""
    if request.warm_up is not None:
        raise ConfigError(f"--warm-up: {request.policy} always begins with FGD's episodes; leave it out")
    seeds, out = request.seeds or (FIRST_SEED,), request.out
    if min(seeds) < FIRST_SEED:
        raise ConfigError(f"--seeds: {min(seeds)} is kept for choosing and reporting; train on {FIRST_SEED} and above")
    open_folder(out, seeds, resume=request.resume)
    nodes, lists = read_lists(data_folder())
    if not NUMBA:
        click.echo(
            "frag: numba is not installed; training runs some hundred times slower (pip install numba)", err=True
        )
    finished: list[FragRun] = []
    for seed in seeds:
        path = checkpoint_of(out, seed)
        settings = Settings(seed=seed) if request.steps is None else Settings(seed=seed, steps=request.steps)
        run, digest = FragRun(nodes, lists, settings), settings_digest(settings.as_json())
        if path.exists():
            run.set_state(load_checkpoint(path, digest=digest))
        _run(run, out, path, digest)
        finished.append(run)
    write_best(max(finished, key=_gain), seeds, out)


def _gain(run: FragRun) -> float:
    return run.best_validation.gain if run.best_validation is not None else -inf


def write_best(run: FragRun, seeds: tuple[int, ...], out: Path) -> None:
    """``frag.npz`` and ``frag.json`` with the best validated weights of ``run``."""
    assert run.best is not None
    assert run.best_validation is not None
    found, figures = run.best_validation, run.shipped_figures()
    steps = run.search.steps if run.search is not None else 0
    card = Card(
        policy=NAME,
        version=VERSION,
        features=list(FEATURES),
        trained={
            "command": f"python -m services.learner train {NAME} --seeds {','.join(map(str, seeds))}"
            f" --steps {steps} --out DIR",
            "seeds": {"training": list(seeds), "chosen": run.settings.seed, "validation": list(VALIDATION_SEEDS)},
            "data": [NODE_LIST, *(POD_LIST.format(name) for name in TRACES)],
            "settings": {**run.settings.as_json(), "steps": steps, "chosen at step": run.best_step},
            "prices": {"fragment": FRAGMENT_PRICE, "model": MODEL_PRICE, "chosen on seeds": list(PRICE_SEEDS)},
        },
        figures={
            "validation, percent of GPUs allocated at 130 % demand": {
                name: round(late, 2) for name, (late, _) in figures.items()
            },
            "validation, percent allocated when 100 % had been asked for": {
                name: round(early, 2) for name, (_, early) in figures.items()
            },
            "validation before prices, mean gain over FGD in points": round(found.gain, 3),
        },
        limits=LIMITS,
    )
    file = write_weights(out, WeightsFile(arrays_of(run.best), card), expect_shapes=SHAPES)
    click.echo(f"{NAME}: step {run.best_step}, {found.gain:+.3f} points over FGD on validation -> {file}")


def data_folder() -> Path:
    """Where the openb lists lie: $CONCLAVE_SHARED/data/openb, default beside the project."""
    return Path(os.environ.get("CONCLAVE_SHARED", "../shared")) / "data" / "openb"


def read_lists(folder: Path) -> tuple[GpuNodes, dict[str, GpuPods]]:
    """The node list and the pod lists that training knows. ``ConfigError`` naming a file that is missing."""
    nodes = parse_gpu_nodes(_text(folder / NODE_LIST), NODE_LIST)
    files = {name: POD_LIST.format(name) for name in TRACES}
    return nodes, {name: parse_gpu_pods(_text(folder / file), file, nodes) for name, file in files.items()}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"training data: {file}: {error.strerror}; set CONCLAVE_SHARED to the folder that holds data/openb"
        ) from None


def _run(run: FragRun, out: Path, path: Path, digest: str) -> None:
    done, seed = run.search.steps if run.search is not None else 0, run.settings.seed
    with recording(out, seed, label=NAME, done=done, length=run.settings.steps) as record:
        for report in run.run():
            record.note(report.step, _scalars(report))
            if report.validation is None:
                continue
            if not record.shown:
                told = f"{NAME}: step {report.step} of {run.settings.steps}"
                click.echo(f"{told}, {report.validation.gain:+.3f} points over FGD on validation", err=True)
            if run.search is not None:
                save_checkpoint(path, run.get_state(), digest=digest)


def _scalars(report: Report) -> dict[str, float]:
    scalars = dict(report.scalars)
    if report.validation is not None:
        scalars["validation/gain"] = report.validation.gain
        scalars["validation/least_gain"] = report.validation.least_gain
        scalars.update({f"validation/{name}": value for name, value in report.validation.by_trace.items()})
    return scalars
