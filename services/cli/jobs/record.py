"""``conclave jobs record``: what the cluster decides about its TrainingJobs, written down to be imitated.

TrainingJobs and nodes are watched, nothing is changed. A line is appended whenever the decision is another one, so what
is there is whole up to its last line, and a file that is there already is gone on with. A decision is one status after
the other: it is noted once they have been quiet for ``SETTLED_S``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.jobs.history import Recorder, line_of

if TYPE_CHECKING:
    from shared.kube.resources import Resource
    from shared.ports import KubeApi

SETTLED_S = 1.0
Endless = Coroutine[Any, Any, None]


async def record(api: KubeApi, out: Path, duration_s: float, clock: Callable[[], float]) -> int:
    """Append decisions to ``out`` for so long (0: until cancelled); how many. ``clock``: seconds since 1970."""
    from shared.kube.resources import NODES, Deleted, Upserted
    from shared.kube.training_jobs import TRAINING_JOBS, gpu_node, job_from_api
    from shared.runtime.kube.reflector import Batch, Reflector, Synced

    recorder, listed, written = Recorder(), set[str](), 0
    changed = asyncio.Event()

    def followed(
        resource: Resource[Any], held: dict[str, Any], made: Callable[[Any], Any]
    ) -> Coroutine[Any, Any, None]:
        def take(batch: Batch[Any]) -> None:
            for event in batch:
                match event:
                    case Upserted():
                        held[_key(event.object)] = made(event.object)
                    case Deleted():
                        held.pop(_key(event.object), None)
                    case Synced():
                        listed.add(resource.plural)
                    case _:
                        continue
                changed.set()

        return Reflector(api, resource).run(take)

    with out.open("a", encoding="utf-8") as file:

        def note() -> None:
            nonlocal written
            found = recorder.news(clock()) if len(listed) == 2 else None
            if found is not None:
                file.write(line_of(found) + "\n")
                file.flush()
                written += 1

        async def noting() -> None:
            while True:
                await changed.wait()
                changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SETTLED_S):
                        await changed.wait()
                if not changed.is_set():
                    note()

        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(duration_s or None), asyncio.TaskGroup() as tasks:
                    tasks.create_task(followed(TRAINING_JOBS, recorder.jobs, job_from_api))
                    tasks.create_task(followed(NODES, recorder.nodes, gpu_node))
                    tasks.create_task(noting())
        finally:
            note()
    return written


def _key(item: Any) -> str:
    return f"{item.metadata.namespace or ''}/{item.metadata.name}"
