"""A KubeSchedulerConfiguration v1 as profiles of ours, and a line for everything that is without effect or differs.

    plugins (defaults < multiPoint < the point's own) --> which filters and scores there are, by what weight
    pluginConfig --> args, as they are                 everything else --> lines

Pure. Source: kubernetes.io "Scheduler Configuration", kube-scheduler 1.36 ``apis/config/v1`` and ``framework/runtime``
(expandMultiPointPlugins, mergePluginSet).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from services.cli.imports.counterparts import GONE, OUT_OF_TREE, PROCESS
from shared.runtime.process.profile_arguments import ARGUMENTS, Wrong, known_keys, listed, mapping
from shared.runtime.process.profiles_file import MAY_BE_LEFT_OUT, STAY
from shared.scheduling.scores import WEIGHTS

GROUP, KIND = "kubescheduler.config.k8s.io", "KubeSchedulerConfiguration"
V1 = f"{GROUP}/v1"
DEFAULT_SCHEDULER = "default-scheduler"
EVERY = "*"

POINTS = (
    "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit", "preBind",
    "bind", "postBind", "multiPoint",
)  # fmt: skip
FILTERS = frozenset(name for name in {*MAY_BE_LEFT_OUT, *STAY} if not name.startswith("Conclave"))
OURS = {
    "DefaultBinder": "bind", "DefaultPreemption": "postFilter", "GangScheduling": "permit", "PrioritySort": "queueSort",
    "SchedulingGates": "preEnqueue",
}  # fmt: skip
"""Default plugins that neither filter nor score, and where they are."""
IN_TREE = frozenset({*FILTERS, *WEIGHTS, *OURS})
EXTENDER = (
    "bindVerb", "enableHTTPS", "filterVerb", "httpTimeout", "ignorable", "managedResources", "nodeCacheCapable",
    "preemptVerb", "prioritizeVerb", "tlsConfig", "urlPrefix", "weight",
)  # fmt: skip
PREEMPTION = {"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100}


@dataclass
class Imported:
    """``profiles``: the document of ours; ``lines``: what is without effect or differs; ``lost``: how many of them say
    that pods may be placed otherwise than before."""

    profiles: list[dict[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    lost: int = 0

    def same(self, at: str, text: str) -> None:
        """Something is without effect, and nothing is placed otherwise for it."""
        self.lines.append(f"{at}: without effect: {text}")

    def differs(self, at: str, text: str) -> None:
        """Pods may be placed otherwise."""
        self.lines.append(f"{at}: {text}")
        self.lost += 1


@dataclass(frozen=True)
class _Set:
    """One point's plugins as the file has them. ``weights``: by name, of those that are enabled."""

    weights: Mapping[str, int]
    disabled: frozenset[str]

    def drops(self, name: str) -> bool:
        return name in self.disabled or EVERY in self.disabled


def import_config(document: Any) -> Imported:
    """What the configuration comes to. ``Wrong``: it is none, or of a version that kube-scheduler no longer reads."""
    if not isinstance(document, dict) or document.get("kind") != KIND:
        kind = document.get("kind") if isinstance(document, dict) else None
        raise Wrong("kind", f"{kind!r} is no {KIND}; give the file of kube-scheduler's --config")
    _check_version(document.get("apiVersion"))
    known_keys("", document, ("apiVersion", "kind", "profiles", "extenders", *PROCESS))
    found = Imported()
    entries = listed("profiles", document.get("profiles")) or [{}]
    for number, entry in enumerate(entries):
        found.profiles.append(_profile(f"profiles[{number}]", entry, found))
    for name in (name for name in document if name in PROCESS):
        found.same(name, PROCESS[name])
    for number, entry in enumerate(listed("extenders", document.get("extenders"))):
        _extender(f"extenders[{number}]", entry, found)
    names = [one["schedulerName"] for one in found.profiles]
    if DEFAULT_SCHEDULER in names:
        found.differs(
            f"profiles[{names.index(DEFAULT_SCHEDULER)}].schedulerName",
            f"{DEFAULT_SCHEDULER} is what kube-scheduler serves too: stop it before the mesh begins, or rename this",
        )
    return found


def _check_version(version: Any) -> None:
    if version == V1:
        return
    text = str(version)
    if text.startswith((f"{GROUP}/v1beta", f"{GROUP}/v1alpha", "componentconfig/")):
        raise Wrong(
            "apiVersion",
            f"{text} is read by no kube-scheduler since 1.29; write {V1}, and for plugins that v1 lacks, such as "
            "NodeResourcesMostAllocated, NodeResourcesFit with args.scoringStrategy",
        )
    raise Wrong("apiVersion", f"{version!r} is not known; write {V1}")


