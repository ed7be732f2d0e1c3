"""CustomResourceDefinitions at work: kinds come and go with their definitions."""

from __future__ import annotations

from services.twin.registry.registry import TwinRegistry


class CustomResources:
    """Subscribes to definitions and serves what they define."""

    def __init__(self, registry: TwinRegistry) -> None:
        self._registry = registry

    def attach(self) -> None:
        """Start."""
