"""Watches of the API server as events of the jobs core; eternal. They translate and decide nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from services.jobs.core import events as ev
from shared.errors import ConfigError
from shared.kube.pod_groups import PODGROUPS
from shared.kube.queues import QUEUES, queue_from_api
from shared.kube.resources import NODES, DeletedObject, Malformed, Resource, Upserted
from shared.kube.training.training_jobs import (
    GROUP_VERSIONS,
    SERVICES,
    TRAINING_JOBS,
    gpu_node,
    job_from_api,
    made_object,
)
from shared.kube.training.worker_pods import JOB_PODS, worker_pod
from shared.ports import KubeApi
from shared.runtime.kube.reflector import Batch, Reflector, Synced

log = structlog.get_logger()

Post = Callable[[Sequence[ev.Event]], None]

KINDS = (
    TRAINING_JOBS.plural, JOB_PODS.plural, NODES.plural, QUEUES.plural, PODGROUPS.plural, SERVICES.plural,
)  # fmt: skip
"""All that must be listed before anything is decided."""


async def group_version(may_list: Callable[[Resource[Any]], Any]) -> Resource[Any]:
    """The version of PodGroups that is served and ours to read. ``ConfigError``: there is none."""
    for version in GROUP_VERSIONS:
        if await may_list(version):
            return version
    raise ConfigError(
        "PodGroup: the cluster serves none that we may list; apply k8s/components/plugins-pod-groups, or the Role of "
        "k8s/components/jobs (docs/jobs.md)"
    )


async def follow(
    api: KubeApi, resource: Resource[Any], post: Post, *, seen: Callable[[Any], ev.Event],
    gone: Callable[[Any], ev.Event], lost: Callable[[Malformed], ev.Event | None], optional: bool = False,
) -> None:  # fmt: skip
    """One kind, for ever."""

    def take(batch: Batch[Any]) -> None:
        events: list[ev.Event] = []
        for event in batch:
            match event:
                case Upserted():
                    events.append(seen(event.object))
                case DeletedObject():
                    events.append(gone(event.object))
                case Synced():
                    events.append(ev.JobsListed(resource.plural))
                case Malformed():
                    bad = event.object
                    log.warning(
                        "object_malformed", kind=resource.kind, key=f"{bad.namespace}/{bad.name}", error=bad.error
                    )
                    found = lost(event) if event.deleted else None
                    if found is not None:
                        events.append(found)
        post(events)

    await Reflector(api, resource, optional=optional).run(take)


def _key(meta: Any) -> str:
    return f"{meta.namespace or ''}/{meta.name}"


def followers(api: KubeApi, group: Resource[Any], post: Post) -> list[Any]:
    """The coroutines that follow everything the core needs."""
    made = [
        follow(
            api, resource, post,
            seen=lambda item, k=kind: ev.MadeSeen(made_object(k, item)),  # type: ignore[misc]  # bound per kind
            gone=lambda item, k=kind: ev.MadeGone(k, _key(item.metadata)),  # type: ignore[misc]
            lost=lambda bad, k=kind: ev.MadeGone(k, _key(bad.object)),  # type: ignore[misc]
        )
        for resource, kind in ((group, PODGROUPS.kind), (SERVICES, SERVICES.kind))
    ]  # fmt: skip
    return [
        follow(
            api, TRAINING_JOBS, post,
            seen=lambda item: ev.JobSeen(job_from_api(item)),
            gone=lambda item: ev.JobGone(_key(item.metadata)),
            lost=lambda bad: ev.JobGone(_key(bad.object)),
            optional=True,
        ),
        follow(
            api, JOB_PODS, post,
            seen=lambda item: ev.JobsPodSeen(worker_pod(item)),
            gone=lambda item: ev.JobsPodGone(item.metadata.uid),
            lost=lambda bad: ev.JobsPodGone(bad.object.uid),
        ),
        follow(
            api, NODES, post,
            seen=lambda item: ev.JobsNodeSeen(gpu_node(item)),
            gone=lambda item: ev.JobsNodeGone(item.metadata.name),
            lost=lambda bad: ev.JobsNodeGone(bad.object.name),
        ),
        follow(
            api, QUEUES, post,
            seen=lambda item: ev.QueueSeen(queue_from_api(item)),
            gone=lambda item: ev.QueueGone(item.metadata.name),
            lost=lambda bad: ev.QueueGone(bad.object.name),
            optional=True,
        ),
        *made,
    ]  # fmt: skip
