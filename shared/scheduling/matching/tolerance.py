"""Which tolerations tolerate which taints (``component-helpers/scheduling/corev1``)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shared.model.constraints import Taint, Toleration
from shared.scheduling.state.node_table import BoolArray, NodeTable, Rows

NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "PreferNoSchedule", "NoExecute"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers one taint; an empty effect or an empty key with Exists covers any."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Lt", "Gt"):
        return _compares(toleration, taint)
    return toleration.value == taint.value


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether any toleration covers the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def first_untolerated(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> Taint | None:
    """The first NoSchedule or NoExecute taint that is not tolerated."""
    for taint in taints:
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not tolerated(tolerations, taint):
            return taint
    return None


def tolerated_mask(table: NodeTable, tolerations: tuple[Toleration, ...], rows: Rows) -> BoolArray:
    """``[len(rows)]``: no NoSchedule or NoExecute taint that is not tolerated.

    Nodes share few distinct lists of taints, so each list is judged once and the verdict is taken by index.
    """
    verdicts = np.fromiter(
        (first_untolerated(tolerations, taints) is None for taints in table.taint_sets), np.bool_, len(table.taint_sets)
    )
    return verdicts[table.taint_set[: table.rows][rows]]


def untolerated_preferences(tolerations: tuple[Toleration, ...], taints: Iterable[Taint]) -> int:
    """How many PreferNoSchedule taints are not tolerated (only tolerations for that or any effect count)."""
    usable = tuple(t for t in tolerations if not t.effect or t.effect == PREFER_NO_SCHEDULE)
    return sum(1 for taint in taints if taint.effect == PREFER_NO_SCHEDULE and not tolerated(usable, taint))


def _compares(toleration: Toleration, taint: Taint) -> bool:
    """The numeric operators (alpha since 1.35): taint value above (Gt) or below (Lt) the toleration's."""
    try:
        wanted, actual = int(toleration.value), int(taint.value)
    except ValueError:
        return False
    return actual > wanted if toleration.operator == "Gt" else actual < wanted
