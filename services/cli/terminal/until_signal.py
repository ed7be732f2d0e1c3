"""Runs a coroutine so that Ctrl-C and SIGTERM end it in order: what it opened is closed, and the command is aborted."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import click

from shared.errors import ConfigError

T = TypeVar("T")


async def until_signal(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work``; SIGTERM or SIGINT cancels it, its clean-up runs, and the command is aborted."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise click.Abort from None
    except BaseExceptionGroup as group:
        found = _config_error(group)
        if found is not None:
            raise found from None
        raise
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError):
                loop.remove_signal_handler(number)


def _config_error(group: BaseExceptionGroup[BaseException]) -> ConfigError | None:
    """The first ConfigError inside task groups."""
    for error in group.exceptions:
        if isinstance(error, ConfigError):
            return error
        if isinstance(error, BaseExceptionGroup):
            found = _config_error(error)
            if found is not None:
                return found
    return None
