"""A snapshot read as an API server is: what ``conclave explain`` answers about a cluster it answers about a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from shared.errors import ConfigError, KubeRejected
from shared.kube.resources import NODES, PODS, ObjectList, Resource
from shared.wire.snapshot import KINDS, Snapshot, decode_snapshot

T = TypeVar("T")


def read_snapshot(file: Path) -> Snapshot:
    """Raises ``ConfigError``: the file cannot be read, or is no snapshot of this version."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; give a file of 'conclave snapshot'") from None
    return decode_snapshot(data, str(file))


class SnapshotCluster:
    """The objects of a snapshot. A kind that its maker could not read is refused here as it was there."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._kinds = {resource.name: kind for kind in KINDS for resource in (kind.resource, *kind.older)}

    async def list(self, resource: Resource[T], *, timeout_s: float = 60.0) -> ObjectList[T]:  # noqa: ARG002  the port has it
        """All of a kind. ``KubeRejected`` 403: it is missing in the file."""
        for line in self._snapshot.missing:
            if line.split(" ", 1)[0] in (resource.plural, resource.name):
                raise KubeRejected(f"missing in the snapshot: {line}", status=403)
        return ObjectList(tuple(self._of(resource)), "")

    async def get(self, resource: Resource[T], *, namespace: str, name: str, timeout_s: float = 5.0) -> T | None:  # noqa: ARG002  as above
        """One object, or None where there is none."""
        found: Any
        for found in self._of(resource):
            if found.metadata.name == name and (found.metadata.namespace or "") == namespace:
                return found  # type: ignore[no-any-return]  # of the kind's type, as its list is
        return None

    def _of(self, resource: Resource[Any]) -> Sequence[Any]:
        if resource.name == NODES.name:
            return self._snapshot.input.nodes or ()
        if resource.name == PODS.name:
            return self._snapshot.input.pods or ()
        kind = self._kinds.get(resource.name)
        return self._snapshot.input.of(kind) if kind is not None else ()
