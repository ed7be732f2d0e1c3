"""How strong the mixed scenario is: HPA, with the best of a grid of settings, answers 65 % of the requests well.

``python -m lab.autoscaling.calibration`` prints the file that is frozen beside the scenarios
(``calibrated.json``). It runs on validation seeds alone and knows no policy but HPA. Every setting of the grid is first
played on a few seeds, and the best go on; then the strength is bisected on more, until the best setting's success is
close enough.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lab.autoscaling.episode import Setup, play
from lab.worlds.services.scenarios import Calibration
from lab.worlds.services.topology import ServiceGraph, default_topology
from shared.autoscaling.registry import make_policy

TARGETS = (30, 40, 50, 60, 70, 80)
DOWN_WINDOWS_S = (60, 300)
SEEDS = tuple(range(140, 180))
FEW_SEEDS, FIRST_STRENGTH, GO_ON = tuple(range(120, 130)), 0.8, 4
WANTED, CLOSE = 65.0, 0.5
TRIES = 8
COMMAND = "python -m lab.autoscaling.calibration"


def grid() -> list[dict[str, Any]]:
    """Every setting of HPA that is tried: targets of cpu, and how long it waits before it scales down; scaling up as by
    default, and faster."""
    faster = {"scaleUp": {"policies": [{"type": "Pods", "value": 10, "periodSeconds": 15}]}}
    return [
        {"target": target, "down_window_s": window, **({"behavior": behavior} if behavior else {})}
        for target in TARGETS
        for window in DOWN_WINDOWS_S
        for behavior in (None, faster)
    ]


def success(topology: ServiceGraph, settings: Mapping[str, Any], intensity: float, seeds: Sequence[int]) -> float:
    """Mean over seeds of HPA's success on the mixed scenario, percent."""
    setup, policy = Setup(topology, "mixed", intensity), make_policy("hpa", settings)
    return float(np.mean([play(setup, policy, seed).figures["success"] for seed in seeds]))


def shortlist(topology: ServiceGraph) -> list[dict[str, Any]]:
    """The best settings of the grid at the first strength, the best first."""
    found = [(success(topology, settings, FIRST_STRENGTH, FEW_SEEDS), at) for at, settings in enumerate(grid())]
    return [grid()[at] for _, at in sorted(found, reverse=True)[:GO_ON]]


def calibrate(
    topology: ServiceGraph, *, seeds: Sequence[int] = SEEDS, tell: Callable[[str], object] = len
) -> Calibration:
    """The strength between 0.2 and 1.4 at which the best of the grid succeeds in 65 %."""
    settings = shortlist(topology)
    tell(f"the best of the grid at {FIRST_STRENGTH}: {settings}")
    low, high = 0.2, 1.4
    for _ in range(TRIES):
        intensity = (low + high) / 2
        found = [(success(topology, one, intensity, seeds), -at) for at, one in enumerate(settings)]
        best, at = max(found)
        tell(f"intensity {intensity:.4f}: {settings[-at]} succeeds in {best:.2f} %")
        if abs(best - WANTED) <= CLOSE:
            break
        low, high = (intensity, high) if best > WANTED else (low, intensity)
    return Calibration(round(intensity, 4), settings[-at], round(best, 2), COMMAND)


if __name__ == "__main__":
    chosen = calibrate(default_topology(), tell=lambda line: print(line, file=sys.stderr))  # noqa: T201
    print(  # noqa: T201
        json.dumps(
            {
                "intensity": chosen.intensity,
                "hpa": chosen.hpa,
                "success": chosen.success,
                "command": chosen.command,
            },
            indent=2,
        )
    )
