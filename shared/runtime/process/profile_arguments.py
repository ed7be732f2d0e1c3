"""Arguments of a profile's plugins, as kube-scheduler's configuration calls them, into what a profile holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from shared.kube import objects as api
from shared.kube.pods.convert import node_affinity_of
from shared.model.resources import CPU, GPU_MILLI, MEMORY
from shared.model.scheduling_profile import FitScoring, ShapePoint, SpreadDefault, Weighted

STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
NODE_NAME_FIELD = "metadata.name"
SHAPE_MAX = 10
"""The greatest score of a point as the file has it; a node's is 100."""

Fields = dict[str, Any]


class Wrong(Exception):
    """A field that cannot be used. ``str``: its path, what is wrong and the remedy."""

    def __init__(self, at: str, text: str) -> None:
        super().__init__(f"{at}: {text}" if at else text)


def mapping(at: str, value: Any) -> Mapping[str, Any]:
    """Fields by name; none where there is nothing."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Wrong(at, "must be fields with values; see docs/profiles.md")
    return value


def listed(at: str, value: Any) -> list[Any]:
    """A list; empty where there is nothing."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise Wrong(at, "must be a list; see docs/profiles.md")
    return value


def whole(at: str, value: Any, low: int, high: int) -> int:
    """A whole number in a range."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise Wrong(at, f"{repr(value)[:64]} must be a whole number from {low} to {high}")
    return value


def known_keys(at: str, value: Any, keys: Collection[str]) -> None:
    """Whether it has these fields and no others."""
    if not isinstance(value, dict):
        raise Wrong(at, f"must be fields with values: {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise Wrong(f"{at}.{key}" if at else str(key), f"unknown field; there is {', '.join(keys)}")


def _text(at: str, value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > 316:
        raise Wrong(at, f"{repr(value)[:64]} must be a name")
    return value


def _resources(at: str, value: Any) -> tuple[Weighted, ...]:
    found: dict[str, Weighted] = {}
    for number, one in enumerate(listed(at, value)):
        here = f"{at}[{number}]"
        known_keys(here, one, ("name", "weight"))
        name = _text(f"{here}.name", one.get("name"))
        if name in found:
            raise Wrong(f"{here}.name", f"{name!r} is there twice; leave one out")
        found[name] = Weighted(name, whole(f"{here}.weight", one.get("weight") or 1, 1, 100))
    return tuple(found.values()) or (Weighted(CPU), Weighted(MEMORY))


def _fit(at: str, args: Mapping[str, Any]) -> Fields:
    known_keys(at, args, ("ignoredResources", "ignoredResourceGroups", "scoringStrategy"))
    ignored = [_ignored(f"{at}.ignoredResources", one) for one in listed(at, args.get("ignoredResources"))]
    groups = [_text(f"{at}.ignoredResourceGroups", one) for one in listed(at, args.get("ignoredResourceGroups"))]
    for group in groups:
        if "/" in group or "*" in group or GPU_MILLI.startswith(f"{group}/"):
            raise Wrong(
                f"{at}.ignoredResourceGroups", f"{group!r} is no group of others' resources, such as example.com"
            )
    fields: Fields = {"ignored": tuple(sorted([*ignored, *(f"{group}/*" for group in groups)]))}
    if args.get("scoringStrategy") is not None:
        fields["fit"] = _strategy(f"{at}.scoringStrategy", args["scoringStrategy"])
    return fields


def _ignored(at: str, value: Any) -> str:
    name = _text(at, value)
    if "/" not in name or any(sign in name for sign in "*?[") or name == GPU_MILLI:
        raise Wrong(
            at, f"{name!r} is no extended resource of others, such as example.com/foo; nodes have no more of it"
        )
    return name


def _strategy(at: str, value: Any) -> FitScoring | None:
    known_keys(at, value, ("type", "resources", "requestedToCapacityRatio"))
    kind = value.get("type") or STRATEGIES[0]
    if kind not in STRATEGIES:
        raise Wrong(f"{at}.type", f"{kind!r} is not known; write {', '.join(STRATEGIES)}")
    resources, shape = _resources(f"{at}.resources", value.get("resources")), value.get("requestedToCapacityRatio")
    if kind != STRATEGIES[2]:
        plain = kind == STRATEGIES[0] and resources == (Weighted(CPU), Weighted(MEMORY))
        return None if plain else FitScoring(kind, resources)
    at = f"{at}.requestedToCapacityRatio"
    known_keys(at, shape or {}, ("shape",))
    points = listed(f"{at}.shape", (shape or {}).get("shape"))
    if not points:
        raise Wrong(f"{at}.shape", f"{STRATEGIES[2]} needs at least one point: utilization and score")
    found: list[ShapePoint] = []
    for number, point in enumerate(points):
        here = f"{at}.shape[{number}]"
        known_keys(here, point, ("utilization", "score"))
        percent = whole(f"{here}.utilization", point.get("utilization", 0), 0, 100)
        if found and percent <= found[-1].utilization:
            raise Wrong(f"{here}.utilization", "must be greater than that of the point before; sort them")
        found.append(
            ShapePoint(percent, 100 // SHAPE_MAX * whole(f"{here}.score", point.get("score", 0), 0, SHAPE_MAX))
        )
    return FitScoring(kind, resources, tuple(found))


def _balanced(at: str, args: Mapping[str, Any]) -> Fields:
    known_keys(at, args, ("resources",))
    resources = _resources(f"{at}.resources", args.get("resources"))
    for number, one in enumerate(resources):
        if one.weight != 1:
            raise Wrong(f"{at}.resources[{number}].weight", "must be 1: shares are compared, not added")
    names = tuple(one.name for one in resources)
    return {"balanced": None if names == (CPU, MEMORY) else names}


def _spread(at: str, args: Mapping[str, Any]) -> Fields:
    known_keys(at, args, ("defaultConstraints", "defaultingType"))
    kind, given = args.get("defaultingType") or "System", listed(at, args.get("defaultConstraints"))
    if kind not in ("System", "List"):
        raise Wrong(f"{at}.defaultingType", f"{kind!r} is not known; write System or List")
    if kind == "System":
        if given:
            raise Wrong(f"{at}.defaultConstraints", "are for defaultingType: List; write that, or leave them out")
        return {"spread": None}
    found: dict[tuple[str, bool], SpreadDefault] = {}
    for number, one in enumerate(given):
        here = f"{at}.defaultConstraints[{number}]"
        known_keys(here, one, ("maxSkew", "topologyKey", "whenUnsatisfiable"))
        key = _text(f"{here}.topologyKey", one.get("topologyKey"))
        when = one.get("whenUnsatisfiable")
        if when not in ("DoNotSchedule", "ScheduleAnyway"):
            raise Wrong(f"{here}.whenUnsatisfiable", f"{when!r} is not known; write DoNotSchedule or ScheduleAnyway")
        made = SpreadDefault(whole(f"{here}.maxSkew", one.get("maxSkew"), 1, 2**31 - 1), key, when == "DoNotSchedule")
        if (key, made.hard) in found:
            raise Wrong(here, f"{key} with {when} is there twice; leave one out")
        found[key, made.hard] = made
    return {"spread": tuple(found.values())}


def _interpod(at: str, args: Mapping[str, Any]) -> Fields:
    known_keys(at, args, ("hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods"))
    alone, weight = args.get("ignorePreferredTermsOfExistingPods", False), args.get("hardPodAffinityWeight", 1)
    if not isinstance(alone, bool):
        raise Wrong(f"{at}.ignorePreferredTermsOfExistingPods", "must be true or false")
    return {"own_wishes_alone": alone, "hard_affinity": whole(f"{at}.hardPodAffinityWeight", weight, 0, 100)}


def _selects(at: str, term: Any, *, empty: bool = False) -> None:
    """Whether it is a term as the API server takes a pod's; ``empty``: also one that matches no node."""
    known_keys(at, term, ("matchExpressions", "matchFields"))
    expressions = listed(f"{at}.matchExpressions", term.get("matchExpressions"))
    fields = listed(f"{at}.matchFields", term.get("matchFields"))
    if not empty and not expressions and not fields:
        raise Wrong(at, "is empty, and would match no node; give matchExpressions or matchFields")
    for number, one in enumerate(expressions):
        _requires(f"{at}.matchExpressions[{number}]", one)
    for number, one in enumerate(fields):
        here = f"{at}.matchFields[{number}]"
        _requires(here, one)
        if one["key"] != NODE_NAME_FIELD or one["operator"] not in ("In", "NotIn") or len(one["values"]) != 1:
            raise Wrong(here, f"must be {NODE_NAME_FIELD} In or NotIn one name: nodes are selected by no other field")


