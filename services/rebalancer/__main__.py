"""Entry point of the rebalancer: ``python -m services.rebalancer [--SETTING VALUE]...``."""

from __future__ import annotations

import shared.runtime.process.lean  # noqa: F401  first: it keeps the process small

# isort: split
from collections.abc import Awaitable, Callable

from services.rebalancer.settings import RebalancerSettings
from shared.runtime.process.process import run_process
from shared.runtime.process.service import Service


def _main() -> Callable[[Service, RebalancerSettings], Awaitable[None]]:
    from services.rebalancer.app import main

    return main


if __name__ == "__main__":
    raise SystemExit(run_process("rebalancer", RebalancerSettings, _main))
