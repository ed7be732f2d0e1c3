"""Training of ``frag``: learn the value from episodes a few times over, then search on the reward itself.

Rounds of policy iteration come first (the first plays FGD, so it imitates; later ones play what was learned, with some
pods placed at random), then the evolution strategy. Every ``VALIDATE_EVERY`` steps both the
search's weights and their running mean are validated on seeds 500 and 501 over the given traces and four fixed variants
of them; the best of all is kept. Training draws seeds from 1000 up. The whole run is a function of its seed and its
number of steps. What is learned is the waste alone: the prices of ``frag_value`` are 0 here. Scalars:
``train/relative_error`` (squared error of the value over its variance), ``train/pair_difference`` (mean difference
within an antithetic pair, percentage points), ``validation/gain`` and ``validation/least_gain`` (over FGD on the same
seeds, points, mean and least over traces), ``validation/<trace>`` (allocated percent).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lab.learner.frag.cases import FragCase, RequestPools, part_of, pools_of, variant
from lab.learner.frag.fit import FragExperience, concatenate, fit, flat
from lab.learner.frag.search import Search
from lab.learner.training.runner import FIRST_TRAINING_SEED, TrainingReport, check_seed
from shared.policy.frag.value import NAME, UNPRICED
from shared.policy.rehearsal.submission import GpuNodes, GpuPods
from shared.policy.weights import shipped

Floats = NDArray[np.float64]

ROUNDS, EPISODES, KEPT_ROUNDS, UPDATES = 3, 36, 8, 5000
ROUND_PARTS, SEARCH_PARTS = (0.25, 0.5, 1.0), (0.2, 0.35, 0.5)
"""Parts of the node list that an episode is played on; smaller ones cost less and generalise to short lists."""
EXPLORE = (0.0, 0.03, 0.1)
GIVEN_SHARE = 0.45
"""Of the search's episodes, those on a given trace; the others are on variants."""
STEPS = 300
VALIDATE_EVERY = 25
LAST_SEED = 1_000_000
VALIDATION_SEEDS = (500, 501)
VARIANTS: tuple[tuple[str, str, float], ...] = (
    ("gpushare100-like", "share", 1.0),
    ("multigpu50-like", "several", 0.5),
    ("gpuspec33-like", "model", 0.33),
    ("cpu250-like", "cpu", 2.2),
)
VARIANT_SEED = 7
HELD_BACK = "days held back"
HELD_BACK_SEEDS = range(500, 510)


@dataclass(frozen=True, slots=True)
class FragSettings:
    """What decides a run. ``seed`` >= 1000; ``steps`` of the search."""

    seed: int = FIRST_TRAINING_SEED
    steps: int = STEPS
    rounds: int = ROUNDS
    episodes: int = EPISODES
    updates: int = UPDATES
    cluster: str = ""
    """The digest of the captured cluster that it learns on; "": openb."""

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def as_json(self) -> dict[str, Any]:
        """For the card and the checkpoint's digest; without ``steps``, so that a run can be prolonged."""
        found = {"seed": self.seed, "rounds": self.rounds, "episodes": self.episodes, "updates": self.updates}
        return found | ({"cluster": self.cluster} if self.cluster else {})


@dataclass(frozen=True, slots=True)
class Validation:
    """Allocated percent by trace, and the mean gain over FGD on the same seeds in points."""

    by_trace: Mapping[str, float]
    gain: float
    least_gain: float

    def scalars(self) -> dict[str, float]:
        """By the names that curves and TensorBoard show them under."""
        found = {f"validation/{name}": value for name, value in self.by_trace.items()}
        return {"validation/gain": self.gain, "validation/least_gain": self.least_gain, **found}


