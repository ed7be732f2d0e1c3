"""Why the active policy chooses a node, for ``GET /v1/explain``: Q-values, features, what lost and by how much.

It judges anew, on the nodes as they stand now (a bound pod's own amounts taken off its node), so it tells what the
policy thinks, not what it thought then; what was considered at the time stays in ``decision``. The core's state is
only read; the policy, an object of its own that decides nothing, is handed what it needs and remembers what it saw.
Where it goes by nodes' loads, each figure of the chosen node and of the best other one is named as measured, with its
age and by whom, or as requested. What ``marl-dqn`` makes of the same readings, by what it has learned of workloads, is
among its features.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import numpy as np

from services.coordinator.core.core import Core
from shared.model.load import PARTS
from shared.model.pod import Pod
from shared.policy.attribution import Moved, NodeCandidate, attribute, lens_of
from shared.policy.mixed import Mixed, MixedNode, is_mixed, mixed_of
from shared.policy.observation import Need, Observation, Policy, Supplies, needs_of, supply
from shared.policy.usage.load import used_shares
from shared.scheduling.state.measured_use import MEASURABLE
from shared.scheduling.state.node_table import PODS_COLUMN, NodeTable


def reasons(core: Core, pod: Pod, policy: Policy) -> dict[str, Any] | None:
    """As JSON; None where the policy offers nothing to look into, or no node is feasible."""
    profile = core.state.settings.profile
    supplies = Supplies(
        core.variants.store, profile.scores, gpu_shares=profile.gpu_shares, power=profile.power,
        load_parts=profile.load_parts,
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
        if mixed is None:
            return None
        return _mixed(policy, mixed, table) | _use(core, policy, table, mixed.chosen.row, mixed.runner_up)
    told = attribute(lens, observation, own)
    return {
        "policy": f"{policy.name}@{policy.version}",
        "chosen": _candidate(table, told.chosen),
        "moved": [_moved(moved) for moved in told.moved],
        "runner_up": None if told.runner_up is None else _candidate(table, told.runner_up),
        "ahead_by": told.lost_by,
        "decisive": [_moved(moved) for moved in told.decisive],
    } | _use(core, policy, table, told.chosen.row, told.runner_up)


def _use(
    core: Core, policy: Policy, table: NodeTable, chosen: int, other: NodeCandidate | MixedNode | None
) -> dict[str, Any]:
    """By node: what of it is in use, and how that is known; nothing of one that learns of workloads."""
    needs = needs_of(policy)
    if Need.USAGE not in needs or Need.WORKLOADS in needs:
        return {}
    rows = [chosen] if other is None else [chosen, other.row]
    parts = core.state.settings.profile.load_parts
    return {"use": {table.names[row]: [_part(core, table, row, part) for part in parts] for row in rows}}


def _part(core: Core, table: NodeTable, row: int, name: str) -> dict[str, Any]:
    """``share``: as the policy sees it, what has changed since it was measured included."""
    place = PARTS.index(name)
    share = round(float(used_shares(table, np.array([row]))[place, 0]), 4)
    node = core.variants.used.get(table.names[row])
    part = node.parts[place] if node is not None and place < MEASURABLE and table.use.known[place, row] else None
    if part is None:
        how = "counted" if name == "pods" else "requested"
        return {"part": name, "share": share, "how": how, "age_s": None, "source": ""}
    age_s = round(max(0.0, core.state.now - part.at_s), 3)
    return {"part": name, "share": share, "how": "measured", "age_s": age_s, "source": part.source}


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


def _candidate(table: NodeTable, candidate: NodeCandidate) -> dict[str, Any]:
    """``network``: of several, which one judged the node."""
    told = {
        "node": table.names[candidate.row], "score": candidate.score, "q_accept": candidate.q_accept,
        "q_reject": candidate.q_reject,
    }  # fmt: skip
    return told | ({"network": candidate.network} if candidate.network else {})


def _moved(moved: Moved) -> dict[str, Any]:
    return {"feature": moved.feature, "value": moved.value, "others": moved.reference, "effect": moved.effect}