def _profile(at: str, entry: Any, found: Imported) -> dict[str, Any]:
    known_keys(at, entry, ("schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"))
    made: dict[str, Any] = {"schedulerName": entry.get("schedulerName") or DEFAULT_SCHEDULER, "policy": "kube-default"}
    if entry.get("percentageOfNodesToScore") is not None:
        found.same(f"{at}.percentageOfNodesToScore", PROCESS["percentageOfNodesToScore"])
    plugins = mapping(f"{at}.plugins", entry.get("plugins"))
    known_keys(f"{at}.plugins", plugins, POINTS)
    sets = {point: _plugins(f"{at}.plugins.{point}", plugins.get(point)) for point in POINTS}
    filters, weights = _filters(at, sets, found), _weights(sets)
    if filters:
        made["filters"] = {"disabled": filters}
    if weights:
        made["scores"] = weights
    _tell_others(at, sets, found)
    args = _arguments(at, entry.get("pluginConfig"), found)
    if args:
        made["args"] = args
    return made


def _plugins(at: str, value: Any) -> _Set:
    known_keys(at, value or {}, ("enabled", "disabled"))
    weights: dict[str, int] = {}
    for name, one in _named(f"{at}.enabled", (value or {}).get("enabled")):
        if name in weights:
            raise Wrong(f"{at}.enabled", f"{name!r} is there twice; leave one out")
        weight = one.get("weight") or 0
        if not isinstance(weight, int) or isinstance(weight, bool) or weight < 0:
            raise Wrong(f"{at}.enabled", f"the weight of {name} must be a whole number")
        weights[name] = weight
    return _Set(weights, frozenset(name for name, _ in _named(f"{at}.disabled", (value or {}).get("disabled"))))


def _named(at: str, value: Any) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for number, one in enumerate(listed(at, value)):
        known_keys(f"{at}[{number}]", one, ("name", "weight"))
        name = one.get("name")
        if not isinstance(name, str) or not name:
            raise Wrong(f"{at}[{number}].name", "must be a plugin's name")
        yield name, one


def _by_default(sets: Mapping[str, _Set], point: str, names: Mapping[str, int]) -> dict[str, int]:
    """The plugins of a point, by weight: its own first, then those of multiPoint, then the defaults (``names``)."""
    own, every = sets[point], sets["multiPoint"]
    found = {name: weight for name, weight in own.weights.items() if name in names}
    for name, weight in names.items():
        if name in found or own.drops(name):
            continue
        if name in every.weights:
            found[name] = every.weights[name]
        elif not every.drops(name):
            found[name] = weight
    return {name: weight or 1 for name, weight in found.items()}


def _filters(at: str, sets: Mapping[str, _Set], found: Imported) -> list[str]:
    """Those that are left out; of those that cannot be it is told."""
    there = _by_default(sets, "filter", dict.fromkeys(sorted(FILTERS), 1))
    missing = FILTERS - there.keys()
    for name in sorted(missing & STAY):
        found.differs(
            f"{at}.plugins", f"{name} filters all the same: a node would be given what it cannot hold without it"
        )
    return sorted(missing & MAY_BE_LEFT_OUT)


def _weights(sets: Mapping[str, _Set]) -> dict[str, int]:
    """Those that differ from the defaults; 0: it is disabled."""
    there = _by_default(sets, "score", WEIGHTS)
    return {name: there.get(name, 0) for name, weight in WEIGHTS.items() if there.get(name, 0) != weight}


def _tell_others(at: str, sets: Mapping[str, _Set], found: Imported) -> None:
    """Of plugins that are none of our filters and scores, and of points at which ours cannot be left out."""
    enabled: dict[str, str] = {}
    for point, plugins in sets.items():
        for name in plugins.weights:
            enabled.setdefault(name, point)
    for name, point in enabled.items():
        where = f"{at}.plugins.{point}"
        if name in IN_TREE:
            if point not in ("multiPoint", "filter", "score") and OURS.get(name) != point:
                found.same(where, f"{name} is what it is at all points at which it is wanted")
        elif name in GONE:
            found.differs(where, f"{name} is unknown to kube-scheduler 1.36: {GONE[name]}")
        elif name in OUT_OF_TREE:
            found.differs(where, f"{name} is not Kubernetes' own: {OUT_OF_TREE[name]}")
        else:
            told = f"{name} is not known here and left out; bring it as a plug-in (docs/plugins.md)"
            found.differs(where, f"{told}{_nearest(name)}")
    _tell_strangers(at, sets, found)
    every = sets["multiPoint"]
    for name, point in OURS.items():
        own = sets[point]
        if (every.drops(name) or own.drops(name)) and name not in enabled:
            told = f"{name} is not left out"
            if name == "DefaultPreemption":
                told += ": give pods a PriorityClass with preemptionPolicy: Never"
                found.differs(f"{at}.plugins.{point}", told)
            elif name in own.disabled or name in every.disabled:
                found.same(f"{at}.plugins.{point}", told)
    for point in ("preEnqueue", "preFilter", "preScore", "reserve", "permit", "preBind", "postBind"):
        if sets[point].disabled and not every.disabled:
            follows = {"preFilter": "filter", "preScore": "score"}.get(point)
            if follows is None or not sets[follows].disabled:
                found.same(f"{at}.plugins.{point}.disabled", "a plugin goes by what it needs to know")


