"""Whether a kind of our own is served, told while it is not: nothing else tells of a definition's coming."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from shared.kube.resources import Resource

LOOK_S = 30.0


async def tell_unserved(
    kind: Resource[Any],
    component: str,
    *,
    lists: Callable[[Resource[Any]], Awaitable[bool | None]],
    note: Callable[[str, str], None],
    subject: str,
) -> None:
    """Eternal. ``component``: the folder that has the definition and the Role; ``lists``: whether the kind is served
    and ours to list, None where the server does not say, which takes nothing back; ``subject``: of the process's
    warnings."""
    unserved = f"the cluster serves no {kind.kind}s that we may list: apply {component}"
    while True:
        if (served := await lists(kind)) is not None:
            note(subject, "" if served else unserved)
        await asyncio.sleep(LOOK_S)
