"""What a snapshot holds, from an API server and, where there is one, from a mesh. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from services.cli.explain.offline import LIST_S, ClusterReads, list_kind
from services.cli.server.errors import ServerFailed
from shared.errors import ConfigError, KubeError
from shared.kube.pseudonyms import Pseudonyms, only_read
from shared.kube.resources import NODES, PODS, ObjectList
from shared.kube.scheduling_kinds import GROUP_KINDS, QUEUE_KIND
from shared.version import CONCLAVE_VERSION
from shared.wire.snapshot import FIELDS, FORMAT, KINDS, MeshFacts

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

Json = dict[str, Any]

MOST_FACTS = 256 << 20
"""Of what a mesh may say: a leader keeps the last 4,096 decisions, and a line per node and pending pod."""
UNSERVED = frozenset({*(kind.name for kind in GROUP_KINDS), QUEUE_KIND.name})
"""Kinds that are not missing where nobody serves them."""


async def read_objects(api: ClusterReads) -> tuple[Json, list[str]]:
    """(the objects by field of ``SnapshotInput``, as plain JSON; what could not be read). ``ConfigError``: nodes or
    pods cannot, or nobody knows about another kind."""
    try:
        nodes, pods = await asyncio.gather(api.list(NODES, timeout_s=LIST_S), api.list(PODS, timeout_s=LIST_S))
    except KubeError as error:
        raise ConfigError(f"the API server does not list nodes and pods: {error}") from error
    found, missing = {"nodes": _plain(nodes.items), "pods": _plain(pods.items)}, _malformed(nodes, pods)
    del nodes, pods
    for kind in KINDS:
        there = await list_kind(api, kind, silent=kind.name in UNSERVED)
        if isinstance(there, str):
            missing.append(there)
            continue
        missing += _malformed(there)
        if there.items:
            found[FIELDS[kind.name]] = _plain(there.items)
    for queue in found.get("queues", ()):
        queue.pop("status", None)
    return found, missing


def _plain(items: Iterable[Any]) -> list[Json]:
    return [msgspec.to_builtins(item) for item in items]


def _malformed(*lists: ObjectList[Any]) -> list[str]:
    """Without the names: nobody hides them here."""
    counts: dict[str, int] = {}
    for one in lists:
        for bad in one.malformed:
            counts[bad.kind] = counts.get(bad.kind, 0) + 1
    return [f"{count} x {kind}: cannot be read" for kind, count in counts.items()]


async def read_mesh(client: AdminClient) -> Json:
    """What the leader tells. ``ServerFailed``: it breaks off, or is no leader of this version."""
    body = bytearray()
    async with client.stream("/v1/snapshot") as stream:
        async for part in stream.iter_any():
            body += part
            if len(body) > MOST_FACTS:
                raise ServerFailed(f"{client.url}/v1/snapshot: over {MOST_FACTS} bytes; is this a coordinator?")
    try:
        msgspec.json.decode(body, type=MeshFacts)
        found: Json = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise ServerFailed(
            f"{client.url}/v1/snapshot: {error}; ask again, or give --no-mesh to take the cluster alone"
        ) from None
    return found


def document(
    objects: Json, mesh: Json | None, missing: Sequence[str], *, hashed: bool, at: str, kubernetes: str
) -> tuple[Json, dict[str, str]]:
    """(a ``Snapshot`` as plain JSON, what became of each name: of none where names are kept). ``objects`` and ``mesh``
    are changed in place."""
    names: dict[str, str] = {}
    mesh_missing = mesh.pop("missing", []) if mesh is not None else []
    if hashed:
        hidden = Pseudonyms()
        for field, items in objects.items():
            for item in items:
                hidden.hide(field, item)
        if mesh is not None:
            hidden.hide_facts({name: mesh[name] for name in ("agents", "measured", "decisions", "drained")})
        names = hidden.resolve()
    else:
        for items in objects.values():
            for item in items:
                only_read(item.get("metadata", {}))
                _without_messages(item)
    head = {
        "snapshot": FORMAT, "id": "snapshot", "conclave": CONCLAVE_VERSION, "kubernetes": kubernetes, "at": at,
        "names": "hashed" if hashed else "kept", "missing": [*missing, *mesh_missing], "mesh": mesh, "input": objects,
    }  # fmt: skip
    return head, names


def _without_messages(item: Json) -> None:
    for condition in item.get("status", {}).get("conditions", ()):
        condition.pop("message", None)
