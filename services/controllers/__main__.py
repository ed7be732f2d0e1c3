"""Entry point of the controllers in one process: ``python -m services.controllers [--SETTING VALUE]...``."""

from __future__ import annotations

import shared.runtime.process.lean  # noqa: F401  first: it keeps the process small

# isort: split
from services.controllers.app import main
from services.controllers.settings import ControllersSettings
from shared.runtime.process.process import run_process

if __name__ == "__main__":
    raise SystemExit(run_process("controllers", ControllersSettings, lambda: main))
