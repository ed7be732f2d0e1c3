"""Teaches a set network recorded decisions before it learns from rewards: cross-entropy over the candidates.

The network's outputs are read as the logits of which candidate is taken (DL2, Peng et al., TPDS 2021, section 4.2). A
Q-network comes out ranking as its teacher does, not knowing values: these it learns afterwards, from a better start. A
share of the decisions is held back; agreement is measured there alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lab.algorithms.descent import TrainingDiverged
from lab.evaluation.decisions import RecordedDecisions
from shared.errors import ConfigError

KUBE_DEFAULT = "kube-default"
FEWEST = 20
"""Fewer decisions than this teach nothing that could be measured."""


@dataclass(frozen=True, slots=True)
class ImitationSettings:
    """How the warm-up is done."""

    learning_rate: float = 1e-3
    """Adam's step size."""
    batch_size: int = 64
    epochs: int = 20
    """Passes over all decisions; DL2 needed some hundreds of its own."""
    held_back: float = 0.2
    """Share of the decisions that agreement is measured on."""


@dataclass(frozen=True, slots=True)
class ImitationReport:
    """After a pass. ``agreement``: share of held back decisions in which the network's best candidate is one of the
    teacher's best."""

    epoch: int
    loss: float
    held_back_loss: float
    agreement: float


def imitate(
    network: nn.Module, decisions: RecordedDecisions, settings: ImitationSettings, rng: np.random.Generator
) -> Iterator[ImitationReport]:
    """Train ``network`` in place, a report per pass. ``forward(s, present)`` gives ``[batch, members]``.

    Raises ``ConfigError`` on too few decisions, ``TrainingDiverged`` on a loss that is not finite.
    """
    if len(decisions) < FEWEST:
        raise ConfigError(f"--warm-up: {len(decisions)} decisions are too few; give at least {FEWEST}")
    order = rng.permutation(len(decisions))
    back = max(1, int(len(order) * settings.held_back))
    held, taught = order[:back], order[back:]
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    for epoch in range(1, settings.epochs + 1):
        losses = []
        rng.shuffle(taught)
        for start in range(0, len(taught), settings.batch_size):
            loss, _ = _loss(network, decisions, taught[start : start + settings.batch_size])
            if not torch.isfinite(loss):
                raise TrainingDiverged("imitation: the loss is not finite; lower learning_rate or look at the features")
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimiser.step()
            losses.append(float(loss.detach()))
        with torch.no_grad():
            loss, agreement = _loss(network, decisions, held)
        yield ImitationReport(epoch, float(np.mean(losses)), float(loss), agreement)


def _loss(network: nn.Module, decisions: RecordedDecisions, rows: NDArray[np.int64]) -> tuple[Tensor, float]:
    """(mean cross-entropy, agreement) over ``rows``."""
    features = torch.from_numpy(decisions.features[rows])
    present = torch.from_numpy(decisions.present[rows])
    target = torch.from_numpy(decisions.target[rows])
    logits = network(features, present)
    assert logits.shape == present.shape, f"the network gives {tuple(logits.shape)}, not [batch, members]"
    logits = logits.masked_fill(~present, -torch.inf)
    spread = torch.log_softmax(logits, dim=1).masked_fill(~present, 0.0)
    loss = -(target * spread).sum(dim=1).mean()
    taken = logits.detach().argmax(dim=1, keepdim=True)
    return loss, float((target.gather(1, taken) > 0).float().mean())


def spelled(source: str) -> str:
    """``source`` as settings keep it: a file by its digest, so that a checkpoint knows what it was taught.

    Raises ``ConfigError`` for a file that cannot be read.
    """
    return source if source == KUBE_DEFAULT else f"sha256:{hashlib.sha256(read_source(source)).hexdigest()}"


def read_source(source: str) -> bytes:
    """The bytes of a twin file. Raises ``ConfigError`` when it cannot be read."""
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise ConfigError(f"--warm-up: {source}: {error.strerror}; give a file of 'conclave twin capture'") from None


def scale_to(spread: float, values: Tensor, present: Tensor) -> float:
    """What ``values`` [decisions, members] must be multiplied by for a mean deviation of ``spread`` within a decision.

    Logits are of another size than values; gradient steps would first have to take them down, and the ranking is lost
    on the way (docs/policies/README.md has the figures). A factor keeps it.
    """
    shown = values.masked_fill(~present, torch.nan)
    deviation = float((shown - shown.nanmean(dim=1, keepdim=True)).square().nanmean(dim=1).sqrt().mean())
    return spread / deviation if deviation > 0 else 1.0
