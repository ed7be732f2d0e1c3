"""``conclave jobs policy``: the former verbs of ``conclave policy --for jobs``, which answer for a release."""

from __future__ import annotations

from typing import Any

import click

from services.cli.operate.scheduling import reason_option
from services.cli.operate.trials import change_trial, show_trial
from services.cli.server.options import server_options
from services.cli.server.watching import output_option
from shared.decide.trial import MOST_PERCENT
from shared.jobs.domain import JOBS


@click.group(hidden=True)
def policy() -> None:
    """The former name of 'conclave policy --for jobs'."""


@policy.command()
@output_option
@server_options
def show(output: str, **server: Any) -> None:
    """The former name of 'conclave policy show --for jobs'."""
    show_trial(JOBS, output, server)


@policy.command("set")
@click.argument("name")
@reason_option
@output_option
@server_options
def set_policy(name: str, reason: str, output: str, **server: Any) -> None:
    """The former name of 'conclave policy try NAME --for jobs'."""
    change_trial(JOBS, "PUT", "", {"name": name, "reason": reason}, output, server)


@policy.command()
@click.option("--percent", type=click.IntRange(1, MOST_PERCENT), default=10, help="Of the jobs, in the canary.")
@click.option("--force", is_flag=True, help="Also without the good windows asked for.")
@reason_option
@output_option
@server_options
def promote(percent: int, force: bool, reason: str, output: str, **server: Any) -> None:
    """The former name of 'conclave policy promote --for jobs'."""
    change_trial(JOBS, "POST", "/promote", {"percent": percent, "force": force, "reason": reason}, output, server)


@policy.command()
@reason_option
@output_option
@server_options
def back(reason: str, output: str, **server: Any) -> None:
    """The former name of 'conclave policy back --for jobs'."""
    change_trial(JOBS, "POST", "/back", {"reason": reason}, output, server)
