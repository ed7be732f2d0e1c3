"""The volume controllers of the twin: claims are bound, volumes made for them, reservations completed, remains cleared.

A thin shell: ``shared.twin.volumes`` decides, this file has the registry, the clock and the timers. What a change may
concern is looked at again, a batch per turn of the event loop, so that requests are answered in between. It acts on
every claim and volume, whoever made it, and refuses to write events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from services.twin.registry.status import ApiError
from services.twin.registry.stored import DELETED
from shared.twin.volumes import (
    CLAIM_PROTECTION,
    SELECTED_NODE,
    VOLUME_PROTECTION,
    Lose,
    Make,
    Take,
    bound_claim,
    bound_volume,
    claim_names,
    claim_step,
    ephemeral_claims,
    lost_claim,
    reclaimed,
    unselected_claim,
    volume_phase,
)

if TYPE_CHECKING:
    from services.twin.registry.changes import Accepted
    from services.twin.registry.registry import TwinRegistry

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Resource, namespace, name of what is to be looked at."""

CLAIMS, VOLUMES, CLASSES = "persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io"
USER = "system:serviceaccount:kube-system:persistent-volume-binder"
FINISHED = ("Succeeded", "Failed")
BATCH = 32
"""Objects looked at before the event loop turns."""


class VolumeController:
    """Attach to a registry with ``start``; ``stop`` leaves everything as it is. ``speed``: virtual seconds per
    second."""

    def __init__(self, registry: TwinRegistry, *, speed: float = 1.0) -> None:
        self._registry = registry
        self._speed = speed
        self._todo: dict[Key, None] = {}
        self._making: dict[str, asyncio.TimerHandle] = {}
        self._running: asyncio.Handle | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.refused = 0
        """Writes the registry refused: the object had changed or gone meanwhile."""

    def start(self) -> None:
        """Take over what there is and what is to come. Call inside the server's event loop."""
        self._loop = asyncio.get_running_loop()
        for resource in (CLAIMS, VOLUMES, "pods"):
            for obj in list(self._registry.list(resource)):
                self._concerns(resource, obj)
        self._unsubscribe = self._registry.subscribe(self._on_change)
        self._arrange()

    def stop(self) -> None:
        """Do nothing from now on."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        for handle in (self._running, *self._making.values()):
            if handle is not None:
                handle.cancel()
        self._running = None
        self._making.clear()
        self._todo.clear()

    @property
    def busy(self) -> bool:
        """Whether something is to be looked at now; volumes that take their time do not count."""
        return bool(self._todo)

    # --- in -------------------------------------------------------------------------------------------------------

    def _on_change(self, accepted: Accepted) -> None:
        resource, change = accepted.kind.storage, accepted.change
        if resource == "nodes":
            if change.type == DELETED:
                self._look_at(CLAIMS, lambda claim: _selected(claim) == change.new.name)
        elif resource in (CLAIMS, VOLUMES, CLASSES, "pods"):
            self._concerns(resource, change.new.obj)
        self._arrange()

    def _concerns(self, resource: str, obj: Json) -> None:
        """Note what may have something to do now that ``obj`` came, changed or went."""
        meta, spec = obj["metadata"], obj.get("spec") or {}
        if resource == "pods":
            if spec.get("volumes"):
                self._note("pods", meta["namespace"], meta["name"])
                for name in claim_names(obj):
                    self._note(CLAIMS, meta["namespace"], name)
        elif resource == CLASSES:
            self._look_at(CLAIMS, lambda claim: claim["spec"].get("storageClassName") == meta["name"])
        elif resource == CLAIMS:
            self._note(CLAIMS, meta["namespace"], meta["name"])
            if spec.get("volumeName"):
                self._note(VOLUMES, "", spec["volumeName"])
        else:
            self._note(VOLUMES, "", meta["name"])
            reference = spec.get("claimRef")
            if reference:
                self._note(CLAIMS, reference.get("namespace", ""), reference.get("name", ""))
            else:
                self._look_at(CLAIMS, lambda claim: not claim["spec"].get("volumeName"))

    def _look_at(self, resource: str, wanted: Callable[[Json], bool]) -> None:
        for obj in self._registry.list(resource):
            if wanted(obj):
                self._note(resource, obj["metadata"].get("namespace") or "", obj["metadata"]["name"])

    def _note(self, resource: str, namespace: str, name: str) -> None:
        self._todo[(resource, namespace, name)] = None

    # --- out ------------------------------------------------------------------------------------------------------

    def _arrange(self) -> None:
        assert self._loop is not None
        if self._todo and self._running is None:
            self._running = self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._running = None
        for key in list(self._todo)[:BATCH]:
            del self._todo[key]
            resource, namespace, name = key
            obj = self._registry.get(resource, namespace, name)
            try:
                if resource == "pods":
                    self._sync_pod(namespace, name, obj)
                elif obj is not None and resource == CLAIMS:
                    self._sync_claim(obj)
                elif obj is not None:
                    self._sync_volume(obj)
            except ApiError:
                self.refused += 1
        self._arrange()

    def _sync_pod(self, namespace: str, name: str, pod: Json | None) -> None:
        """The claims of its ephemeral volumes come and go with it; a pod of the same name gets new ones."""
        uid = pod["metadata"]["uid"] if pod is not None else ""
        for claim in list(self._registry.list(CLAIMS, namespace)):
            owners = claim["metadata"].get("ownerReferences") or ()
            if any((one["kind"], one["name"]) == ("Pod", name) and one["uid"] != uid for one in owners):
                self._delete(CLAIMS, claim)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        for claim in ephemeral_claims(pod):
            if self._registry.get(CLAIMS, namespace, claim["metadata"]["name"]) is None:
                ctx = self._registry.context("create", CLAIMS, namespace, claim["metadata"]["name"], user=USER)
                self._registry.create(ctx, CLAIMS, namespace, claim)

    def _sync_claim(self, claim: Json) -> None:
        meta = claim["metadata"]
        if meta.get("deletionTimestamp") and not self._used(claim):
            self._unprotect(CLAIMS, claim, CLAIM_PROTECTION)
            return
        storage_class = self._registry.get(CLASSES, "", claim["spec"].get("storageClassName") or "")
        node = self._registry.get("nodes", "", _selected(claim))
        step = claim_step(claim, storage_class, self._registry.list(VOLUMES), node)
        match step:
            case Take(name):
                volume = self._change(VOLUMES, "", name, lambda volume: bound_volume(volume, claim))
                self._change(CLAIMS, meta["namespace"], meta["name"], lambda found: bound_claim(found, volume))
            case Make(volume, after_s):
                self._make_later(claim, volume, after_s)
            case Lose():
                self._change(CLAIMS, meta["namespace"], meta["name"], lost_claim)
            case None:
                pass
            case _:
                self._change(CLAIMS, meta["namespace"], meta["name"], unselected_claim)

    def _make_later(self, claim: Json, volume: Json, after_s: float) -> None:
        """Create the volume when its time has come; what it is to be is asked again then."""
        assert self._loop is not None
        uid = claim["metadata"]["uid"]
        if after_s and uid not in self._making:
            self._making[uid] = self._loop.call_later(after_s / self._speed, self._make_now, claim["metadata"])
        elif not after_s:
            self._create(volume)

    def _make_now(self, meta: Json) -> None:
        del self._making[meta["uid"]]
        claim = self._registry.get(CLAIMS, meta["namespace"], meta["name"])
        if claim is None or claim["metadata"]["uid"] != meta["uid"]:
            return
        storage_class = self._registry.get(CLASSES, "", claim["spec"].get("storageClassName") or "")
        node = self._registry.get("nodes", "", _selected(claim))
        step = claim_step(claim, storage_class, self._registry.list(VOLUMES), node)
        if isinstance(step, Make):
            try:
                self._create(step.volume)
            except ApiError:
                self.refused += 1
        else:
            self._note(CLAIMS, meta["namespace"], meta["name"])
            self._arrange()

    def _create(self, volume: Json) -> None:
        name = volume["metadata"]["name"]
        if self._registry.get(VOLUMES, "", name) is None:
            ctx = self._registry.context("create", VOLUMES, "", name, user=USER)
            self._registry.create(ctx, VOLUMES, "", volume)

    def _sync_volume(self, volume: Json) -> None:
        reference = volume["spec"].get("claimRef") or {}
        claim = self._registry.get(CLAIMS, reference.get("namespace", ""), reference.get("name", ""))
        phase = volume_phase(volume, claim)
        if volume["metadata"].get("deletionTimestamp"):
            if phase != "Bound":
                self._unprotect(VOLUMES, volume, VOLUME_PROTECTION)
            return
        if phase == "Released" and reclaimed(volume):
            self._delete(VOLUMES, volume)
            return
        status = volume.get("status") or {}
        if status.get("phase") != phase:
            self._change(
                VOLUMES, "", volume["metadata"]["name"], lambda one: {**one, "status": {**status, "phase": phase}}
            )

    def _used(self, claim: Json) -> bool:
        """Whether a pod that has not finished names the claim (``pvcprotection``)."""
        namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        return any(
            name in claim_names(pod)
            for pod in self._registry.list("pods", namespace)
            if (pod.get("status") or {}).get("phase") not in FINISHED
        )

    # --- writes ---------------------------------------------------------------------------------------------------

    def _change(self, resource: str, namespace: str, name: str, change: Callable[[Json], Json]) -> Json:
        ctx = self._registry.context("patch", resource, namespace, name, user=USER)
        return self._registry.guaranteed_update(ctx, resource, namespace, name, change, audit_verb="patch")

    def _delete(self, resource: str, obj: Json) -> None:
        meta = obj["metadata"]
        if meta.get("deletionTimestamp"):
            return
        namespace = meta.get("namespace") or ""
        ctx = self._registry.context("delete", resource, namespace, meta["name"], user=USER)
        self._registry.delete(ctx, resource, namespace, meta["name"], {"preconditions": {"uid": meta["uid"]}})

    def _unprotect(self, resource: str, obj: Json, finalizer: str) -> None:
        """Take our finalizer off; the last one taken ends the object."""
        meta = obj["metadata"]
        kept = [one for one in meta.get("finalizers") or () if one != finalizer]
        if len(kept) == len(meta.get("finalizers") or ()):
            return
        namespace = meta.get("namespace") or ""
        ctx = self._registry.context("patch", resource, namespace, meta["name"], user=USER)
        self._registry.patch(ctx, resource, namespace, meta["name"], {"metadata": {"finalizers": kept or None}})


def _selected(claim: Json) -> str:
    """The node that the scheduler has chosen for the claim, or ""."""
    return str((claim["metadata"].get("annotations") or {}).get(SELECTED_NODE, ""))
