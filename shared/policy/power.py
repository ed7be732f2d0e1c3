"""What a server draws at a given CPU utilisation.

The curves are published measurements (SPECpower_ssj2008), watts at 0, 10, ..., 100 % load, joined by straight lines, as
used by Beloglazov and Buyya, CCPE 24 (2012) 1397-1420. ``WATTS``: IBM x3550 M3, 2 x Xeon X5675, 12 cores, 16 GB, result
power_ssj2008-20110406-00368; idle it draws 26 % of its most. ``FLAT_WATTS``: HP ProLiant ML110 G5, Xeon 3075, 2 cores,
4 GB (table 2 there); idle it draws 69 %. They know CPU only, as SPECpower does: disks and networks cost nothing. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

WATTS = (58.4, 98, 109, 118, 128, 140, 153, 170, 189, 205, 222)
WATTS_CORES = 12
"""Of the server whose curve that is."""
FLAT_WATTS = (93.7, 97, 101, 105, 110, 116, 121, 125, 129, 133, 135)


def watts_at(utilisation: ArrayLike, curve: Sequence[float] = WATTS) -> NDArray[np.float64]:
    """Watts at each utilisation (1 is all of the CPU, above it a server draws no more), in the shape that came in.

    ``ValueError``: negative or not finite.
    """
    shares = np.asarray(utilisation, np.float64)
    if not np.isfinite(shares).all() or (shares < 0).any():
        raise ValueError("utilisation must be finite and not negative")
    found: NDArray[np.float64] = np.interp(shares, np.linspace(0.0, 1.0, len(curve)), curve)
    return found
