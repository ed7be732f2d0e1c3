"""Entry point of the mesh in one process: ``python -m services.single [--SETTING VALUE]...``."""

from __future__ import annotations

import shared.runtime.process.lean  # noqa: F401  first: it keeps the process small

# isort: split
from services.single.app import main
from services.single.settings import SingleSettings
from shared.runtime.process.process import run_process

if __name__ == "__main__":
    raise SystemExit(run_process("single", SingleSettings, lambda: main))
