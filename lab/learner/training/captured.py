"""The captured cluster that ``--cluster`` names: read, described for cards and checkpoints, and its holes told."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
import numpy as np

from lab.learner.training.run_files import write_weights
from lab.learner.training.runner import TrainRequest
from lab.reading import read_bytes
from lab.worlds.placement.captured_cluster import CapturedCluster, cluster_of
from shared.errors import ConfigError
from shared.policy.weights import Shapes, WeightsFile, shipped
from shared.wire.packed import MAX_BYTES
from twin.model.capture import decode


@dataclass(frozen=True)
class CapturedFile:
    """``name``, ``sha256``: of the file; ``started_at``: when its capture began."""

    cluster: CapturedCluster
    name: str
    sha256: str
    started_at: str

    @property
    def digest(self) -> str:
        """As settings keep it, so that a checkpoint knows where it learned."""
        return f"sha256:{self.sha256}"

    @property
    def limit(self) -> str:
        """What weights that learned here were not trained for."""
        return f"trained on the cluster of {self.name}; another, or this one after its pods have changed, was not seen"

    def describe(self) -> dict[str, object]:
        """For the card."""
        return {
            "capture": self.name, "sha256": self.sha256, "started at": self.started_at, **self.cluster.describe(),
        }  # fmt: skip


def captured(request: TrainRequest) -> CapturedFile | None:
    """The cluster of the request; what is missing in its capture is told. None: it names none. Raises ``ConfigError``
    for a capture that cannot be learned from, and for options that do not go with it."""
    if request.cluster is None:
        return None
    if request.warm_up:
        raise ConfigError("--warm-up: with --cluster nothing is imitated first; leave one of the two out")
    found = read_captured("--cluster", request.cluster)
    for line in found.cluster.told:
        click.echo(f"{found.name}: {line}", err=True)
    return found


def read_captured(flag: str, path: Path) -> CapturedFile:
    """The cluster in a file that ``flag`` names. Raises ``ConfigError``."""
    data = read_bytes(flag, path, MAX_BYTES, "give a file of 'conclave twin capture'")
    name = f"{flag}: {path}"
    capture = decode(data, name)
    return CapturedFile(cluster_of(capture, name), path.name, hashlib.sha256(data).hexdigest(), capture.started_at)


LEAST_GAIN = 0.01
"""Share of its cost on the days held back by which what was learned is better, before it takes the place of what was
shipped."""


def clearly_better(before: Sequence[float], after: Sequence[float], least: float = LEAST_GAIN) -> bool:
    """Whether costs of the same episodes fell: in the mean by ``least``, and by more than the mean's standard error.
    Not, where a cost is not finite, nor of one episode, whose error nobody knows.

    The error is that of these episodes: where ``after`` is the best of several on the same ones, or where episodes have
    pods in common, chance passes more often than it says."""
    gains = np.array(before, np.float64) - np.array(after, np.float64)
    if len(gains) < 2 or not np.isfinite(gains).all():
        return False
    mean, error = float(gains.mean()), float(gains.std(ddof=1)) / np.sqrt(len(gains))
    return bool(mean > error and mean >= least * float(np.mean(before)))


def kept(found: WeightsFile, before: Sequence[float], after: Sequence[float], cost: str) -> WeightsFile:
    """What a run on a captured cluster leaves: ``found``, where it is clearly better on the days held back than what
    was shipped, else that, and then it is told: by the card too, which says what the shipped weights cost and where
    they were compared. ``before``, ``after``: what the shipped weights and those found cost, by episode; ``cost``:
    of what."""
    ours = shipped(found.card.policy)
    if clearly_better(before, after):
        return found
    click.echo(
        f"{ours.card.policy}: nothing clearly better was found; the weights are those of {ours.title}, as shipped",
        err=True,
    )
    compared = {name: found.card.trained[name] for name in ("command", "data") if name in found.card.trained}
    card = msgspec.structs.replace(
        ours.card,
        version=found.card.version,
        trained={**ours.card.trained, "compared on": compared},
        figures={f"{cost}, shipped weights": round(float(np.mean(before)), 5)},
    )
    return WeightsFile(dict(ours.arrays), card)


def write_kept(
    out: Path,
    found: WeightsFile,
    before: Sequence[float],
    after: Sequence[float],
    cost: str,
    *,
    expect_shapes: Shapes | None = None,
) -> None:
    """``kept`` to ``out``; the last line says what the weights in the file cost, whichever they are."""
    left = kept(found, before, after, cost)
    file = write_weights(out, left, expect_shapes=expect_shapes)
    worth, ours = (float(np.mean(costs)) for costs in (after if left is found else before, before))
    click.echo(f"{found.card.policy}: {cost} {worth:.5f}, shipped {ours:.5f}; weights in {file}")
