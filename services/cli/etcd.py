"""The mesh as its etcd shows it: what works while nobody leads, for ``conclave status``, ``demo`` and ``up``.

Who leads under which term, which agents are there, what is registered, and what is wrong with it: each warning is a
line that names who, what and the remedy. Here are also the options of every command that looks into etcd. ``MeshView``
and its warnings are pure and read only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from services.cli.server.errors import ServerFailed
from services.cli.server.options import SERVER_NAMES, given
from shared.election.record import LeaderRecord
from shared.election.record import decode_record as decode_leader
from shared.errors import ConfigError, StoreError, StoreFull
from shared.ports import KeyValue, Store
from shared.version import compatible
from shared.wire.keys import DEFAULT_PREFIX, Keys
from shared.wire.messages import VERSION
from shared.wire.records import AgentRecord, MemberRecord, decode_record, plugins_differ

if TYPE_CHECKING:
    from shared.runtime.process.process import ProcessSettings

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_ETCD = "http://127.0.0.1:2379"
OTHERS = (
    click.option("--etcd-prefix", default=DEFAULT_PREFIX, show_default=True, help="Where the mesh keeps its keys."),
    click.option("--etcd-ca", type=click.Path(path_type=Path), help="CA bundle (PEM) for https endpoints."),
    click.option("--etcd-cert", type=click.Path(path_type=Path), help="Our certificate (PEM)."),
    click.option("--etcd-key", type=click.Path(path_type=Path), help="The key of --etcd-cert (PEM)."),
)
NAMES = ("etcd", "etcd_prefix", "etcd_ca", "etcd_cert", "etcd_key")


def etcd_options(command: F) -> F:
    """``--etcd``, ``--etcd-prefix`` and the TLS files; the command gets them as keyword arguments."""
    return _with_etcd(command, default=DEFAULT_ETCD, show_default=True, help="Endpoints, comma-separated.")


def or_etcd(command: F) -> F:
    """As ``etcd_options``, for commands that ask a server unless one of these is given (``etcd_instead``)."""
    told = "Endpoints of etcd, instead of a server while nobody leads."
    return _with_etcd(command, default=DEFAULT_ETCD, help=told)


def _with_etcd(command: F, **etcd: Any) -> F:
    for option in reversed((click.option("--etcd", **etcd), *OTHERS)):
        command = option(command)
    return command


def etcd_instead(here: click.Context) -> bool:
    """Whether etcd is meant and no server. ``ConfigError``: the command line names both."""
    etcd = [name for name in NAMES if given(here, name)]
    server = [name for name in SERVER_NAMES if given(here, name)]
    if etcd and server:
        one, other = (f"--{names[0].replace('_', '-')}" for names in (server, etcd))
        raise ConfigError(f"{one}: names a server, {other} does not go with it; give one of them")
    return bool(etcd)


def settings_of(
    *, etcd: str, etcd_prefix: str, etcd_ca: Path | None, etcd_cert: Path | None, etcd_key: Path | None, **_: Any
) -> ProcessSettings:
    """The options as settings; those of a server beside them do not count. ``ConfigError``: they do not go together."""
    from shared.runtime.process.process import ProcessSettings

    endpoints = tuple(part.strip() for part in etcd.split(",") if part.strip())
    try:
        return ProcessSettings(
            etcd=endpoints, etcd_prefix=etcd_prefix, etcd_ca=etcd_ca, etcd_cert=etcd_cert, etcd_key=etcd_key
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None


async def with_store(settings: ProcessSettings, work: Callable[[Store, Keys], Awaitable[T]]) -> T:
    """Do ``work`` with a connection. ``ServerFailed``: etcd does not answer; a change may have been made."""
    from shared.runtime.process.etcd_upkeep import SparingStore, judge
    from shared.runtime.process.process import keys_of, store_opener

    keys = keys_of(settings)
    store = store_opener(settings)()
    short = False
    try:
        with suppress(StoreError):
            short = judge(await store.state()).short
        return await work(SparingStore(store, can_wait=keys.can_wait, short=lambda: short), keys)
    except StoreFull as error:
        raise ServerFailed(f"{error}; nothing was written") from None
    except StoreError as error:
        raise ServerFailed(
            f"--etcd: no answer from {','.join(settings.etcd)} ({error}); start it, or correct --etcd"
        ) from None
    finally:
        await store.close()


@dataclass(frozen=True, slots=True)
class Leading:
    """A leader as its key shows it. ``term`` is the key's create_revision."""

    record: LeaderRecord
    term: int
    lease_id: int


