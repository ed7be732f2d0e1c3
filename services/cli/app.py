"""The ``conclave`` group: which commands there are. Each lives in a file of its own and imports heavy things late.

The command line starts services as processes and imports none of them.
"""

from __future__ import annotations

import click

from services.cli.audit import audit
from services.cli.demo import demo
from services.cli.run import run
from services.cli.status import status
from services.cli.twin import twin
from services.cli.up import up
from services.cli.version import version
from services.cli.wire import wire


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def conclave() -> None:
    """A learned, highly available scheduler for Kubernetes: a mesh of agents, one coordinator, a binder."""


for command in (audit, demo, run, status, twin, up, version, wire):
    conclave.add_command(command)
