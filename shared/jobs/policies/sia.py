"""Sia (Jayaram Subramanya et al., SOSP 2023): which job has which configuration, as an integer programme.

A configuration is (GPU type, GPUs): powers of two within a node, whole nodes beyond (section 3.2 of the paper). For job
i and configuration c with goodput G, normalised so that a job's worst configuration has 1, and times the restart factor
of Pollux where it is not what the job has (section 3.3):

    minimise  sum_ic x_ic · (r_ic · G_ic)^p + PENALTY · sum_i (1 - sum_c x_ic),   p = -0.5, PENALTY = 1.1
    with      sum_c x_ic <= 1,   sum of GPUs of a type <= what there is of it

A job grows to twice the GPUs that it ever had. HiGHS solves it through ``scipy.optimize.milp``. Placement keeps what it
can; a job within one node goes to the fullest that has room, whole nodes to empty ones, and where that does not work
out, everything is packed anew, largest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from shared.jobs.observation import Decision, JobAllocation, JobObservation, JobsObservation, NodeObservation
from shared.jobs.policies.goodput import Goodputs, GoodputTables
from shared.jobs.policies.placing import Free
from shared.jobs.policies.pollux import restart_factor

POWER = -0.5
PENALTY = 1.1
SOLVE_S = 2.0
"""The best programme found after this long stands; rounds of 160 jobs take far less."""
GAP = 1e-3


class Configuration(NamedTuple):
    """So many GPUs of one type."""

    gpu_type: str
    gpus: int


class Sia:
    """The programme, and a placer for what it says."""

    name = "sia"

    def __init__(self, power: float = POWER, penalty: float = PENALTY) -> None:
        self._power, self._penalty = power, penalty
        self.reset(0)

    def reset(self, seed: int) -> None:  # noqa: ARG002  nothing is drawn
        """Nothing is drawn."""
        self._tables: dict[str, GoodputTables] = {}
        self._grown: dict[str, int] = {}

    def decide(self, seen: JobsObservation) -> Decision:
        """Configurations by the programme, then nodes."""
        types = _by_type(seen.nodes)
        self._grown = {job.name: max(self._grown.get(job.name, 0), job.workers) for job in seen.jobs}
        configurations = configurations_of(types)
        choices: list[tuple[int, Configuration, float]] = []
        tables: dict[tuple[int, str], Goodputs] = {}
        for at, job in enumerate(seen.jobs):
            choices += self._choices(at, job, seen, types, configurations, tables)
        chosen = solve(len(seen.jobs), choices, {name: _gpus(nodes) for name, nodes in types.items()}, self._penalty)
        wanted = {seen.jobs[at].name: configuration for at, configuration in chosen.items()}
        placements = place(seen, types, wanted)
        if placements is None:
            return {}
        found: dict[str, JobAllocation] = {}
        for at, job in enumerate(seen.jobs):
            placement = placements.get(job.name, {})
            batch, workers = None, sum(placement.values())
            if workers and job.batch_range:
                kind = wanted[job.name].gpu_type
                batch = int(tables[at, kind].batch[self._sizes(kind).index(workers)])
            found[job.name] = JobAllocation(workers=workers, placement=placement, batch=batch)
        return found

    def _choices(
        self,
        at: int,
        job: JobObservation,
        seen: JobsObservation,
        types: Mapping[str, list[NodeObservation]],
        configurations: Sequence[Configuration],
        tables: dict[tuple[int, str], Goodputs],
    ) -> list[tuple[int, Configuration, float]]:
        """(job, configuration, its term in the sum), where it can run."""
        rates: dict[Configuration, float] = {}
        for configuration in configurations:
            if not job.minimum <= configuration.gpus <= min(job.maximum, max(2 * self._grown[job.name], job.minimum)):
                continue
            name = configuration.gpu_type
            if (at, name) not in tables:
                known = self._table(name, types[name], seen).of(job, name)
                if known is None:
                    continue
                tables[at, name] = known
            rates[configuration] = float(tables[at, name].rate[self._sizes(name).index(configuration.gpus)])
        rates = {configuration: rate for configuration, rate in rates.items() if rate > 0.0}
        if not rates:
            return []
        least, factor = min(rates.values()), max(restart_factor(job, seen.now), 1e-3)
        has = Configuration(_type_of(job, types), job.workers)
        return [
            (at, one, ((rate / least) * (1.0 if one == has or not job.workers else factor)) ** self._power)
            for one, rate in rates.items()
        ]

    def _table(self, name: str, nodes: list[NodeObservation], seen: JobsObservation) -> GoodputTables:
        part = JobsObservation(now=seen.now, jobs=(), nodes=tuple(nodes))
        if name not in self._tables or not self._tables[name].fits(part):
            self._tables[name] = GoodputTables(part, [one.gpus for one in configurations_of({name: nodes})])
        return self._tables[name]

    def _sizes(self, name: str) -> tuple[int, ...]:
        return self._tables[name].sizes or ()


def configurations_of(types: Mapping[str, list[NodeObservation]]) -> list[Configuration]:
    """Powers of two within a node, then whole nodes, for each type."""
    found: list[Configuration] = []
    for name, nodes in types.items():
        per_node = max(node.gpus for node in nodes)
        within = [2**power for power in range(per_node.bit_length()) if 2**power < per_node]
        found += [Configuration(name, gpus) for gpus in [*within, *range(per_node, _gpus(nodes) + 1, per_node)]]
    return found


def solve(
    jobs: int, choices: Sequence[tuple[int, Configuration, float]], gpus: Mapping[str, int], penalty: float
) -> dict[int, Configuration]:
    """The configuration of each job that gets one. ``choices``: (job, configuration, its term)."""
    if not choices:
        return {}
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    count, types = len(choices), list(gpus)
    row = [at for at, _, _ in choices] + [jobs + types.index(one.gpu_type) for _, one, _ in choices]
    column = [*range(count), *range(count)]
    value = [1.0] * count + [float(one.gpus) for _, one, _ in choices]
    matrix = csr_array((value, (row, column)), shape=(jobs + len(types), count))
    limit = np.array([1.0] * jobs + [float(gpus[name]) for name in types])
    result = milp(
        np.array([term - penalty for _, _, term in choices]),
        integrality=np.ones(count),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, ub=limit),
        options={"time_limit": SOLVE_S, "mip_rel_gap": GAP},
    )
    if result.x is None:
        return {}
    return {choices[at][0]: choices[at][1] for at in np.nonzero(result.x > 0.5)[0].tolist()}


def place(
    seen: JobsObservation, types: Mapping[str, list[NodeObservation]], wanted: Mapping[str, Configuration]
) -> dict[str, dict[str, int]] | None:
    """Nodes for each configuration; None: they cannot be packed. Who keeps its GPUs keeps its nodes if all fit."""
    jobs = {job.name: job for job in seen.jobs}
    kept = {
        name: dict(jobs[name].placement)
        for name, one in wanted.items()
        if jobs[name].workers == one.gpus and _type_of(jobs[name], types) == one.gpu_type
    }
    tried = _pack(types, wanted, kept)
    return _pack(types, wanted, {}) if tried is None else tried


def _pack(
    types: Mapping[str, list[NodeObservation]], wanted: Mapping[str, Configuration], kept: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]] | None:
    free = {name: {node.name: node.gpus for node in nodes} for name, nodes in types.items()}
    for name, placement in kept.items():
        for node, count in placement.items():
            free[wanted[name].gpu_type][node] -= count
    found = dict(kept)
    for name in sorted((one for one in wanted if one not in kept), key=lambda one: -wanted[one].gpus):
        placed = _on_type(free[wanted[name].gpu_type], wanted[name].gpus, types[wanted[name].gpu_type])
        if placed is None:
            return None
        found[name] = placed
    return found


def _on_type(free: Free, gpus: int, nodes: list[NodeObservation]) -> dict[str, int] | None:
    """One node with least room to spare, or empty nodes."""
    size = {node.name: node.gpus for node in nodes}
    per_node = max(size.values())
    if gpus < per_node:
        fitting = [node for node in free if free[node] >= gpus]
        if not fitting:
            return None
        node = min(fitting, key=lambda one: free[one])
        free[node] -= gpus
        return {node: gpus}
    empty = [node for node in free if free[node] == size[node]][: -(-gpus // per_node)]
    if sum(free[node] for node in empty) < gpus:
        return None
    placement: dict[str, int] = {}
    for node in empty:
        placement[node] = min(free[node], gpus)
        gpus -= placement[node]
        free[node] -= placement[node]
    return placement


def _by_type(nodes: Sequence[NodeObservation]) -> dict[str, list[NodeObservation]]:
    types: dict[str, list[NodeObservation]] = {}
    for node in nodes:
        types.setdefault(node.gpu_type, []).append(node)
    return types


def _gpus(nodes: Sequence[NodeObservation]) -> int:
    return sum(node.gpus for node in nodes)


def _type_of(job: JobObservation, types: Mapping[str, list[NodeObservation]]) -> str:
    """The GPU type that the job stands on; "" where it stands nowhere."""
    return next((name for name, nodes in types.items() if any(node.name in job.placement for node in nodes)), "")
