"""Reservations of leaders that died amid a round: given back where nobody left for them.

Whose pod still stands needs no room elsewhere any more. Whose pod has left keeps it: the replacement may be on its way,
and the reservation ends by its time to live.
"""

from __future__ import annotations

from shared.errors import KubeRejected
from shared.kube.reservations import RESERVATIONS, reserve_pod_from_api
from shared.kube.resources import PODS
from shared.ports import KubeApi
from shared.runtime.kube.moves.carry import LABEL, POD_LABEL
from shared.runtime.kube.reservations import ReservationName, give_back

RUN = "standing-"
"""How the runs of a rebalancer are called; the term follows."""


def run_of(term: int, number: int) -> str:
    """The run's name, on its reservations and in the history of moves."""
    return f"{RUN}{term}-{number}"


async def sweep(api: KubeApi, term: int) -> int:
    """How many reservations of earlier terms were given back. ``KubeError``: the cluster is not to be read now."""
    try:
        found = await api.list(RESERVATIONS)
    except KubeRejected as error:
        if error.status == 404:
            return 0  # without the kind nobody was moved
        raise
    ours = f"{RUN}{term}-"
    left = []
    for item in found.items:
        labels = item.metadata.labels or {}
        run = labels.get(LABEL, "")
        if run.startswith(RUN) and not run.startswith(ours) and not reserve_pod_from_api(item).finished:
            left.append((item.metadata, labels.get(POD_LABEL, "")))
    if not left:
        return 0
    standing = {pod.metadata.uid for pod in (await api.list(PODS)).items if pod.metadata.deletion_timestamp is None}
    given = 0
    for meta, uid in left:
        if uid in standing:
            given += await give_back(api, ReservationName(meta.namespace or "", meta.name, meta.uid))
    return given
