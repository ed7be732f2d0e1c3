"""The captured cluster that ``--cluster`` names: read, described for cards and checkpoints, and its holes told."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from lab.learner.training.runner import TrainRequest
from lab.reading import read_bytes
from lab.worlds.placement.captured_cluster import CapturedCluster, cluster_of
from shared.errors import ConfigError
from shared.policy.weights import WeightsFile, shipped
from twin.model.capture import MAX_BYTES, decode


@dataclass(frozen=True)
class Captured:
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


def captured(request: TrainRequest) -> Captured | None:
    """The cluster of the request; what is missing in its capture is told. None: it names none. Raises ``ConfigError``
    for a capture that cannot be learned from, and for options that do not go with it."""
    if request.cluster is None:
        return None
    if request.warm_up:
        raise ConfigError(
            "--warm-up: with --cluster training goes on from the shipped weights; leave one of the two out"
        )
    found = read_captured("--cluster", request.cluster)
    for line in found.cluster.told:
        click.echo(f"{found.name}: {line}", err=True)
    return found


def read_captured(flag: str, path: Path) -> Captured:
    """The cluster in a file that ``flag`` names. Raises ``ConfigError``."""
    data = read_bytes(flag, path, MAX_BYTES, "give a file of 'conclave twin capture'")
    name = f"{flag}: {path}"
    capture = decode(data, name)
    return Captured(cluster_of(capture, name), path.name, hashlib.sha256(data).hexdigest(), capture.started_at)


def tell_whether_shipped(found: WeightsFile) -> WeightsFile:
    """What a run on a captured cluster leaves; that it is what was shipped, where nothing better was found, is told."""
    ours = shipped(found.card.policy)
    if ours.arrays.keys() == found.arrays.keys() and all(
        np.array_equal(array, found.arrays[name]) for name, array in ours.arrays.items()
    ):
        click.echo(
            f"{ours.card.policy}: nothing better was found; the weights are those of {ours.title}, as shipped", err=True
        )
    return found
