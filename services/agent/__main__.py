"""Entry point of the agent: parse settings, run; nothing else."""

from __future__ import annotations

import shared.runtime.process.lean  # noqa: F401  first: it keeps the process small

# isort: split
import sys

import structlog

from services.agent.app import main
from services.agent.settings import AgentSettings
from shared.errors import ConfigError
from shared.runtime.observe.logging import configure
from shared.runtime.process.process import identity, read_settings
from shared.runtime.process.service import EXIT_CONFIG, run_service


def run() -> int:
    """The exit code."""
    try:
        settings = read_settings(AgentSettings, "agent")
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CONFIG
    configure("agent", level=settings.log_level)
    structlog.contextvars.bind_contextvars(id=identity(settings))
    return run_service(
        lambda service: main(service, settings),
        name="agent",
        follow_parent=settings.follow_parent,
        live_listen=settings.live_listen,
    )


if __name__ == "__main__":
    raise SystemExit(run())
