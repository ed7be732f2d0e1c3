"""Which policies the suite compares: the registry's, and ``hpa`` with the settings that were the best of the grid.

``hpa-default`` is HPA as it comes: 80 % cpu and the default behaviour. Both are HPA's own rule; what differs is tuning.
"""

from __future__ import annotations

from collections.abc import Mapping

from lab.worlds.services.scenarios import calibration
from shared.autoscaling.networks.aware import AwarePolicy
from shared.autoscaling.networks.dqn import DqnPolicy
from shared.autoscaling.networks.karma import KarmaPolicy, SinglePolicy
from shared.autoscaling.observation import Policy
from shared.autoscaling.registry import POLICIES, make_policy
from shared.errors import ConfigError
from shared.policy.weights import WeightsFile

BASELINE = "hpa"
DEFAULT_HPA = "hpa-default"
"""HPA as Kubernetes sets it up where nobody tunes it."""
Learned = KarmaPolicy | DqnPolicy | AwarePolicy
LEARNED: Mapping[str, type[Learned]] = {one.name: one for one in (AwarePolicy, DqnPolicy, KarmaPolicy, SinglePolicy)}
"""Those that have weights."""


def names() -> tuple[str, ...]:
    """All that can be compared, the baseline first."""
    return (BASELINE, DEFAULT_HPA, *(name for name in sorted(POLICIES) if name != BASELINE))


def make(name: str, weights: WeightsFile | None = None) -> Policy:
    """A new policy. ``weights``: in place of those that are shipped. ``ConfigError``: it is not known."""
    if name not in names():
        raise ConfigError(f"--policy: {name!r} is not compared here; choose from {', '.join(names())}")
    if name in LEARNED:
        return LEARNED[name](weights=weights)
    if name == DEFAULT_HPA:
        return make_policy(BASELINE)
    return make_policy(name, calibration().hpa if name == BASELINE else None)


def digests(policies: Mapping[str, Policy]) -> dict[str, str]:
    """sha256 of the weights of each policy that has some."""
    return {name: policy.weights.sha256 for name, policy in policies.items() if isinstance(policy, Learned)}


def fits(policy: Policy, services: int) -> bool:
    """Whether it can decide for a graph of so many services."""
    return getattr(policy, "services", 0) in (0, services)
