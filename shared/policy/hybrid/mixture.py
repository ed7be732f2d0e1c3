"""What a mixture of policies is: its members, their weights per class of pods, and its form as a weights file.

    "kube-default=0.7,frag=0.3", or a file (TOML, JSON) --> Mixture --build--> weights file --read--> Mixture

A mixture is published as any learned policy is: one ``.npz``, named by its sha256. The file holds the weights, and of
each learned member its arrays and card, so that the digest names all that decides. It refuses, by the field's name,
what would decide nothing (weights that sum to nothing), what cannot be compared (a member of unknown scale), and a
mixture within a mixture. Pure; which policies there are is handed in (``registry``).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shared.errors import ConfigError
from shared.model.constraints import CLASS_LABEL_PREFIX, PodClass, Requirement
from shared.model.terms.labels import LabelSelector, canonical
from shared.policy.weights import Card, WeightsFile

NAME = "hybrid"
"""The policy that a mixture is, whatever its members are."""
WEIGHTS = "weights"
"""The array of weights, float32 ``[1 + classes, members]``: row 0 for pods of no class, each row sums to 1."""
MOST_MEMBERS, MOST_CLASSES = 8, 64
REMEDY = "give POLICY=WEIGHT with commas between, as in kube-default=0.7,frag=0.3"

Floats = NDArray[np.float64]
Role = Literal["advises", "decides"]


class MixtureInvalid(ConfigError):
    """A mixture that cannot decide. The message names the field and the remedy."""

    code = "mixture_invalid"


class MemberExpression(Struct, frozen=True, forbid_unknown_fields=True):
    """As in a Kubernetes label selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class Selector(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which pods a class is of, by their labels ``policy.conclave.io/...``; all of it must hold."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[MemberExpression, ...] = ()


class ClassRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A class of pods, and the weights of ``policies`` for it."""

    name: str
    selector: Selector
    policies: dict[str, float] = {}


class Definition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user writes. ``by_class``: the first whose selector matches counts. ``roles``: whether what a member
    refuses is refused (*decides*) or its score alone counts (*advises*, the default). ``scales``: (low, high) of a
    member's usual scores, where it does not say itself."""

    policies: dict[str, float]
    by_class: tuple[ClassRule, ...] = ()
    roles: dict[str, Role] = {}
    scales: dict[str, tuple[float, float]] = {}


class MixtureMember(Struct, frozen=True, kw_only=True):
    """A member as the card has it. ``low``, ``high``: usual scores; equal where it says its bounds itself. ``card``: of
    its weights, empty for a heuristic."""

    policy: str
    version: int
    role: Role = "advises"
    low: float = 0.0
    high: float = 0.0
    card: dict[str, Any] = {}


class MixtureCard(Struct, frozen=True, kw_only=True):
    """A mixture but for its weights: what stands in the card of its file."""

    members: tuple[MixtureMember, ...]
    classes: tuple[ClassRule, ...] = ()


class PossibleMember(NamedTuple):
    """A policy that may be a member. ``bounded``: it says the bounds of its scores itself; ``scale``: of its usual
    scores, None: nobody knows; ``weights``: of a learned one."""

    version: int
    bounded: bool
    scale: tuple[float, float] | None
    weights: WeightsFile | None = None


class Mixture:
    """``members`` and the ``weights`` float64 ``[1 + classes, members]`` of each class; ``files``: of learned ones."""

    def __init__(
        self, members: Sequence[MixtureMember], classes: Sequence[ClassRule], weights: Floats,
        files: Mapping[str, WeightsFile],
    ) -> None:  # fmt: skip
        self.members = tuple(members)
        self.classes = tuple(classes)
        self.weights = weights
        self.files = dict(files)
        self._selectors = [selector_of(rule.selector) for rule in classes]

    def class_of(self, pod_class: PodClass) -> int:
        """The row of ``weights`` that counts: the first class that matches, 0 for none."""
        if self._selectors:
            labels = dict(pod_class.labels)
            for index, selector in enumerate(self._selectors):
                if selector.matches(labels):
                    return index + 1
        return 0

    def class_name(self, row: int) -> str:
        """Of a row of ``weights``; "" for pods of no class."""
        return self.classes[row - 1].name if row else ""

    def with_weights(self, weights: Floats) -> Mixture:
        """The same members and classes under other weights."""
        return Mixture(self.members, self.classes, weights, self.files)


def is_mixture(text: str) -> bool:
    """Whether a policy's name is a mixture in short form."""
    return "=" in text


def parse(text: str) -> Definition:
    """The definition that a short form names. Raises ``MixtureInvalid``."""
    policies: dict[str, float] = {}
    for part in text.split(","):
        name, separator, number = (piece.strip() for piece in part.partition("="))
        if not separator or not name:
            raise MixtureInvalid(f"policies: {part.strip()!r} is no POLICY=WEIGHT; {REMEDY}")
        if name in policies:
            raise MixtureInvalid(f"policies.{name}: is given twice; give it once")
        try:
            policies[name] = float(number)
        except ValueError:
            raise MixtureInvalid(f"policies.{name}: {number!r} is no number; {REMEDY}") from None
    return Definition(policies=policies)


def read_definition(document: Mapping[str, Any], source: str) -> Definition:
    """The definition in a file's document. Raises ``MixtureInvalid`` naming the field."""
    try:
        return msgspec.convert(document, Definition)
    except msgspec.ValidationError as error:
        raise MixtureInvalid(f"{source}: {error}; docs/policies/hybrid.md has the fields") from None


def mixture_of(definition: Definition, known: Mapping[str, PossibleMember]) -> Mixture:
    """The mixture that a definition asks for, of policies that are ``known``. Raises ``MixtureInvalid``."""
    named = [("policies", definition.policies)]
    for place, rule in enumerate(definition.by_class):
        _check_rule(f"by_class[{place}]", rule, definition.by_class[:place])
        named.append((f"by_class[{place}].policies", rule.policies))
    names = list(dict.fromkeys(name for _, policies in named for name in policies))
    for field, policies in named:
        for name in policies:
            if name not in known:
                raise MixtureInvalid(f"{field}: {name!r} is no policy that can be mixed; {_nearest(name, known)}")
    if len(names) > MOST_MEMBERS:
        raise MixtureInvalid(f"policies: {len(names)} members are more than {MOST_MEMBERS}; leave some out")
    if len(definition.by_class) > MOST_CLASSES:
        raise MixtureInvalid(f"by_class: {len(definition.by_class)} are more than {MOST_CLASSES}; leave some out")
    for field, mapping in (("roles", definition.roles), ("scales", definition.scales)):
        for name in mapping:
            if name not in names:
                raise MixtureInvalid(f"{field}.{name}: is no member; {_nearest(name, names)}")
    weights = np.array([_shares(field, policies, names) for field, policies in named])
    members = [_member(name, known[name], definition) for name in names]
    files = {name: file for name in names if (file := known[name].weights) is not None}
    return Mixture(members, definition.by_class, weights, files)


def build(mixture: Mixture, **card: Any) -> WeightsFile:
    """The mixture as a weights file; ``card``: fields of its card."""
    arrays: dict[str, NDArray[np.float32]] = {WEIGHTS: mixture.weights.astype(np.float32)}
    for place, member in enumerate(mixture.members):
        if member.policy in mixture.files:
            arrays |= {f"m{place}.{name}": array for name, array in mixture.files[member.policy].arrays.items()}
    told = msgspec.to_builtins(MixtureCard(members=mixture.members, classes=mixture.classes))
    return WeightsFile(arrays, Card(policy=NAME, mixture=told, **{"version": 1, **card}))


def read(file: WeightsFile) -> Mixture:
    """The mixture in a weights file. Raises ``MixtureInvalid`` for one that cannot decide."""
    where = f"weights of {file.title}"
    try:
        told = msgspec.convert(file.card.mixture, MixtureCard)
    except msgspec.ValidationError as error:
        raise MixtureInvalid(f"{where}: its card says no mixture ({error}); use 'conclave policy mix'") from None
    members, count = told.members, len(told.members)
    if not 1 <= count <= MOST_MEMBERS or len({member.policy for member in members}) != count:
        raise MixtureInvalid(f"{where}: members: there must be 1 to {MOST_MEMBERS}, each once; mix them again")
    shape = (1 + len(told.classes), count)
    weights = file.arrays.get(WEIGHTS)
    if weights is None or weights.shape != shape:
        found = None if weights is None else weights.shape
        raise MixtureInvalid(f"{where}: array {WEIGHTS!r} is {found}, the card says {shape}; mix them again")
    fields = ["policies", *(f"by_class[{place}].policies" for place in range(len(told.classes)))]
    names = [member.policy for member in members]
    for place, rule in enumerate(told.classes):
        _check_rule(f"{where}: by_class[{place}]", rule, told.classes[:place])
    rows = [
        _shares(f"{where}: {field}", dict(zip(names, row, strict=True)), names)
        for field, row in zip(fields, weights.astype(np.float64).tolist(), strict=True)
    ]
    for member in members:
        _check_scale(f"{where}: scales.{member.policy}", member.low, member.high, bounded=member.low == member.high)
    files = {member.policy: _file_of(file, place, member) for place, member in enumerate(members) if member.card}
    return Mixture(members, told.classes, np.array(rows), files)


def members_of(card: Card) -> tuple[str, ...]:
    """Names of the members of a mixture's card; none for a card of another policy."""
    if card.policy != NAME or not isinstance(card.mixture, dict):
        return ()
    return tuple(member.policy for member in msgspec.convert(card.mixture, MixtureCard).members)


def selector_of(selector: Selector) -> LabelSelector:
    """As ours."""
    asked = [Requirement(key, "In", (value,)) for key, value in selector.match_labels.items()]
    asked += [Requirement(one.key, one.operator, one.values) for one in selector.match_expressions]
    return canonical(asked)


def _file_of(file: WeightsFile, place: int, member: MixtureMember) -> WeightsFile:
    try:
        card = msgspec.convert(member.card, Card)
    except msgspec.ValidationError as error:
        raise MixtureInvalid(f"weights of {file.title}: card of {member.policy}: {error}; mix them again") from None
    if card.policy != member.policy or card.version != member.version:
        raise MixtureInvalid(f"weights of {file.title}: card of {member.policy}: is of {card.policy}; mix them again")
    prefix = f"m{place}."
    own = {name.removeprefix(prefix): array for name, array in file.arrays.items() if name.startswith(prefix)}
    return WeightsFile(own, card)


def _member(name: str, given: PossibleMember, definition: Definition) -> MixtureMember:
    low, high = 0.0, 0.0
    if name in definition.scales:
        low, high = definition.scales[name]
        _check_scale(f"scales.{name}", low, high, bounded=False)
    elif not given.bounded:
        if given.scale is None:
            raise MixtureInvalid(
                f"scales.{name}: how its scores are spread is not known; give [low, high] of its usual scores"
            )
        low, high = given.scale
    card = {} if given.weights is None else msgspec.to_builtins(given.weights.card)
    role = definition.roles.get(name, "advises")
    return MixtureMember(policy=name, version=given.version, role=role, low=low, high=high, card=card)


def _check_scale(field: str, low: float, high: float, *, bounded: bool) -> None:
    if not (math.isfinite(low) and math.isfinite(high)) or (low >= high and not bounded):
        raise MixtureInvalid(f"{field}: [{low:g}, {high:g}] is no range; give a finite low below a finite high")


def _check_rule(field: str, rule: ClassRule, before: Sequence[ClassRule]) -> None:
    if not rule.name or any(rule.name == other.name for other in before):
        raise MixtureInvalid(f"{field}.name: {rule.name!r} is empty or given twice; name each class by itself")
    keys = [*rule.selector.match_labels, *(one.key for one in rule.selector.match_expressions)]
    if not keys:
        raise MixtureInvalid(f"{field}.selector: asks for nothing; 'policies' counts for pods of no class already")
    for key in keys:
        if not key.startswith(CLASS_LABEL_PREFIX):
            raise MixtureInvalid(
                f"{field}.selector: {key!r} is no label that policies see; label pods {CLASS_LABEL_PREFIX}NAME"
            )
    for one in rule.selector.match_expressions:
        if (one.operator in ("In", "NotIn")) != bool(one.values):
            raise MixtureInvalid(
                f"{field}.selector: {one.key} {one.operator} {list(one.values)}: In and NotIn need values"
            )


def _shares(field: str, policies: Mapping[str, float], names: Sequence[str]) -> list[float]:
    """Weights as shares of their sum, in the order of ``names``."""
    for name, weight in policies.items():
        if not math.isfinite(weight) or weight < 0:
            raise MixtureInvalid(f"{field}.{name}: {weight:g} is no weight; give a finite number of at least 0")
    total = math.fsum(policies.values())
    if not 0 < total < math.inf:
        raise MixtureInvalid(f"{field}: the weights sum to {total:g}; give at least one a finite weight above 0")
    return [policies.get(name, 0.0) / total for name in names]


def _nearest(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"choose of {', '.join(sorted(known))}"
