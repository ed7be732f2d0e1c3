"""Which policies there are for training jobs, by name."""

from __future__ import annotations

from shared.decide.registry import PolicyEntry, PolicyRegistry
from shared.jobs.observation import Policy

PACKAGE = "shared.jobs.policies"
ADAPTS_BATCH = "adapts-batch"
"""It is made for jobs whose batch it may choose; other policies leave the user's batch as it is."""
DRAWS = "draws"
"""Its decisions follow from its seed too."""
SPEED = "speed"
"""It divides by how fast each job runs: live, a job of which that is not known is left to ``elastic``."""


def _entry(where: str, *words: str) -> PolicyEntry:
    found = frozenset(words)
    return PolicyEntry(f"{PACKAGE}.{where}", needs=found & {SPEED}, traits=found - {SPEED})


POLICIES = PolicyRegistry(
    "training jobs",
    {
        "elastic": _entry("elastic:Elastic"),
        "fifo": _entry("orders:Fifo"),
        "srtf": _entry("orders:Srtf", SPEED),
        "drf": _entry("drf:Drf"),
        "tetris": _entry("tetris:Tetris"),
        "tiresias": _entry("tiresias:Tiresias"),
        "optimus": _entry("optimus:Optimus", SPEED),
        "pollux": _entry("pollux:Pollux", SPEED, ADAPTS_BATCH, DRAWS),
        "marginal": _entry("marginal:Marginal", SPEED, ADAPTS_BATCH),
        "marginal-fixed": _entry("marginal:Marginal", SPEED),
        "jobs-sets": _entry("learned.sets:Sets", SPEED, ADAPTS_BATCH),
        "jobs-sets-fixed": _entry("learned.sets:Sets", SPEED),
        "sia": _entry("sia:Sia", SPEED, ADAPTS_BATCH),
    },
)


def make(name: str) -> Policy:
    """A new policy of this name. ``ConfigError``: unknown, or its weights are not there."""
    policy: Policy = POLICIES.entry(name).maker()()
    return policy
