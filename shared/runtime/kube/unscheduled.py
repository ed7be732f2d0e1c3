"""Saying on a pod why it is not scheduled, without ever saying so of a pod that is (ADR 0014).

A Binding writes ``spec.nodeName`` and PodScheduled=True at once; a patch that says False and comes later would stand
there for ever. So the patch is a JSON patch that *tests*, in the same transaction, that the pod is this one and on no
node. The pod may change in any other way meanwhile: no resourceVersion is named, so nothing else makes it fail.

    patch --200--> True    |--404--> False    |--422 (a test failed), 409--> read: bound, gone or another --> False
                                                                             else patch by what was read, some times
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from shared.errors import KubeRejected
from shared.kube import objects as api
from shared.kube.resources import PODS
from shared.ports import KubeApi

TRIES = 3
"""Patches of one call: where others rewrite the conditions between each read and patch, the caller backs off."""

TEST_FAILED = 422
"""How the API server answers a JSON patch one of whose tests fails."""


class ShownCondition(NamedTuple):
    """Where a pod's PodScheduled condition is. ``place`` None: it has none; ``others``: it has other conditions."""

    place: int | None = None
    status: str = ""
    others: bool = False


NOTHING = ShownCondition()
FIRST = ShownCondition(0, "False")


def shown_by(pod: api.KubePod) -> ShownCondition:
    """What the pod shows."""
    conditions = pod.status.conditions or ()
    for place, condition in enumerate(conditions):
        if condition.type == "PodScheduled":
            return ShownCondition(place, condition.status)
    return ShownCondition(others=bool(conditions))


def operations(
    uid: str, shown: ShownCondition, *, reason: str, message: str, now: str, nominated: str | None = None
) -> list[dict[str, Any]]:
    """The JSON patch. A ``test`` for null holds where the field is absent (evanphx/json-patch, in the API server)."""
    patch: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": "/spec/nodeName", "value": None},
    ]
    if shown.place is None:
        condition = {
            "type": "PodScheduled", "status": "False", "reason": reason, "message": message, "lastTransitionTime": now
        }  # fmt: skip
        if shown.others:
            patch.append({"op": "add", "path": "/status/conditions/-", "value": condition})
        else:
            patch.append({"op": "test", "path": "/status/conditions", "value": None})
            patch.append({"op": "add", "path": "/status/conditions", "value": [condition]})
    else:
        at = f"/status/conditions/{shown.place}"
        patch.append({"op": "test", "path": f"{at}/type", "value": "PodScheduled"})
        patch.append({"op": "test", "path": f"{at}/status", "value": shown.status})
        changes = {"reason": reason, "message": message}
        if shown.status != "False":
            changes |= {"status": "False", "lastTransitionTime": now}
        patch += [{"op": "add", "path": f"{at}/{key}", "value": value} for key, value in changes.items()]
    if nominated is not None:
        patch.append({"op": "add", "path": "/status/nominatedNodeName", "value": nominated})
    return patch


async def mark_unscheduled(
    kube: KubeApi, *, namespace: str, name: str, uid: str, reason: str, message: str, shown: ShownCondition = FIRST,
    nominated: str | None = None,
) -> bool:  # fmt: skip
    """PodScheduled=False with reason and message, and the nominated node where one is given ("": none any more).

    ``shown``: what the pod shows as far as the caller knows; wrong, it costs a read. False: the pod is bound, gone or
    another, nothing was written. ``KubeRejected``, ``KubeUnknown`` as of any patch; a 429 is told at once.
    """
    refused: KubeRejected | None = None
    for _ in range(TRIES):
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        patch: Sequence[dict[str, Any]] = operations(
            uid, shown, reason=reason, message=message, now=now, nominated=nominated
        )
        try:
            await kube.patch(
                PODS, namespace=namespace, name=name, patch=patch, subresource="status", strategy="json",
                wait_when_busy=False,
            )  # fmt: skip
        except KubeRejected as error:
            if error.status == 404:
                return False
            if error.status not in (409, TEST_FAILED):
                raise
            refused = error
        else:
            return True
        found = await kube.get(PODS, namespace=namespace, name=name)
        if found is None or found.metadata.uid != uid or found.spec.node_name:
            return False
        shown = shown_by(found)
    assert refused is not None
    raise refused
