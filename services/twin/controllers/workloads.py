"""The workload controllers of the twin: Deployments, ReplicaSets and Jobs get their pods.

A thin shell: ``shared.twin.deployments``, ``replicas`` and ``jobs`` decide, this file has the registry, the clock and
the queue. A change of a pod leads to its owner by the reference it carries, so other pods cost nothing. It refuses to
adopt what it did not make, and lives in real seconds, however fast pods run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from services.twin.controllers.queue import BATCH, ControllerQueue
from services.twin.kinds.workload.scale import scaled
from services.twin.registry.status import ApiError
from services.twin.registry.stored import DELETED
from shared.twin.deployments import REVISION, DropSet, MakeSet, Revise, ScaleSet, deployment_status, new_set_of, steps
from shared.twin.jobs import Ended, job_step
from shared.twin.replicas import controller_of, is_active, pod_of, replica_status, surplus

if TYPE_CHECKING:
    from services.twin.registry.changes import Accepted
    from services.twin.registry.registry import TwinRegistry

Json = dict[str, Any]
Key = tuple[str, str, str]
"""Resource, namespace, name."""

DEPLOYMENTS, SETS, JOBS = "deployments.apps", "replicasets.apps", "jobs.batch"
_OWNERS = {"Deployment": DEPLOYMENTS, "ReplicaSet": SETS, "Job": JOBS}
_USERS = {
    DEPLOYMENTS: "system:serviceaccount:kube-system:deployment-controller",
    SETS: "system:serviceaccount:kube-system:replicaset-controller",
    JOBS: "system:serviceaccount:kube-system:job-controller",
}
RETRY_S = 1.0
"""Until a write that was refused (a quota, a name) is tried again."""
REST_S_PER_POD = 1e-4
"""Between two looks at one owner: some twenty times what a look at one of its pods takes."""


class WorkloadController:
    """Attach to a registry with ``start``; ``stop`` leaves everything as it is."""

    def __init__(self, registry: TwinRegistry) -> None:
        self._registry = registry
        self._queue: ControllerQueue[Key] = ControllerQueue(self._look)
        self._owned: dict[str, dict[Key, None]] = {}
        self._ended: dict[str, Ended] = {}
        self._unsubscribe: Callable[[], None] | None = None
        self._writes = 0
        self.refused = 0
        """Writes the registry refused: a quota, or the object had changed or gone meanwhile."""

    def start(self) -> None:
        """Take over what there is and what is to come. Call inside the server's event loop."""
        self._queue.start()
        for resource in (DEPLOYMENTS, SETS, JOBS, "pods"):
            for obj in list(self._registry.list(resource)):
                self._concerns(resource, obj, gone=False)
        self._unsubscribe = self._registry.subscribe(self._on_change)

    def stop(self) -> None:
        """Do nothing from now on."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._queue.stop()

    @property
    def busy(self) -> bool:
        """Whether something is to be looked at now."""
        return self._queue.busy

    # --- in -------------------------------------------------------------------------------------------------------

    def _on_change(self, accepted: Accepted) -> None:
        resource, change = accepted.kind.storage, accepted.change
        if resource in _USERS or resource == "pods":
            self._concerns(resource, change.new.obj, gone=change.type == DELETED)

    def _concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
        meta = obj["metadata"]
        key = (resource, meta["namespace"], meta["name"])
        owner = controller_of(obj) if meta.get("ownerReferences") else None
        if owner is not None and owner.get("kind") in _OWNERS:
            if gone:
                self._lose(owner, key, obj)
            else:
                self._owned.setdefault(owner["uid"], {})[key] = None
            self._queue.note((_OWNERS[owner["kind"]], meta["namespace"], owner["name"]))
        if resource == "pods":
            return
        if gone:
            self._queue.forget(key)
            self._owned.pop(meta["uid"], None)
            self._ended.pop(meta["uid"], None)
        else:
            self._queue.note(key)

    def _lose(self, owner: Json, key: Key, obj: Json) -> None:
        """A child is gone: a job may not have counted it yet, a deployment may wait for the end of its old pods."""
        owned = self._owned.get(owner["uid"], {})
        owned.pop(key, None)
        if not owned:
            self._owned.pop(owner["uid"], None)
        if owner["kind"] == "Job" and owner["uid"] in self._ended:
            self._ended[owner["uid"]].see(obj, self._registry.clock())
        if owner["kind"] == "ReplicaSet":
            its_set = self._registry.get(SETS, key[1], owner["name"])
            above = controller_of(its_set) if its_set is not None else None
            if above is not None and above.get("kind") == "Deployment":
                self._queue.note((DEPLOYMENTS, key[1], above["name"]))

    def _children(self, owner: Json, resource: str) -> list[Json]:
        """What ``owner`` controls; names whose object is gone, or another's, are dropped."""
        uid, found = owner["metadata"]["uid"], []
        owned = self._owned.get(uid, {})
        for key in list(owned):
            obj = self._registry.get(*key)
            reference = controller_of(obj) if obj is not None else None
            if obj is None or reference is None or reference["uid"] != uid:
                del owned[key]
            elif key[0] == resource:
                found.append(obj)
        return found

    # --- out ------------------------------------------------------------------------------------------------------

    def _look(self, key: Key) -> int:
        """Look at one object; how many writes that took."""
        self._writes = 0
        obj = self._registry.get(*key)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return 0
        try:
            if key[0] == DEPLOYMENTS:
                self._sync_deployment(key, obj)
            elif key[0] == SETS:
                self._sync_set(key, obj)
            else:
                self._sync_job(key, obj)
        except ApiError:
            self.refused += 1
            self._queue.again(key, RETRY_S)
        return self._writes

    def _sync_deployment(self, key: Key, deployment: Json) -> None:
        sets = self._children(deployment, SETS)
        new = new_set_of(deployment, sets)
        old_pods = sum(len(self._children(one, "pods")) for one in sets if one is not new)
        namespace = key[1]
        for step in steps(deployment, sets, old_pods):
            match step:
                case MakeSet(obj):
                    self._create(DEPLOYMENTS, SETS, namespace, obj)
                case ScaleSet(name, replicas):
                    self._change(DEPLOYMENTS, (SETS, namespace, name), partial(scaled, replicas=replicas))
                case Revise(name, revision):
                    for revised in ((SETS, namespace, name), key):
                        self._change(DEPLOYMENTS, revised, partial(_revised, revision=revision))
                case DropSet(name):
                    self._delete(DEPLOYMENTS, self._registry.get(SETS, namespace, name), SETS)
        ctx_now = self._now()[0]
        self._set_status(DEPLOYMENTS, key, deployment_status(deployment, self._children(deployment, SETS), ctx_now))

    def _sync_set(self, key: Key, owner: Json) -> None:
        pods = [pod for pod in self._children(owner, "pods") if is_active(pod)]
        missing = owner["spec"]["replicas"] - len(pods)
        trouble = self._make(SETS, key[1], [pod_of(owner, "apps/v1", "ReplicaSet") for _ in range(min(missing, BATCH))])
        for pod in surplus(pods, -missing) if missing < 0 else ():
            self._delete(SETS, pod, "pods")
        if missing and not trouble:
            return  # the changes lead back here, and the status is written when all pods are there
        if trouble:
            self._queue.again(key, RETRY_S)
            pods = [pod for pod in self._children(owner, "pods") if is_active(pod)]
        now, now_s = self._now()
        status, again_s = replica_status(owner, pods, trouble, now, now_s)
        if again_s is not None:
            self._queue.again(key, again_s)
        self._set_status(SETS, key, status)
        self._queue.rest(key, len(pods) * REST_S_PER_POD)

    def _sync_job(self, key: Key, job: Json) -> None:
        ended = self._ended.setdefault(job["metadata"]["uid"], Ended())
        pods = self._children(job, "pods")
        now, now_s = self._now()
        step = job_step(job, pods, ended, now, now_s)
        if step.remove:
            self._delete(JOBS, job, JOBS)
            return
        trouble = self._make(JOBS, key[1], step.make[:BATCH])
        for pod in step.delete:
            self._delete(JOBS, pod, "pods")
        if trouble:
            self._queue.again(key, RETRY_S)
        elif len(step.make) > BATCH:
            self._queue.note(key)
        if step.again_s is not None:
            self._queue.again(key, step.again_s)
        self._set_status(JOBS, key, step.status)
        if len(step.make) <= BATCH:
            self._queue.rest(key, len(pods) * REST_S_PER_POD)

    # --- writes ---------------------------------------------------------------------------------------------------

    def _now(self) -> tuple[str, float]:
        now_s = self._registry.clock()
        return self._registry.now_text(now_s), now_s

    def _make(self, who: str, namespace: str, pods: list[Json]) -> str:
        """Create pods; why the first one that could not be made could not, empty when all could."""
        for pod in pods:
            try:
                self._create(who, "pods", namespace, pod)
            except ApiError as error:
                self.refused += 1
                return str(error)
        return ""

    def _create(self, who: str, resource: str, namespace: str, obj: Json) -> None:
        ctx = self._registry.context("create", resource, namespace, user=_USERS[who], manager="twin-controllers")
        self._registry.create(ctx, resource, namespace, obj)
        self._writes += 1

    def _change(self, who: str, key: Key, change: Callable[[Json], Json]) -> None:
        ctx = self._registry.context("update", *key, user=_USERS[who], manager="twin-controllers")
        self._registry.guaranteed_update(ctx, *key, change)
        self._writes += 1

    def _set_status(self, who: str, key: Key, status: Json) -> None:
        def changed(obj: Json) -> Json:
            return obj if obj.get("status") == status else {**obj, "status": status}

        self._change(who, key, changed)

    def _delete(self, who: str, obj: Json | None, resource: str) -> None:
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return
        meta = obj["metadata"]
        ctx = self._registry.context("delete", resource, meta["namespace"], meta["name"], user=_USERS[who])
        options = {"preconditions": {"uid": meta["uid"]}, "propagationPolicy": "Background"}
        self._registry.delete(ctx, resource, meta["namespace"], meta["name"], options)
        self._writes += 1


def _revised(obj: Json, revision: int) -> Json:
    annotations = {**(obj["metadata"].get("annotations") or {}), REVISION: str(revision)}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}
