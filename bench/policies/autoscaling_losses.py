"""Why windows of a mixed episode are lost: what was going on in those that are not available, and in what came late.

    .venv/bin/python -m bench.policies.autoscaling_losses [--policy demand] [--seeds 100-109]

The twin knows what no policy sees: which replicas hang. A window of ten seconds counts under the first that applies:
``hung`` a replica was Ready and answered nothing; ``surge``; ``pending`` a pod had no node; ``missing`` fewer replicas
worked than were asked for; ``dearer``; ``none``. Percent of all windows, and of all requests. Validation seeds: this is
for understanding, and nothing is chosen by it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from lab.autoscaling.episode import Setup
from lab.autoscaling.metrics import GOOD, WINDOW_S
from lab.autoscaling.policies import make
from lab.evaluation.seeds import parse_seeds
from lab.worlds.services.disturbances import DisturbanceKind
from lab.worlds.services.scenarios import intensity_of
from lab.worlds.services.topology import default_topology
from lab.worlds.services.world import ServiceWorld
from shared.autoscaling.observation import Policy
from shared.errors import ConclaveError

CAUSES = ("hung", "surge", "pending", "missing", "dearer", "none")


@dataclass(slots=True)
class Losses:
    """Windows and requests in all, and by cause: windows that were not available, requests not answered in time."""

    windows: int = 0
    requests: float = 0.0
    bad: Counter[str] = field(default_factory=Counter)
    late: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))

    def lines(self) -> list[str]:
        """For people."""
        found = ["cause    windows not available, %   requests not in time, %"]
        for cause in CAUSES:
            windows, late = 100 * self.bad[cause] / self.windows, 100 * self.late[cause] / self.requests
            found.append(f"{cause:<8} {windows:26.1f} {late:25.1f}")
        return found


def losses(policy: Policy, setup: Setup, seeds: Sequence[int]) -> Losses:
    """Play the episodes and look at every window."""
    found = Losses()
    for seed in seeds:
        world = setup.world(seed)
        policy.reset(seed)
        while not world.over:
            world.apply(policy.decide(world.observe()))
            first, seen = world.now_s, set[str]()
            for _ in range(min(WINDOW_S, world.length_s - first)):
                world.run(1)
                seen |= _going_on(world)
            cause = next((name for name in CAUSES if name in seen), "none")
            offered = sum(world.seconds.offered[first:])
            found.windows += 1
            found.requests += offered
            found.bad[cause] += sum(world.seconds.answered[first:]) < GOOD * offered
            found.late[cause] += offered - sum(world.seconds.in_time[first:])
    return found


def _going_on(world: ServiceWorld) -> set[str]:
    fleet, now = world.fleet, world.now_s - 1
    kinds = {event.kind for event in world.events if event.at(now)}
    working = [ready - hung for ready, hung in zip(fleet.ready, fleet.hung, strict=True)]
    causes = {
        "hung": any(fleet.hung),
        "surge": DisturbanceKind.SURGE in kinds,
        "pending": any(fleet.counts(service)[2] for service in range(len(fleet.names))),
        "missing": any(works < asked for works, asked in zip(working, fleet.asked, strict=True)),
        "dearer": DisturbanceKind.DEARER in kinds,
    }
    return {cause for cause, there in causes.items() if there}


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description="Why windows of a mixed episode are lost.")
    parser.add_argument("--policy", default="demand")
    parser.add_argument("--seeds", default="100-109")
    given = parser.parse_args()
    setup = Setup(default_topology(), "mixed", intensity_of("mixed"))
    try:
        found = losses(make(given.policy), setup, parse_seeds(given.seeds))
    except ConclaveError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    click.echo("\n".join(found.lines()))


if __name__ == "__main__":
    main()
