"""How much of each resource the nodes have and how much is requested: CPU, memory, GPUs, whatever a node offers.

Pure; a sum over the table's columns, whatever their names are.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from services.coordinator.core.core import Core
from shared.model.resources import CPU, MEMORY, PODS
from shared.scheduling.state.node_table import CPU_COLUMN, MEMORY_COLUMN

MOST_SHOWN = 32

NAMES = {CPU: "cpu_millis", MEMORY: "memory_bytes"}
"""Resources whose unit is said; the others are whole numbers under their own name."""


class ResourceTotal(Struct, frozen=True, kw_only=True):
    """One resource over all nodes; ``nodes``: how many offer it; ``share`` None: nobody does."""

    name: str
    allocatable: int
    requested: int
    share: float | None
    nodes: int


def resource_totals(core: Core, *, most: int = MOST_SHOWN) -> list[ResourceTotal]:
    """CPU and memory first, the others by name: those that a node offers or a pod on a node asks for."""
    table = core.state.cache.table
    rows = table.present[: table.rows]
    allocatable = table.allocatable[:, : table.rows][:, rows]
    requested = table.requested[:, : table.rows][:, rows]
    has, asked, offering = allocatable.sum(axis=1), requested.sum(axis=1), np.count_nonzero(allocatable, axis=1)
    others = sorted(name for name in table.column_of if name not in (CPU, MEMORY))
    columns = [CPU_COLUMN, MEMORY_COLUMN, *(table.column_of[name] for name in others)]
    names = [CPU, MEMORY, *others]
    found = []
    for name, column in zip(names, columns, strict=True):
        if column > MEMORY_COLUMN and not has[column] and not asked[column]:
            continue
        share = round(float(asked[column] / has[column]), 4) if has[column] else None
        found.append(
            ResourceTotal(
                name=NAMES.get(name, name), allocatable=int(has[column]), requested=int(asked[column]), share=share,
                nodes=int(offering[column]),
            )
        )  # fmt: skip
        if len(found) == most:
            break
    return found


def resource_shares(core: Core) -> dict[str, float]:
    """Requested share by resource; without ``pods``, which is no thing one asks for."""
    return {
        total.name: total.share for total in resource_totals(core) if total.share is not None and total.name != PODS
    }
