"""The measured tables of training models, read from the user's files: the project ships none of them.

Two files in the form of the condensed Pollux traces (OSDI 2021 artifact, Apache-2.0): step times by placement and local
batch, and one row per epoch of training runs at several global batches. What a model must have, and what one line says
where it lacks it: one worker alone, every figure a positive number, runs whose progress rises.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import isfinite

from lab.traces.cells import Cell, rows
from lab.worlds.training.convergence import Convergence, MeasuredRun
from lab.worlds.training.models import TrainingModel
from lab.worlds.training.step_times import Curve, Placement, StepTimes
from shared.errors import ConfigError

THROUGHPUT_FILE = "pollux_throughput_all_placements.csv"
CONVERGENCE_FILE = "pollux_validation.csv"
PLACED = "gpus_per_node"
THROUGHPUT_COLUMNS = ("model", "num_replicas", "num_nodes", PLACED, "local_bsz", "step_time_s", "sync_time_s")
CONVERGENCE_COLUMNS = ("model", "global_batch_size", "progress", "grad_sqr", "grad_var")

MOST_LOCAL: Mapping[str, int] = {"yolov3": 8}
"""Samples on one GPU at a time, where it is less than was measured (Pollux' ``applications.py``)."""
ALONE: Mapping[str, int] = {"ncf": 32768}
"""Models that stay on one GPU, and the batch they get where policies choose batches (Pollux' ``simulator.py``)."""
MOST_WORKERS = 4096

Models = Mapping[str, TrainingModel]


@lru_cache(maxsize=2)
def read_models(throughput: str, convergence: str) -> Models:
    """The models of both files, given as text. ``ConfigError``: a cell, or what a model lacks."""
    curves = _step_times(throughput)
    runs = _runs(convergence)
    found: dict[str, TrainingModel] = {}
    for name in sorted(curves.keys() & runs.keys()):
        placed, shaped = curves[name]
        if (1,) not in placed:
            raise ConfigError(f"{THROUGHPUT_FILE}: {name} has no row for one worker alone; measure it")
        try:
            made = Convergence.of([(batch, run) for batch, run in runs[name].items()])
        except ValueError as error:
            raise ConfigError(f"{CONVERGENCE_FILE}: {name}: {error}; give every run's epochs in order") from None
        local = [one for curve in placed.values() for one in curve.local]
        most = min(int(max(local)), MOST_LOCAL.get(name, int(max(local))))
        found[name] = TrainingModel(
            name,
            StepTimes.of(placed, shaped),
            made,
            (int(min(local)), most),
            alone=name in ALONE,
            adapted_batch=ALONE.get(name),
        )
    if not found:
        raise ConfigError(f"{THROUGHPUT_FILE}, {CONVERGENCE_FILE}: no model in common; give files that belong together")
    return found


def model_of(models: Models, cell: Cell) -> TrainingModel:
    """The model that a workload's cell names. ``ConfigError``: there is no table of it."""
    if cell.text.strip() not in models:
        raise cell.bad(f"no such model in the tables; they have {', '.join(models)}")
    return models[cell.text.strip()]


def _step_times(text: str) -> dict[str, tuple[dict[Placement, Curve], dict[tuple[int, int], Curve]]]:
    """By model: the curves by placement, and those by (nodes, workers) alone."""
    placed: dict[tuple[str, Placement], list[tuple[float, float, float]]] = {}
    shaped: dict[tuple[str, tuple[int, int]], list[tuple[float, float, float]]] = {}
    for row in rows(text, THROUGHPUT_FILE, THROUGHPUT_COLUMNS):
        point = (
            positive(row["local_bsz"]),
            positive(row["step_time_s"]),
            min(positive(row["sync_time_s"], least=0.0), positive(row["step_time_s"])),
        )
        model, shape = row["model"].mark(), (count(row["num_nodes"]), count(row["num_replicas"]))
        if row[PLACED].text.strip():
            placement = _placement(row[PLACED], shape)
            placed.setdefault((model, placement), []).append(point)
        else:
            shaped.setdefault((model, shape), []).append(point)
    found: dict[str, tuple[dict[Placement, Curve], dict[tuple[int, int], Curve]]] = {}
    for (model, placement), points in placed.items():
        found.setdefault(model, ({}, {}))[0][placement] = _curve(points, f"{model} on {'+'.join(map(str, placement))}")
    for (model, shape), points in shaped.items():
        what = f"{model} with {shape[1]} workers on {shape[0]} nodes"
        found.setdefault(model, ({}, {}))[1][shape] = _curve(points, what)
    return found


def _curve(points: list[tuple[float, float, float]], what: str) -> Curve:
    local = [point[0] for point in points]
    twice = next((one for one in local if local.count(one) > 1), None)
    if twice is not None:
        raise ConfigError(f"{THROUGHPUT_FILE}: {what}: local_bsz {twice:g} is there twice; leave one row out")
    return Curve.of(points)


def _placement(cell: Cell, shape: tuple[int, int]) -> Placement:
    parts = cell.text.strip().split("+")
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= MOST_WORKERS for part in parts):
        raise cell.bad("give workers per node with + between, as in 2+1+1")
    placement = tuple(map(int, parts))
    if (len(placement), sum(placement)) != shape:
        raise cell.bad(f"these are not {shape[1]} workers on {shape[0]} nodes, as num_replicas and num_nodes say")
    return placement


def _runs(text: str) -> dict[str, dict[int, MeasuredRun]]:
    """By model and global batch."""
    points: dict[str, dict[int, list[tuple[float, float, float]]]] = {}
    for row in rows(text, CONVERGENCE_FILE, CONVERGENCE_COLUMNS):
        point = (
            positive(row["progress"]),
            positive(row["grad_sqr"], least=0.0),
            positive(row["grad_var"], least=0.0),
        )
        points.setdefault(row["model"].mark(), {}).setdefault(count(row["global_batch_size"], 2**31), []).append(point)
    return {
        model: {
            batch: MeasuredRun(*(tuple(column) for column in zip(*run, strict=True))) for batch, run in runs.items()
        }
        for model, runs in points.items()
    }


def positive(cell: Cell, least: float | None = None) -> float:
    """A finite number above 0, or from ``least`` on."""
    try:
        value = float(cell.text)
    except ValueError:
        value = float("nan")
    if not isfinite(value) or (value <= 0.0 if least is None else value < least):
        wanted = "a number above 0" if least is None else f"a number from {least:g} on"
        raise cell.bad(f"a hole in the table; give {wanted}")
    return value


def count(cell: Cell, highest: int = MOST_WORKERS) -> int:
    """A whole number from 1 on."""
    found = cell.number(highest)
    if found < 1:
        raise cell.bad("give a whole number from 1 on")
    return found
