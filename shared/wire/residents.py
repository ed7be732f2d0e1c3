"""The part of an offer that tells an agent which workloads stand on its nodes, and what a pod of each uses.

The rules of ``messages.py`` hold here too. A level, told as changes; losing one costs the estimate of what is on its
way, never a decision (``services/coordinator/usage/inventory.py`` tells, ``shared/agent/residents.py`` takes).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from shared.wire.bounds import Count, Feature

MAX_PRIORITY = 2**31 - 1
Priority = Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
MAX_STANDING = 16384
MAX_ENDED = 131072


class WorkloadName(Struct, frozen=True, array_like=True, gc=False):
    """A workload under a number that is valid until ``Residents.anew``. ``key``: a digest of its name, the same in any
    term (names stay with the coordinator, ADR 0008); ``cpu_millis``, ``memory_bytes``: what one pod requests;
    ``priority``: of its pods, None: not told."""

    id: Count
    key: Annotated[bytes, Meta(min_length=8, max_length=32)]
    cpu_millis: Count = 0
    memory_bytes: Count = 0
    priority: Priority | None = None


class StandingPod(Struct, frozen=True, array_like=True, gc=False):
    """A pod on the node of a slot since ``age_ms``. ``number`` names this stay of this pod until the term ends."""

    number: Count
    slot: Count
    workload: Count
    age_ms: Count = 0


class WorkloadUse(Struct, frozen=True, array_like=True, gc=False):
    """What one pod of a workload uses, learned from all nodes' measurements: ``shares`` of a reference node's cpu,
    memory, disk and network. ``id`` 0: a node without pods; 1: pods of no workload. ``evidence`` 0..1: measured rather
    than requested."""

    id: Count
    shares: Annotated[list[Feature], Meta(max_length=16)]
    evidence: Annotated[float, Meta(ge=0, le=1)] = 0.0


class Residents(Struct, frozen=True, array_like=True, gc=False):
    """Which workloads stand on the agent's nodes, as changes of what was told before: ``stands`` came, ``ended`` (by
    number) went. ``anew``: forget the pods and workload numbers of before first; ``uses``: what was learned since.
    Heard twice it changes nothing."""

    workloads: Annotated[list[WorkloadName], Meta(max_length=MAX_STANDING)] = []
    stands: Annotated[list[StandingPod], Meta(max_length=MAX_STANDING)] = []
    ended: Annotated[list[Count], Meta(max_length=MAX_ENDED)] = []
    anew: bool = False
    uses: Annotated[list[WorkloadUse], Meta(max_length=1024)] = []
