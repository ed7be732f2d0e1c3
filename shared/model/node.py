"""A node as the scheduler sees it: its static half. What runs there is accounted in ``scheduling.node_table``."""

from __future__ import annotations

from msgspec import Struct

from shared.model.constraints import Taint


class Node(Struct, frozen=True):
    """One node. ``allocatable``: amounts by resource name, CPU in milli-cores."""

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: dict[str, int] = {}
    ready: bool = True
    deleting: bool = False
    invalid: str = ""
