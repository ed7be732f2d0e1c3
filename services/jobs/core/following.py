"""What follows from where a pod of a job is (``PodState``): one row each, and nothing else decides it.

state       fills its place  its program  the pod goes           its place                given back after
Waiting     yes                           no                     its own                  1 start_timeout_s
Starting    yes                           no                     its own                  3 start_timeout_s
Stuck       yes                           no                     its own                  1 start_timeout_s
Running     yes              runs         no                     its own                  never
Succeeded   no               is done      with the job, if it    its own                  never
                                          still holds something
Failed      no               failed       with the next attempt  its own, then            never
Disrupted   no                            at once                its own, then            never
Leaving     no                            it does                its own, when it is gone never
Lost        no                            nobody can say when    another                  never
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

from shared.model.controllers.training_job import PodState, WorkerPod


class Goes(Enum):
    """When we delete the pod, of a job that is to have workers."""

    NOT = "not"
    NEXT_ATTEMPT = "next attempt"
    AT_ONCE = "at once"


class FollowedPod(Struct, frozen=True, kw_only=True):
    """``fills``: it is one of the workers that the job is to have. ``fails``: the attempt has failed. ``elsewhere``:
    its place is filled by a pod of another name, for its own is taken for who knows how long. ``patience``: so many
    ``start_timeout_s`` may pass before what it holds is given back; None: any time."""

    fills: bool = False
    fails: bool = False
    goes: Goes = Goes.NOT
    elsewhere: bool = False
    patience: float | None = None


SLOW = 3.0
"""Images of tens of GB and volumes that are attached take their time."""

TABLE: Mapping[PodState, FollowedPod] = {
    PodState.WAITING: FollowedPod(fills=True, patience=1.0),
    PodState.STARTING: FollowedPod(fills=True, patience=SLOW),
    PodState.STUCK: FollowedPod(fills=True, patience=1.0),
    PodState.RUNNING: FollowedPod(fills=True),
    PodState.SUCCEEDED: FollowedPod(),
    PodState.FAILED: FollowedPod(fails=True, goes=Goes.NEXT_ATTEMPT),
    PodState.DISRUPTED: FollowedPod(goes=Goes.AT_ONCE),
    PodState.LEAVING: FollowedPod(),
    PodState.LOST: FollowedPod(elsewhere=True),
}


def row(pod: WorkerPod) -> FollowedPod:
    """What follows from where the pod is."""
    return TABLE[pod.state]
