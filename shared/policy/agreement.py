"""Whether a policy's scores mean the same on every agent: declared by the policy, and tried out before it is known.

Agents see some of the nodes each, and the coordinator takes the best of what they offer. Scores that rest on what else
an agent sees (a rank, a share of the highest at hand) do not compare: the more agents, the more nodes look best. So a
small cluster is judged as a whole and in parts, each by a policy made anew, as one agent and as several would. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shared.model.constraints import PodClass
from shared.model.node import Node
from shared.model.resources import CPU, MEMORY, PODS
from shared.policy.observation import Observation, Policy, Supplies, Verdicts, agents_agree, supply
from shared.policy.usage.kept_views import KeptViews
from shared.policy.usage.utilisation import UtilisationStore
from shared.policy.usage.views import NO_POD, summary
from shared.scheduling.state.node_table import NodeTable

REMEDY = "rank a node by itself and set row_local = True, or by what is the same everywhere and set agents_agree = True"
GIB = 1 << 30
ROUNDING = 1e-5
"""Of sums in single precision, whose order depends on how many rows are judged at once."""
_SHAPES = ((4000, 8, 1), (4000, 8, 3), (8000, 32, 0), (8000, 16, 5), (16_000, 64, 2), (2000, 4, 0))
"""(milli-cores, GiB, pods that stand there) of the nodes that it is tried on."""
_POD = PodClass(requests=((CPU, 250), (MEMORY, GIB)), score_cpu_millis=250, score_memory_bytes=GIB)


class _Middle:
    """What a policy that draws is handed: where all draws are alike, scores differ by what is seen."""

    def random(self) -> float:
        return 0.5


def disagreement(make: Callable[[], Policy]) -> str:
    """What is wrong with the policies that ``make`` makes; "": their scores compare, or they gave none here."""
    if not agents_agree(make()):
        return "its scores are not said to compare across agents"
    everyone = range(len(_SHAPES))
    told = UtilisationStore()
    told.cluster = _means(_table(everyone))
    whole = _verdicts(make(), _table(everyone), told)
    if whole is None:
        return ""  # it may need what these nodes have not; the guard answers for it
    for part in (everyone[::2], everyone[1::2], *([one] for one in everyone)):
        found = _verdicts(make(), _table(part), told)
        if found is None:
            continue
        for place, number in enumerate(part):
            if not np.isclose(found.score[place], whole.score[number], rtol=ROUNDING, atol=ROUNDING):
                return (
                    f"it gives a node {whole.score[number]:.6g} among {len(everyone)} nodes and "
                    f"{found.score[place]:.6g} among {len(part)}"
                )
    return ""


def _table(numbers: Sequence[int]) -> NodeTable:
    table = NodeTable(len(numbers))
    for number in numbers:
        cpu, memory, pods = _SHAPES[number]
        row = table.upsert(Node(name=f"node-{number}", allocatable={CPU: cpu, MEMORY: memory * GIB, PODS: 110}))
        for _ in range(pods):
            table.add_usage(row, _POD, ())
    return table


def _means(table: NodeTable) -> np.ndarray:
    return summary(KeptViews().of(table, table.live_rows(), NO_POD, UtilisationStore()))


def _verdicts(policy: Policy, table: NodeTable, store: UtilisationStore) -> Verdicts | None:
    """Of all rows; None where it gives none that can be used."""
    supply(policy, Supplies(store))
    rows = table.live_rows()
    try:
        with np.errstate(all="ignore"):
            found = policy.decide(Observation(table, _POD, rows), _Middle())
    except Exception:  # noqa: BLE001  whatever it raises here, its guard answers for it where it decides
        return None
    return found if found.score.shape == (len(rows),) and np.isfinite(found.score).all() else None
