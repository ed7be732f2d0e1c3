"""Jobs as pod groups, for a core. Which are gangs is said by the Job or by its namespace: two watches meet here."""

from __future__ import annotations

from typing import Any

import structlog

from shared.kube.objects import ObjectMeta
from shared.kube.pod_groups import INDEXED, Job, job_group
from shared.kube.resources import NAMESPACES, DeletedObject, Malformed, Upserted
from shared.kube.scheduling_kinds import JOBS
from shared.model.cluster_events import ClusterEvent, Listed, ObjectChanged
from shared.model.units.pod_group import GANG_ANNOTATION, PodGroup
from shared.runtime.kube.reflector import Batch, Synced
from shared.runtime.kube.watches import Post, Watches

log = structlog.get_logger()

JobChange = tuple[str, PodGroup | None]


class JobGroups:
    """Jobs as groups, where the namespace has a say too: told once both are known, and anew when either changes.

    Each call gives what changed: (key, group), None for one that is gone. It keeps the Jobs that are or could be a
    group. A Job whose namespace is not known yet is held back: taken for no gang, its pods would be placed one by one.
    """

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}
        """The annotations that matter here, of every namespace that was seen."""
        self._jobs: dict[str, dict[str, Job]] = {}

    def put_namespace(self, meta: ObjectMeta) -> list[JobChange]:
        """A namespace came or changed."""
        annotations = {name: value for name, value in (meta.annotations or {}).items() if name == GANG_ANNOTATION}
        if self._namespaces.get(meta.name) == annotations:
            return []
        self._namespaces[meta.name] = annotations
        return [change for job in self._jobs.get(meta.name, {}).values() for change in self._told(job)]

    def drop_namespace(self, name: str) -> list[JobChange]:
        """A namespace is gone, and with it all that was in it."""
        self._namespaces.pop(name, None)
        return []

    def put(self, job: Job) -> list[JobChange]:
        """A Job came or changed."""
        namespace, name = job.metadata.namespace or "", job.metadata.name
        if job.spec.completion_mode != INDEXED and GANG_ANNOTATION not in (job.metadata.annotations or {}):
            return self.drop(namespace, name)
        self._jobs.setdefault(namespace, {})[name] = job
        return self._told(job) if namespace in self._namespaces else []

    def drop(self, namespace: str, name: str) -> list[JobChange]:
        """A Job is gone, or is no group."""
        jobs = self._jobs.get(namespace, {})
        if jobs.pop(name, None) is None:
            return []
        if not jobs:
            del self._jobs[namespace]
        return [(f"{namespace}/{name}", None)]

    def _told(self, job: Job) -> list[JobChange]:
        namespace = job.metadata.namespace or ""
        return [(f"{namespace}/{job.metadata.name}", job_group(job, self._namespaces[namespace]))]


class JobWatch:
    """Jobs as pod groups; the watch of the namespaces, which say which Jobs are gangs, shows its batches to it.

    The list of the Jobs counts as complete when that of the namespaces is complete too.
    """

    def __init__(self, post: Post) -> None:
        self._post = post
        self._groups = JobGroups()
        self._to_list = {JOBS.name, NAMESPACES.plural}

    async def follow(self, watches: Watches) -> None:
        """Every Job; eternal."""
        await watches.follow(JOBS, self._take)

    def saw_namespaces(self, batch: Batch[Any]) -> None:
        """What a batch of the namespaces' watch means for Jobs."""
        changes: list[JobChange] = []
        for event in batch:
            match event:
                case Upserted():
                    changes += self._groups.put_namespace(event.object.metadata)
                case DeletedObject():
                    self._groups.drop_namespace(event.object.metadata.name)
        self._tell(changes, NAMESPACES.plural if any(isinstance(one, Synced) for one in batch) else "")

    def _take(self, batch: Batch[Any]) -> None:
        changes: list[JobChange] = []
        for event in batch:
            match event:
                case Upserted():
                    changes += self._groups.put(event.object)
                case DeletedObject():
                    changes += self._groups.drop(event.object.metadata.namespace or "", event.object.metadata.name)
                case Malformed():
                    bad = event.object
                    log.warning("object_malformed", kind=JOBS.name, key=f"{bad.namespace}/{bad.name}", error=bad.error)
                    changes += self._groups.drop(bad.namespace, bad.name)
        self._tell(changes, JOBS.name if any(isinstance(one, Synced) for one in batch) else "")

    def _tell(self, changes: list[JobChange], listed: str) -> None:
        events: list[ClusterEvent] = [ObjectChanged(JOBS.name, key, group) for key, group in changes]
        if listed in self._to_list:
            self._to_list.discard(listed)
            if not self._to_list:
                events.append(Listed(JOBS.name))
        if events:
            self._post(events)
