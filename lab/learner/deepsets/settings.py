"""What a training run of ``ee``, ``lb`` or ``el`` is set to: the published hyper-parameters, and where ours differ.

Every difference of the shipped weights is numbered, value against value, in docs/policies/deepsets.md; what a captured
cluster is learned by stands here (``settings_on``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lab.algorithms.dqn import DqnLearnerSettings
from lab.algorithms.ppo import PpoSettings
from lab.learner.deepsets.heads import Head
from lab.learner.training.dqn_run import DqnRunSettings
from lab.learner.training.runner import FIRST_TRAINING_SEED, Algorithm
from shared.errors import ConfigError
from shared.policy.deepsets.policy import DEEP_SETS_POLICIES

BY_PPO = ("ee", "el")
"""Whose shipped weights are the logits of a policy; those of the others are values."""


PACKED_DISCOUNT = 0.95
"""Of ``ee`` and ``el`` on a captured cluster: which node is taken into use tells only once more pods have come."""
PACKED_STEPS = 4_000


@dataclass(frozen=True, slots=True)
class DeepSetsSettings(DqnRunSettings):
    """One run."""

    seed: int = FIRST_TRAINING_SEED
    decisions: int = 20_000
    """Placements to learn from."""
    learning_starts: int = 1_000
    """Placements before the first gradient step."""
    train_every: int = 2
    """Placements per gradient step."""
    hidden: tuple[int, ...] = (32, 32)
    discount: float = 0.8
    reward_scale: float = 0.1
    """Rewards are multiplied by this before they are learned from."""
    epsilon_begin: float = 1.0
    epsilon_end: float = 0.1
    exploration_share: float = 0.4
    """Share of the run over which epsilon falls."""
    replay_capacity: int = 50_000
    validate_every: int = 5_000
    """Placements between validations; the best validated weights are kept."""
    dqn: DqnLearnerSettings = field(default_factory=lambda: DqnLearnerSettings(batch_size=64, target_period=200))
    final_learning_rate: float = 1e-5
    """Adam's step falls on a straight line to this."""
    warm_up: str = ""
    """What is imitated before anything is learned from rewards: kube-default, a twin file's digest, or nothing."""

    reward: str = ""
    """A reward of the user's own, as an expression or a plug-in's name, in place of the shipped one."""
    head: Head = ""
    """What the last layer gives (``heads.py``); "": a Q per node. Others are there to be compared."""
    ppo: PpoSettings | None = None
    """Learn by proximal policy optimisation with these (``ppo.py``); None: by deep Q-learning."""
    cluster: str = ""
    """The digest of the captured cluster that it learns on; "": scenarios that are drawn."""

    @property
    def goes_on(self) -> bool:
        """Whether it begins with the shipped weights: on a captured cluster, where they mean what is learned here."""
        return bool(self.cluster) and (self.ppo is not None) == (self.policy in BY_PPO)

    def __post_init__(self) -> None:
        if self.policy not in DEEP_SETS_POLICIES:
            raise ConfigError(f"policy: {self.policy!r} is not trained here; choose one of {list(DEEP_SETS_POLICIES)}")
        DqnRunSettings.__post_init__(self)
        if self.decisions <= self.learning_starts:
            raise ConfigError(
                f"--steps: {self.decisions} decisions are too few, learning starts after {self.learning_starts};"
                f" give {self.learning_starts + 1} or more"
            )


def settings_for(policy: str, seed: int = FIRST_TRAINING_SEED, decisions: int | None = None) -> DeepSetsSettings:
    """The settings the shipped weights were trained with."""
    settings = DeepSetsSettings(policy, seed)
    if (
        policy == "ee"
    ):  # its reward turns on one rank: what Q-learning errs by is more than what two full nodes differ by
        settings = replace(settings, decisions=12_000, validate_every=1_000, ppo=PpoSettings())
    if policy == "el":  # by deep Q-learning one training seed in four met its goals; PPO is as short as it is sure
        settings = replace(settings, reward_scale=0.5, decisions=8_000, validate_every=1_000, ppo=PpoSettings())
    return settings if decisions is None else replace(settings, decisions=decisions)


def learning_by(settings: DeepSetsSettings, algorithm: Algorithm) -> DeepSetsSettings:
    """The same by another algorithm; "": as it is."""
    match algorithm:
        case "":
            return settings
        case "ppo":
            return replace(settings, ppo=PpoSettings(), head="")
        case "distributional":
            return replace(settings, ppo=None, head="quantile")
        case _:
            return replace(settings, ppo=None, head="", dqn=replace(settings.dqn, double=algorithm == "double"))


def settings_on(
    policy: str, seed: int, decisions: int | None, *, cluster: str, algorithm: Algorithm
) -> DeepSetsSettings:
    """Those for going on from the shipped weights on a captured cluster; what the shipped weights were not learned by
    begins from nothing, and explores as such. So do ``ee`` and ``el``, distributional, where nothing else is said:
    their shipped weights are so sure of themselves that PPO, going on from them, never tries another node."""
    packs = policy in BY_PPO
    by: Algorithm = "distributional" if packs and not algorithm else algorithm
    settings = replace(learning_by(settings_for(policy, seed), by), cluster=cluster, validate_every=1_000)
    if packs:
        settings = replace(settings, discount=PACKED_DISCOUNT, validate_every=500, reward_scale=0.1)
    if settings.goes_on:
        return replace(
            settings, decisions=decisions or 10_000, learning_starts=500, epsilon_begin=0.3, epsilon_end=0.05,
            dqn=replace(settings.dqn, learning_rate=5e-4),
        )  # fmt: skip
    if packs and settings.ppo is None:
        settings = replace(settings, decisions=PACKED_STEPS, learning_starts=500, epsilon_end=0.05)
    return settings if decisions is None else replace(settings, decisions=decisions)
