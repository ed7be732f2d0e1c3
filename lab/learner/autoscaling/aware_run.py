"""Trains ``aware``: a recurrent policy over many service graphs (``graphs``), so that it adapts while it plays.

Bootstrapping: on ``taught_episodes`` it imitates ``hpa`` with the best settings of the grid. Then rounds of proximal
policy optimisation on whole episodes, each on a graph of its own; gradients go back through all of an episode. Reward
and validation are those of ``karma`` (``episodes``): validation is on the default graph, which is none of the drawn
ones. Meta-learning by recurrence: Duan et al. 2016, Wang et al. 2016; for autoscaling: ``networks.aware``. A run is a
function of its settings, however many workers play.

Scalars: ``train/reward`` (mean per decision), ``train/entropy``, ``train/value_loss``, and validation's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lab.algorithms.ppo import FORBIDDEN, Evaluated, advantages_of_cut, entropy_of, learn, masked, normalised, taken
from lab.autoscaling.episode import Setup
from lab.autoscaling.policies import BASELINE, make
from lab.learner.autoscaling.episodes import (
    EPISODES_OF_A_SEED,
    STRENGTH,
    Arrays,
    Best,
    Prices,
    default_world,
    team_reward,
    training_setup,
)
from lab.learner.autoscaling.graphs import drawn_graph
from lab.learner.autoscaling.ppo_run import ScalingPpoRun
from lab.learner.autoscaling.rollout import drawn
from lab.learner.autoscaling.rounds import check_rounds
from lab.learner.marl.networks import LinearStack
from lab.learner.training.runner import FIRST_TRAINING_SEED, check_seed
from lab.workers import Workers
from shared.autoscaling.networks.aware import MEMORY, NAME, TOLD, MetaEyes, gru
from shared.autoscaling.networks.features import STEPS
from shared.policy.networks import layer_count, mlp
from shared.policy.weights import Card, WeightsFile

ROUNDS = 16
ACTION_STREAM = 34


@dataclass(frozen=True, slots=True)
class AwareRunSettings:
    """One run."""

    seed: int = FIRST_TRAINING_SEED
    rounds: int = ROUNDS
    episodes_per_round: int = 16
    taught_episodes: int = 32
    taught_epochs: int = 2
    epochs: int = 6
    batch_episodes: int = 4
    learning_rate: float = 1e-3
    final_learning_rate: float = 1e-4
    clip: float = 0.2
    entropy: float = 0.02
    discount: float = 0.95
    trace: float = 0.9
    value_weight: float = 0.5
    max_gradient: float = 0.5
    hidden: int = 64
    validate_every: int = 4
    strength: float = STRENGTH
    seconds: int = 600
    """Of an episode of training."""
    prices: Prices = field(default_factory=Prices)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_rounds(self.rounds, self.episodes)

    @property
    def episodes(self) -> int:
        """How many there are in all."""
        return self.taught_episodes + self.rounds * self.episodes_per_round

    def as_json(self) -> Mapping[str, Any]:
        """JSON values, for a checkpoint's digest and the card."""
        return {"policy": NAME, **asdict(self)}


@dataclass(frozen=True, slots=True)
class AwareRollout:
    """An episode. Leading axes [decisions, services]: what was told, masks, step taken (index), its log probability,
    reward."""

    rows: NDArray[np.float32]
    masks: NDArray[np.bool_]
    taken: NDArray[np.int64]
    log_p: NDArray[np.float64]
    rewards: NDArray[np.float64]


