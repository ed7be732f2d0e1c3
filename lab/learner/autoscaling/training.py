"""Trains ``karma`` and its variants: MAPPO with masks (Yu et al., NeurIPS 2022), all agents share actor and critic.

A round is some episodes by the policy of the moment, then some epochs of clipped updates. The critic sees an agent's
features and the mean over its graph. It begins by imitating the rule by demand on ``taught_episodes`` episodes, which
count among the episodes; or from scratch, and then what the rule wants is cut from the inputs too. The weights kept are
those with the best validation on the mixed scenario (seeds 100-109), never judged on test seeds. A run is a function
of its settings, however many workers play. With ``agents`` single this is PPO for one agent of the whole graph. An
attacker may train along (``opponent``).

Scalars: ``train/reward`` (mean per decision), ``train/entropy``, ``train/clipped`` (share of updates that were),
``train/value_loss``, ``validation/score`` (success + half of latency compliance, percent, less replica hours),
``validation/success``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lab.algorithms.ppo import FORBIDDEN, Evaluated, advantages_of_cut, entropy_of, learn, masked, normalised, taken
from lab.autoscaling.budget import EPISODES_PER_ROUND, TAUGHT_EPISODES
from lab.autoscaling.envelope import envelope
from lab.autoscaling.episode import Setup
from lab.learner.autoscaling.episodes import (
    EPISODES_OF_A_SEED,
    STRENGTH,
    Arrays,
    Best,
    Prices,
    default_world,
    training_setup,
)
from lab.learner.autoscaling.opponent import Opponent
from lab.learner.autoscaling.ppo_run import ScalingPpoRun
from lab.learner.autoscaling.rollout import AttackPlan, ScalingRollout, play
from lab.learner.autoscaling.rounds import check_rounds
from lab.learner.marl.networks import LinearStack
from lab.learner.training.runner import FIRST_TRAINING_SEED, check_seed
from lab.workers import Workers
from lab.worlds.services.attacker import AttackerTerms
from shared.autoscaling.networks.agents import KarmaAgents
from shared.autoscaling.networks.features import FEATURES, OF_THE_RULE, STEPS
from shared.autoscaling.networks.karma import NAMES, KarmaPolicy, SinglePolicy
from shared.autoscaling.roles.organisation import Organisation
from shared.autoscaling.roles.reading import organisation_from, organisation_of
from shared.errors import ConfigError
from shared.policy.weights import Card, WeightsFile

ROUNDS = 30
ENVELOPE_EPISODES = 32
"""Played at the end, for the range of each input."""
IMITATION, SCRATCH = "imitation", "scratch"


@dataclass(frozen=True, slots=True)
class KarmaRunSettings:
    """One run."""

    seed: int = FIRST_TRAINING_SEED
    rounds: int = ROUNDS
    episodes_per_round: int = EPISODES_PER_ROUND
    taught_episodes: int = TAUGHT_EPISODES
    taught_epochs: int = 30
    epochs: int = 4
    batch_size: int = 1440
    learning_rate: float = 5e-4
    final_learning_rate: float = 5e-5
    clip: float = 0.2
    entropy: float = 0.003
    discount: float = 0.95
    trace: float = 0.9
    """Lambda of generalised advantage estimation."""
    value_weight: float = 0.5
    max_gradient: float = 0.5
    hidden: tuple[int, ...] = (64, 64)
    validate_every: int = 5
    strength: float = STRENGTH
    """Of the mixed scenario (``episodes``)."""
    seconds: int = 1800
    """Of an episode of training; validation is always whole."""
    agents: str = KarmaAgents.MULTI
    """multi: one for each service; single: one for the graph."""
    binding: str = "hard"
    """hard, soft, or none: no roles."""
    missions: bool = True
    """Whether what the roles' missions say is rewarded."""
    start: str = IMITATION
    """imitation of the rule by demand, or scratch: nothing of that rule."""
    organisation: Mapping[str, Any] | None = None
    """The user's own roles and missions, as ``organisation_from`` reads them; None: the shipped ones."""
    attacker: AttackerTerms | None = None
    """Who attacks in some episodes and learns along; None: nobody."""
    prices: Prices = field(default_factory=Prices)
    files: Mapping[str, str] = field(default_factory=dict)
    """What of its world comes from files: sha256 by flag; empty: nothing."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_rounds(self.rounds, self.episodes)

    @property
    def episodes(self) -> int:
        """How many there are in all; from scratch those that would be imitated are played like all others."""
        return self.taught_episodes + self.rounds * self.episodes_per_round

    @property
    def all_rounds(self) -> int:
        """``rounds``, and from scratch as many more as the imitated episodes would make: what is played is the same."""
        return self.rounds + (self.taught_episodes // self.episodes_per_round if self.start == SCRATCH else 0)

    @property
    def policy(self) -> str:
        """Whose weights come out."""
        return NAMES[KarmaAgents(self.agents)]

    def as_json(self) -> Mapping[str, Any]:
        """JSON values, for a checkpoint's digest and the card; ``files`` where there are any."""
        found = {"policy": self.policy, **asdict(self), "hidden": list(self.hidden)}
        for name in ("files", "organisation", "attacker"):
            if not found[name]:
                del found[name]
        return found