def _tell_strangers(at: str, sets: Mapping[str, _Set], found: Imported) -> None:
    """Of names under ``disabled`` that are nothing here: misspelt, it would leave in place what was meant."""
    for point, plugins in sets.items():
        for name in sorted(plugins.disabled - IN_TREE - {EVERY}):
            told = _nearest(name) if name not in {*GONE, *OUT_OF_TREE} else ""
            found.same(
                f"{at}.plugins.{point}.disabled", f"{name} is not known here: there is nothing to leave out{told}"
            )


def _nearest(name: str) -> str:
    near = get_close_matches(name, sorted(IN_TREE), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _arguments(at: str, value: Any, found: Imported) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for number, one in enumerate(listed(f"{at}.pluginConfig", value)):
        here = f"{at}.pluginConfig[{number}]"
        known_keys(here, one, ("name", "args"))
        name = one.get("name")
        if not isinstance(name, str) or not name:
            raise Wrong(f"{here}.name", f"{repr(name)[:80]} is no plugin's name")
        args = {key: said for key, said in mapping(f"{here}.args", one.get("args")).items() if said is not None}
        _check_kind(here, name, args)
        said = {key: text for key, text in args.items() if key not in ("apiVersion", "kind")}
        if name in made:
            raise Wrong(f"{here}.name", f"{name} is there twice; join them")
        if name in ARGUMENTS:
            ARGUMENTS[name](f"{here}.args", said)  # what is wrong is told by where it stands in this file
            made[name] = said
        else:
            _tell_arguments(here, str(name), said, found)
    return {name: said for name, said in made.items() if said}


def _check_kind(at: str, name: Any, args: Mapping[str, Any]) -> None:
    version, kind = args.get("apiVersion", V1), args.get("kind", f"{name}Args")
    if version != V1 and str(version).startswith(GROUP):
        raise Wrong(f"{at}.args.apiVersion", f"{version} is no longer read; write {V1}")
    if name in IN_TREE and kind != f"{name}Args":
        raise Wrong(f"{at}.args.kind", f"{kind!r} is not what {name} takes; write {name}Args")


def _tell_arguments(at: str, name: str, args: Mapping[str, Any], found: Imported) -> None:
    match name:
        case "DefaultPreemption":
            known_keys(f"{at}.args", args, tuple(PREEMPTION))
            for key, value in args.items():
                if value != PREEMPTION[key]:
                    found.same(f"{at}.args.{key}", "a tenth of the nodes is tried, at least 100")
        case "VolumeBinding":
            known_keys(f"{at}.args", args, ("bindTimeoutSeconds", "shape"))
            if args.get("bindTimeoutSeconds", 600) != 600:
                found.same(
                    f"{at}.args", f"give binders --volumes-wait-s {args['bindTimeoutSeconds']}, for all profiles"
                )
            if args.get("shape"):
                found.differs(f"{at}.args.shape", "volumes are not scored by their capacity")
        case "DynamicResources":
            found.same(f"{at}.args", "the search for devices has a bound of its own (docs/devices.md)")
        case _ if name in IN_TREE:
            if args:
                raise Wrong(f"{at}.args", f"{name} takes no arguments; leave them out")
        case _:
            told = OUT_OF_TREE.get(name) or GONE.get(name) or "it is not known here and left out"
            found.differs(at, f"arguments of {name}: {told}")


def _extender(at: str, entry: Any, found: Imported) -> None:
    known_keys(at, entry, EXTENDER)
    where = str(entry.get("urlPrefix", ""))[:200]
    if not where:
        raise Wrong(f"{at}.urlPrefix", "must be a URL")
    verbs = [verb for verb in ("filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb") if entry.get(verb)]
    told = f"{where} is not called ({', '.join(verbs) or 'no verb'}): extenders are not called here"
    found.differs(at, f"{told}; bring its rule as a filter or score of your own (docs/plugins.md)")
    for number, one in enumerate(listed(f"{at}.managedResources", entry.get("managedResources"))):
        here = f"{at}.managedResources[{number}]"
        known_keys(here, one, ("name", "ignoredByScheduler"))
        name = str(one.get("name", ""))
        if one.get("ignoredByScheduler"):
            for profile in found.profiles:
                args = profile.setdefault("args", {}).setdefault("NodeResourcesFit", {})
                args["ignoredResources"] = sorted({*args.get("ignoredResources", ()), name})
            found.lines.append(f"{here}: {name} is ignored as there: NodeResourcesFit.ignoredResources of each profile")
