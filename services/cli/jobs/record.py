"""``conclave jobs record``: what the cluster decides about its TrainingJobs, written down to be imitated.

TrainingJobs and nodes are watched, nothing is changed. A line is appended whenever the decision is another one, so what
is there is whole up to its last line. A record that is there already is gone on with: a line that a killed recorder did
not finish is taken off; a file that is no record is refused. A decision is one status after the other: it is noted once
they have been quiet for ``SETTLED_S``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.errors import ConfigError
from shared.jobs.history import REMEDY, HistoryRecorder, line_of, whole_lines

if TYPE_CHECKING:
    from shared.kube.resources import Resource
    from shared.ports import KubeApi

SETTLED_S = 1.0
Endless = Coroutine[Any, Any, None]


async def record(api: KubeApi, out: Path, duration_s: float, clock: Callable[[], float]) -> int:
    """Append decisions to ``out`` for so long (0: without end) or until cancelled; how many. ``clock``: seconds since
    1970. ``ConfigError``: what is in ``out`` is no record."""
    from shared.kube.resources import NODES, DeletedObject, Upserted
    from shared.kube.training.training_jobs import TRAINING_JOBS, gpu_node, job_from_api
    from shared.runtime.kube.reflector import Batch, Reflector, Synced

    recorder, listed, written = HistoryRecorder(), set[str](), 0
    changed = asyncio.Event()

    def followed(
        resource: Resource[Any], held: dict[str, Any], made: Callable[[Any], Any]
    ) -> Coroutine[Any, Any, None]:
        def take(batch: Batch[Any]) -> None:
            for event in batch:
                match event:
                    case Upserted():
                        held[_key(event.object)] = made(event.object)
                    case DeletedObject():
                        held.pop(_key(event.object), None)
                    case Synced():
                        listed.add(resource.plural)
                    case _:
                        continue
                changed.set()

        return Reflector(api, resource).run(take)

    _take_up(out)
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
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):  # ^C is how a record ends, not a failure
                async with asyncio.timeout(duration_s or None), asyncio.TaskGroup() as tasks:
                    tasks.create_task(followed(TRAINING_JOBS, recorder.jobs, job_from_api))
                    tasks.create_task(followed(NODES, recorder.nodes, gpu_node))
                    tasks.create_task(noting())
        finally:
            note()
    return written


def _take_up(out: Path) -> None:
    """Take off what a recorder that was killed left of a line. ``ConfigError``: the file is no record."""
    if not out.is_file():
        return
    try:
        text = out.read_bytes().decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{out}: it is no text; {REMEDY}, or the name of a new file") from None
    end = whole_lines(text, str(out))
    if end < len(text):
        os.truncate(out, len(text[:end].encode()))


def _key(item: Any) -> str:
    return f"{item.metadata.namespace or ''}/{item.metadata.name}"
