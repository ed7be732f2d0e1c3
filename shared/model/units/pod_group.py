"""A pod group as the scheduler sees it: pods that are placed together, whichever API describes them.

Sources, in order of preference: Kubernetes' own ``scheduling.k8s.io`` PodGroup, the ``scheduling.x-k8s.io`` PodGroup
of the scheduler plug-ins, and an Indexed Job whose owner asked for it. A pod names its group by ``Pod.group``.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from shared.model.devices import ClaimRef


class GroupSource(Enum):
    """Which API a pod group comes from; the value is the first part of its key."""

    NATIVE = "podgroup"
    PLUGINS = "x-podgroup"
    JOB = "job"


class WhenGangBreaks(Enum):
    """What becomes of a gang that has started and can no longer reach its minimum (``conclave.io/gang-broken``)."""

    KEEP = "keep"
    """Members that run stay, the others are tried again."""
    EVICT = "evict"
    """Members that run are evicted, the group waits as a whole."""


GANG_ANNOTATION = "conclave.io/gang"
"""On a Job or its namespace: "true" makes an Indexed Job a gang of its parallelism."""

GANG_MIN_COUNT_ANNOTATION = "conclave.io/gang-min-count"
"""On such a Job: the minimum, where it is not the parallelism."""

GANG_BROKEN_ANNOTATION = "conclave.io/gang-broken"
"""On a pod group or such a Job: a value of ``WhenGangBreaks``."""

GANG_TOPOLOGY_ANNOTATION = "conclave.io/gang-topology"
"""On a pod group or such a Job: the node label of which all members' nodes have one value, where the API has no field
for it (``topology.kubernetes.io/rack``)."""

GANG_TOPOLOGY_PREFERRED_ANNOTATION = "conclave.io/gang-topology-preferred"
"""The same, but where no one value has room the members go anywhere."""

MAX_MEMBERS = 4096
"""Most members of one group that are placed together; a larger minimum is told so on the group."""


class GroupTopology(Struct, frozen=True, gc=False):
    """All members on nodes with one value of the label ``key``; not ``required``: there first, anywhere else then."""

    key: str
    required: bool = True


class PodGroup(Struct, frozen=True, gc=False):
    """One pod group at one resourceVersion.

    ``min_count``: so many members run at once, or none; 1 for a group that is no gang (policy ``basic``).
    ``whole``: a preemption takes all members or none (disruptionMode all). ``priority`` None: that of its members.
    ``timeout_s``: how long capacity is held for a group that cannot be completed; None: the scheduler's setting.
    ``condition``: (type, status, reason, message) of the scheduling condition as last written; type "": the API has
    none (of the plug-ins' PodGroup its status is the phase). ``problem``: why the group cannot be used as it is
    written; its members wait and are told so. ``claims``: of devices, that members share which name them alike.
    """

    key: str
    source: GroupSource
    namespace: str
    name: str
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    gang: bool = False
    min_count: int = 1
    topology: GroupTopology | None = None
    whole: bool = False
    priority: int | None = None
    never_preempts: bool = False
    timeout_s: float | None = None
    min_resources: tuple[tuple[str, int], ...] = ()
    broken: WhenGangBreaks = WhenGangBreaks.KEEP
    labels: dict[str, str] = {}
    created: str = ""
    deleting: bool = False
    condition: tuple[str, str, str, str] = ("", "", "", "")
    problem: str = ""
    generation: int = 0
    claims: tuple[ClaimRef, ...] = ()

    @property
    def title(self) -> str:
        """``namespace/name``, for people."""
        return f"{self.namespace}/{self.name}"


def group_key(source: GroupSource, namespace: str, name: str) -> str:
    """What names a pod group in the mesh: groups of two sources may have one name."""
    return f"{source.value}:{namespace}/{name}"


def group_name(key: str) -> str:
    """The group's own name, without its source and namespace."""
    return key.rpartition("/")[2]


def group_title(key: str) -> str:
    """``namespace/name``, for people."""
    return key.partition(":")[2]
