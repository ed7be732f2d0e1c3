"""Rounds of learning on a captured cluster, for every learned placement policy: the runs of ``conclave train
--cluster``, a short one each, that go on from given weights. torch lives here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import isfinite
from typing import Any, Protocol

import msgspec
import torch

from lab.learner.deepsets import settings as sets
from lab.learner.deepsets.ppo import PpoRun
from lab.learner.deepsets.training import DeepSetsRun
from lab.learner.frag.captured import lists_of
from lab.learner.frag.fit import arrays_of, flat
from lab.learner.frag.training import LAST_SEED, FragRun
from lab.learner.frag.training import Settings as FragSettings
from lab.learner.marl import settings as agents
from lab.learner.marl.training import MOST_NODES, MarlRun
from lab.learner.training.captured import Captured
from lab.learner.training.runner import FIRST_TRAINING_SEED, Report
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


class Learning(Protocol):
    """One round of one policy."""

    def learn(self, first: Arrays, seed: int, stopped: Stopped) -> tuple[Arrays, float]:
        """(the best weights of a round that begins with ``first``, their cost); ``first`` where nothing is better.
        Raises ``RoundStopped``."""
        ...

    def cost(self, arrays: Arrays) -> float:
        """Of weights on the days held back; lower is better."""
        ...


def _to_its_end(reports: Iterable[Report], stopped: Stopped) -> None:
    """Until the run has ended, or no more of it is wanted; asked between its reports."""
    for _ in reports:
        if stopped():
            raise RoundStopped("the learner is asked to stop")


def _hidden(arrays: Arrays) -> tuple[int, ...]:
    """Of an MLP, which policies take with any hidden layers."""
    return tuple(arrays[f"l{layer}.w"].shape[1] for layer in range(layer_count(arrays) - 1))


class SetsLearning:
    """``ee``, ``lb`` or ``el``."""

    def __init__(self, policy: str, captured: Captured, steps: int) -> None:
        self._policy, self._captured, self._steps = policy, captured, steps or 2_000
        self._settings(FIRST_TRAINING_SEED)

    def learn(self, first: Arrays, seed: int, stopped: Stopped) -> tuple[Arrays, float]:
        """See ``Learning``."""
        run = self._run(first, seed)
        _to_its_end(run.run(), stopped)
        return run.best, run.best_regret

    def cost(self, arrays: Arrays) -> float:
        """See ``Learning``."""
        return self._run(arrays, FIRST_TRAINING_SEED).validated(dict(arrays))

    def _settings(self, seed: int) -> sets.DeepSetsSettings:
        return sets.settings_on(self._policy, seed, max(self._steps, 501), cluster=self._captured.digest, algorithm="")

    def _run(self, first: Arrays, seed: int) -> DeepSetsRun | PpoRun:
        settings = replace(self._settings(seed), hidden=_hidden(first))
        kind = DeepSetsRun if settings.ppo is None else PpoRun
        return kind(settings, None, self._captured.cluster, dict(first))


class AgentsLearning:
    """``marl-dqn``."""

    def __init__(self, policy: str, captured: Captured, steps: int) -> None:
        self._policy, self._captured, self._steps = policy, captured, steps or 5
        self._settings(FIRST_TRAINING_SEED)

    def learn(self, first: Arrays, seed: int, stopped: Stopped) -> tuple[Arrays, float]:
        """See ``Learning``."""
        run = self._run(first, seed)
        _to_its_end(run.run(), stopped)
        return run.best, run.best_imbalance

    def cost(self, arrays: Arrays) -> float:
        """See ``Learning``."""
        return self._run(arrays, FIRST_TRAINING_SEED).ground.imbalance(dict(arrays), Workers())

    def _settings(self, seed: int) -> agents.MarlSettings:
        nodes = min(self._captured.cluster.nodes, MOST_NODES)
        return agents.settings_on(
            self._policy, seed, self._steps, nodes=nodes, cluster=self._captured.digest, algorithm=""
        )

    def _run(self, first: Arrays, seed: int) -> MarlRun:
        settings = replace(self._settings(seed), hidden=_hidden(first))
        return MarlRun(settings, None, self._captured.cluster, dict(first))


class FragLearning:
    """``frag``: the cost is the percent of the GPUs that are not allocated."""

    def __init__(self, policy: str, captured: Captured, steps: int) -> None:
        self._lists = lists_of(captured.cluster, f"capture: {captured.name}")
        self._captured, self._steps = captured, steps or 10
        self._name = policy

    def learn(self, first: Arrays, seed: int, stopped: Stopped) -> tuple[Arrays, float]:
        """See ``Learning``."""
        run = self._run(first, seed)
        _to_its_end(run.run(), stopped)
        assert run.best is not None
        found = arrays_of(run.best)
        return found, self.cost(found)

    def cost(self, arrays: Arrays) -> float:
        """See ``Learning``."""
        (allocated,) = self._run(arrays, FIRST_TRAINING_SEED).validate(flat(arrays)).by_trace.values()
        return 100.0 - allocated

    def _run(self, first: Arrays, seed: int) -> FragRun:
        nodes, pods, held_back = self._lists
        settings = FragSettings(seed, self._steps, cluster=self._captured.digest)
        return FragRun(nodes, {"default": pods}, settings, held_back, flat(first))


LEARNINGS: dict[str, Callable[[str, Captured, int], Learning]] = {
    **dict.fromkeys(DEEP_SETS_POLICIES, SetsLearning), FRAG: FragLearning, MARL: AgentsLearning,
}  # fmt: skip


def _gain(before: float, after: float) -> float:
    """A share of ``before``; nothing is better than what costs nothing, and nothing is known of what is not finite."""
    return (before - after) / before if before > 0 and isfinite(after) else 0.0


class RoundsTrainer:
    """Keeps the best weights so far and their cost. ``steps``: of a round, in the trainer's own; 0: few."""

    stopped = False

    def stop(self) -> None:
        """From another thread: a round that is being learned ends at its next report, by ``RoundStopped``."""
        self.stopped = True

    def __init__(self, policy: str, captured: Captured, *, seed: int, steps: int) -> None:
        if policy not in LEARNINGS:
            raise ConfigError(f"capture: {policy} does not learn on one; choose one of {', '.join(sorted(LEARNINGS))}")
        if not FIRST_TRAINING_SEED <= seed <= LAST_SEED:
            raise ConfigError(
                f"seed: {seed} is not of those that learn on a capture; give {FIRST_TRAINING_SEED} to {LAST_SEED}"
            )
        self._learning = LEARNINGS[policy](policy, captured, steps)
        self._captured = captured
        self._seed = seed
        self._base: WeightsFile | None = None
        self._base_cost = 0.0
        self._judged: tuple[str, float] | None = None
        self._arrays: Arrays = {}
        self._rounds = 0

    def round(self, base: WeightsFile, number: int, *, anew: bool, first: WeightsFile | None = None) -> float:
        """One round; by how much the best weights so far are better than ``base``, as a share of its cost. ``anew``:
        from ``first`` where that is better than ``base``, else from this."""
        torch.set_num_threads(1)
        if anew or self._base is None or self._base.sha256 != base.sha256:
            begun = base if first is None or self.gain(base, first) <= 0 else first
            self._base, self._arrays, self._rounds = base, begun.arrays, 0
            self._base_cost = self._cost_of(base)
        self._arrays, cost = self._learning.learn(self._arrays, self._seed + number, lambda: self.stopped)
        self._rounds += 1
        return _gain(self._base_cost, cost)

    def gain(self, base: WeightsFile, other: WeightsFile) -> float:
        """By how much ``other`` is better than ``base`` on the days held back, as a share of its cost. Raises
        ``RoundStopped``."""
        if self.stopped:
            raise RoundStopped("the learner is asked to stop")
        torch.set_num_threads(1)
        return _gain(self._cost_of(base), self._learning.cost(other.arrays))

    def _cost_of(self, base: WeightsFile) -> float:
        """Judged once: it stays for many rounds."""
        if self._judged is None or self._judged[0] != base.sha256:
            self._judged = base.sha256, self._learning.cost(base.arrays)
        return self._judged[1]

    def best(self, version: int) -> WeightsFile:
        """The best weights so far, with a card that says how they came about."""
        base = self._base
        assert base is not None
        trained = {
            **base.card.trained,
            "online": {"from": base.sha256, "rounds": self._rounds, "data": self._captured.describe()},
        }
        limits = [self._captured.limit, *base.card.limits[1:]]
        card = msgspec.structs.replace(base.card, version=version, trained=trained, figures={}, limits=limits)
        return WeightsFile(dict(self._arrays), card)