class Recurrent(nn.Module):
    """The embedding, the agent that decides on it, and a critic that sees the graph's mean too."""

    def __init__(self, hidden: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.memory = nn.GRU(len(TOLD), MEMORY)
        self.actor = LinearStack((len(TOLD) + MEMORY, hidden, len(STEPS)), seed=seed + 1)
        self.critic = LinearStack((2 * len(TOLD) + MEMORY, hidden, 1), seed=seed + 2)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(logits [decisions, episodes, services, steps], values [decisions, episodes, services]) of whole episodes
        ``rows`` [decisions, episodes, services, told]."""
        length, episodes, services, told = rows.shape
        embedded = self.memory(rows.reshape(length, episodes * services, told))[0].reshape(
            length, episodes, services, -1
        )
        both = torch.cat((rows, embedded), dim=-1)
        mean = rows.mean(dim=2, keepdim=True).expand_as(rows)
        return self.actor(both), self.critic(torch.cat((both, mean), dim=-1)).squeeze(-1)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The policy's parameters as numpy copies, by the names that ``networks.aware`` runs."""
        cell = dict(self.memory.named_parameters())
        return {
            "gru.wi": cell["weight_ih_l0"].detach().numpy().T.copy(),
            "gru.wh": cell["weight_hh_l0"].detach().numpy().T.copy(),
            "gru.bi": cell["bias_ih_l0"].detach().numpy().copy(),
            "gru.bh": cell["bias_hh_l0"].detach().numpy().copy(),
            **self.actor.arrays(),
        }


class AwareRun(ScalingPpoRun[AwareRollout]):
    """One training run and all its state. Validation is in the default world."""

    settings: AwareRunSettings

    def __init__(self, settings: AwareRunSettings, workers: Workers | None = None) -> None:
        self.settings, self.world = settings, default_world()
        self.network = Recurrent(settings.hidden, settings.seed)
        super().__init__(NAME, settings.seed, {"network": self.network}, settings.learning_rate)
        self.workers = workers or Workers()
        self.best = Best(arrays=self.network.arrays())

    def judged(self) -> WeightsFile:
        """The network of the moment."""
        return WeightsFile(self.network.arrays(), Card(policy=NAME, version=1))

    def weights(self, **card: Any) -> WeightsFile:
        """The best validated weights, with what the caller adds to their card."""
        return WeightsFile(self.best.arrays, Card(policy=NAME, features=list(TOLD), **card))

    def play(self, first: int, count: int, *, taught: bool = False) -> list[AwareRollout]:
        """The training episodes from ``first`` on; ``taught``: by the baseline."""
        s = self.settings
        params = None if taught else self.network.arrays()
        jobs = [
            (training_setup(s.seed, number, s.strength, Setup(drawn_graph(s.seed, number), seconds=s.seconds)),
             s.seed * EPISODES_OF_A_SEED + number, params, s.prices)
            for number in range(first, first + count)
        ]  # fmt: skip
        return list(self.workers.map(_play_one, jobs))

    def begin(self) -> None:
        """Imitates the baseline."""
        s = self.settings
        played = self.play(0, s.taught_episodes, taught=True)
        rows, masks, taken = (_stacked([getattr(one, name) for one in played]) for name in ("rows", "masks", "taken"))
        for _ in range(s.taught_epochs):
            for at in self.batches(len(played), s.batch_episodes):
                logits = self.network(rows[:, at])[0].masked_fill(~masks[:, at], FORBIDDEN)
                self.descend(nn.functional.cross_entropy(logits.reshape(-1, len(STEPS)), taken[:, at].reshape(-1)))

    def learn(self, played: list[AwareRollout]) -> dict[str, float]:
        """Epochs of clipped updates, back through whole episodes."""
        s = self.settings
        rows, masks, actions, log_p = (
            _stacked([getattr(one, name) for one in played]) for name in ("rows", "masks", "taken", "log_p")
        )
        with torch.no_grad():
            values = self.network(rows)[1].double().numpy()
        gains = [advantages_of_cut(one.rewards, values[:, at], s.discount, s.trace) for at, one in enumerate(played)]
        gained = _stacked([one.astype(np.float32) for one in gains])
        returns, advantage, log_p = gained + torch.from_numpy(values).float(), normalised(gained), log_p.float()

        def judge(at: Tensor) -> Evaluated:
            logits, value = self.network(rows[:, at])
            log_all = masked(logits, masks[:, at])
            return Evaluated(taken(log_all, actions[:, at]), entropy_of(log_all), value)

        found = learn(judge, log_p, advantage, returns, s, self.descend, self._rng, batch=s.batch_episodes, axis=1)
        means = np.mean([(one.entropy, one.value_loss) for one in found], axis=0).tolist()
        return dict(zip(("train/entropy", "train/value_loss"), means, strict=True))


def play_told(setup: Setup, seed: int, params: Arrays | None, prices: Prices) -> AwareRollout:
    """Play the episode of ``seed``; ``params`` None: by ``hpa``, as far as steps let it."""
    world, eyes = setup.world(seed), MetaEyes()
    rng = np.random.default_rng([seed, ACTION_STREAM])
    rule = make(BASELINE) if params is None else None
    memory = np.zeros((len(setup.topology.services), MEMORY), np.float32)
    found: list[tuple[Any, ...]] = []
    while not world.over:
        seen = world.observe()
        rows, masks = eyes.look(seen)
        if params is None:
            assert rule is not None
            wanted = rule.decide(seen)
            gaps = [wanted.get(name, one.replicas) - one.replicas for name, one in seen.services.items()]
            taken, log_p = _nearest(gaps, masks), np.zeros(len(gaps))
        else:
            memory = gru(params, rows, memory)
            logits = mlp(params, np.concatenate((rows, memory), axis=1), layer_count(params))
            taken, log_p = drawn(logits.astype(np.float64), masks, rng)
        world.apply(eyes.step(taken))
        first = world.now_s
        world.run(setup.decide_s)
        rewards = team_reward(world.seconds, first, prices) - prices.change * np.abs(np.array(STEPS)[taken])
        found.append((rows, masks, taken, log_p, rewards))
    return AwareRollout(*(np.array(part) for part in zip(*found, strict=True)))


def _nearest(gaps: list[int], masks: NDArray[np.bool_]) -> NDArray[np.int64]:
    distance = np.abs(np.array(STEPS)[None, :] - np.array(gaps)[:, None]) + np.where(masks, 0.0, 100.0)
    found: NDArray[np.int64] = distance.argmin(axis=1)
    return found


def _play_one(job: tuple[Setup, int, Arrays | None, Prices]) -> AwareRollout:
    return play_told(*job)


def _stacked(parts: list[NDArray[Any]]) -> Tensor:
    """[decisions, episodes, services, ...]."""
    return torch.from_numpy(np.stack(parts, axis=1))
