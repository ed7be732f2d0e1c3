"""Entry point of the agent: ``python -m services.agent [--SETTING VALUE]...``."""

from __future__ import annotations

import shared.runtime.process.lean  # noqa: F401  first: it keeps the process small

# isort: split
from services.agent.app import main
from services.agent.settings import AgentSettings
from shared.runtime.process.process import run_process

if __name__ == "__main__":
    raise SystemExit(run_process("agent", AgentSettings, lambda: main))
