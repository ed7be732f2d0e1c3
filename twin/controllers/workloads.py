"""The workload controllers of the twin: Deployments, ReplicaSets and Jobs get their pods.

A thin shell: ``twin.model.deployments``, ``replicas`` and ``jobs`` decide, this file has the registry, the clock and
the queue. A change of a pod leads to its owner by the reference it carries, so other pods cost nothing. It does not
adopt what it did not make, and lives in real seconds, however fast pods run.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from twin.controllers.runtime import BATCH, RETRY_S, Controller, ObjectKey
from twin.kinds.workload.scale import scaled
from twin.model.deployments import REVISION, DropSet, MakeSet, Revise, ScaleSet, deployment_status, new_set_of, steps
from twin.model.jobs import EndedPods, job_step
from twin.model.replicas import controller_of, is_active, pod_of, replica_status, surplus
from twin.registry.registry import TwinRegistry
from twin.registry.status import ApiError

Json = dict[str, Any]

DEPLOYMENTS, SETS, JOBS = "deployments.apps", "replicasets.apps", "jobs.batch"
_OWNERS = {"Deployment": DEPLOYMENTS, "ReplicaSet": SETS, "Job": JOBS}
_USERS = {
    DEPLOYMENTS: "system:serviceaccount:kube-system:deployment-controller",
    SETS: "system:serviceaccount:kube-system:replicaset-controller",
    JOBS: "system:serviceaccount:kube-system:job-controller",
}
REST_S_PER_POD = 1e-4
"""Between two looks at one owner: some twenty times what a look at one of its pods takes."""


class WorkloadController(Controller[ObjectKey]):
    """Keys are deployments, sets and jobs."""

    manager = "twin-controllers"

    def __init__(self, registry: TwinRegistry) -> None:
        super().__init__(registry)
        self._owned: dict[str, dict[ObjectKey, None]] = {}
        self._ended: dict[str, EndedPods] = {}

    def follows(self) -> list[str]:
        return [*_USERS, "pods"]

    def concerns(self, resource: str, obj: Json, *, gone: bool) -> None:
        if resource not in _USERS and resource != "pods":
            return
        meta = obj["metadata"]
        key = (resource, meta["namespace"], meta["name"])
        owner = controller_of(obj) if meta.get("ownerReferences") else None
        if owner is not None and owner.get("kind") in _OWNERS:
            if gone:
                self._lose(owner, key, obj)
            else:
                self._owned.setdefault(owner["uid"], {})[key] = None
            self.note((_OWNERS[owner["kind"]], meta["namespace"], owner["name"]))
        if resource == "pods":
            return
        if gone:
            self.forget(key)
            self._owned.pop(meta["uid"], None)
            self._ended.pop(meta["uid"], None)
        else:
            self.note(key)

    def _lose(self, owner: Json, key: ObjectKey, obj: Json) -> None:
        """A child is gone: a job may not have counted it yet, a deployment may wait for the end of its old pods."""
        owned = self._owned.get(owner["uid"], {})
        owned.pop(key, None)
        if not owned:
            self._owned.pop(owner["uid"], None)
        if owner["kind"] == "Job" and owner["uid"] in self._ended:
            self._ended[owner["uid"]].see(obj, self.registry.clock())
        if owner["kind"] == "ReplicaSet":
            its_set = self.registry.get(SETS, key[1], owner["name"])
            above = controller_of(its_set) if its_set is not None else None
            if above is not None and above.get("kind") == "Deployment":
                self.note((DEPLOYMENTS, key[1], above["name"]))

    def _children(self, owner: Json, resource: str) -> list[Json]:
        """What ``owner`` controls; names whose object is gone, or another's, are dropped."""
        uid, found = owner["metadata"]["uid"], []
        owned = self._owned.get(uid, {})
        for key in list(owned):
            obj = self.registry.get(*key)
            reference = controller_of(obj) if obj is not None else None
            if obj is None or reference is None or reference["uid"] != uid:
                del owned[key]
            elif key[0] == resource:
                found.append(obj)
        return found

    def reconcile(self, key: ObjectKey) -> None:
        obj = self.registry.get(*key)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return
        if key[0] == DEPLOYMENTS:
            self._sync_deployment(key, obj)
        elif key[0] == SETS:
            self._sync_set(key, obj)
        else:
            self._sync_job(key, obj)

    def _sync_deployment(self, key: ObjectKey, deployment: Json) -> None:
        sets = self._children(deployment, SETS)
        new = new_set_of(deployment, sets)
        old_pods = sum(len(self._children(one, "pods")) for one in sets if one is not new)
        namespace, user = key[1], _USERS[DEPLOYMENTS]
        for step in steps(deployment, sets, old_pods):
            match step:
                case MakeSet(obj):
                    self.create(SETS, namespace, obj, user=user)
                case ScaleSet(name, replicas):
                    change = partial(scaled, replicas=replicas)
                    self.change((SETS, namespace, name), change, user=user, verb="update")
                case Revise(name, revision):
                    for revised in ((SETS, namespace, name), key):
                        self.change(revised, partial(_revised, revision=revision), user=user, verb="update")
                case DropSet(name):
                    self.delete(SETS, self.registry.get(SETS, namespace, name), user=user)
        self._set_status(key, deployment_status(deployment, self._children(deployment, SETS), self._now()[0]))

    def _sync_set(self, key: ObjectKey, owner: Json) -> None:
        pods = [pod for pod in self._children(owner, "pods") if is_active(pod)]
        missing = owner["spec"]["replicas"] - len(pods)
        trouble = self._make(SETS, key[1], [pod_of(owner, "apps/v1", "ReplicaSet") for _ in range(min(missing, BATCH))])
        for pod in surplus(pods, -missing) if missing < 0 else ():
            self.delete("pods", pod, user=_USERS[SETS])
        if missing and not trouble:
            return  # the changes lead back here, and the status is written when all pods are there
        if trouble:
            self.again(key, RETRY_S)
            pods = [pod for pod in self._children(owner, "pods") if is_active(pod)]
        now, now_s = self._now()
        status, again_s = replica_status(owner, pods, trouble, now, now_s)
        if again_s is not None:
            self.again(key, again_s)
        self._set_status(key, status)
        self.rest(key, len(pods) * REST_S_PER_POD)

    def _sync_job(self, key: ObjectKey, job: Json) -> None:
        ended = self._ended.setdefault(job["metadata"]["uid"], EndedPods())
        pods = self._children(job, "pods")
        now, now_s = self._now()
        step = job_step(job, pods, ended, now, now_s)
        if step.remove:
            self.delete(JOBS, job, user=_USERS[JOBS])
            return
        trouble = self._make(JOBS, key[1], step.make[:BATCH])
        for pod in step.delete:
            self.delete("pods", pod, user=_USERS[JOBS])
        if trouble:
            self.again(key, RETRY_S)
        elif len(step.make) > BATCH:
            self.note(key)
        if step.again_s is not None:
            self.again(key, step.again_s)
        self._set_status(key, step.status)
        if len(step.make) <= BATCH:
            self.rest(key, len(pods) * REST_S_PER_POD)

    # --- writes ---------------------------------------------------------------------------------------------------

    def _now(self) -> tuple[str, float]:
        now_s = self.registry.clock()
        return self.registry.now_text(now_s), now_s

    def _make(self, who: str, namespace: str, pods: list[Json]) -> str:
        """Create pods; why the first one that could not be made could not, empty when all could."""
        for pod in pods:
            try:
                self.create("pods", namespace, pod, user=_USERS[who])
            except ApiError as error:
                self.refused += 1
                return str(error)
        return ""

    def _set_status(self, key: ObjectKey, status: Json) -> None:
        def changed(obj: Json) -> Json:
            return obj if obj.get("status") == status else {**obj, "status": status}

        self.change(key, changed, user=_USERS[key[0]], verb="update")


def _revised(obj: Json, revision: int) -> Json:
    annotations = {**(obj["metadata"].get("annotations") or {}), REVISION: str(revision)}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}