class KarmaRun(ScalingPpoRun[ScalingRollout]):
    """One training run and all its state. ``world``: what it is trained and validated in."""

    settings: KarmaRunSettings

    def __init__(
        self, settings: KarmaRunSettings, workers: Workers | None = None, *, world: Setup | None = None
    ) -> None:
        self.settings = settings
        self.agents = KarmaAgents(settings.agents)
        self.world = world or default_world()
        side_by_side = 1 if self.agents is KarmaAgents.MULTI else len(self.world.topology.services)
        inputs, actions = side_by_side * len(FEATURES), side_by_side * len(STEPS)
        self.actor = LinearStack((inputs, *settings.hidden, actions), seed=settings.seed)
        self.critic = LinearStack((2 * inputs, *settings.hidden, 1), seed=settings.seed + 1)
        if settings.start == SCRATCH:
            for network in (self.actor, self.critic):
                _cut(network)
        networks = {"actor": self.actor, "critic": self.critic}
        super().__init__(settings.policy, settings.seed, networks, settings.learning_rate)
        self.workers = workers or Workers()
        self.best = Best(arrays=self.actor.arrays())
        own = None if settings.organisation is None else organisation_from(settings.organisation, "--organisation")
        if settings.attacker is not None and self.world.twin is not None:
            raise ConfigError("--attacker: a learned twin has none; leave it out, or --twin")
        self.opponent = (
            None
            if settings.attacker is None
            else Opponent(settings.attacker, settings.seed, learning_rate=settings.learning_rate, name=settings.policy)
        )
        self.organisation = organisation_of(settings.binding, missions=settings.missions, roles=own)

    @property
    def length(self) -> int:
        """How many there will be."""
        return self.settings.all_rounds

    def begin(self) -> None:
        """Imitates the rule by demand, where it is told to."""
        if self.settings.start == IMITATION:
            self._imitate()

    def judged(self) -> WeightsFile:
        """The actor of the moment, under its roles."""
        own = self.settings.organisation
        trained = {"settings": {"binding": self.settings.binding, **({"organisation": own} if own else {})}}
        card = Card(policy=self.settings.policy, version=1, features=list(FEATURES), trained=trained)
        return WeightsFile(self.actor.arrays(), card)

    def weights(self, **card: Any) -> WeightsFile:
        """The best validated weights, with what the caller adds to their card."""
        return WeightsFile(self.best.arrays, Card(policy=self.settings.policy, features=list(FEATURES), **card))

    def play(self, first: int, count: int, *, taught: bool = False) -> list[ScalingRollout]:
        """The training episodes from ``first`` on; ``taught``: by the rule by demand."""
        s = self.settings
        params = None if taught else self.actor.arrays()
        jobs = [
            (self.setup(number), s.seed * EPISODES_OF_A_SEED + number, params, self.organisation, s.prices, self.agents,
             self.opponent.plan(number) if self.opponent is not None and not taught else None)
            for number in range(first, first + count)
        ]  # fmt: skip
        return list(self.workers.map(_play_one, jobs))

    def setup(self, number: int) -> Setup:
        """What training episode ``number`` plays."""
        s = self.settings
        return training_setup(s.seed, number, s.strength, replace(self.world, seconds=s.seconds))

    def _imitate(self) -> None:
        s = self.settings
        played = self.play(0, s.taught_episodes, taught=True)
        rows, masks, taught = (flat([getattr(one, name) for one in played]) for name in ("rows", "masks", "taught"))
        for _ in range(s.taught_epochs):
            for at in self.batches(len(rows), s.batch_size):
                logits = self.actor(rows[at]).masked_fill(~masks[at], FORBIDDEN)
                self.descend(torch.nn.functional.cross_entropy(logits, taught[at]))

    def learn(self, played: list[ScalingRollout]) -> dict[str, float]:
        """Epochs of clipped updates."""
        s = self.settings
        values = [self._values(one.rows) for one in played]
        gains = [
            advantages_of_cut(one.rewards, value, s.discount, s.trace)
            for one, value in zip(played, values, strict=True)
        ]
        rows, masks, actions, log_p = (
            flat([getattr(one, name) for one in played]) for name in ("rows", "masks", "taken", "log_p")
        )
        both = flat([_with_mean(one.rows) for one in played])
        returns = flat([(gain + value).astype(np.float32) for gain, value in zip(gains, values, strict=True)])
        advantage, log_p = normalised(flat([gain.astype(np.float32) for gain in gains])), log_p.float()

        def judge(at: Tensor) -> Evaluated:
            log_all = masked(self.actor(rows[at]), masks[at])
            return Evaluated(taken(log_all, actions[at]), entropy_of(log_all), self.critic(both[at]).squeeze(-1))

        found = learn(judge, log_p, advantage, returns, s, self.descend, self._rng, batch=s.batch_size)
        means = np.mean([(one.entropy, one.clipped, one.value_loss) for one in found], axis=0).tolist()
        told = dict(zip(("train/entropy", "train/clipped", "train/value_loss"), means, strict=True))
        if self.opponent is None:
            return told
        attacks = [one.attack for one in played if one.attack is not None]
        return told | self.opponent.learn(
            attacks, s, discount=s.discount, trace=s.trace, max_gradient=s.max_gradient, batch=s.batch_size
        )

    def get_state(self) -> dict[str, Any]:
        """Everything but the settings, the attacker's included."""
        found = super().get_state()
        return found if self.opponent is None else {**found, "opponent": self.opponent.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from ``get_state``'s answer."""
        super().set_state(state)
        if self.opponent is not None:
            self.opponent.set_state(state["opponent"])

    def _values(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        with torch.no_grad():
            found: NDArray[np.float64] = self.critic(torch.from_numpy(_with_mean(rows))).squeeze(-1).double().numpy()
        return found


def _play_one(
    job: tuple[Setup, int, Arrays | None, Organisation, Prices, KarmaAgents, AttackPlan | None],
) -> ScalingRollout:
    return play(*job)


def envelope_of(run: KarmaRun, weights: WeightsFile) -> dict[str, tuple[float, float]]:
    """The envelope of ``weights``, on the first episodes that ``run`` trains on."""
    numbers = range(ENVELOPE_EPISODES)
    episodes = [(run.setup(number), run.settings.seed * EPISODES_OF_A_SEED + number) for number in numbers]
    policy = KarmaPolicy if run.agents is KarmaAgents.MULTI else SinglePolicy
    return envelope(policy(weights=weights, organisation=run.organisation), episodes)


def _cut(network: LinearStack) -> None:
    """Take what the rule wants out of a network's inputs: their weights are 0 and stay so."""
    first = network.weights[0]
    kept = torch.tensor([name not in OF_THE_RULE for name in FEATURES], dtype=first.dtype)
    kept = kept.repeat(first.shape[0] // len(FEATURES))[:, None]
    with torch.no_grad():
        first *= kept
    first.register_hook(lambda gradient: gradient * kept)


def flat(parts: list[NDArray[Any]]) -> Tensor:
    """[all decisions of all agents of all episodes, ...]."""
    return torch.from_numpy(np.concatenate([part.reshape(-1, *part.shape[2:]) for part in parts]))


def _with_mean(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    mean = np.broadcast_to(rows.mean(axis=1, keepdims=True), rows.shape)
    return np.concatenate((rows, mean), axis=2, dtype=np.float32)
