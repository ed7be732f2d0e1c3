"""Training of ``frag``: learn the value from episodes a few times over, then search on the reward itself.

Rounds of policy iteration come first (the first plays FGD, so it imitates; later ones play what was learned, with some
pods placed at random), then the evolution strategy on the GPUs allocated at the end. From step ``both_from`` on a new
search goes on from the best weights so far, and what is allocated when 100 % had been asked for counts too, mostly on
traces whose pods name models: a scarce model given away early costs nothing at 130 %, but does cost pods before that.
Every ``VALIDATE_EVERY`` steps both the search's weights and their running mean are validated on seeds 500 and 501 over
the given traces and four fixed variants of them; the best of all is kept. Training draws seeds from 1000 up. The whole
run is a function of its seed and its number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.learner.frag_cases import Case, Pools, part_of, pools_of, variant
from services.learner.frag_fit import Experience, concatenate, fit
from services.learner.frag_search import Search
from shared.twin.gpu_trace import GpuNodes, GpuPods

Floats = NDArray[np.float64]

ROUNDS, EPISODES, KEPT_ROUNDS, UPDATES = 3, 36, 8, 5000
ROUND_PARTS, SEARCH_PARTS = (0.25, 0.5, 1.0), (0.2, 0.35, 0.5)
"""Parts of the node list that an episode is played on; smaller ones cost less and generalise to short lists."""
EXPLORE = (0.0, 0.03, 0.1)
GIVEN_SHARE = 0.45
"""Of the search's episodes, those on a given trace; the others are on variants."""
STEPS, BOTH_FROM = 380, 300
EARLY_WEIGHT, MODEL_SHARE = 0.3, 0.5
"""From ``BOTH_FROM``: weight of what is allocated at 100 % demand, and share of variants whose pods name models."""
VALIDATE_EVERY = 25
FIRST_SEED, LAST_SEED = 1000, 1_000_000
VALIDATION_SEEDS = (500, 501)
VARIANTS: tuple[tuple[str, str, float], ...] = (
    ("gpushare100-like", "share", 1.0),
    ("multigpu50-like", "several", 0.5),
    ("gpuspec33-like", "model", 0.33),
    ("cpu250-like", "cpu", 2.2),
)
VARIANT_SEED = 7


@dataclass(frozen=True, slots=True)
class Settings:
    """What decides a run. ``seed`` >= 1000; ``steps`` of the search."""

    seed: int = FIRST_SEED
    steps: int = STEPS
    both_from: int = BOTH_FROM
    rounds: int = ROUNDS
    episodes: int = EPISODES
    updates: int = UPDATES

    def as_json(self) -> dict[str, int]:
        """For the card and the checkpoint's digest; without ``steps``, so that a run can be prolonged."""
        return {
            "seed": self.seed,
            "rounds": self.rounds,
            "episodes": self.episodes,
            "updates": self.updates,
            "both_from": self.both_from,
        }


@dataclass(frozen=True, slots=True)
class Validation:
    """Allocated percent by trace at the end and at 100 % demand, and gains over FGD on the same seeds in points.

    ``gain``: mean over traces of what the search rewards; ``least_gain``: least over traces, at the end.
    """

    by_trace: Mapping[str, float]
    early_by_trace: Mapping[str, float]
    gain: float
    least_gain: float


@dataclass(frozen=True, slots=True)
class Report:
    """``step`` of the search (negative: a round of policy iteration before it) and what it measured."""

    step: int
    scalars: Mapping[str, float]
    validation: Validation | None = None


