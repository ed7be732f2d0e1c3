"""Two asynchronous generators as one, each at its own pace: a watch, and the list of what was before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")


async def beside(watch: AsyncGenerator[T, None], lists: AsyncGenerator[U, None]) -> AsyncGenerator[Any, None]:
    """(batch, None) of ``watch`` and (None, part) of ``lists`` as they come, until ``lists`` is over; both are closed
    then. Of each, no more than one is taken ahead of the consumer, and lost where the other one fails."""
    sources: tuple[AsyncGenerator[Any, None], ...] = (watch, lists)
    coming: dict[asyncio.Future[Any], AsyncGenerator[Any, None]] = {}
    try:
        coming |= {asyncio.ensure_future(anext(source, None)): source for source in sources}
        while lists in coming.values():
            await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
            for future in [future for future in coming if future.done()]:
                source, found = coming.pop(future), future.result()
                if found is not None:
                    yield (None, found) if source is lists else (found, None)
                    coming[asyncio.ensure_future(anext(source, None))] = source
    finally:
        for future in coming:
            future.cancel()
        await asyncio.gather(*coming, return_exceptions=True)
        for source in sources:
            await source.aclose()
