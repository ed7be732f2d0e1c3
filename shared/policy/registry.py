"""Policies by name: heuristics, and learned ones from their weights.

A learned policy is a function of a ``WeightsFile`` to a ``Policy`` and checks the arrays' shapes itself
(``weights.decode`` with ``expect_shapes``, or ``ConfigError`` in its constructor). ``make_policy`` gives it the weights
that are shipped; ``load_policy`` those that the rollout names by digest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from shared.errors import ConfigError
from shared.policy.agreement import REMEDY as AGREE_REMEDY
from shared.policy.agreement import disagreement
from shared.policy.deepsets.policy import DEEP_SETS_POLICIES, DeepSetsPolicy
from shared.policy.frag.policy import BestFitPolicy, FgdPolicy, FragPolicy
from shared.policy.frag.power_policy import POWER, PowerPolicy
from shared.policy.frag.value import NAME as FRAG
from shared.policy.heuristics import KubeDefault, LeastAllocated, MostAllocated, Random
from shared.policy.hybrid import mixture as mixtures
from shared.policy.hybrid.mixture import (
    Definition,
    Mixture,
    MixtureInvalid,
    PossibleMember,
    is_mixture,
    mixture_of,
    parse,
    read_definition,
)
from shared.policy.hybrid.policy import Hybrid, bounds_of
from shared.policy.hybrid.scales import SCALES
from shared.policy.marl.policy import NAME, PUBLISHED, MarlDqn
from shared.policy.observation import NOTHING, Need, Needs, Policy, agents_agree, needs_of
from shared.policy.rollout.outcome import goal_named
from shared.policy.weights import Card, WeightsFile, decode, encode, shipped, shipped_bytes, shipped_names
from shared.wire.records import PolicyRef

__all__ = [
    "Definition",
    "Mixture",
    "MixtureInvalid",
    "is_mixture",
    "mixture_of",
    "parse",
    "read_definition",
]  # beside what is defined here

HEURISTICS: dict[str, Callable[[], Policy]] = {
    "best-fit": BestFitPolicy,
    "fgd": FgdPolicy,
    "kube-default": KubeDefault,
    "least-allocated": LeastAllocated,
    "most-allocated": MostAllocated,
    POWER: PowerPolicy,
    "random": Random,
}


def _hybrid(file: WeightsFile) -> Hybrid:
    """The mixture in the file, its members made of what lies in it. Raises ``ConfigError``."""
    mixture = mixtures.read(file)
    return Hybrid(mixture, members_made(mixture), version=file.card.version)


def members_made(mixture: Mixture) -> list[Policy]:
    """The policies of a mixture's members, made anew. Raises ``ConfigError``."""
    made: list[Policy] = []
    for member in mixture.members:
        if member.policy in HEURISTICS:
            made.append(HEURISTICS[member.policy]())
        elif member.policy in LEARNED and member.policy != mixtures.NAME and member.policy in mixture.files:
            made.append(LEARNED[member.policy](mixture.files[member.policy]))
        else:
            raise MixtureInvalid(
                f"weights of {mixtures.NAME}: members: {member.policy!r} is not to be had here; load its plug-in, or "
                "mix policies that every agent has"
            )
        if member.low == member.high and bounds_of(made[-1]) is None:
            raise MixtureInvalid(
                f"weights of {mixtures.NAME}: scales.{member.policy}: no bounds are known here; mix it with a scale"
            )
    return made


