"""Learns the value of node states from episodes: which share of a node's idle GPU was still idle at the end.

Monte Carlo policy evaluation by least squares: waste = idle * sigmoid(mlp(features)) against the idle GPU that the
node ended with. Placing by the learned value is then the improved policy. Starting from FGD's episodes this is the
imitation step: the first value is that of FGD's own decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from shared.policy.frag.value import SIZES

Floats = NDArray[np.float64]

BATCH = 1024
LEARNING_RATE = 2e-3


@dataclass(frozen=True, slots=True)
class FragExperience:
    """``x`` float32 ``[rows, features]``, ``idle`` and ``end`` float32 ``[rows]`` in GPUs."""

    x: NDArray[np.float32]
    idle: NDArray[np.float32]
    end: NDArray[np.float32]


def concatenate(parts: list[FragExperience]) -> FragExperience:
    """All rows of ``parts``."""
    return FragExperience(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.idle for part in parts]),
        np.concatenate([part.end for part in parts]),
    )


def fit(seen: FragExperience, weights: Floats | None, *, updates: int, seed: int) -> tuple[Floats, float]:
    """Weights after ``updates`` steps of Adam, and the mean squared error over that of the mean.

    ``weights``: where to start, in the kernel's order (per layer w [in, out] by row, then b); None: torch's initial.
    """
    torch.manual_seed(seed)
    layers: list[torch.nn.Module] = []
    for index, (inputs, outputs) in enumerate(pairwise(SIZES)):
        layers += [torch.nn.Linear(inputs, outputs)] + ([torch.nn.ReLU()] if index < len(SIZES) - 2 else [])
    net = torch.nn.Sequential(*layers)
    linear = [layer for layer in layers if isinstance(layer, torch.nn.Linear)]
    if weights is not None:
        _load(linear, weights)
    x, idle, end = torch.from_numpy(seen.x), torch.from_numpy(seen.idle), torch.from_numpy(seen.end)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    for _ in range(updates):
        rows = torch.randint(len(x), (BATCH,))
        loss = ((torch.sigmoid(net(x[rows])[:, 0]) * idle[rows] - end[rows]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        error = ((torch.sigmoid(net(x)[:, 0]) * idle - end) ** 2).mean()
        relative = float(error / ((end - end.mean()) ** 2).mean())
    flat = [np.concatenate((layer.weight.detach().numpy().T.ravel(), layer.bias.detach().numpy())) for layer in linear]
    return np.concatenate(flat).astype(np.float64), relative


def arrays_of(weights: Floats) -> dict[str, NDArray[np.float32]]:
    """The weights file's arrays: ``l0.w`` [in, out], ``l0.b`` [out], ..."""
    arrays: dict[str, NDArray[np.float32]] = {}
    at = 0
    for index, (inputs, outputs) in enumerate(pairwise(SIZES)):
        arrays[f"l{index}.w"] = weights[at : at + inputs * outputs].reshape(inputs, outputs).astype(np.float32)
        at += inputs * outputs
        arrays[f"l{index}.b"] = weights[at : at + outputs].astype(np.float32)
        at += outputs
    return arrays


def scales_of(weights: Floats) -> Floats:
    """Per weight the root mean square of its layer's weights or biases: the unit in which the search moves it."""
    scales = np.ones_like(weights)
    at = 0
    for inputs, outputs in pairwise(SIZES):
        for size, least in ((inputs * outputs, 1e-3), (outputs, 0.05)):
            block = weights[at : at + size]
            scales[at : at + size] = max(least, float(np.sqrt((block**2).mean())))
            at += size
    return scales


def _load(linear: list[torch.nn.Linear], weights: Floats) -> None:
    arrays = arrays_of(weights)
    with torch.no_grad():
        for index, layer in enumerate(linear):
            layer.weight.copy_(torch.from_numpy(arrays[f"l{index}.w"].T.copy()))
            layer.bias.copy_(torch.from_numpy(arrays[f"l{index}.b"]))


def flat(arrays: Mapping[str, NDArray[np.float32]]) -> Floats:
    """The weights in the kernel's order; what ``arrays_of`` takes apart."""
    parts = [arrays[f"l{index}.{part}"].ravel() for index in range(len(SIZES) - 1) for part in "wb"]
    return np.concatenate(parts).astype(np.float64)