@dataclass
class FragRun:
    """One run, from nothing or from a state; its steps are the search's, rounds of policy iteration count up to 0.

    A checkpoint holds the search alone; the rounds before it are short.
    """

    unit: ClassVar[str] = "steps"

    nodes: GpuNodes
    lists: Mapping[str, GpuPods]
    settings: FragSettings
    held_back: GpuPods | None = None
    """Of a captured cluster, what its weights are judged by, and those shipped have to be beaten; None: variants."""
    first: Floats | None = None
    """What has to be beaten there, and where the search begins at once; None: the shipped weights, and from FGD."""
    search: Search | None = None
    best: Floats | None = None
    best_validation: Validation | None = None
    best_step: int = 0
    _pools: RequestPools | None = field(init=False)
    _checks: dict[str, FragCase] = field(init=False)
    _fgd: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self._pools = pools_of(self.lists) if self.held_back is None else None
        if self.held_back is None:
            self._checks = check_cases(self.nodes, self.lists, UNPRICED)
        else:
            self._checks = {HELD_BACK: FragCase(self.nodes, self.held_back, UNPRICED)}
        self._fgd = {name: _mean(case, None) for name, case in self._checks.items()}

    @property
    def done(self) -> int:
        """Steps of the search so far."""
        return self.search.steps if self.search is not None else 0

    @property
    def length(self) -> int:
        """Steps of the whole search."""
        return self.settings.steps

    @property
    def finished(self) -> bool:
        """Whether the search has made all its steps."""
        return self.search is not None and self.search.steps >= self.settings.steps

    def run(self) -> Iterator[TrainingReport]:
        """Go on to the end; a report after each round and each step."""
        if self.search is None and self.first is not None:
            self.search = Search(self.first, self.settings.seed)
            yield self._report(0, {}, self._consider(self.first, 0))
        if self.search is None:
            learned: Floats | None = None
            if self.held_back is not None:
                first = -self.settings.rounds
                yield self._report(first, {}, self._consider(shipped_weights(), first))
            for report, weights in self._rounds():
                learned = weights
                yield report
            assert learned is not None
            self.search = Search(learned, self.settings.seed)
        while self.search.steps < self.settings.steps:
            spread = self.search.step(self._draw)
            yield self._report(self.search.steps, {"train/pair_difference": spread}, self._maybe_validate())

    def validate(self, weights: Floats) -> Validation:
        """``weights`` on the validation seeds of every trace."""
        by_trace = {name: _mean(case, weights) for name, case in self._checks.items()}
        gains = [by_trace[name] - self._fgd[name] for name in by_trace]
        return Validation(by_trace, float(np.mean(gains)), min(gains))

    def costs(self, weights: Floats) -> list[float]:
        """Percent of the GPUs that nobody holds in the end, of the days held back, by seed, with the prices that the
        policy has in service."""
        assert self.held_back is not None
        case = FragCase(self.nodes, self.held_back)
        return [100.0 - case.play(weights, seed) for seed in HELD_BACK_SEEDS]

    def shipped_figures(self) -> dict[str, tuple[float, float]]:
        """Of the best weights with the prices they are shipped with: percent allocated at 130 % and at 100 % demand."""
        assert self.best is not None
        found: dict[str, tuple[float, float]] = {}
        for name, case in self._checks.items():
            priced = FragCase(case.nodes, case.pods)
            late, early = np.mean([priced.play_both(self.best, seed) for seed in VALIDATION_SEEDS], 0).tolist()
            found[name] = (late, early)
        return found

    def get_state(self) -> dict[str, Any]:
        """What a checkpoint holds; only within the search."""
        assert self.search is not None
        assert self.best is not None
        return {"search": self.search.get_state(), "best": self.best, "best_step": self.best_step}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where ``get_state`` was asked."""
        self.search = Search.of_state(state["search"])
        self.best, self.best_step = np.asarray(state["best"]), int(state["best_step"])
        self.best_validation = self.validate(self.best)

    def _rounds(self) -> Iterator[tuple[TrainingReport, Floats]]:
        rng = np.random.default_rng([self.settings.seed, 1])
        weights: Floats | None = None
        kept: list[FragExperience] = []
        for number in range(self.settings.rounds):
            parts: list[FragExperience] = []
            for _ in range(self.settings.episodes):
                case, seed = self._case(rng, 0.5, ROUND_PARTS), int(rng.integers(FIRST_TRAINING_SEED, LAST_SEED))
                x, idle, end = case.learn(weights, seed, float(rng.choice(EXPLORE)))
                parts.append(FragExperience(x.astype(np.float32), idle.astype(np.float32), end.astype(np.float32)))
            kept = [*kept, concatenate(parts)][-KEPT_ROUNDS:]
            weights, error = fit(concatenate(kept), weights, updates=self.settings.updates, seed=self.settings.seed)
            step = number - self.settings.rounds + 1
            found = self._consider(weights, step)
            scalars = {"train/relative_error": error, "train/rows": float(sum(len(part.x) for part in kept))}
            yield self._report(step, scalars, found), weights

    def _report(self, step: int, scalars: dict[str, float], found: Validation | None) -> TrainingReport:
        if found is None:
            return TrainingReport(step, scalars)
        validated = f"{found.gain:+.3f} points over FGD on validation"
        return TrainingReport(step, scalars | found.scalars(), validated, saveable=self.search is not None)

    def _case(self, rng: np.random.Generator, given: float, parts: tuple[float, ...]) -> FragCase:
        names = sorted(self.lists)
        if self._pools is None or rng.random() < given:
            pods = self.lists[names[rng.integers(len(names))]]
        else:
            pods = variant(self._pools, rng)
        return FragCase(part_of(self.nodes, float(rng.choice(parts)), rng), pods, UNPRICED)

    def _draw(self, rng: np.random.Generator) -> Callable[[Floats], float]:
        case, seed = self._case(rng, GIVEN_SHARE, SEARCH_PARTS), int(rng.integers(FIRST_TRAINING_SEED, LAST_SEED))
        return lambda weights: case.play(weights, seed)

    def _maybe_validate(self) -> Validation | None:
        assert self.search is not None
        if self.search.steps % VALIDATE_EVERY and self.search.steps != self.settings.steps:
            return None
        found = self._consider(self.search.weights, self.search.steps)
        averaged = self._consider(self.search.average, self.search.steps)
        return max(found, averaged, key=lambda validation: validation.gain)

    def _consider(self, weights: Floats, step: int) -> Validation:
        found = self.validate(weights)
        if self.best_validation is None or found.gain > self.best_validation.gain:
            self.best, self.best_validation, self.best_step = weights.copy(), found, step
        return found


def check_cases(nodes: GpuNodes, lists: Mapping[str, GpuPods], prices: tuple[float, float]) -> dict[str, FragCase]:
    """What weights are judged on, by name: the given traces and four fixed variants of them, on all nodes."""
    cases = {name: FragCase(nodes, pods, prices) for name, pods in lists.items()}
    pools, rng = pools_of(lists), np.random.default_rng(VARIANT_SEED)
    for name, mix, amount in VARIANTS:
        cases[name] = FragCase(nodes, variant(pools, rng, mix, amount), prices)
    return cases


def _mean(case: FragCase, weights: Floats | None) -> float:
    return float(np.mean([case.play(weights, seed) for seed in VALIDATION_SEEDS]))


def shipped_weights() -> Floats:
    """Those of the package, in the kernel's order."""
    return flat(shipped(NAME).arrays)
