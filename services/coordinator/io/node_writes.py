"""Closes nodes to other schedulers, and opens them again: one taint, which is added or taken away, and with it the
annotations by which autoscalers leave a node alone.

The taints of a node are one list, which others write too. So the patch tests what it rests on: it finds no list, and
no annotation, where it makes one, and the taint in the place from which it takes it; where that changed meanwhile, the
node is read again. Annotations that somebody else has written stay: the node says itself which were added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from services.coordinator.core.events import Event, NodeHeld
from services.coordinator.core.instructions import HoldNode
from shared.errors import KubeError, KubeRejected
from shared.kube import objects as api
from shared.kube.resources import NODES
from shared.model.node import HELD_TAINT, NOT_REMOVED, OUR_ANNOTATIONS
from shared.ports import KubeApi

log = structlog.get_logger()

TRIES = 3
"""Patches of one call: where others rewrite the taints between each read and patch, the core asks again later."""

IN_FLIGHT = 8
"""Nodes at a time: room for a large gang may close hundreds, and Bindings share the API server with them."""

CHANGED = (409, 422)
"""How the API server answers a patch that a test in it refuses, or that would leave a taint twice."""


class NodeWrites:
    """Carries out ``HoldNode``, each answered by ``NodeHeld``."""

    def __init__(self, kube: KubeApi, post: Callable[[Event], None]) -> None:
        self._kube = kube
        self._post = post
        self._turn = asyncio.Semaphore(IN_FLIGHT)

    async def hold(self, work: HoldNode) -> None:
        """Make the node bear the taint, or not."""
        try:
            async with self._turn:
                there = await self._write(work)
        except KubeError as error:
            log.warning("node_not_held", node=work.node, hold=work.hold, error=error)
            self._post(NodeHeld(work.node, work.hold, ok=False))
            return
        self._post(NodeHeld(work.node, work.hold, gone=not there))

    async def _write(self, work: HoldNode) -> bool:
        """False: there is no such node."""
        refused: KubeRejected | None = None
        for _ in range(TRIES):
            node = await self._kube.get(NODES, namespace="", name=work.node)
            if node is None:
                return False
            patch = operations(node, hold=work.hold)
            if not patch:
                return True
            try:
                await self._kube.patch(
                    NODES, namespace="", name=work.node, patch=patch, strategy="json", wait_when_busy=False
                )
            except KubeRejected as error:
                if error.status not in CHANGED:
                    raise
                refused = error
            else:
                return True
        assert refused is not None
        raise refused


def operations(node: api.KubeNode, *, hold: bool) -> list[dict[str, Any]]:
    """The JSON patch; empty where the node is as it should be."""
    taints = node.spec.taints or ()
    place = next((at for at, taint in enumerate(taints) if taint.key == HELD_TAINT), None)
    if hold and place is not None:
        return []
    changed: list[dict[str, Any]] = []
    if place is not None:
        at = f"/spec/taints/{place}"
        changed = [{"op": "test", "path": f"{at}/key", "value": HELD_TAINT}, {"op": "remove", "path": at}]
    elif hold:
        taint, at = {"key": HELD_TAINT, "effect": "NoSchedule"}, "/spec/taints"
        if taints:
            changed = [{"op": "add", "path": f"{at}/-", "value": taint}]
        else:
            changed = [{"op": "test", "path": at, "value": None}, {"op": "add", "path": at, "value": [taint]}]
    changed += _annotations(node.metadata.annotations, hold=hold)
    same: dict[str, Any] = {"op": "test", "path": "/metadata/uid", "value": node.metadata.uid}
    return [same, *changed] if changed else []


def _annotations(there: dict[str, str] | None, *, hold: bool) -> list[dict[str, Any]]:
    """Those that were noted as ours are taken away, with or without a taint; those of others stay."""
    shown = there or {}
    noted = set(shown.get(OUR_ANNOTATIONS, "").split(","))
    ours = [key for key in NOT_REMOVED if key in shown and key in noted]
    if not hold:
        return [{"op": "remove", "path": _path_of(key)} for key in (*ours, OUR_ANNOTATIONS) if key in shown]
    added = [key for key in NOT_REMOVED if key not in shown]
    if not added:
        return []
    values = {**dict.fromkeys(added, "true"), OUR_ANNOTATIONS: ",".join((*ours, *added))}
    if there is None:
        at = "/metadata/annotations"
        return [{"op": "test", "path": at, "value": None}, {"op": "add", "path": at, "value": values}]
    patch: list[dict[str, Any]] = []
    for key, value in values.items():
        at = _path_of(key)
        patch += [{"op": "test", "path": at, "value": shown.get(key)}, {"op": "add", "path": at, "value": value}]
    return patch


def _path_of(annotation: str) -> str:
    """Its JSON pointer."""
    return "/metadata/annotations/" + annotation.replace("~", "~0").replace("/", "~1")
