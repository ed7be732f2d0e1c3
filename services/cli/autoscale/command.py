"""The ``conclave autoscale`` group: which sub-commands there are. Each lives in a file of its own, beside this one
or in the lab, which is imported when it is asked for."""

from __future__ import annotations

import click

from services.cli.app import Commands

SUBCOMMANDS = {
    "analyse": "lab.cli.autoscale.analyse", "approve": "autoscale.steering", "design": "lab.cli.autoscale.design",
    "go": "autoscale.steering", "hpa": "autoscale.hpa", "list": "autoscale.looking", "pause": "autoscale.steering",
    "recommend": "autoscale.looking", "resume": "autoscale.steering", "show": "autoscale.looking",
    "why": "autoscale.looking",
}  # fmt: skip
"""Name to where under ``services.cli``, or in the lab, the command of that name is."""


@click.group(commands=Commands(SUBCOMMANDS))
def autoscale() -> None:
    """How many replicas services are to have."""
