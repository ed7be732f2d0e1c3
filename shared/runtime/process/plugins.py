"""Loads the plug-ins that the setting ``plugins`` names, from the entry points of installed packages.

Named, not found: a package that is merely installed changes nothing. A filter that cannot be loaded keeps the service
from starting: placing without it would break the user's rule, and a process that does not start is replaced (another
standby leads, an agent's nodes go to others). A score or a policy that cannot be loaded is left out and told.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
import structlog

from shared.errors import ConfigError
from shared.model.gpu_shares import parse_gpu_shares
from shared.model.load import DEFAULT as LOAD_DEFAULT
from shared.model.load import DEFAULT_TEXT as LOAD_PARTS
from shared.model.load import parse_load_parts
from shared.model.power import MOST_BYTES, PUBLISHED, PowerCurves, parse_power_curves
from shared.scheduling.cycle.profile import DEFAULT, PluginSet, with_plugins
from shared.scheduling.profiles import Profiles
from shared.wire.records import CURVES, OF_LOAD, PROFILED

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from pathlib import Path

    from shared.plugins import BroughtFilter
    from shared.scheduling.framework import Score

log = structlog.get_logger()

FILTERS, SCORES, POLICIES = "conclave.filters", "conclave.scores", "conclave.policies"
REWARDS = "conclave.rewards"
KINDS = {FILTERS: "filter", SCORES: "score", POLICIES: "policy", REWARDS: "reward"}


@dataclass(slots=True)
class Plugins:
    """What was loaded. ``titles``: ``kind name@release`` of each, as registrations tell it."""

    profile: PluginSet = DEFAULT
    titles: tuple[str, ...] = ()
    wrong: dict[str, str] = field(default_factory=dict)
    """What is wrong with a plug-in, by its name."""
    _notes: list[Callable[[str, str], None]] = field(default_factory=list)

    def report(self, name: str, text: str) -> None:
        """A plug-in did something wrong: logged and passed on the first time, as soon as somebody follows."""
        if name not in self.wrong:
            self.wrong[name] = text
            for note in self._notes:
                self._pass_on(note, name, text)

    def follow(self, note: Callable[[str, str], None]) -> None:
        """Call ``note`` (of the process's health) with what is wrong now and what will be; once, though asked twice."""
        if note in self._notes:
            return
        self._notes.append(note)
        for name, text in self.wrong.items():
            self._pass_on(note, name, text)

    def _pass_on(self, note: Callable[[str, str], None], name: str, text: str) -> None:
        log.error("plugin_failed", plugin=name, problem=text)
        note(f"plugin {name}", text)


@functools.cache
def plugins_of(names: tuple[str, ...]) -> Plugins:
    """The plug-ins of these names, loaded once per process. Raises ``ConfigError`` naming the one that cannot be."""
    return _load(names) if names else Plugins()


def profile_of(
    names: tuple[str, ...], gpu_shares: str, power_curves: Path | None = None, load_parts: str = LOAD_PARTS
) -> PluginSet:
    """What the settings ``plugins``, ``gpu_shares``, ``power_curves`` and ``load_parts`` make of it. Raises
    ``ConfigError``."""
    shares, power, parts = parse_gpu_shares(gpu_shares), _power_of(power_curves), parse_load_parts(load_parts)
    return replace(plugins_of(names).profile, gpu_shares=shares, power=power, load_parts=parts)


@functools.cache
def _power_of(path: Path | None) -> PowerCurves:
    """Read once per process, as plug-ins are: what is edited counts from the next start on, for all its parts alike."""
    if path is None:
        return PUBLISHED
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"power_curves: {path} cannot be read ({error}); give a file in TOML") from error
    return parse_power_curves(text, f"power_curves: {path}")


def titles_of(names: tuple[str, ...], power_curves: Path | None, load_parts: str = LOAD_PARTS) -> tuple[str, ...]:
    """What a process that ranks registers, by which people are told where processes differ: its plug-ins, what its load
    is of where that is not the default, and a digest of the user's curves."""
    titles, parts = plugins_of(names).titles, parse_load_parts(load_parts)
    if parts != LOAD_DEFAULT:
        titles = (*titles, f"{OF_LOAD}@{'+'.join(parts)}")
    if power_curves is None:
        return titles
    digest = hashlib.sha256(msgspec.json.encode(_power_of(power_curves), order="sorted")).hexdigest()
    return (*titles, f"{CURVES}@{digest[:12]}")


def profile_titles(profiles: Profiles) -> tuple[str, ...]:
    """Likewise of the schedulerNames that it serves: a digest of their profiles."""
    if not profiles.names:
        return ()
    said = sorted(profiles.names), sorted(profiles.special.items())
    return (f"{PROFILED}@{hashlib.sha256(msgspec.json.encode(said)).hexdigest()[:12]}",)


def _load(names: Sequence[str]) -> Plugins:
    from shared.plugins import filter_of, policy_maker, reward_of, score_of
    from shared.policy import registry

    found, plugins, titles = _installed(), Plugins(), list[str]()
    filters: list[BroughtFilter] = []
    scores: list[Score] = []
    for name in dict.fromkeys(names):
        group, entry = _entry(name, found)
        try:
            made = _imported(name, entry)
            if group == FILTERS:
                filters.append(filter_of(name, made, plugins.report))
            elif group == SCORES:
                scores.append(score_of(name, made, plugins.report))
            elif group == REWARDS:
                reward_of(name, made)  # used by training and evaluation, by its name
            else:
                if said := registry.bring(name, policy_maker(name, made)):
                    log.warning("plugin_undeclared", plugin=name, problem=said)
        except ConfigError as error:
            if group == FILTERS:
                raise
            plugins.report(name, f"{error}; it is left out")
            if group == POLICIES:
                registry.LEFT_OUT[name] = " ".join(f"{error}".split())
            continue
        titles.append(f"{KINDS[group]} {name}@{entry.dist.version if entry.dist is not None else '?'}")
    plugins.profile = with_plugins(tuple(filters), tuple(scores))
    plugins.titles = tuple(titles)
    return plugins


def _installed() -> dict[str, list[tuple[str, EntryPoint]]]:
    """(group, entry point) by name."""
    from importlib.metadata import entry_points

    found: dict[str, list[tuple[str, EntryPoint]]] = {}
    for group in KINDS:
        for entry in entry_points(group=group):
            found.setdefault(entry.name, []).append((group, entry))
    return found


def _entry(name: str, found: dict[str, list[tuple[str, EntryPoint]]]) -> tuple[str, EntryPoint]:
    from shared.plugins import NAME

    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"plugins: {name!r} is not installed here; there is {known}; install its package")
    if len(found[name]) > 1:
        raise ConfigError(f"plugins: {name!r} is brought {len(found[name])} times; uninstall all packages but one")
    if NAME.fullmatch(name) is None:
        raise ConfigError(f"plugins: {name!r} is not 1 to 63 small letters, digits and '-'; rename its entry point")
    return found[name][0]


def _imported(name: str, entry: EntryPoint) -> object:
    try:
        loaded: object = entry.load()
    except Exception as error:
        raise ConfigError(f"plugin {name}: cannot be imported ({type(error).__name__}: {error})") from error
    return loaded
