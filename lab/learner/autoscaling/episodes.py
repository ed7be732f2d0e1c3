"""What every learned autoscaling policy is trained and judged on: which episodes, which reward, which validation.

The reward of a decision, the same for all services: success + half of the share in time + a quarter where the window
counts as available (the figures that are reported), less a price per pod and second, and a price per replica changed.
numpy alone, so that workers need no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.autoscaling.episode import Setup, play
from lab.autoscaling.metrics import GOOD
from lab.autoscaling.policies import make
from lab.workers import Workers
from lab.worlds.services.scenarios import intensity_of
from lab.worlds.services.topology import default_topology
from lab.worlds.services.world import WorldSeconds
from shared.policy.weights import WeightsFile

Arrays = Mapping[str, NDArray[np.float32]]
VALIDATION_SEEDS = tuple(range(100, 110))
EPISODES_OF_A_SEED = 100_000
SCENARIOS = ("mixed", "mixed", "mixed", "mixed", "ddos", "failures", "pressure", "bottleneck")
STRENGTH = 0.8
"""Of the mixed scenario, in training (from half to one and a half times) and validation: near the frozen one, and not
it, so that a run means the same after another calibration."""
HOUR_PRICE = 1.0
"""Points of the validation score that a replica hour costs: a few per cent of an episode's five are worth a tenth of a
point of success."""
IN_TIME, AVAILABLE = 0.5, 0.25


@dataclass(frozen=True, slots=True)
class Prices:
    """What is taken off: for a pod, as a share of one decision's whole success; for a replica changed."""

    pod: float = 0.006
    change: float = 0.004


def default_world() -> Setup:
    """What is trained and validated on where nothing else is given. The scenario of a world is not looked at."""
    return Setup(default_topology())


def training_setup(seed: int, number: int, strength: float, world: Setup) -> Setup:
    """What episode ``number`` plays in ``world``: mostly mixed, from half to one and a half times its strength."""
    rng, scenarios = np.random.default_rng([seed, 2, number]), scenarios_of(world)
    scenario = scenarios[int(rng.integers(len(scenarios)))]
    intensity = _strength(scenario, strength) * float(rng.uniform(0.5, 1.5))
    intensity = max(intensity, 1.0) if scenario == "ddos" else intensity
    return replace(world, scenario=scenario, intensity=intensity)


def validation_setup(strength: float, world: Setup) -> Setup:
    """What every validation seed plays in ``world``: mixed, or what comes first where that was not recorded."""
    scenarios = scenarios_of(world)
    judged = "mixed" if "mixed" in scenarios else scenarios[0]
    return replace(world, scenario=judged, intensity=_strength(judged, strength))


def scenarios_of(world: Setup) -> tuple[str, ...]:
    """What is drawn from in training; of a learned twin what was recorded of it, or else all that was."""
    if world.twin is None:
        return SCENARIOS
    recorded = world.twin.header.scenarios
    return tuple(name for name in SCENARIOS if name in recorded) or tuple(recorded)


def _strength(scenario: str, mixed: float) -> float:
    if scenario == "mixed":
        return mixed
    return intensity_of(scenario) if scenario in SCENARIOS else 0.0


def team_reward(seconds: WorldSeconds, first: int, prices: Prices) -> float:
    """What everybody earns for the seconds from ``first`` on."""
    offered = sum(seconds.offered[first:])
    success = sum(seconds.answered[first:]) / offered if offered > 0 else 1.0
    in_time = sum(seconds.in_time[first:]) / offered if offered > 0 else 1.0
    pods = sum(seconds.pods[first:]) / max(len(seconds.pods) - first, 1)
    return success + IN_TIME * in_time + AVAILABLE * float(success >= GOOD) - prices.pod * pods


@dataclass(slots=True)
class Best:
    """The weights with the best validation so far; ``figures``: means over the validation seeds."""

    score: float = float("-inf")
    arrays: Arrays = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)

    def judge(self, weights: WeightsFile, setup: Setup, workers: Workers) -> dict[str, float]:
        """Validate on ``validation_setup``, and keep them when they are the best; what it found, by name: ``score``
        (success + half of latency compliance, percent, less replica hours) and what it is made of."""
        found = list(workers.map(_judge_one, [(weights, setup, seed) for seed in VALIDATION_SEEDS]))
        figures = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
        score = figures["success"] + 0.5 * figures["latency_compliance"] - HOUR_PRICE * figures["replica_hours"]
        if score > self.score:
            self.score, self.arrays, self.figures = score, dict(weights.arrays), figures
        return {"score": score, **{name: figures[name] for name in ("success", "latency_compliance", "replica_hours")}}

    def get_state(self) -> dict[str, Any]:
        """All of it, for a checkpoint."""
        return {"score": self.score, "arrays": dict(self.arrays), "figures": dict(self.figures)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        self.score, self.arrays, self.figures = state["score"], state["arrays"], state["figures"]


def _judge_one(job: tuple[WeightsFile, Setup, int]) -> dict[str, float]:
    weights, setup, seed = job
    return play(setup, make(weights.card.policy, weights), seed).figures
