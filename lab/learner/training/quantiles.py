"""Quantile regression, for learners of the return's distribution (QR-DQN). Source: Dabney et al. 2018."""

from __future__ import annotations

import torch
from torch import Tensor, nn

QUANTILES = 21


def quantile_loss(chosen: Tensor, wanted: Tensor) -> Tensor:
    """The quantile Huber loss of ``[batch, quantiles]`` each, summed over the quantiles of ``chosen`` and averaged over
    those of ``wanted``."""
    error = wanted[:, None, :] - chosen[:, :, None]
    size = nn.functional.huber_loss(
        chosen[:, :, None].expand_as(error), wanted[:, None, :].expand_as(error), reduction="none"
    )
    middle = (torch.arange(chosen.shape[1]) + 0.5) / chosen.shape[1]
    weight = (middle[None, :, None] - (error.detach() < 0).float()).abs()
    return (weight * size).sum(dim=1).mean()
