"""Whether a policy's scores mean the same on every agent: tried out before the policy is known.

Agents see some of the nodes each, and the coordinator takes the best of what they offer. Scores that rest on what else
an agent sees (a rank, a share of the highest at hand) do not compare: the more agents, the more nodes look best. So a
small cluster is judged as a whole and in parts, each by a policy made anew, as one agent and as several would: for a
pod that any node takes, and for one that asks for GPUs and bears limits of latency. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy

import numpy as np
from numpy.typing import NDArray

from shared.model.constraints import PodClass
from shared.model.node import UNKNOWN_LATENCY, Node
from shared.model.resources import CPU, GPU_MILLI, MEMORY, PODS
from shared.policy.guard import fault_of
from shared.policy.observation import Observation, Policy, Supplies, supply
from shared.policy.usage.kept_views import KeptViews
from shared.policy.usage.load import node_load
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import NO_POD, summary
from shared.scheduling.state.node_table import NodeTable

REMEDY = "rank a node by itself and set row_local = True, or by what is the same everywhere and set agents_agree = True"
GIB = 1 << 30
ROUNDING = 1e-5
"""Of sums in single precision, whose order depends on how many rows are judged at once."""
_SHAPES = (
    (4000, 8, 1, 0, 5), (4000, 8, 3, 2, 15), (8000, 32, 0, 4, 25), (8000, 16, 5, 8, -1), (16_000, 64, 2, 1, 35),
    (2000, 4, 0, 0, 0),
)  # fmt: skip
"""(milli-cores, GiB, pods that stand there, GPUs, milliseconds to the users, -1 unknown) of the nodes tried on."""
_POD = PodClass(requests=((CPU, 250), (MEMORY, GIB)), score_cpu_millis=250, score_memory_bytes=GIB)
_ASKING = PodClass(
    requests=((GPU_MILLI, 500), (CPU, 500), (MEMORY, GIB)), score_cpu_millis=500, score_memory_bytes=GIB,
    latency_soft_us=20_000, latency_hard_us=30_000,
)  # fmt: skip
"""Pods of two kinds: any node does, or one with GPUs; the second has limits of latency too."""


class _Middle:
    """What a policy that draws is handed: where all draws are alike, scores differ by what is seen."""

    def random(self) -> float:
        return 0.5


def disagreement(make: Callable[[], Policy]) -> str:
    """What is wrong with the policies that ``make`` makes, whatever they say of themselves; "": nothing was found."""
    unused = make()

    def another() -> Policy:
        """As if made anew: reading weights may take long, so it is made again only where it cannot be copied."""
        try:
            return deepcopy(unused)
        except Exception:  # noqa: BLE001  whatever it holds that cannot be copied
            return make()

    everyone = range(len(_SHAPES))
    with_gpus = [number for number in everyone if _SHAPES[number][3]]
    for pod_class, numbers in ((_POD, everyone), (_ASKING, with_gpus)):
        told = UtilisationStore()
        told.cluster = _means(_table(numbers))
        whole = _scores(another(), _table(numbers), pod_class, told)
        if isinstance(whole, str) and not unused.row_local:
            return f"it cannot be tried out: {whole}"
        for part in (numbers[::2], numbers[1::2], *([one] for one in numbers)):
            found = _scores(another(), _table(part), pod_class, told)
            if isinstance(found, str) != isinstance(whole, str):
                why, fails, ranks = (found, part, numbers) if isinstance(found, str) else (whole, numbers, part)
                return f"it ranks {len(ranks)} nodes and not {len(fails)}: {why}"
            if isinstance(found, str) or isinstance(whole, str):
                continue  # whatever the nodes: its guard answers for it
            for place, number in enumerate(part):
                other = whole[list(numbers).index(number)]
                if not np.isclose(found[place], other, rtol=ROUNDING, atol=ROUNDING):
                    return (
                        f"it gives a node {other:.6g} among {len(numbers)} nodes and "
                        f"{found[place]:.6g} among {len(part)}"
                    )
    return ""


def _table(numbers: Sequence[int]) -> NodeTable:
    table = NodeTable(len(numbers))
    for number in numbers:
        cpu, memory, pods, gpus, latency_ms = _SHAPES[number]
        allocatable = {CPU: cpu, MEMORY: memory * GIB, PODS: 110, GPU_MILLI: 1000 * gpus}
        latency_us = latency_ms * 1000 if latency_ms >= 0 else UNKNOWN_LATENCY
        row = table.upsert(Node(name=f"node-{number}", allocatable=allocatable, latency_us=latency_us))
        for _ in range(pods):
            table.add_usage(row, _POD, ())
    return table


def _means(table: NodeTable) -> np.ndarray:
    rows = table.live_rows()
    return summary(KeptViews().of(table, rows, NO_POD, UtilisationStore()), node_load(table, rows))


def _scores(
    policy: Policy, table: NodeTable, pod_class: PodClass, store: UtilisationStore
) -> NDArray[np.float64] | str:
    """Of all rows; why there are none where it gives none that can be used."""
    supply(policy, Supplies(store))
    rows = table.live_rows()
    try:
        with np.errstate(all="ignore"):
            found = policy.decide(Observation(table, pod_class, rows), _Middle())
            fault = fault_of(found, len(rows))
    except Exception as error:  # noqa: BLE001  whatever it raises, it is told
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return found.score if fault is None else f"its answer is of no use ({fault})"
