"""``conclave jobs policy``: the former verbs of ``conclave policy --for jobs``, which answer for a release."""

from __future__ import annotations

import click

from services.cli.operate.policy import alias, back, promote, show, try_
from shared.jobs.domain import JOBS

FORMER = {"show": show, "set": try_, "promote": promote, "back": back}
policy = click.Group(
    "policy", {name: alias(name, now, subject=JOBS.name) for name, now in FORMER.items()}, hidden=True,
    help="The former name of 'conclave policy --for jobs'.",
)  # fmt: skip
