"""The file of profiles as a person writes it, checked before anything runs: a wrong field is one line with its remedy.

    profiles:
    - schedulerName: batch
      policy: kube-default
      filters: {disabled: [NodeUnschedulable]}
      scores: {NodeResourcesFit: 5, ImageLocality: 0}
      args: {NodeResourcesFit: {scoringStrategy: {type: MostAllocated}}}

Arguments are called as in kube-scheduler's ``KubeSchedulerConfiguration``, and mean the same; docs/profiles.md has all.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from shared.errors import ConfigError
from shared.model.scheduling_profile import SchedulingProfile
from shared.runtime.process.process import SchedulerName
from shared.runtime.process.profile_arguments import ARGUMENTS, Wrong, known_keys, listed, mapping, whole
from shared.scheduling.filters import FILTERS
from shared.scheduling.profiles import DEFAULT_ALONE, Profiles
from shared.scheduling.scores import WEIGHTS

MAX_BYTES = 1 << 20
MOST_PROFILES = 32
MOST_WEIGHT = 100_000
KUBE_DEFAULT = "kube-default"

MAY_BE_LEFT_OUT = frozenset(
    {"InterPodAffinity", "NodeAffinity", "NodeUnschedulable", "PodTopologySpread", "TaintToleration"}
)
"""Filters that say what somebody wishes. Without any other a node would hold more than it has, or refuse the pod."""

STAY = frozenset(
    {
        "DynamicResources", "NodeVolumeLimits", "VolumeBinding", "VolumeRestrictions", "VolumeZone",
        *(rule.name for rule in FILTERS),
    }
) - MAY_BE_LEFT_OUT  # fmt: skip

CheckPolicy = Callable[[str], object]


@functools.cache
def profiles_of(path: Path | None, scores: tuple[str, ...] = (), check_policy: CheckPolicy | None = None) -> Profiles:
    """What the setting ``profiles`` names, read once per process: what is edited counts from the next start on.

    ``scores``: names of scores that the user brings; ``check_policy``: raises ``ConfigError`` for one that is not to be
    had. ``ConfigError``: what is wrong with the file.
    """
    if path is None:
        return DEFAULT_ALONE
    document, where = read_yaml(path, f"profiles: {path}"), f"profiles: {path}"
    return Profiles.of(parse_profiles(document, where, scores=scores, check_policy=check_policy))


def read_yaml(path: Path, where: str) -> Any:
    """The one document of a file. ``ConfigError``: it cannot be read, or is none; a key is there twice, or an alias:
    of the one a part would be lost without a word, and the other may stand for more than memory holds."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror}); give a YAML file") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{where}: is larger than {MAX_BYTES} bytes; give a file of profiles")
    return document_of(data, where)


def document_of(data: bytes, where: str) -> Any:
    """The same of a file's bytes."""
    import yaml

    class Strict(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
                raise yaml.composer.ComposerError(None, None, "an alias is not read here; write out what it is", mark)
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set[str]()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        problem = f"{key.value!r} is there twice; join them"
                        raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                    seen.add(key.value)
            return super().construct_mapping(node, deep=deep)

    try:
        return yaml.load(data.decode("utf-8"), Strict)  # noqa: S506 - a SafeLoader
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where}: is not UTF-8 text; save it as such") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ConfigError(f"{where}: is not one YAML document{at}: {problem}; correct it") from error


def parse_profiles(
    document: Any, where: str, *, scores: Collection[str] = (), check_policy: CheckPolicy | None = None
) -> list[SchedulingProfile]:
    """The profiles, each of its own name. ``ConfigError`` naming the field, with the remedy."""
    try:
        known_keys("", document, ("profiles",))
        entries = listed("profiles", document.get("profiles"))
        if not 1 <= len(entries) <= MOST_PROFILES:
            raise Wrong("profiles", f"has {len(entries)} entries; give 1 to {MOST_PROFILES}")
        found: dict[str, SchedulingProfile] = {}
        for number, entry in enumerate(entries):
            profile = _profile(f"profiles[{number}]", entry, scores, check_policy)
            if profile.name in found:
                raise Wrong(
                    f"profiles[{number}].schedulerName", f"{profile.name!r} is there twice; rename one, or join them"
                )
            found[profile.name] = profile
    except Wrong as error:
        raise ConfigError(f"{where}: {error}") from None
    return list(found.values())


def _profile(at: str, entry: Any, scores: Collection[str], check_policy: CheckPolicy | None) -> SchedulingProfile:
    known_keys(at, entry, ("schedulerName", "policy", "filters", "scores", "args"))
    name = entry.get("schedulerName")
    try:
        msgspec.convert(name, SchedulerName)
    except msgspec.ValidationError:
        remedy = "use lower case letters, digits, '-' and '.'"
        raise Wrong(f"{at}.schedulerName", f"{repr(name)[:80]} can be no pod's; {remedy}") from None
    profile = SchedulingProfile(
        name,
        _policy(f"{at}.policy", entry.get("policy"), check_policy),
        _without(f"{at}.filters", entry.get("filters")),
        _weights(f"{at}.scores", entry.get("scores"), {*WEIGHTS, *scores}),
    )
    args = mapping(f"{at}.args", entry.get("args"))
    for plugin, said in args.items():
        if plugin not in ARGUMENTS:
            raise Wrong(f"{at}.args", f"{plugin!r} takes no arguments here{_nearest(plugin, ARGUMENTS)}")
        profile = replace(profile, **ARGUMENTS[plugin](f"{at}.args.{plugin}", mapping(f"{at}.args.{plugin}", said)))
    if profile.scores and profile.policy != KUBE_DEFAULT:
        what = "scores" if profile.weights else "args"
        raise Wrong(
            f"{at}.{what}", f"count where {KUBE_DEFAULT} decides; add policy: {KUBE_DEFAULT}, or leave them out"
        )
    return profile


def _policy(at: str, value: Any, check: CheckPolicy | None) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not value or len(value) > 200:
        raise Wrong(at, f"{repr(value)[:80]} is no policy's name; leave it out for the mesh's own")
    if check is not None:
        try:
            check(value)
        except ConfigError as error:
            raise Wrong(at, str(error)) from None
    return value


def _without(at: str, value: Any) -> tuple[str, ...]:
    known_keys(at, value or {}, ("disabled",))
    names = listed(f"{at}.disabled", (value or {}).get("disabled"))
    for name in names:
        if not isinstance(name, str):
            raise Wrong(f"{at}.disabled", f"{repr(name)[:80]} is no filter's name")
        if name in STAY:
            raise Wrong(
                f"{at}.disabled", f"{name} stays: nodes would be given what they cannot hold; leave it out of the list"
            )
        if name not in MAY_BE_LEFT_OUT:
            raise Wrong(f"{at}.disabled", f"{name!r} is no filter{_nearest(str(name), MAY_BE_LEFT_OUT)}")
    return tuple(sorted(set(names)))


def _weights(at: str, value: Any, known: Collection[str]) -> tuple[tuple[str, int], ...]:
    weights = mapping(at, value)
    for name, weight in weights.items():
        if name not in known:
            raise Wrong(at, f"{name!r} is no score{_nearest(str(name), known)}")
        whole(f"{at}.{name}", weight, 0, MOST_WEIGHT)
    return tuple(sorted((name, weight) for name, weight in weights.items() if WEIGHTS.get(name) != weight))


def _nearest(name: str, names: Iterable[str]) -> str:
    known = sorted(names)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; there is {', '.join(known)}"
