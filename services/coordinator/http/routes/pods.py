"""Why a pod is where it is, or why it waits: the same answer as ``/v1/explain`` of the peer listener."""

from __future__ import annotations

from typing import Any

from services.coordinator.http.access import Role
from services.coordinator.http.desk import Desk
from services.coordinator.http.routing import Ask, Route


async def explain(desk: Desk, ask: Ask[Any, Any]) -> dict[str, Any]:
    """Verdicts of every rule, the queue's view, the decision. Refused: as ``Admin.explain`` says."""
    return await desk.admin.explain_counted(ask.path["namespace"], ask.path["name"])


ROUTES = (
    Route(
        method="GET", path="/v1/pods/{namespace}/{name}/explain", role=Role.VIEWER,
        summary="Why a pod is where it is, or why it waits", answer=dict[str, Any], handler=explain,
        errors={404: "pod_unknown", 409: "kube_rejected"}, cost=50,
    ),
)  # fmt: skip
