"""What servers draw at a given CPU utilisation, and the energy of a cluster over time.

Curves are published measurements, watts at 0, 10, ..., 100 % load, joined by straight lines. Sources:

- ``ibm-x3550-m3``: 2 x Xeon X5675, 12 cores, 16 GB, SPECpower_ssj2008 result power_ssj2008-20110406-00368.
- ``hp-ml110-g5``: Xeon 3075, 2 cores, 4 GB, SPECpower_ssj2008 result power_ssj2008-20110124-00339.

Both as used by Beloglazov and Buyya, CCPE 24 (2012) 1397-1420. ``linear`` is the model of Fan, Weber and Barroso, ISCA
2007: idle + (busy - idle) * utilisation. The model knows CPU only, as SPECpower does: disks and networks cost nothing.
It refuses utilisation that is negative or not finite; above 1 a server draws what it draws at full load. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shared.errors import ConfigError

Array = NDArray[np.float64]

JOULES_PER_WH = 3600.0


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """``watts[i]`` at utilisation ``i / (len(watts) - 1)``."""

    name: str
    watts: tuple[float, ...]

    def at(self, utilisation: ArrayLike) -> Array:
        """Watts at each utilisation (1 is all of the CPU), in the shape that came in. ``ValueError``: not a share."""
        shares = np.asarray(utilisation, np.float64)
        if not np.isfinite(shares).all() or (shares < 0).any():
            raise ValueError("utilisation must be finite and not negative")
        found: Array = np.interp(shares, np.linspace(0.0, 1.0, len(self.watts)), self.watts)
        return found


def linear(idle_watts: float, busy_watts: float, *, name: str = "linear") -> PowerCurve:
    """The model of Fan et al. 2007. ``ConfigError``: negative, or less at full load than idle."""
    if not 0 <= idle_watts <= busy_watts < float("inf"):
        raise ConfigError(f"power: {idle_watts:g} W idle, {busy_watts:g} W busy; give 0 <= idle <= busy")
    return PowerCurve(name, (idle_watts, busy_watts))


CURVES: Mapping[str, PowerCurve] = {
    curve.name: curve
    for curve in (
        PowerCurve("ibm-x3550-m3", (58.4, 98, 109, 118, 128, 140, 153, 170, 189, 205, 222)),
        PowerCurve("hp-ml110-g5", (93.7, 97, 101, 105, 110, 116, 121, 125, 129, 133, 135)),
    )
}
DEFAULT_CURVE = CURVES["ibm-x3550-m3"]


def energy_wh(
    utilisation: ArrayLike, times_s: ArrayLike, curve: PowerCurve = DEFAULT_CURVE, *, empty: ArrayLike | None = None
) -> float:
    """Watt-hours of a cluster. ``utilisation`` [nodes, times] of CPU; ``times_s`` ascending; trapezoids between them.

    ``empty`` bool [nodes, times]: nothing runs there and the server is off, drawing nothing. None: all stay on.
    """
    shares, moments = np.asarray(utilisation, np.float64), np.asarray(times_s, np.float64)
    if shares.ndim != 2 or moments.shape != shares.shape[1:] or (np.diff(moments) < 0).any():
        raise ValueError("utilisation must be [nodes, times], with one ascending time per column")
    watts = curve.at(shares)
    if empty is not None:
        watts = np.where(np.asarray(empty, np.bool_), 0.0, watts)
    return float(np.trapezoid(watts.sum(axis=0), moments) / JOULES_PER_WH)
