"""Entry point of the binder: ``python -m services.binder [--SETTING VALUE]...``."""

from __future__ import annotations

import shared.runtime.process.lean  # noqa: F401  first: it keeps the process small

# isort: split
from services.binder.app import main
from services.binder.settings import BinderSettings
from shared.runtime.process.process import run_process

if __name__ == "__main__":
    raise SystemExit(run_process("binder", BinderSettings, lambda: main))
