"""Entry point of the coordinator: ``python -m services.coordinator [--SETTING VALUE]...``."""

from __future__ import annotations

import shared.runtime.process.lean  # noqa: F401  first: it keeps the process small

# isort: split
from services.coordinator.app import main
from services.coordinator.settings import CoordinatorSettings
from shared.runtime.process.process import run_process

if __name__ == "__main__":
    raise SystemExit(run_process("coordinator", CoordinatorSettings, lambda: main))
