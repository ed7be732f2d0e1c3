"""Who is imitated before anything is learned: a policy by name, played live, or a schedule that some scheduler left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lab.jobs.recorded import Recorded, parse_schedule
from lab.jobs.twin_a import draw
from shared.errors import ConfigError
from shared.jobs.history import DecidedJobs, parse_history
from shared.jobs.observation import Policy
from shared.jobs.registry import POLICIES, make


@dataclass(frozen=True, slots=True)
class Teacher:
    """``of`` a seed's workload: a new one. ``seeds``: those that were recorded; (): any. ``name``: for the card."""

    name: str
    of: Callable[[int], Policy]
    seeds: tuple[int, ...] = ()

    @property
    def live(self) -> bool:
        """It can say what it would do in states that it did not come to itself."""
        return not self.seeds


def history_of(source: str) -> list[DecidedJobs]:
    """The decisions of a file of ``conclave jobs record``; []: it is none. ``ConfigError``: one that cannot be used."""
    try:
        text = Path(source).read_text(encoding="utf-8") if source and source not in POLICIES else ""
    except (OSError, UnicodeDecodeError):
        return []
    return parse_history(text, f"--warm-up: {source}") if text.lstrip().startswith("{") else []


def teacher_of(source: str) -> Teacher:
    """By a policy's name or a schedule's file. ``ConfigError``: neither, or a schedule of other jobs than Twin A's."""
    if source in POLICIES:
        return Teacher(source, partial(_by_name, source))
    try:
        text = Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        known = ", ".join(sorted(name for name in POLICIES if not name.startswith("jobs-")))
        raise ConfigError(f"--warm-up: {source!r} is no schedule that can be read, and none of {known}") from None
    recorded = parse_schedule(text, f"--warm-up: {source}")
    for seed, one in recorded.items():
        drawn = {job.name for job in draw(seed)}
        strange = sorted(one.given.keys() - drawn)
        if strange:
            raise ConfigError(
                f"--warm-up: {source}: job {strange[0]!r} is not in Twin A's workload of seed {seed}; record it by "
                "conclave evaluate --suite jobs --workload twin-a --schedule"
            )
    return Teacher(Path(source).name, partial(_of_record, recorded), tuple(recorded))


def _by_name(name: str, seed: int) -> Policy:  # noqa: ARG001  a rule is the same for every seed
    return make(name)


def _of_record(recorded: dict[int, Recorded], seed: int) -> Policy:
    return recorded[seed]
