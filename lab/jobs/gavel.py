"""Gavel's measured speeds (OSDI 2020, artifact, MIT) by GPU type, and of two jobs that share a GPU.

Pollux' tables are of one GPU type, T4. How a model runs on another type is taken from the Gavel model that is most like
it (``LIKE``), beside its speed on a P100, which is near a T4 in training: both are assumptions, and told as such. Types
with ``_unconsolidated`` are of workers over several nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lab.jobs.tables import count, positive
from lab.traces.cells import Cell, rows
from lab.worlds.training.speed import of_model
from shared.errors import ConfigError

ISOLATED_FILE = "gavel_throughputs_isolated.csv"
COLOCATED_FILE = "gavel_throughputs_colocated.csv"
LIKE: Mapping[str, str] = {
    "bert": "Transformer (batch size 64)",
    "cifar10": "ResNet-18 (batch size 128)",
    "deepspeech2": "LM (batch size 20)",
    "imagenet": "ResNet-50 (batch size 64)",
    "ncf": "Recommendation (batch size 8192)",
    "yolov3": "CycleGAN",
}
"""By model of Pollux' tables. A3C is like none of them."""
BASE = "p100"


@dataclass(frozen=True)
class Isolated:
    """``steps_per_s`` of a whole job by (GPU type, model, workers)."""

    steps_per_s: Mapping[tuple[str, str, int], float]

    @classmethod
    def parse(cls, text: str) -> Isolated:
        """``ConfigError``: a cell that cannot be read."""
        found = {}
        for row in rows(text, ISOLATED_FILE, ("gpu_type", "model", "scale_factor_workers", "steps_per_s")):
            steps_per_s = positive(row["steps_per_s"], least=0.0)
            if steps_per_s:  # 0: out of memory, as in the co-located table
                found[row["gpu_type"].mark(), _model(row["model"]), count(row["scale_factor_workers"])] = steps_per_s
        return cls(found)

    @property
    def types(self) -> frozenset[str]:
        """GPU types that were measured."""
        return frozenset(kind for kind, _, _ in self.steps_per_s if not kind.endswith("_unconsolidated"))

    def beside(self, model: str, gpu_type: str, base: str = BASE) -> float:
        """How fast ``model`` is on one GPU of the type, beside one of ``base``. ``ConfigError``: not measured."""
        pair = [self.steps_per_s.get((kind, model, 1)) for kind in (gpu_type, base)]
        if not pair[0] or not pair[1]:
            missing = gpu_type if not pair[0] else base
            raise ConfigError(f"{ISOLATED_FILE}: no row of one worker for {model} on {missing}; give another table")
        return pair[0] / pair[1]

    def factors(self, gpu_types: frozenset[str], base: str = BASE) -> dict[str, float]:
        """What ``Settings.gpu_types`` takes: by model and type, for those of ``gpu_types`` that were measured."""
        return {
            of_model(ours, kind): self.beside(theirs, kind, base)
            for kind in sorted(gpu_types & self.types)
            for ours, theirs in LIKE.items()
        }


@dataclass(frozen=True)
class Colocated:
    """Steps per second of two jobs on the same GPUs, by (GPU type, one, workers, other, workers). Training here gives
    whole GPUs, so this is for policies that would share them; 0.0: together they do not fit."""

    steps_per_s: Mapping[tuple[str, str, int, str, int], tuple[float, float]]

    @classmethod
    def parse(cls, text: str) -> Colocated:
        """``ConfigError``: a cell that cannot be read."""
        columns = ("gpu_type", "model_a", "workers_a", "model_b", "workers_b", "steps_per_s_a", "steps_per_s_b")
        found = {}
        for row in rows(text, COLOCATED_FILE, columns):
            key = (
                row["gpu_type"].mark(),
                _model(row["model_a"]),
                count(row["workers_a"]),
                _model(row["model_b"]),
                count(row["workers_b"]),
            )
            found[key] = (positive(row["steps_per_s_a"], least=0.0), positive(row["steps_per_s_b"], least=0.0))
        return cls(found)

    def kept(self, isolated: Isolated, gpu_type: str, one: str, other: str, workers: int = 1) -> tuple[float, float]:
        """The share of its own speed that each keeps beside the other. ``ConfigError``: the pair was not measured."""
        pair = self.steps_per_s.get((gpu_type, one, workers, other, workers))
        if pair is None:
            turned = self.steps_per_s.get((gpu_type, other, workers, one, workers))
            pair = None if turned is None else turned[::-1]
        alone = [isolated.steps_per_s.get((gpu_type, model, workers)) for model in (one, other)]
        if pair is None or not alone[0] or not alone[1]:
            raise ConfigError(f"{COLOCATED_FILE}: no row for {one} beside {other} on {gpu_type}; give another table")
        return pair[0] / alone[0], pair[1] / alone[1]


def _model(cell: Cell) -> str:
    text = cell.text.strip()
    if not text or len(text) > 128 or not text.isprintable():
        raise cell.bad("give the model's name")
    return text
