"""Trains ``frag`` over some seeds: reads the openb lists, and writes the card of the best validated weights."""

from __future__ import annotations

import os
from functools import partial
from math import inf
from pathlib import Path

import click

from lab.learner.frag.captured import lists_of
from lab.learner.frag.fit import arrays_of
from lab.learner.frag.kernel_value import NUMBA
from lab.learner.frag.training import STEPS, VALIDATION_SEEDS, FragRun, FragSettings, shipped_weights
from lab.learner.training.captured import CapturedFile, captured, write_kept
from lab.learner.training.run_files import write_weights
from lab.learner.training.runner import TrainRequest, train_seeds, trained_as
from lab.traces.gpu_trace import parse_gpu_nodes, parse_gpu_pods
from shared.errors import ConfigError
from shared.policy.frag.features import FEATURES
from shared.policy.frag.value import FRAGMENT_PRICE, MODEL_PRICE, NAME, PRICE_SEEDS, SHAPES
from shared.policy.rehearsal.submission import GpuNodes, GpuPods
from shared.policy.weights import Card, WeightsFile, shipped

VERSION = 2
CLUSTER_STEPS, CLUSTER_EPISODES, CLUSTER_UPDATES = 50, 18, 2000
"""Of a captured cluster, which is smaller than openb: steps of the search, episodes and updates of a round."""
COST = "percent of the GPUs that nobody holds, days held back"
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
    found = captured(request)
    if request.warm_up:
        raise ConfigError(f"--warm-up: {request.policy} always begins with FGD's episodes; leave it out")
    if found is None:
        settings = [FragSettings(seed, request.steps or STEPS) for seed in request.seeds]
        nodes, lists = read_lists(data_folder())
        held_back = None
    else:
        settings = [
            FragSettings(
                seed,
                request.steps or CLUSTER_STEPS,
                episodes=CLUSTER_EPISODES,
                updates=CLUSTER_UPDATES,
                cluster=found.digest,
            )
            for seed in request.seeds
        ]
        nodes, pods, held_back = lists_of(found.cluster, f"--cluster: {found.name}")
        lists = {"default": pods}
    if not NUMBA:
        click.echo(
            "frag: numba is not installed; training runs some hundred times slower (pip install numba)", err=True
        )
    starts = [partial(FragRun, nodes, lists, one, held_back) for one in settings]
    finished = train_seeds(request, starts)
    best = max(finished, key=lambda run: run.best_validation.gain if run.best_validation else -inf)
    write_best(request, best, found)


def write_best(request: TrainRequest, run: FragRun, found: CapturedFile | None = None) -> None:
    """``frag.npz`` and ``frag.json`` with the best validated weights of ``run``."""
    assert run.best is not None
    assert run.best_validation is not None
    gain, steps = run.best_validation.gain, run.done
    data: object = [NODE_LIST, *(POD_LIST.format(name) for name in TRACES)] if found is None else found.describe()
    trained = trained_as(request, run, validation_seeds=VALIDATION_SEEDS, data=data, steps=steps)
    trained["settings"] |= {"steps": steps, "chosen at step": run.best_step}
    trained["prices"] = {"fragment": FRAGMENT_PRICE, "model": MODEL_PRICE, "chosen on seeds": list(PRICE_SEEDS)}
    figures = run.shipped_figures()
    told = {
        "validation, percent of GPUs allocated at 130 % demand": {
            name: round(late, 2) for name, (late, _) in figures.items()
        },
        "validation, percent allocated when 100 % had been asked for": {
            name: round(early, 2) for name, (_, early) in figures.items()
        },
        "validation before prices, mean gain over FGD in points": round(gain, 3),
    }
    if found is not None:
        told["validation before prices, gain of the shipped weights"] = round(run.validate(shipped_weights()).gain, 3)
    card = Card(
        policy=NAME,
        version=VERSION if found is None else shipped(NAME).card.version + 1,
        features=list(FEATURES),
        trained=trained,
        figures=told,
        limits=LIMITS if found is None else [found.limit, *LIMITS[1:]],
    )
    weights = WeightsFile(arrays_of(run.best), card)
    if found is not None:
        before, after = run.costs(shipped_weights()), run.costs(run.best)
        write_kept(request.out, weights, before, after, COST, expect_shapes=SHAPES)
        return
    file = write_weights(request.out, weights, expect_shapes=SHAPES)
    click.echo(f"{NAME}: step {run.best_step}, {gain:+.3f} points over FGD on validation -> {file}")


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
