"""Reservations of leaders that died amid a round: given back where nobody left for them.

Whose pod still stands needs no room elsewhere any more. Whose pod has left keeps it: the replacement may be on its way,
and the reservation ends by its time to live.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from shared.errors import KubeRejected
from shared.kube.reservations import RESERVATIONS, reserve_pod_from_api
from shared.kube.resources import PODS
from shared.ports import KubeApi
from shared.runtime.kube.moves.carry import LABEL, POD_LABEL
from shared.runtime.kube.reservations import ReservationName, give_back

RUN = "standing-"
"""How the runs of a rebalancer are called; its mesh, the term and the round's number follow."""


def run_of(mesh: str, term: int, number: int) -> str:
    """The run's name, on its reservations and in the history of moves. ``mesh``: the prefix of its keys: several may
    share a cluster."""
    return f"{_runs_of(mesh)}{term}-{number}"


def _runs_of(mesh: str) -> str:
    return f"{RUN}{sha256(mesh.encode()).hexdigest()[:8]}-"


def _earlier(run: str, mesh: str, term: int) -> bool:
    """Whether the run is of an earlier term of this mesh."""
    theirs = run.removeprefix(_runs_of(mesh)).partition("-")[0]
    return run.startswith(_runs_of(mesh)) and theirs.isdecimal() and int(theirs) < term


async def sweep(api: KubeApi, mesh: str, term: int, leads: Callable[[], bool] = lambda: True) -> int:
    """How many reservations of the mesh's earlier terms were given back. ``leads``: asked before each. ``KubeError``:
    the cluster is not to be read now."""
    try:
        found = await api.list(RESERVATIONS)
    except KubeRejected as error:
        if error.status == 404:
            return 0  # without the kind nobody was moved
        raise
    left = []
    for item in found.items:
        labels = item.metadata.labels or {}
        run = labels.get(LABEL, "")
        if _earlier(run, mesh, term) and not reserve_pod_from_api(item).finished:
            left.append((item.metadata, labels.get(POD_LABEL, "")))
    if not left:
        return 0
    standing = {pod.metadata.uid for pod in (await api.list(PODS)).items if pod.metadata.deletion_timestamp is None}
    given = 0
    for meta, uid in left:
        if uid in standing and leads():
            given += await give_back(api, ReservationName(meta.namespace or "", meta.name, meta.uid))
    return given
