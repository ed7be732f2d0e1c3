"""``conclave run SERVICE [flags]``: become one service, with its own flags. What a container runs."""

from __future__ import annotations

import os
import sys

import click

from services.cli.houses import check_installed

SERVICES = (
    "coordinator",
    "agent",
    "binder",
    "sensor",
    "learner",
    "jobs",
    "autoscaler",
    "rebalancer",
    "controllers",
    "single",
    "extender",
)
LEARNER = "lab.serve"


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("service", type=click.Choice(SERVICES))
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def run(service: str, flags: tuple[str, ...]) -> None:
    """Run one SERVICE in this process; FLAGS are its own (see run SERVICE --help)."""
    become(LEARNER if service == "learner" else f"services.{service}", flags)


def become(module: str, flags: tuple[str, ...]) -> None:
    """Replace this process by ``python -m MODULE FLAGS``: signals and the exit code are then the service's own.

    ``ConfigError``: its house is not installed.
    """
    check_installed(module, str(click.get_current_context().info_name))
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *flags])  # noqa: S606  our own interpreter and module
