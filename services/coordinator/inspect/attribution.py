"""Why the active policy chooses a node, for ``GET /v1/explain``: Q-values, features, what lost and by how much.

It judges anew, on the nodes as they stand now (a bound pod's own amounts taken off its node), so it tells what the
policy thinks, not what it thought then; what was considered at the time stays in ``decision``. The core's state is
only read; the policy, an object of its own that decides nothing, is handed what it needs and remembers what it saw.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import numpy as np

from services.coordinator.core.core import Core
from shared.model.pod import Pod
from shared.policy.attribution import Candidate, Moved, attribute, lens_of
from shared.policy.mixed import Mixed, MixedNode, is_mixed, mixed_of
from shared.policy.observation import Observation, Policy, Supplies, supply
from shared.scheduling.state.node_table import PODS_COLUMN, NodeTable


def reasons(core: Core, pod: Pod, policy: Policy) -> dict[str, Any] | None:
    """As JSON; None where the policy offers nothing to look into, or no node is feasible."""
    profile = core.state.settings.profile
    supplies = Supplies(
        core.variants.store, profile.scores, gpu_shares=profile.gpu_shares, power=profile.power,
        demand=core.variants.demand.told,
    )  # fmt: skip
    supply(policy, supplies)  # first: what there is to look into may depend on it
    lens = lens_of(policy)
    if lens is None and not is_mixed(policy):
        return None
    table = core.state.cache.table
    rows = np.flatnonzero(core.state.feasibility.of(pod.pod_class).mask)
    own = table.row_of.get(pod.node_name) if pod.node_name else None
    if own is not None:
        rows, table = np.union1d(rows, [own]), _without(table, own, pod)
    if not len(rows):
        return None
    observation = Observation(table, pod.pod_class, rows)
    if lens is None:
        mixed = mixed_of(policy, observation, own)
        return None if mixed is None else _mixed(policy, mixed, table)
    told = attribute(lens, observation, own)
    return {
        "policy": f"{policy.name}@{policy.version}",
        "chosen": _candidate(table, told.chosen),
        "moved": [_moved(moved) for moved in told.moved],
        "runner_up": None if told.runner_up is None else _candidate(table, told.runner_up),
        "ahead_by": told.lost_by,
        "decisive": [_moved(moved) for moved in told.decisive],
    }


def _mixed(policy: Policy, told: Mixed, table: NodeTable) -> dict[str, Any]:
    """Of a mixture: each member's part in the score of the chosen node and of the best other one."""
    return {
        "policy": f"{policy.name}@{policy.version}",
        "class": told.class_name,
        "chosen": _parts(table, told.chosen),
        "runner_up": None if told.runner_up is None else _parts(table, told.runner_up),
        "ahead_by": told.ahead_by,
    }


def _parts(table: NodeTable, told: MixedNode) -> dict[str, Any]:
    return {
        "node": table.names[told.row],
        "score": told.score,
        "members": [msgspec.structs.asdict(member) for member in told.members],
    }


def _without(table: NodeTable, row: int, pod: Pod) -> NodeTable:
    """The table as if the pod were not on its node; shares everything but the amounts."""
    other = copy.copy(table)
    other.requested = table.requested.copy()
    for name, amount in pod.pod_class.requests:
        column = table.column_of.get(name)
        if column is not None:
            other.requested[column, row] = max(0, int(other.requested[column, row]) - amount)
    other.requested[PODS_COLUMN, row] = max(0, int(other.requested[PODS_COLUMN, row]) - 1)
    return other


def _candidate(table: NodeTable, candidate: Candidate) -> dict[str, Any]:
    return {
        "node": table.names[candidate.row], "score": candidate.score, "q_accept": candidate.q_accept,
        "q_reject": candidate.q_reject,
    }  # fmt: skip


def _moved(moved: Moved) -> dict[str, Any]:
    return {"feature": moved.feature, "value": moved.value, "others": moved.reference, "effect": moved.effect}
