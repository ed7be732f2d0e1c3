"""Policies by name: heuristics, and learned ones from their weights.

A learned policy is a function of a ``WeightsFile`` to a ``Policy`` and checks the arrays' shapes itself
(``weights.decode`` with ``expect_shapes``, or ``ConfigError`` in its constructor). ``make_policy`` gives it the weights
that are shipped; ``load_policy`` those that the rollout names by digest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shared.errors import ConfigError
from shared.policy.deepsets.policy import DEEP_SETS_POLICIES, DeepSetsPolicy
from shared.policy.frag.policy import FragPolicy, best_fit, fgd
from shared.policy.frag.value import NAME as FRAG
from shared.policy.heuristics import KubeDefault, LeastAllocated, MostAllocated, Random
from shared.policy.marl.policy import NAME, MarlDqn
from shared.policy.observation import NOTHING, Needs, Policy, needs_of
from shared.policy.weights import WeightsFile, decode, shipped, shipped_names
from shared.wire.records import PolicyRef

HEURISTICS: dict[str, Callable[[], Policy]] = {
    "best-fit": best_fit,
    "fgd": fgd,
    "kube-default": KubeDefault,
    "least-allocated": LeastAllocated,
    "most-allocated": MostAllocated,
    "random": Random,
}

LEARNED: dict[str, Callable[[WeightsFile], Policy]] = {
    FRAG: FragPolicy,
    NAME: MarlDqn,
    **dict.fromkeys(DEEP_SETS_POLICIES, DeepSetsPolicy),
}
"""Learned policies by name; a policy's version is its card's."""


def _shipped(name: str) -> Callable[[], Policy]:
    return lambda: LEARNED[name](shipped(name))


POLICIES: Mapping[str, Callable[[], Policy]] = {
    **HEURISTICS,
    **{name: _shipped(name) for name in shipped_names() if name in LEARNED},
}
"""All of ours that can be made by name alone."""

_OURS = frozenset({*HEURISTICS, *LEARNED})


def bring(name: str, maker: Callable[[], Policy]) -> None:
    """Know a user's policy from now on; once, at start. Raises ``ConfigError`` for a name of ours."""
    if name in _OURS:
        raise ConfigError(f"plugin {name}: is the name of a policy of ours; rename its entry point")
    HEURISTICS[name] = maker


def needs_of_name(name: str) -> Needs:
    """What the policy called ``name`` needs; nothing for one that is not known here."""
    maker = HEURISTICS.get(name) or LEARNED.get(name)
    return NOTHING if maker is None else needs_of(maker)


def make_policy(name: str) -> Policy:
    """The policy called ``name``, a learned one with its shipped weights. Raises ``ConfigError`` naming those there
    are."""
    if name in HEURISTICS:
        return HEURISTICS[name]()
    if name in LEARNED:
        return LEARNED[name](shipped(name))
    raise unknown(name)


def load_policy(name: str, *, data: bytes | None, sha256: str) -> Policy:
    """The policy with these weights: a heuristic without (``sha256`` ""), a learned one checked by digest.

    Raises ``ConfigError`` naming what does not fit.
    """
    if name in HEURISTICS:
        if sha256:
            raise ConfigError(f"policy: {name} is a heuristic and has no weights; leave the digest out")
        return HEURISTICS[name]()
    if name not in LEARNED:
        raise unknown(name)
    if data is None or not sha256:
        raise ConfigError(f"policy: no weights for {name}; publish them, or choose another version")
    file = decode(data, policy=name, sha256=sha256)
    try:
        return LEARNED[name](file)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(
            f"weights of {file.title}: the policy cannot be made of them ({error!r}); train again"
        ) from error


def ref_of(name: str) -> PolicyRef:
    """The reference of a heuristic, or of a learned policy's shipped weights. Raises ``ConfigError``."""
    if name in HEURISTICS:
        return PolicyRef(name, HEURISTICS[name]().version)
    if name not in LEARNED:
        raise unknown(name)
    file = shipped(name)
    return PolicyRef(name, file.card.version, file.sha256)


def unknown(name: str) -> ConfigError:
    """The refusal of a name, with those there are."""
    return ConfigError(f"policy: {name!r} is not known; choose one of {', '.join(sorted({*HEURISTICS, *LEARNED}))}")
