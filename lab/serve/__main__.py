"""Entry point of the learner as a service of a mesh: ``python -m lab.serve [--SETTING VALUE]...``.

``python -m lab.learner train`` is the other face of this package: training without a mesh.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable, Callable

from lab.serve.settings import LearnerSettings
from shared.errors import ConfigError
from shared.runtime.process.process import run_process
from shared.runtime.process.service import Service


def _main() -> Callable[[Service, LearnerSettings], Awaitable[None]]:
    if importlib.util.find_spec("torch") is None:
        raise ConfigError("learner: torch is missing; install the extra: pip install 'conclave-scheduler[learn]'")
    from lab.serve.app import main

    return main


if __name__ == "__main__":
    raise SystemExit(run_process("learner", LearnerSettings, _main))