@dataclass
class FragRun:
    """One run, from nothing or from a state."""

    nodes: GpuNodes
    lists: Mapping[str, GpuPods]
    settings: Settings
    search: Search | None = None
    best: Floats | None = None
    best_validation: Validation | None = None
    best_step: int = 0
    both: bool = False
    """Whether what is allocated at 100 % demand counts by now."""
    _pools: Pools = field(init=False)
    _checks: dict[str, Case] = field(init=False)
    _fgd: dict[str, tuple[float, float]] = field(init=False)

    def __post_init__(self) -> None:
        self._pools = pools_of(self.lists)
        self._checks = {name: Case(self.nodes, pods) for name, pods in self.lists.items()}
        rng = np.random.default_rng(VARIANT_SEED)
        for name, mix, amount in VARIANTS:
            self._checks[name] = Case(self.nodes, variant(self._pools, rng, mix, amount))
        self._fgd = {name: _mean(case, None) for name, case in self._checks.items()}

    def run(self) -> Iterator[Report]:
        """Go on to the end; a report after each round and each step."""
        if self.search is None:
            learned: Floats | None = None
            for report, weights in self._rounds():
                learned = weights
                yield report
            assert learned is not None
            self.search = Search(learned, self.settings.seed)
        while self.step < self.settings.steps:
            if not self.both and self.search.steps >= self.settings.both_from:
                assert self.best is not None
                self.both, self.search = True, Search(self.best, self.settings.seed + 1)
                self.best_validation = self.validate(self.best)
            spread = self.search.step(self._draw)
            yield Report(self.step, {"train/pair_difference": spread}, self._maybe_validate())

    @property
    def step(self) -> int:
        """Steps of both searches together."""
        done = self.search.steps if self.search is not None else 0
        return done + self.settings.both_from if self.both else done

    def validate(self, weights: Floats) -> Validation:
        """``weights`` on the validation seeds of every trace."""
        found = {name: _mean(case, weights) for name, case in self._checks.items()}
        late = [found[name][0] - self._fgd[name][0] for name in found]
        early = [found[name][1] - self._fgd[name][1] for name in found]
        gain = float(np.mean(late)) + (EARLY_WEIGHT * float(np.mean(early)) if self.both else 0.0)
        by_trace, early_by_trace = ({name: both[when] for name, both in found.items()} for when in (0, 1))
        return Validation(by_trace, early_by_trace, gain, min(late))

    def get_state(self) -> dict[str, Any]:
        """What a checkpoint holds; only within the search, the rounds before it are short."""
        assert self.search is not None
        assert self.best is not None
        return {"search": self.search.get_state(), "best": self.best, "best_step": self.best_step, "both": self.both}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where ``get_state`` was asked."""
        self.search = Search.of_state(state["search"])
        self.best, self.best_step, self.both = np.asarray(state["best"]), int(state["best_step"]), bool(state["both"])
        self.best_validation = self.validate(self.best)

    def _rounds(self) -> Iterator[tuple[Report, Floats]]:
        rng = np.random.default_rng([self.settings.seed, 1])
        weights: Floats | None = None
        kept: list[Experience] = []
        for number in range(self.settings.rounds):
            parts: list[Experience] = []
            for _ in range(self.settings.episodes):
                case, seed = self._case(rng, 0.5, ROUND_PARTS), int(rng.integers(FIRST_SEED, LAST_SEED))
                x, idle, end = case.learn(weights, seed, float(rng.choice(EXPLORE)))
                parts.append(Experience(x.astype(np.float32), idle.astype(np.float32), end.astype(np.float32)))
            kept = [*kept, concatenate(parts)][-KEPT_ROUNDS:]
            weights, error = fit(concatenate(kept), weights, updates=self.settings.updates, seed=self.settings.seed)
            found = self._consider(weights, number - self.settings.rounds + 1)
            scalars = {"train/relative_error": error, "train/rows": float(sum(len(part.x) for part in kept))}
            yield Report(number - self.settings.rounds + 1, scalars, found), weights

    def _case(self, rng: np.random.Generator, given: float, parts: tuple[float, ...]) -> Case:
        names = sorted(self.lists)
        if rng.random() < given:
            pods = self.lists[names[rng.integers(len(names))]]
        elif self.both:
            pods = variant(self._pools, rng, "model" if rng.random() < MODEL_SHARE else None)
        else:
            pods = variant(self._pools, rng)
        return Case(part_of(self.nodes, float(rng.choice(parts)), rng), pods)

    def _draw(self, rng: np.random.Generator) -> Callable[[Floats], float]:
        case, seed = self._case(rng, GIVEN_SHARE, SEARCH_PARTS), int(rng.integers(FIRST_SEED, LAST_SEED))
        if not self.both:
            return lambda weights: case.play(weights, seed)

        def play(weights: Floats) -> float:
            late, early = case.play_both(weights, seed)
            return late + EARLY_WEIGHT * early

        return play

    def _maybe_validate(self) -> Validation | None:
        assert self.search is not None
        if self.search.steps % VALIDATE_EVERY and self.step != self.settings.steps:
            return None
        found = self._consider(self.search.weights, self.step)
        averaged = self._consider(self.search.average, self.step)
        return max(found, averaged, key=lambda validation: validation.gain)

    def _consider(self, weights: Floats, step: int) -> Validation:
        found = self.validate(weights)
        if self.best_validation is None or found.gain > self.best_validation.gain:
            self.best, self.best_validation, self.best_step = weights.copy(), found, step
        return found


def _mean(case: Case, weights: Floats | None) -> tuple[float, float]:
    late, early = np.mean([case.play_both(weights, seed) for seed in VALIDATION_SEEDS], 0).tolist()
    return late, early
