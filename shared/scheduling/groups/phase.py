"""What a pod group is doing, and what it lacks, in words: for a leader and for who reads a cluster alone. Pure."""

from __future__ import annotations

from shared.model.units.pod_group import GroupSource, PodGroup, group_name, group_title

WAITING, PLACING, RUNNING, BROKEN, ENDED = "waiting", "placing", "running", "broken", "ended"


def phase(group: PodGroup | None, *, away: bool, bound: int, waiting: int, done: int) -> str:
    """Whether members are on their way, how many stand, wait and have succeeded. A gang whose members finish one by one
    is not broken."""
    if away:
        return PLACING
    if not bound:
        return ENDED if not waiting and (done or has_run(group)) else WAITING
    return RUNNING if bound + done >= (group.min_count if group is not None else 1) else BROKEN


def has_run(group: PodGroup | None) -> bool:
    """Whether its condition says that it was scheduled once."""
    return group is not None and group.condition[1] == "True"


def no_object_text(key: str) -> str:
    """Of a group that members name and the API server does not have."""
    nouns = {GroupSource.PLUGINS: "PodGroup (scheduling.x-k8s.io)", GroupSource.JOB: "Job"}
    noun = next((noun for source, noun in nouns.items() if key.startswith(f"{source.value}:")), "PodGroup")
    namespace = group_title(key).rpartition("/")[0]
    return f"there is no {noun} {group_name(key)} in {namespace}; create it"


def too_few_text(there: int, least: int, missing: int) -> str:
    """Of a group that is not tried before more members are there."""
    return f"{there} of at least {least} members exist; {missing} more must be created"
