"""The energy of a cluster over time; what a server draws stands in ``shared/model/power.py``. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from shared.model.power import FLAT_WATTS, WATTS
from shared.policy.power import watts_at

__all__ = ["FLAT_WATTS", "WATTS", "energy_wh", "watts_at"]

JOULES_PER_WH = 3600.0


def energy_wh(utilisation: ArrayLike, times_s: ArrayLike, *, empty: ArrayLike | None = None) -> float:
    """Watt-hours of a cluster. ``utilisation`` [nodes, times] of CPU; ``times_s`` ascending; trapezoids between them.

    ``empty`` bool [nodes, times]: nothing runs there and the server is off, drawing nothing. None: all stay on.
    """
    shares, moments = np.asarray(utilisation, np.float64), np.asarray(times_s, np.float64)
    if shares.ndim != 2 or moments.shape != shares.shape[1:] or (np.diff(moments) < 0).any():
        raise ValueError("utilisation must be [nodes, times], with one ascending time per column")
    watts = watts_at(shares)
    if empty is not None:
        watts = np.where(np.asarray(empty, np.bool_), 0.0, watts)
    return float(np.trapezoid(watts.sum(axis=0), moments) / JOULES_PER_WH)
