"""The ``conclave`` group: which commands there are. Each lives in a file of its own and imports heavy things late.

The command line starts services as processes and imports none of them.
"""

from __future__ import annotations

import os

import click

from services.cli.audit import audit
from services.cli.completion import completion
from services.cli.context import context
from services.cli.demo.command import demo
from services.cli.explain.command import explain
from services.cli.local.run import run
from services.cli.local.up import up
from services.cli.operate.changes import changes
from services.cli.operate.decisions import decisions
from services.cli.operate.dump import dump
from services.cli.operate.nodes import nodes
from services.cli.operate.pending import pending, pending_pods
from services.cli.operate.policy import policy
from services.cli.operate.queues import queue
from services.cli.operate.scheduling import drain, pause, resume
from services.cli.operate.settings import log_level, settings
from services.cli.operate.shards import shards
from services.cli.operate.status import members, status
from services.cli.operate.top.command import top
from services.cli.operate.units import units
from services.cli.pki.command import pki
from services.cli.train.command import train
from services.cli.train.evaluate import evaluate
from services.cli.twin.command import twin
from services.cli.version import version
from services.cli.wire import wire

# gRPC's fork handlers would warn at each child we start; our children exec at once and never use the parent's channels.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="conclave", prog_name="conclave", message="%(prog)s %(version)s")
def conclave() -> None:
    """A learned, highly available scheduler for Kubernetes: a mesh of agents, one coordinator, a binder."""


OPERATE = (
    changes, decisions, drain, dump, explain, log_level, members, nodes, pause, pending, pending_pods, policy,
    queue, resume, settings, shards, status, top, units,
)  # fmt: skip
"""What asks or changes a running mesh."""
OTHERS = (audit, completion, context, demo, evaluate, pki, run, train, twin, up, version, wire)

for command in (*OPERATE, *OTHERS):
    conclave.add_command(command)
