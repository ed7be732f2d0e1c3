"""``--for``: what a policy decides about, the same option in every verb of ``conclave policy``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from services.cli.server.options import SERVER_NAMES, given
from shared.decide.domain import Domain
from shared.decide.registry import PolicyRegistry
from shared.errors import ConfigError
from shared.jobs.domain import JOBS
from shared.jobs.registry import POLICIES as FOR_JOBS
from shared.rebalance.domain import POLICIES as GOALS
from shared.rebalance.domain import REBALANCE

F = TypeVar("F", bound=Callable[..., Any])
PODS = "pods"
OF_SERVER = frozenset(SERVER_NAMES) - {"context"}
TRIED: dict[str, tuple[Domain, PolicyRegistry]] = {
    JOBS.name: (JOBS, FOR_JOBS),
    REBALANCE.name: (REBALANCE, GOALS),
}
"""Domains whose policies are tried beside that of their settings (``shared/decide/rollout.py``), by name."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Pods, where neither is set. ``tried``: a domain and its policies; ``scaler``: a ResilientAutoscaler."""

    name: str
    tried: tuple[Domain, PolicyRegistry] | None = None
    scaler: str = ""

    @property
    def pods(self) -> bool:
        """Whether it is about pods."""
        return self.tried is None and not self.scaler

    def check(self, here: click.Context, *pods_alone: str) -> None:
        """``ConfigError``: an option stands on the command line that says nothing about this: one of ``pods_alone``,
        of etcd, a server where the cluster is asked, a kubeconfig where a server is."""
        for one in here.command.params:
            name = one.name or ""
            if not given(here, name):
                continue
            if not self.pods and (name in pods_alone or name.startswith("etcd")):
                raise ConfigError(f"{one.opts[0]}: belongs to pods; leave it out with --for {self.name}")
            if self.scaler and name in OF_SERVER:
                raise ConfigError(f"{one.opts[0]}: {self.name} is asked of its cluster; give --kubeconfig or --context")
            if not self.scaler and name == "kubeconfig":
                raise ConfigError(f"--kubeconfig: the server is asked about {self.name}; give --server or --context")


def subject_of(text: str) -> Subject:
    """What the text names. ``ConfigError``: nothing."""
    if text == PODS:
        return Subject(text)
    if text in TRIED:
        return Subject(text, tried=TRIED[text])
    namespace, slash, name = text.partition("/")
    if not slash or not namespace or not name or "/" in name:
        known = ", ".join((PODS, *TRIED))
        raise ConfigError(f"--for: {text[:80]!r} is not one of {known}, nor a ResilientAutoscaler as NAMESPACE/NAME")
    return Subject(text, scaler=text)


def for_option(command: F) -> F:
    """The option; the command takes it as ``subject``."""

    def parsed(_here: click.Context, _parameter: click.Parameter, value: str) -> Subject:
        return subject_of(value)

    return click.option(
        "--for", "subject", default=PODS, show_default=True, callback=parsed,
        metavar=f"{PODS}|{'|'.join(TRIED)}|NAMESPACE/SCALER", help="What the policy decides about.",
    )(command)  # fmt: skip


kubeconfig_option = click.option(
    "--kubeconfig", type=click.Path(path_type=Path, dir_okay=False),
    help="Of the cluster, with --for NAMESPACE/SCALER.  [default: as kubectl's]",
)  # fmt: skip
