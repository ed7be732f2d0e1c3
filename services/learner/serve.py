"""Entry point of the learner as a service of a mesh: parse settings, run; nothing else.

``python -m services.learner train`` is the other face of this package: training without a mesh.
"""

from __future__ import annotations

import sys

import structlog

from services.learner.settings import LearnerSettings
from shared.errors import ConfigError
from shared.runtime.observe.logging import configure
from shared.runtime.process.process import identity, read_settings
from shared.runtime.process.service import EXIT_CONFIG, run_service


def run() -> int:
    """The exit code."""
    try:
        settings = read_settings(LearnerSettings, "learner")
        _check_torch()
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CONFIG
    from services.learner.app import main

    configure("learner", level=settings.log_level)
    structlog.contextvars.bind_contextvars(id=identity(settings))
    return run_service(
        lambda service: main(service, settings),
        name="learner",
        follow_parent=settings.follow_parent,
        live_listen=settings.live_listen,
    )


def _check_torch() -> None:
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise ConfigError("learner: torch is missing; install the extra: pip install 'conclave[learn]'")


if __name__ == "__main__":
    raise SystemExit(run())
