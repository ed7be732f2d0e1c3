"""All definitions by name, and what a real API server said to each (``verdicts.json``).

The verdicts were written by ``python -m tests.definitions.record``, which asks a real server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.definitions import defaults, extensions, rules, spec, structure

Json = dict[str, Any]
VERDICTS = Path(__file__).parent / "verdicts.json"
AREAS = {
    "structure": structure.CASES,
    "extensions": extensions.CASES,
    "defaults": defaults.CASES,
    "rules": rules.CASES,
    "spec": spec.CASES,
}
CASES: dict[str, Json] = {f"{area}/{name}": one for area, cases in AREAS.items() for name, one in cases.items()}


def verdicts() -> dict[str, Json]:
    """By name: ``code`` of the answer, ``causes`` as ``[[field, reason, message], ...]``."""
    found: dict[str, Json] = json.loads(VERDICTS.read_text())
    return found


def verdict(code: int, body: Json) -> Json:
    """An answer as it is kept: with its causes, or its message where it has none."""
    if code < 400:
        return {"code": code}
    causes = (body.get("details") or {}).get("causes") or []
    if causes:
        listed = [[one.get("field", ""), one.get("reason", ""), one.get("message", "")] for one in causes]
        return {"code": code, "causes": sorted(listed)}
    return {"code": code, "message": body.get("message", "")}
