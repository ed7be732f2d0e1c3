"""Rounds of learning on a captured cluster, for every learned placement policy: the runs of ``conclave train
--cluster``, a short one each, that go on from given weights. torch lives here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Protocol

import msgspec
import torch

from lab.learner.deepsets import settings as sets
from lab.learner.deepsets.ppo import PpoRun
from lab.learner.deepsets.training import DeepSetsRun
from lab.learner.frag.captured import lists_of
from lab.learner.frag.fit import arrays_of, flat
from lab.learner.frag.training import LAST_SEED, FragRun, FragSettings
from lab.learner.marl import settings as agents
from lab.learner.marl.training import MOST_NODES, MarlRun
from lab.learner.training.captured import CapturedFile, clearly_better
from lab.learner.training.runner import FIRST_TRAINING_SEED, TrainingReport
from lab.serve.online import refuse_classes
from lab.workers import Workers
from shared.errors import ConclaveError, ConfigError
from shared.policy.deepsets.policy import DEEP_SETS_POLICIES
from shared.policy.frag.value import NAME as FRAG
from shared.policy.marl.policy import NAME as MARL
from shared.policy.networks import layer_count
from shared.policy.weights import WeightsFile

Arrays = Mapping[str, Any]
Stopped = Callable[[], bool]


class RoundStopped(ConclaveError):
    """The process is to end: what the round has learned is not wanted any more."""

    code = "round_stopped"


class RoundLearning(Protocol):
    """One round of one policy."""

    def learn(self, first: Arrays, seed: int, stopped: Stopped) -> Arrays:
        """The best weights of a round that begins with ``first``; these where nothing is better. Raises
        ``RoundStopped``."""
        ...

    def costs(self, arrays: Arrays) -> Sequence[float]:
        """Of weights, by episode of the days held back; lower is better."""
        ...


def _to_its_end(reports: Iterable[TrainingReport], stopped: Stopped) -> None:
    """Until the run has ended, or no more of it is wanted; asked between its reports."""
    for _ in reports:
        if stopped():
            raise RoundStopped("the learner is asked to stop")


def _hidden(arrays: Arrays) -> tuple[int, ...]:
    """Of an MLP, which policies take with any hidden layers."""
    return tuple(arrays[f"l{layer}.w"].shape[1] for layer in range(layer_count(arrays) - 1))


class SetsLearning:
    """``ee``, ``lb`` or ``el``."""

    def __init__(self, policy: str, captured: CapturedFile, steps: int) -> None:
        self._policy, self._captured, self._steps = policy, captured, steps or 2_000
        self._settings(FIRST_TRAINING_SEED)

    def learn(self, first: Arrays, seed: int, stopped: Stopped) -> Arrays:
        """See ``RoundLearning``."""
        run = self._run(first, seed)
        _to_its_end(run.run(), stopped)
        return run.best

    def costs(self, arrays: Arrays) -> Sequence[float]:
        """See ``RoundLearning``."""
        return self._run(arrays, FIRST_TRAINING_SEED).costs(dict(arrays))

    def _settings(self, seed: int) -> sets.DeepSetsSettings:
        return sets.settings_on(self._policy, seed, max(self._steps, 501), cluster=self._captured.digest, algorithm="")

    def _run(self, first: Arrays, seed: int) -> DeepSetsRun | PpoRun:
        settings = replace(self._settings(seed), hidden=_hidden(first))
        kind = DeepSetsRun if settings.ppo is None else PpoRun
        return kind(settings, None, self._captured.cluster, dict(first))


class AgentsLearning:
    """``marl-dqn``."""

    def __init__(self, policy: str, captured: CapturedFile, steps: int) -> None:
        self._policy, self._captured, self._steps = policy, captured, steps or 5
        self._settings(FIRST_TRAINING_SEED)

    def learn(self, first: Arrays, seed: int, stopped: Stopped) -> Arrays:
        """See ``RoundLearning``."""
        run = self._run(first, seed)
        _to_its_end(run.run(), stopped)
        return run.best

    def costs(self, arrays: Arrays) -> Sequence[float]:
        """See ``RoundLearning``."""
        return self._run(arrays, FIRST_TRAINING_SEED).ground.imbalances(dict(arrays), Workers())

    def _settings(self, seed: int) -> agents.MarlSettings:
        nodes = min(self._captured.cluster.nodes, MOST_NODES)
        return agents.settings_on(
            self._policy, seed, self._steps, nodes=nodes, cluster=self._captured.digest, algorithm=""
        )

    def _run(self, first: Arrays, seed: int) -> MarlRun:
        settings = replace(self._settings(seed), hidden=_hidden(first))
        return MarlRun(settings, None, self._captured.cluster, dict(first))


class FragLearning:
    """``frag``: the cost is the percent of the GPUs that are not allocated, with the prices that it has in service."""

    def __init__(self, policy: str, captured: CapturedFile, steps: int) -> None:
        self._lists = lists_of(captured.cluster, f"capture: {captured.name}")
        self._captured, self._steps = captured, steps or 10
        self._name = policy

    def learn(self, first: Arrays, seed: int, stopped: Stopped) -> Arrays:
        """See ``RoundLearning``."""
        run = self._run(first, seed)
        _to_its_end(run.run(), stopped)
        assert run.best is not None
        return arrays_of(run.best)

    def costs(self, arrays: Arrays) -> Sequence[float]:
        """See ``RoundLearning``."""
        return self._run(arrays, FIRST_TRAINING_SEED).costs(flat(arrays))

    def _run(self, first: Arrays, seed: int) -> FragRun:
        nodes, pods, held_back = self._lists
        settings = FragSettings(seed, self._steps, cluster=self._captured.digest)
        return FragRun(nodes, {"default": pods}, settings, held_back, flat(first))


LEARNINGS: dict[str, Callable[[str, CapturedFile, int], RoundLearning]] = {
    **dict.fromkeys(DEEP_SETS_POLICIES, SetsLearning), FRAG: FragLearning, MARL: AgentsLearning,
}  # fmt: skip


def _gain(before: Sequence[float], after: Sequence[float]) -> float:
    """A share of ``before``, in the mean; 0 where chance explains it, or a cost is not finite."""
    return 1.0 - fmean(after) / fmean(before) if clearly_better(before, after, least=0.0) else 0.0


class RoundsTrainer:
    """Keeps the best weights so far and their costs. ``steps``: of a round, in the trainer's own; 0: few. ``begun``: a
    number that grows from start to start, such as the time in seconds, by which a learner that is started again does
    not repeat its rounds, each a function of its seed."""

    stopped = False

    def stop(self) -> None:
        """From another thread: a round that is being learned ends at its next report, by ``RoundStopped``."""
        self.stopped = True

    def __init__(self, policy: str, captured: CapturedFile, *, seed: int, steps: int, begun: int = 0) -> None:
        if policy not in LEARNINGS:
            raise ConfigError(f"capture: {policy} does not learn on one; choose one of {', '.join(sorted(LEARNINGS))}")
        if not FIRST_TRAINING_SEED <= seed <= LAST_SEED:
            raise ConfigError(
                f"seed: {seed} is not of those that learn on a capture; give {FIRST_TRAINING_SEED} to {LAST_SEED}"
            )
        self._learning = LEARNINGS[policy](policy, captured, steps)
        self._captured = captured
        self._seed = seed + begun
        self._base: WeightsFile | None = None
        self._judged: tuple[str, Sequence[float]] | None = None
        self._arrays: Arrays = {}
        self._costs: Sequence[float] = ()
        self._rounds = 0
        self._found_by: int | None = None

    def round(self, base: WeightsFile, number: int, *, anew: bool, first: WeightsFile | None = None) -> float:
        """One round; by how much the best weights so far are better than ``base``, as a share of its cost. ``anew``:
        from ``first`` where that is better than ``base``, else from this."""
        torch.set_num_threads(1)
        if anew or self._base is None or self._base.sha256 != base.sha256:
            self._base, self._arrays, self._rounds, self._found_by = base, base.arrays, 0, None
            self._costs = self._costs_of(base)
            if first is not None:
                refuse_classes(first)
                if _gain(self._costs, costs := self._learning.costs(first.arrays)) > 0:
                    self._arrays, self._costs = first.arrays, costs
        before = self._costs_of(base)
        seed = FIRST_TRAINING_SEED + (self._seed + number - FIRST_TRAINING_SEED) % (LAST_SEED - FIRST_TRAINING_SEED)
        found = self._learning.learn(self._arrays, seed, lambda: self.stopped)
        costs = self._learning.costs(found)
        if (_gain(before, costs), -fmean(costs)) > (_gain(before, self._costs), -fmean(self._costs)):
            self._arrays, self._costs, self._found_by = found, costs, seed
        self._rounds += 1
        return _gain(before, self._costs)

    def gain(self, base: WeightsFile, other: WeightsFile) -> float:
        """By how much ``other`` is better than ``base`` on the days held back, as a share of its cost; 0 where
        chance explains it. Raises ``RoundStopped``."""
        if self.stopped:
            raise RoundStopped("the learner is asked to stop")
        refuse_classes(other)
        torch.set_num_threads(1)
        return _gain(self._costs_of(base), self._learning.costs(other.arrays))

    def _costs_of(self, base: WeightsFile) -> Sequence[float]:
        """Judged once: it stays for many rounds. Raises ``ConfigError``: it has more than one network."""
        refuse_classes(base)
        if self._judged is None or self._judged[0] != base.sha256:
            self._judged = base.sha256, self._learning.costs(base.arrays)
        return self._judged[1]

    def best(self, version: int) -> WeightsFile:
        """The best weights so far, with a card that says how they came about."""
        base = self._base
        assert base is not None
        trained = {
            **base.card.trained,
            "online": {
                "from": base.sha256,
                "rounds": self._rounds,
                "seed": self._found_by,
                "data": self._captured.describe(),
            },
        }
        limits = [self._captured.limit, *base.card.limits[1:]]
        card = msgspec.structs.replace(base.card, version=version, trained=trained, figures={}, limits=limits)
        return WeightsFile(dict(self._arrays), card)