@dataclass(frozen=True, slots=True)
class MeshView:
    """Everything under the prefix at one etcd revision. ``binders`` by shard, ``agents`` by id, ``processes`` (whoever
    is under ``members/``) by ``service/id``; ``misplaced``: the id that an agent's key holds though it is another's;
    ``etcd``: what is wrong with etcd itself."""

    revision: int = 0
    coordinator: Leading | None = None
    binders: dict[str, Leading] = field(default_factory=dict)
    agents: dict[str, AgentRecord] = field(default_factory=dict)
    members: dict[str, Any] = field(default_factory=dict)
    intents: int = 0
    processes: dict[str, MemberRecord] = field(default_factory=dict)
    misplaced: dict[str, str] = field(default_factory=dict)
    etcd: str = ""

    def to_json(self) -> dict[str, Any]:
        """For ``conclave status -o json``."""
        return {
            "revision": self.revision,
            "coordinator": _leading(self.coordinator),
            "binders": {shard: _leading(leading) for shard, leading in sorted(self.binders.items())},
            "agents": {
                name: {"url": a.url, "incarnation": a.incarnation, "node": a.node, "version": a.version}
                for name, a in sorted(self.agents.items())
            },
            "members": dict(sorted(self.members.items())),
            "intents": self.intents,
            "warnings": warnings_of(self),
        }


def _leading(leading: Leading | None) -> dict[str, Any] | None:
    if leading is None:
        return None
    record = leading.record
    return {
        "id": record.identity, "incarnation": record.incarnation, "url": record.url, "term": leading.term,
        "lease_id": f"{leading.lease_id:x}", "version": record.version,
    }  # fmt: skip


async def read_mesh(store: Store, keys: Keys, *, timeout_s: float = 2.0) -> MeshView:
    """The mesh as etcd shows it now. Unknown: ``StoreUnknown``."""
    from shared.runtime.process.etcd_upkeep import judge

    listing = await store.list_prefix(keys.prefix, timeout_s=timeout_s)
    view = mesh_of(listing.items, listing.revision, keys)
    with suppress(StoreError):  # it may let us read our keys, and not say how it is
        return replace(view, etcd=judge(await store.state(timeout_s=timeout_s)).text)
    return view


def mesh_of(items: Sequence[KeyValue], revision: int, keys: Keys) -> MeshView:
    """The view of a listing; records that cannot be read are left out."""
    coordinator: Leading | None = None
    binders: dict[str, Leading] = {}
    agents: dict[str, AgentRecord] = {}
    members: dict[str, Any] = {}
    processes: dict[str, MemberRecord] = {}
    misplaced: dict[str, str] = {}
    intents = 0
    for kv in items:
        if kv.key == keys.coordinator_leader:
            coordinator = _leader(kv)
        elif kv.key.startswith(keys.binders_prefix) and kv.key.endswith("/leader"):
            shard = keys.last_part(kv.key.removesuffix("/leader"))
            found = _leader(kv)
            if found is not None:
                binders[shard] = found
        elif kv.key.startswith(keys.agents_prefix):
            record = decode_record(kv.value, AgentRecord)
            if record is not None and keys.agent(record.id) == kv.key:
                agents[record.id] = record
            elif record is not None:
                misplaced[keys.last_part(kv.key)] = record.id
        elif kv.key.startswith(keys.intents_prefix):
            intents += 1
        elif kv.key.startswith(f"{keys.prefix}members/"):
            name = kv.key.removeprefix(f"{keys.prefix}members/")
            members[name] = kv.value.decode(errors="replace")
            process = decode_record(kv.value, MemberRecord)
            if process is not None:
                processes[name] = process
    return MeshView(revision, coordinator, binders, agents, members, intents, processes, misplaced)


def _leader(kv: KeyValue) -> Leading | None:
    record = decode_leader(kv.value)
    return None if record is None else Leading(record, kv.create_revision, kv.lease_id)


def warnings_of(view: MeshView) -> list[str]:
    """One line each; empty when all is well."""
    etcd = [view.etcd] if view.etcd else []
    return [
        *etcd,
        *_nobody(view),
        *_told(view),
        *_registrations(view),
        *_versions(view),
        *_plugins(view),
        *_plain(view),
    ]


def _nobody(view: MeshView) -> Iterator[str]:
    if not (view.coordinator or view.binders or view.agents or view.members or view.processes):
        yield "nobody is registered under this prefix of etcd: start the mesh, or correct --etcd-prefix"


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
