"""How a bench ends: with its figures, or one clear line; by Ctrl-C or SIGTERM with nothing left that it started."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import aiohttp

from shared.errors import ConfigError

T = TypeVar("T")


def run_to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` finds. SIGTERM cancels it as Ctrl-C does, so that its contexts end what they began. ``SystemExit``:
    one line for that, for a kubeconfig that cannot be used, and for a server that does not answer."""
    try:
        return asyncio.run(_until_sigterm(work))
    except asyncio.CancelledError:
        sys.exit("bench: ended by SIGTERM")
    except KeyboardInterrupt:
        sys.exit("bench: ended by Ctrl-C")
    except (ConfigError, aiohttp.ClientError) as error:
        sys.exit(f"bench: {error}")


async def _until_sigterm(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task
