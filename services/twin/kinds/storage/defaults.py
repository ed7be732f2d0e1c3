"""Defaults of claims, shared by PersistentVolumeClaims and the templates inside other kinds."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def default_claim(obj: Json) -> None:
    """SetDefaults_PersistentVolumeClaim and its spec's."""
    obj["spec"].setdefault("volumeMode", "Filesystem")
    status = obj.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Pending"
