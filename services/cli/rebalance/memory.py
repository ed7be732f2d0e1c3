"""What was moved before, kept in a ConfigMap of the cluster: whoever runs the next time knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import field

from shared.errors import ConfigError, KubeError, KubeRejected
from shared.kube.objects import Json, ObjectMeta
from shared.kube.resources import Resource
from shared.rebalance.history import MoveHistory, PastMove, decode_moves, encode_moves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.ports import KubeApi

NAMESPACE, NAME, KEY = "kube-system", "conclave-rebalance", "moves"


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


async def remember(api: KubeApi, moves: Sequence[PastMove]) -> None:
    """Add these. Raises ``KubeError``."""
    if not moves:
        return
    found = await api.get(CONFIG_MAPS, namespace=NAMESPACE, name=NAME)
    known = decode_moves((found.data or {}).get(KEY, ""), NAME) if found is not None else ()
    data = {KEY: encode_moves(MoveHistory(known).after(moves))}
    if found is None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": NAMESPACE, "name": NAME},
            "data": data,
        }
        try:
            await api.create(CONFIG_MAPS, namespace=NAMESPACE, body=body)
        except KubeRejected as error:
            if error.status != 409:
                raise
        else:
            return
    await api.patch(CONFIG_MAPS, namespace=NAMESPACE, name=NAME, patch={"data": data}, strategy="merge")
