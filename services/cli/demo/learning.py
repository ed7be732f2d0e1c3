"""What came of learning in a run: which policy decides in the end, and what the learner did for it."""

from __future__ import annotations

from typing import Any

from services.cli.local.mesh import Mesh
from shared.errors import ConfigError, StoreError
from shared.runtime.records.policies import read_pointer


async def read_learning(mesh: Mesh) -> dict[str, Any]:
    """The policy pointer and the learner's figures; what does not answer is left out."""
    found: dict[str, Any] = {}
    try:
        pointer = (await read_pointer(mesh.store, mesh.keys)).pointer
    except (StoreError, ConfigError):
        pointer = None
    if pointer is not None:
        found |= {
            "active": pointer.active.title,
            "candidate": pointer.candidate.title if pointer.candidate is not None else "",
            "stage": pointer.stage,
            "percent": pointer.percent,
            "changes": pointer.number,
            "reason": pointer.reason,
        }
    learner = mesh.supervisor.children.get("learner-0")
    if learner is not None and learner.ready_line:
        stats = await mesh.get(learner.ready_line.split()[-1], "/v1/stats")
        found["learner"] = (stats or {}).get("learner", {})
    return found
