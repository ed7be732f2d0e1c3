"""What ``conclave status`` warns of: what processes say of themselves, and what only shows beside each other. Pure.

A registration that is not believed, processes of different versions, one without TLS beside others with it: each is a
line that names who, what and the remedy. It refuses to judge what needs more than the listing of etcd.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shared.version import compatible
from shared.wire.messages import VERSION
from shared.wire.records import plugins_differ

if TYPE_CHECKING:
    from services.cli.etcd.mesh_view import MeshView


def warnings_of(view: MeshView) -> list[str]:
    """One line each; empty when all is well."""
    return [*_nobody(view), *_told(view), *_registrations(view), *_versions(view), *_plugins(view), *_plain(view)]


def _nobody(view: MeshView) -> Iterator[str]:
    if not (view.coordinator or view.binders or view.agents or view.members or view.processes):
        yield "nobody is registered under this prefix of etcd: start the mesh, or mend --etcd-prefix"


def _told(view: MeshView) -> Iterator[str]:
    for name, warnings in sorted(_processes(view, "warnings")):
        for warning in warnings:
            yield f"{name}: {warning}"


def _registrations(view: MeshView) -> Iterator[str]:
    for key, name in sorted(view.misplaced.items()):
        yield f"agent {key}: registers as {name!r}, which is another's id: ignored; give each agent its own --id"
    for name, agent in sorted(view.agents.items()):
        if agent.protocol != VERSION:
            yield f"agent {name}: speaks protocol {agent.protocol}, this is {VERSION}: ignored; run one version"


def _versions(view: MeshView) -> Iterator[str]:
    """Others than the leader's, or than most; of another major version: refused."""
    found = dict(_processes(view, "version"))
    leader = view.coordinator.record.version if view.coordinator is not None else ""
    known = Counter(version for version in found.values() if version)
    usual = leader or (known.most_common(1)[0][0] if known else "")
    for name, version in sorted(found.items()):
        if version and usual and version != usual:
            what = "an upgrade under way?" if compatible(version, usual) else "it is refused; run one major version"
            yield f"{name}: runs {version}, the mesh {usual}: {what}"


def _plugins(view: MeshView) -> Iterator[str]:
    """Of others than the leader's."""
    leader = view.processes.get(f"coordinator/{view.coordinator.record.identity}") if view.coordinator else None
    if leader is None:
        return
    for name, plugins in sorted(_processes(view, "plugins")):
        service = name.partition(" ")[0]
        if service != "learner" and (text := plugins_differ(service, plugins, leader.plugins)):
            yield f"{name}: {text}"


def _plain(view: MeshView) -> Iterator[str]:
    """Some with TLS and some without: they cannot talk to each other."""
    urls = dict(_processes(view, "url"))
    if any(url.startswith("https:") for url in urls.values()):
        for name, url in sorted(urls.items()):
            if url.startswith("http:"):
                yield f"{name}: listens without TLS, others with it: they refuse each other; use one overlay for all"


def _processes(view: MeshView, field: str) -> Iterator[tuple[str, Any]]:
    for name, agent in view.agents.items():
        yield f"agent {name}", getattr(agent, field)
    for name, member in view.processes.items():
        yield name.replace("/", " ", 1), getattr(member, field)
