"""What a snapshot holds, from an API server and, where there is one, from a mesh. Reads only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from services.cli.server.errors import ServerFailed
from shared.errors import ConfigError, KubeError
from shared.kube.pseudonyms import Pseudonyms, only_public, only_read, without_free_texts
from shared.kube.reservations_kept import kept_reservation
from shared.kube.resources import NODES, PODS, ObjectList
from shared.kube.scheduling_kinds import GROUP_KINDS, QUEUE_KIND, RESERVATION_KIND
from shared.runtime.kube.cluster_reads import LIST_S, ClusterReads, UnlistedKind, list_kind
from shared.version import CONCLAVE_VERSION
from shared.wire.snapshot import DECIDING, FIELDS, FORMAT, KINDS, MeshFacts

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

Json = dict[str, Any]

MOST_FACTS = 256 << 20
"""Of what a mesh may say: a leader keeps the last 4,096 decisions, and a line per node and pending pod."""
UNSERVED = frozenset({*(kind.name for kind in GROUP_KINDS), QUEUE_KIND.name, RESERVATION_KIND.name})
"""Kinds that are not missing where nobody serves them."""


MESH = (
    "scheduler_name", "settings", "policy", "pointer", "agents", "paused", "drained", "queue", "measured", "decisions",
)  # fmt: skip
"""What of a mesh's facts is in a file, names hidden or not."""
POINTER, REF = ("active", "candidate", "stage", "percent", "number"), ("name", "version", "sha256", "members")
"""Of the policy pointer: who decides for whom, not who said so and why."""
FREE_SETTINGS = ("gpu_shares",)
"""Settings that users write, and may name resources of theirs in: left out of a hidden file unless they are ours."""


async def read_objects(api: ClusterReads, say: Callable[[str], object] = lambda _: None) -> tuple[Json, list[str]]:
    """(the objects by field of ``SnapshotInput``, as plain JSON; the kinds that could not be read, with the status).
    ``say``: is told in the API server's words, which name users. ``ConfigError``: nodes or pods cannot, or nobody knows
    about another kind."""
    try:
        nodes, pods = await asyncio.gather(api.list(NODES, timeout_s=LIST_S), api.list(PODS, timeout_s=LIST_S))
    except KubeError as error:
        raise ConfigError(f"the API server does not list nodes and pods: {error}") from error
    found, missing = {"nodes": _plain(nodes.items), "pods": _plain(pods.items)}, _malformed(nodes, pods)
    del nodes, pods
    for kind in KINDS:
        there = await list_kind(api, kind, silent=kind.name in UNSERVED)
        if isinstance(there, UnlistedKind):
            missing.append(f"{there.name} ({there.status})")
            say(str(there))
            continue
        missing += _malformed(there)
        if kind is RESERVATION_KIND:
            kept, unread = _kept(there.items)
            missing += unread
            found |= {FIELDS[kind.name]: kept} if kept else {}
        elif there.items:
            found[FIELDS[kind.name]] = _plain(there.items)
    for queue in found.get("queues", ()):
        queue.pop("status", None)
    return found, missing


def _kept(items: Iterable[Any]) -> tuple[list[Json], list[str]]:
    """Reservations that are not over; how many cannot be read."""
    kept, unread = list[Json](), 0
    for item in items:
        try:
            one = kept_reservation(item)
        except msgspec.ValidationError:
            unread += 1
            continue
        if one is not None:
            kept.append(one)
    return kept, [f"{unread} x Reservation: cannot be read"] if unread else []


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
    facts, untold = _facts(mesh) if mesh is not None else (None, [])
    if hashed:
        hidden = Pseudonyms(_policies(facts or {}))
        for field, items in objects.items():
            for item in items:
                hidden.hide(field, item)
        if facts is not None:
            untold += _hide_facts(hidden, facts)
        names = hidden.resolve()
    else:
        for items in objects.values():
            for item in items:
                only_read(item)
                without_free_texts(item)
    head = {
        "snapshot": FORMAT, "id": "snapshot", "conclave": CONCLAVE_VERSION, "kubernetes": kubernetes, "at": at,
        "names": "hashed" if hashed else "kept", "missing": [*missing, *untold], "mesh": facts, "input": objects,
    }  # fmt: skip
    return head, names


def _facts(mesh: Json) -> tuple[Json, list[str]]:
    """(what of a mesh's facts is kept, which of them are missing)."""
    found = {name: mesh[name] for name in MESH if name in mesh}
    found["settings"] = {name: value for name, value in mesh.get("settings", {}).items() if name in DECIDING}
    if pointer := mesh.get("pointer"):
        found["pointer"] = {
            name: {part: value[part] for part in REF if part in value} if isinstance(value, dict) else value
            for name, value in pointer.items()
            if name in POINTER
        }
    curves = any(line.startswith("power_curves:") for line in mesh.get("missing", ()))
    return found, ["power_curves: a file of the leader's machine; give it to the replay"] if curves else []


def _policies(facts: Json) -> list[str]:
    pointer = facts.get("pointer") or {}
    refs = [pointer[name]["name"] for name in ("active", "candidate") if pointer.get(name)]
    return [name for name in (facts.get("policy"), *refs) if name]


def _hide_facts(hidden: Pseudonyms, facts: Json) -> list[str]:
    """In place. What could not be kept."""
    settings = facts["settings"]
    names = ("scheduler_name", "agents", "drained", "queue", "measured", "decisions")
    hidden.hide_facts(facts, only=[name for name in names if name in facts])
    hidden.hide_facts(settings, only=["scheduler_name"] if "scheduler_name" in settings else [])
    free = [name for name in FREE_SETTINGS if not only_public(str(settings.get(name, "")))]
    for name in free:
        del settings[name]
    return [f"settings.{name}: names resources of this cluster" for name in free]