LEARNED: dict[str, Callable[[WeightsFile], Policy]] = {
    FRAG: FragPolicy,
    NAME: MarlDqn,
    PUBLISHED: MarlDqn,
    mixtures.NAME: _hybrid,
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

LEFT_OUT: dict[str, str] = {}
"""Why a user's policy is not known, though it is named."""


def bring(name: str, maker: Callable[[], Policy]) -> str:
    """Know a user's policy from now on; once, at start. What its author should mend, "" for nothing: one that says
    nothing of other agents is taken where it was tried out and agrees. Raises ``ConfigError`` for a name of ours, and
    for one by which several agents' nodes would not compare."""
    if name in _OURS:
        raise ConfigError(f"plugin {name}: is the name of a policy of ours; rename its entry point")
    if why := disagreement(maker):
        raise ConfigError(f"plugin {name}: {why}; agents see some of the nodes each: {AGREE_REMEDY}")
    HEURISTICS[name] = maker
    return "" if agents_agree(maker()) else f"its scores are not said to compare across agents: {AGREE_REMEDY}"


def needs_of_name(name: str) -> Needs:
    """What the policy called ``name`` needs; nothing for one that is not known here."""
    maker = HEURISTICS.get(name) or LEARNED.get(name)
    return NOTHING if maker is None else needs_of(maker)


def needs_of_ref(ref: PolicyRef) -> Needs:
    """What the policy needs, of a mixture what any of its members does."""
    return needs_of_name(ref.name).union(*(needs_of_name(name) for name in ref.members))


NODES_ALONE = frozenset({Need.GPU_SHARES, Need.DEMAND, Need.POWER})


def goes_by_nodes(ref: PolicyRef) -> bool:
    """Whether a policy of ours judges GPU nodes by themselves and the demand: whoever sees all nodes can say what it
    makes of them."""
    needs = needs_of_ref(ref)
    return ref.name in _OURS and not ref.members and Need.GPU_SHARES in needs and needs <= NODES_ALONE


def made_here(ref: PolicyRef) -> Policy | None:
    """Such a policy, where it takes no other weights than those that are shipped."""
    if not goes_by_nodes(ref) or not (ref.name in HEURISTICS or ref.name in shipped_names()):
        return None
    as_in_settings = PolicyRef(ref.name, 0)  # while there is no pointer
    return make_policy(ref.name) if ref.name in HEURISTICS or ref in (as_in_settings, ref_of(ref.name)) else None


def heeds_latency(ref: PolicyRef) -> bool:
    """Whether the policy, of a mixture any of its members, looks at limits of latency that are no more than preferred.
    It says so by an attribute ``heeds_latency``: True, or the names under which it does."""
    try:
        names = tuple(parse(ref.name).policies) if is_mixture(ref.name) else (ref.name,)
    except MixtureInvalid:
        names = ()  # another version wrote it; its members are known
    for name in (*names, *ref.members):
        said = getattr(HEURISTICS.get(name) or LEARNED.get(name), "heeds_latency", ())
        if said is True or (isinstance(said, list | tuple | set | frozenset) and name in said):
            return True
    return False


def goal_of(name: str, card: Card | None = None) -> str:
    """What the policy ``name`` is for, by which a roll-out compares it: the goal that its card names, else its own;
    "": nothing that has a name. Raises ``GoalUnknown``."""
    if card is not None and card.goal is not msgspec.UNSET:
        goal = card.goal
    elif name in HEURISTICS:
        goal = str(getattr(HEURISTICS[name](), "goal", ""))
    else:
        maker = LEARNED.get(name)
        goal = str(getattr(maker, "goals", {}).get(name) or getattr(maker, "goal", ""))
    if goal:
        goal_named(goal)
    return goal


def rehearsed_beside(name: str) -> str:
    """The policy that may place instead of ``name`` where it wins a rehearsal; "": none may."""
    beside: str = getattr(LEARNED.get(name), "rehearsed_beside", "")
    return beside


def make_policy(name: str) -> Policy:
    """The policy called ``name``, a learned one with its shipped weights, or a mixture in short form. Raises
    ``ConfigError`` naming those there are."""
    if is_mixture(name):
        return _hybrid(mixed(name))
    if name == mixtures.NAME:
        raise ConfigError(f"policy: {name} is made of others; {mixtures.REMEDY}")
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
    if file.card.networks is not msgspec.UNSET and LEARNED[name] is not MarlDqn:
        raise ConfigError(f"weights of {file.title}: networks: {name} has one for all nodes; leave the field out")
    try:
        return LEARNED[name](file)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ConfigError(
            f"weights of {file.title}: the policy cannot be made of them ({error!r}); train again"
        ) from error


def ref_of(name: str) -> PolicyRef:
    """The reference of a heuristic, of a learned policy's shipped weights, or of a mixture in short form. Raises
    ``ConfigError``."""
    if is_mixture(name):
        return reference(mixed(name))
    if name == mixtures.NAME:
        raise ConfigError(f"policy: {name} is made of others; name its version, or {mixtures.REMEDY}")
    if name in HEURISTICS:
        return PolicyRef(name, HEURISTICS[name]().version)
    if name not in LEARNED:
        raise unknown(name)
    return reference(shipped(name))


def reference(file: WeightsFile) -> PolicyRef:
    """Of a weights file that was decoded."""
    return PolicyRef(file.card.policy, file.card.version, file.sha256, mixtures.members_of(file.card))


def bytes_of(name: str) -> bytes | None:
    """The weights file of what ``ref_of`` refers to; None for a heuristic. Raises ``ConfigError``."""
    if is_mixture(name):
        return _encoded(name)
    return None if name in HEURISTICS else shipped_bytes(name)


def mixed(name: str) -> WeightsFile:
    """The mixture that a short form names, of the policies that are here. Raises ``ConfigError``."""
    return decode(_encoded(name), policy=mixtures.NAME)


@lru_cache(maxsize=16)
def _encoded(name: str) -> bytes:
    return encode(mixtures.build(mixtures.mixture_of(mixtures.parse(name), mixable({}))))


def mixable(weights: Mapping[str, WeightsFile]) -> dict[str, PossibleMember]:
    """The policies that may be members of a mixture; ``weights``: in place of those that are shipped."""
    found: dict[str, PossibleMember] = {}
    for name, maker in HEURISTICS.items():
        policy = maker()
        found[name] = PossibleMember(policy.version, bounds_of(policy) is not None, SCALES.get(name))
    for name in LEARNED:
        if name != mixtures.NAME and (name in weights or name in shipped_names()):
            file = weights[name] if name in weights else shipped(name)
            found[name] = PossibleMember(file.card.version, False, SCALES.get(name), file)
    return found


def unknown(name: str) -> ConfigError:
    """The refusal of a name: why it was left out, or those there are."""
    if name in LEFT_OUT:
        return ConfigError(f"policy: {name!r} was left out: {LEFT_OUT[name]}; correct it, or choose another policy")
    return ConfigError(f"policy: {name!r} is not known; choose one of {', '.join(sorted({*HEURISTICS, *LEARNED}))}")
