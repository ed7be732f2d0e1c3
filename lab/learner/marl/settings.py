"""What a training run of marl-dqn, of its published variant or of the single DQN is set to.

Every difference from the thesis is numbered, value against value, in docs/policies/marl-dqn.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lab.algorithms.dqn import DqnLearnerSettings
from lab.learner.marl.learner import AgentsSettings
from lab.learner.marl.rollout import Kind, Reward
from lab.learner.training.dqn_run import DqnRunSettings
from lab.learner.training.runner import FIRST_TRAINING_SEED, Algorithm
from shared.errors import ConfigError
from shared.policy.marl.policy import NAME, PUBLISHED
from shared.policy.marl.single_dqn import NAME as SINGLE
from shared.policy.weights import ClassNetworks

PER_NODE = "marl-dqn-per-node"
"""The switch: a network of its own for every node. Trained and compared, not shipped."""
POLICIES = (NAME, PUBLISHED, SINGLE, PER_NODE)
ROUNDS = 60
PUBLISHED_ROUNDS = 15
"""The reproduced variant is there to compare with; it gets fewer."""
EPISODES_OF_A_SEED = 100_000
"""Room for a run's episodes: run 1000 plays the pods of seeds from 100,000,000 on."""


@dataclass(frozen=True, slots=True)
class MarlSettings(DqnRunSettings):
    """One run. A round: some episodes with the weights of the moment, then some gradient steps."""

    seed: int = FIRST_TRAINING_SEED
    rounds: int = ROUNDS
    episodes_per_round: int = 16
    updates_per_round: int = 150
    kind: Kind = "shared"
    reward: Reward = "local-balance"
    agents: AgentsSettings = field(default_factory=AgentsSettings)
    hidden: tuple[int, ...] = (64, 64)
    nodes: int = 4
    discount: float = 0.97
    epsilon_begin: float = 1.0
    epsilon_end: float = 0.5
    exploration_share: float = 0.4
    """Share of the rounds over which epsilon falls."""
    replay_capacity: int = 60_000
    averaging: float = 0.998
    """The weights that are judged and kept are an exponential mean over gradient steps, with this factor (Polyak and
    Juditsky 1992)."""
    validate_every: int = 5
    """Rounds between validations; the best validated weights are kept."""
    patience: int = 5
    """The run ends early after so many validations without a better one (Prechelt 1998)."""
    dqn: DqnLearnerSettings = field(
        default_factory=lambda: DqnLearnerSettings(
            learning_rate=1e-3, batch_size=128, target_period=100, huber_delta=10.0
        )
    )
    final_learning_rate: float = 1e-4
    """Adam's step falls on a straight line to this."""
    lags_s: tuple[float, ...] = (0.0, 15.0, 15.0, 15.0, 15.0, 30.0, 60.0)
    """An episode draws the age of its measurements among these."""
    noises: tuple[float, ...] = (0.0, 0.0, 0.1)
    """An episode draws the noise of its measurements among these."""
    blind_share: float = 0.05
    """Share of the episodes without any measurement."""
    warm_up: str = ""
    """What is imitated before anything is learned from rewards: kube-default, a twin file's digest, or nothing."""
    algorithm: Algorithm = ""
    """What it learns by; "": what the recipe found best, ``double``."""
    cluster: str = ""
    """The digest of the captured cluster that it learns on; "": the thesis' experiment."""
    per: str = ""
    """A label of nodes: those of each of ``values`` have a network of their own; "": all share one."""
    values: tuple[str, ...] = ()

    @property
    def classes(self) -> ClassNetworks | None:
        """As the card says it; None: one network judges all nodes."""
        if not self.per:
            return None
        return ClassNetworks(self.per, {value: place + 1 for place, value in enumerate(self.values)})

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ConfigError(f"policy: {self.policy!r} is not trained here; choose one of {', '.join(POLICIES)}")
        DqnRunSettings.__post_init__(self)
        if (self.cluster or self.algorithm) and self.kind != "shared":
            raise ConfigError(
                f"--cluster, --algorithm: {self.policy} is made for {self.nodes} nodes, to compare with; train {NAME}"
            )
        if (self.cluster or self.algorithm) and self.reward != "local-balance":
            raise ConfigError(f"--cluster, --algorithm: {self.policy} is reproduced as published; train {NAME}")
        if self.rounds < 1 or self.rounds * self.episodes_per_round > EPISODES_OF_A_SEED:
            most = EPISODES_OF_A_SEED // self.episodes_per_round
            raise ConfigError(f"--steps: {self.rounds} rounds are out of range; give 1 to {most}")


def settings_for(policy: str, seed: int, rounds: int | None = None) -> MarlSettings:
    """The settings that the shipped weights of ``policy`` come from, for one seed."""
    length = ROUNDS if rounds is None else rounds
    if policy == PUBLISHED:
        own, length = AgentsSettings(bootstrap="own"), PUBLISHED_ROUNDS if rounds is None else rounds
        return MarlSettings(policy, seed, length, reward="band", agents=own, discount=0.9, epsilon_end=0.1)
    if policy == SINGLE:
        return MarlSettings(policy, seed, length, kind="single", reward="balance", hidden=(128, 128))
    return MarlSettings(policy, seed, length, kind="per-node" if policy == PER_NODE else "shared")


CLUSTER_ROUNDS = 30
CLUSTER_RATE = 5e-4


def settings_on(
    policy: str, seed: int, rounds: int | None, *, nodes: int, cluster: str, algorithm: Algorithm, per: str = "",
    values: tuple[str, ...] = (),
) -> MarlSettings:  # fmt: skip
    """Those for going on from the shipped weights on a captured cluster, ``nodes`` of which an episode has; by ``ppo``,
    which begins from nothing, as long as from nothing."""
    length = rounds or (ROUNDS if algorithm == "ppo" else CLUSTER_ROUNDS)
    settings = settings_for(policy, seed, length)
    return replace(
        settings, nodes=nodes, cluster=cluster, algorithm=algorithm, per=per, values=values, episodes_per_round=8,
        exploration_share=0.6,
        epsilon_begin=settings.epsilon_end, epsilon_end=0.1, blind_share=0.0, lags_s=(15.0, 15.0, 30.0),
        dqn=replace(settings.dqn, learning_rate=CLUSTER_RATE),
    )  # fmt: skip
