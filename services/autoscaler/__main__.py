"""Entry point of the autoscaler: ``python -m services.autoscaler [--SETTING VALUE]...``."""

from __future__ import annotations

import shared.runtime.process.lean  # noqa: F401  first: it keeps the process small

# isort: split
from services.autoscaler.app import main
from services.autoscaler.settings import AutoscalerSettings
from shared.runtime.process.process import run_process

if __name__ == "__main__":
    raise SystemExit(run_process("autoscaler", AutoscalerSettings, lambda: main))
