"""The ``conclave`` group: which commands there are. Each lives in a file of its own, which is imported when it is asked
for: ``conclave up`` stays beside a mesh for as long as it runs, and holds no more than it needs.

The command line starts services as processes and imports none of them. What the lab gives is loaded by name, and may
not be installed (``houses.py``).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, MutableMapping

import click

from services.cli import houses
from shared.version import CONCLAVE_VERSION

# gRPC's fork handlers would warn at each child we start; our children exec at once and never use the parent's channels.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

OPERATE = {
    "changes": "operate.changes", "decisions": "operate.decisions", "drain": "drain.command",
    "dump": "operate.dump", "explain": "explain.command", "log-level": "operate.settings",
    "members": "operate.status", "nodes": "operate.nodes", "pause": "operate.scheduling",
    "pending": "operate.pending", "pending-pods": "operate.pending", "policy": "operate.policy",
    "queue": "operate.queues", "rebalance": "rebalance.command", "reserve": "reserve.command",
    "resume": "operate.scheduling",
    "settings": "operate.settings",
    "shards": "operate.shards", "status": "operate.status", "top": "operate.top.command", "units": "operate.units",
}  # fmt: skip
"""What asks or changes a running mesh: where under ``services.cli`` each is."""
LAB = {
    "audit": "lab.cli.audit", "demo": "lab.cli.demo.command", "evaluate": "lab.cli.train.evaluate",
    "replay": "lab.cli.replay", "train": "lab.cli.train.command",
}  # fmt: skip
"""What the lab gives, by its whole name."""
OTHERS = LAB | {
    "autoscale": "autoscale.command", "completion": "completion", "context": "context",
    "import-config": "imports.command", "jobs": "jobs.command", "pki": "pki.command", "run": "local.run",
    "snapshot": "snapshot.command", "twin": "twin", "up": "local.up", "version": "version", "wire": "wire",
}  # fmt: skip


class Commands(MutableMapping[str, click.Command]):
    """The commands by name; a file is imported when its command is looked at."""

    def __init__(self, modules: dict[str, str]) -> None:
        self._modules = dict(modules)
        self._found: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._found:
            self._found[name] = _loaded(name, self._modules[name])
        return self._found[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._modules.setdefault(name, "")
        self._found[name] = command

    def __delitem__(self, name: str) -> None:
        del self._modules[name]
        self._found.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


def _loaded(name: str, where: str) -> click.Command:
    """The command ``name`` of a module under ``services.cli``, or of the lab's."""
    whole = where if where.startswith("lab.") else f"services.cli.{where}"
    if houses.missing(whole):
        return houses.Elsewhere(name, whole)
    module = importlib.import_module(whole)
    plain = name.replace("-", "_")
    # a command called as a builtin is has a function with an underscore behind
    found: click.Command = getattr(module, plain, None) or getattr(module, f"{plain}_")
    return found


@click.group(
    commands=Commands(OPERATE | OTHERS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(CONCLAVE_VERSION, prog_name="conclave", message="%(prog)s %(version)s")
def conclave() -> None:
    """A learned, highly available scheduler for Kubernetes: a mesh of agents, one coordinator, a binder."""