def _requires(at: str, one: Any) -> None:
    known_keys(at, one, ("key", "operator", "values"))
    _text(f"{at}.key", one.get("key"))
    operator, values = one.get("operator"), listed(f"{at}.values", one.get("values"))
    if not isinstance(operator, str) or operator not in OPERATORS:
        raise Wrong(f"{at}.operator", f"{repr(operator)[:64]} is not known; write {', '.join(OPERATORS)}")
    for value in values:
        if not isinstance(value, str):
            raise Wrong(f"{at}.values", f"{repr(value)[:64]} must be text; put it in quotes")
    if operator in ("In", "NotIn"):
        if not values:
            raise Wrong(f"{at}.values", f"{operator} needs at least one")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1 or not _number(values[0]):
            raise Wrong(f"{at}.values", f"{operator} needs exactly one whole number, in quotes")
    elif values:
        raise Wrong(f"{at}.values", f"{operator} takes none; leave them out")


def _number(text: str) -> bool:
    digits = text[1:] if text[:1] in ("-", "+") else text
    return digits.isascii() and digits.isdigit() and len(digits) <= 19 and -(2**63) <= int(text) < 2**63


def _node_affinity(at: str, args: Mapping[str, Any]) -> Fields:
    known_keys(at, args, ("addedAffinity",))
    if args.get("addedAffinity") is None:
        return {}
    at = f"{at}.addedAffinity"
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    given = args["addedAffinity"]
    known_keys(at, given, (required, preferred))
    if given.get(required) is not None:
        known_keys(f"{at}.{required}", given[required], ("nodeSelectorTerms",))
        here = f"{at}.{required}.nodeSelectorTerms"
        terms = listed(here, given[required].get("nodeSelectorTerms"))
        if not terms:
            raise Wrong(here, "is empty, and would match no node; give at least one term")
        for number, term in enumerate(terms):
            _selects(f"{here}[{number}]", term)
    for number, wish in enumerate(listed(f"{at}.{preferred}", given.get(preferred))):
        here = f"{at}.{preferred}[{number}]"
        known_keys(here, wish, ("weight", "preference"))
        whole(f"{here}.weight", wish.get("weight"), 1, 100)
        _selects(f"{here}.preference", wish.get("preference"), empty=True)  # it adds to no node
    try:
        read = msgspec.convert(args["addedAffinity"], api.KubeNodeAffinity)
    except msgspec.ValidationError as error:
        raise Wrong(at, f"{error}; write it as in a pod's spec.affinity.nodeAffinity") from None
    added, wishes = node_affinity_of(read)
    return {"added": added, "wishes": wishes}


ARGUMENTS: Mapping[str, Callable[[str, Mapping[str, Any]], Fields]] = {
    "InterPodAffinity": _interpod,
    "NodeAffinity": _node_affinity,
    "NodeResourcesBalancedAllocation": _balanced,
    "NodeResourcesFit": _fit,
    "PodTopologySpread": _spread,
}
"""By plugin: what its arguments make of a profile's fields."""
