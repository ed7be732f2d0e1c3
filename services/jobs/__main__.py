"""Entry point of the jobs service: ``python -m services.jobs [--SETTING VALUE]...``."""

from __future__ import annotations

import shared.runtime.process.lean  # noqa: F401  first: it keeps the process small

# isort: split
from collections.abc import Awaitable, Callable

from services.jobs.settings import JobsSettings
from shared.runtime.process.process import run_process
from shared.runtime.process.service import Service


def _main() -> Callable[[Service, JobsSettings], Awaitable[None]]:
    from services.jobs.app import main

    return main


if __name__ == "__main__":
    raise SystemExit(run_process("jobs", JobsSettings, _main))
