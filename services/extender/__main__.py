"""Entry point of the extender: ``python -m services.extender [--SETTING VALUE]...``."""

from __future__ import annotations

import shared.runtime.process.lean  # noqa: F401  first: it keeps the process small

# isort: split
import os
import sys
from pathlib import Path

from services.extender.app import main
from services.extender.settings import ExtenderSettings
from shared.errors import ConfigError
from shared.runtime.observe.logging import configure
from shared.runtime.process.service import EXIT_CONFIG, run_service
from shared.runtime.process.settings import help_text, load, parse_flags

NAME = "extender"


def run() -> int:
    """Read the settings, run; the exit code."""
    if "--help" in sys.argv[1:] or "-h" in sys.argv[1:]:
        sys.stdout.write(help_text(ExtenderSettings, NAME))
        return 0
    try:
        flags, file = parse_flags(ExtenderSettings, sys.argv[1:])
        named = os.environ.get("CONCLAVE_CONFIG", "")
        given = file or (Path(named) if named else None)
        settings = load(ExtenderSettings, service=NAME, file=given, environ=os.environ, flags=flags)
    except ConfigError as error:
        sys.stderr.write(f"conclave: {error}\n")
        return EXIT_CONFIG
    configure(NAME, level=settings.log_level)
    return run_service(
        lambda service: main(service, settings),
        name=NAME,
        follow_parent=settings.follow_parent,
        live_listen=settings.live_listen,
    )


if __name__ == "__main__":
    raise SystemExit(run())
