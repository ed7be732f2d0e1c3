"""What was moved before, kept in a ConfigMap of the cluster: whoever runs the next time knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import field
from msgspec.structs import replace

from shared.errors import ConfigError, KubeError, KubeRejected
from shared.kube.objects import Json, ObjectMeta
from shared.kube.resources import Resource
from shared.rebalance.history import MoveHistory, PastMove, decode_moves, encode_moves
from shared.rebalance.limits import AN_HOUR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.ports import KubeApi

NAMESPACE, NAME, KEY = "kube-system", "conclave-rebalance", "moves"
TRIES = 8
"""Of a write that others keep overtaking."""


class ConfigMapObject(Json, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    data: dict[str, str] | None = None


CONFIG_MAPS = Resource("ConfigMap", "", "v1", "configmaps", True, ConfigMapObject)


async def remembered(api: KubeApi, again_after_s: float) -> MoveHistory:
    """The history as it is kept. ``ConfigError``: it cannot be read, and nobody may be moved without it."""
    try:
        found = await api.get(CONFIG_MAPS, namespace=NAMESPACE, name=NAME)
    except KubeError as error:
        raise ConfigError(f"{NAMESPACE}/{NAME}: the ConfigMap with earlier moves cannot be read: {error}") from error
    text = (found.data or {}).get(KEY, "") if found is not None else ""
    return MoveHistory(decode_moves(text, f"ConfigMap {NAMESPACE}/{NAME}"), again_after_s)


async def remember(api: KubeApi, moves: Sequence[PastMove], run: str, per_hour: int = 0) -> None:
    """Write these down for the run, in place of what it wrote before; what others write meanwhile stays. Raises
    ``KubeError``; ``ConfigError``: what is there cannot be read, or with what others have moved it is more than
    ``per_hour`` (0: no cap)."""
    for _ in range(TRIES - 1):
        try:
            await _written(api, moves, run, per_hour)
        except KubeRejected as error:
            if error.status != 409:
                raise
        else:
            return
    await _written(api, moves, run, per_hour)


async def _written(api: KubeApi, moves: Sequence[PastMove], run: str, per_hour: int) -> None:
    found = await api.get(CONFIG_MAPS, namespace=NAMESPACE, name=NAME)
    known = decode_moves((found.data or {}).get(KEY, ""), f"ConfigMap {NAMESPACE}/{NAME}") if found is not None else ()
    history = MoveHistory(tuple(one for one in known if one.run != run)).after(replace(one, run=run) for one in moves)
    now = max((one.at_s for one in moves), default=0.0)
    if per_hour and len(moves) > sum(one.run == run for one in known) and history.within(AN_HOUR, now) > per_hour:
        raise ConfigError(f"the cap perHour {per_hour} is reached: others move pods meanwhile")
    data = {KEY: encode_moves(history)}
    if found is None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": NAMESPACE, "name": NAME},
            "data": data,
        }
        await api.create(CONFIG_MAPS, namespace=NAMESPACE, body=body)
        return
    patch = {"metadata": {"resourceVersion": found.metadata.resource_version}, "data": data}
    await api.patch(CONFIG_MAPS, namespace=NAMESPACE, name=NAME, patch=patch, strategy="merge", wait_when_busy=False)
