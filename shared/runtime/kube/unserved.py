"""Whether a kind of our own is served, told while it is not: nothing else tells of a definition's coming."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from shared.errors import KubeError
from shared.kube.resources import Resource

LOOK_S = 30.0


async def tell_unserved(
    kind: Resource[Any],
    component: str,
    *,
    may_list: Callable[[Resource[Any]], Awaitable[bool]],
    note: Callable[[str, str], None],
    subject: str,
) -> None:
    """Eternal. ``component``: the folder that has the definition and the Role; ``subject``: of the process's
    warnings."""
    unserved = f"the cluster serves no {kind.kind}s that we may list: apply {component}"
    while True:
        with suppress(KubeError):
            note(subject, "" if await may_list(kind) else unserved)
        await asyncio.sleep(LOOK_S)
