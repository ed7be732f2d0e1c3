"""Several policies on the same episode, side by side, decision by decision: what a person is shown of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lab.autoscaling.episode import EpisodeStep, PlayedServices, ServiceEpisode, Setup
from lab.worlds.services.disturbances import Disturbance, DisturbanceKind
from shared.autoscaling.observation import Acted, Policy, acted_of

WORDS = {
    DisturbanceKind.SURGE: "surge at {target}", DisturbanceKind.DEARER: "{target} works harder",
    DisturbanceKind.FAILURES: "failed replicas",
    DisturbanceKind.PRESSURE: "neighbours on {target}",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DuelService:
    """One service at a decision: replicas asked for before it and in it, ready ones, and the role it acted in."""

    name: str
    replicas: int
    ready: int
    wanted: int
    acted: Acted | None


@dataclass(frozen=True, slots=True)
class DuelStep:
    """One side from one decision to the next. ``load``: genuine requests per second that came; ``answered``: share of
    them answered well, 0 to 1; ``success``: the same since the beginning; ``replicas``: pods on nodes, at the end."""

    at_s: int
    load: float
    answered: float
    success: float
    replicas: int
    services: tuple[DuelService, ...]


@dataclass(slots=True)
class Duel:
    """All sides of an episode: play it by ``moments``; ``played`` has each side's figures so far."""

    setup: Setup
    policies: Mapping[str, Policy]
    seed: int
    past: dict[str, list[DuelStep]] = field(default_factory=dict)
    _episodes: dict[str, ServiceEpisode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._episodes = {name: ServiceEpisode(self.setup, policy, self.seed) for name, policy in self.policies.items()}
        self.past = {name: [] for name in self._episodes}

    @property
    def events(self) -> tuple[Disturbance, ...]:
        """The disturbances of the episode, the same for all sides."""
        return next(iter(self._episodes.values())).world.events

    def moments(self) -> Iterator[dict[str, DuelStep]]:
        """Each decision of all sides, by name, until the episode ends."""
        while not any(one.over for one in self._episodes.values()):
            now = {name: _moment(one, one.step()) for name, one in self._episodes.items()}
            for name, moment in now.items():
                self.past[name].append(moment)
            yield now

    def played(self) -> dict[str, PlayedServices]:
        """The figures, by name."""
        return {name: one.played() for name, one in self._episodes.items()}


def happening(events: tuple[Disturbance, ...], at_s: float) -> list[str]:
    """What goes on at a moment, in words, each once."""
    told = [WORDS[one.kind].format(target=one.target) for one in events if one.at(at_s)]
    return list(dict.fromkeys(told))


def _moment(episode: ServiceEpisode, step: EpisodeStep) -> DuelStep:
    seconds, acted = episode.world.seconds, acted_of(episode.policy)
    offered, answered = seconds.offered[step.first :], seconds.answered[step.first :]
    return DuelStep(
        at_s=step.first,
        load=sum(offered) / max(len(offered), 1),
        answered=_share(answered, offered),
        success=_share(seconds.answered, seconds.offered),
        replicas=seconds.pods[-1],
        services=tuple(
            DuelService(name, one.replicas, one.ready, step.wanted.get(name, one.replicas), acted.get(name))
            for name, one in step.seen.services.items()
        ),
    )


def _share(part: list[float], whole: list[float]) -> float:
    return sum(part) / sum(whole) if sum(whole) > 0 else 1.0
