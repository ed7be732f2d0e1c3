"""Writes docs/reference/*.md from the code: commands, settings, metrics, messages, keys in etcd, the admin API.

``make reference`` runs it; a test fails while the committed files differ from what it would write. It is no part of the
installed package. It refuses to know anything itself: every name, range, default and text is the code's own, so what
is missing here is a missing docstring there.
"""

from __future__ import annotations

import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import msgspec
import numpy as np
from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase

FOLDER = Path(__file__).parent
HEAD = "<!-- Made by `make reference` from {source}. Change the code, not this file. -->\n\n# {title}\n\n{text}\n"
WIDTH = 110


def main() -> int:
    """Write every page; 0."""
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"docs/reference/{name}\n")
    return 0


def pages() -> dict[str, str]:
    """File name to what it should hold."""
    makers: dict[str, Callable[[], str]] = {
        "cli.md": cli,
        "settings.md": settings,
        "metrics.md": metrics,
        "messages.md": messages,
        "etcd-keys.md": etcd_keys,
        "rest.md": rest,
        "refusals.md": refusals,
    }
    return {name: make() for name, make in makers.items()}


def page(title: str, source: str, text: str, *parts: str) -> str:
    """A whole file."""
    about = text if "\n" in text else fill(text)
    return "\n".join([HEAD.format(title=title, source=source, text=about), *parts]).rstrip() + "\n"


def fill(text: str) -> str:
    """One paragraph in lines of prose."""
    return textwrap.fill(text, 130, break_long_words=False, break_on_hyphens=False)


def cell(text: object) -> str:
    """Text that stays inside one cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def plain(text: str) -> str:
    """A docstring as Markdown: double backquotes become single ones."""
    return text.replace("``", "`")


# --- commands -----------------------------------------------------------------------------------------------------


def cli() -> str:
    """Every command's own ``--help``."""
    from services.cli.app import conclave

    parts = []
    for path, command in commands(conclave, "conclave"):
        names = {**conclave.context_settings, **command.context_settings}["help_option_names"]
        context = click.Context(
            command, info_name=path, terminal_width=WIDTH, max_content_width=WIDTH, help_option_names=names
        )
        parts.append(f"## {path}\n\n```text\n{command.get_help(context)}\n```\n")
    text = (
        "Exit codes: 0 it did what was asked; 1 an invariant was broken, or something could not be found out; 2 bad "
        "input or refused. What a service is told by flags is in [settings](settings.md)."
    )
    return page("Command line", "the commands of `services/cli`", text, *parts)


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """The command and everything below it, by name."""
    yield path, command
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            if not command.commands[name].hidden:
                yield from commands(command.commands[name], f"{path} {name}")


# --- settings -----------------------------------------------------------------------------------------------------


def settings() -> str:
    """Every setting of every service: flag, variable, type with range, default, meaning."""
    from lab.serve.settings import LearnerSettings
    from services.agent.settings import AgentSettings
    from services.autoscaler.settings import AutoscalerSettings
    from services.binder.settings import BinderSettings
    from services.coordinator.settings import CoordinatorSettings
    from services.extender.settings import ExtenderSettings
    from services.jobs.settings import JobsSettings
    from services.rebalancer.settings import RebalancerSettings
    from services.sensor.settings import SensorSettings
    from shared.runtime.process.process import ProcessSettings

    kinds = {
        "coordinator": CoordinatorSettings,
        "agent": AgentSettings,
        "binder": BinderSettings,
        "learner": LearnerSettings,
        "jobs": JobsSettings,
        "autoscaler": AutoscalerSettings,
        "rebalancer": RebalancerSettings,
    }
    common = {leaf.dotted for leaf, _ in described(ProcessSettings)}
    parts = [f"## Every service\n\n{table_of(ProcessSettings, set())}"]
    parts += [f"## {name.capitalize()}\n\n{table_of(kind, common)}" for name, kind in kinds.items()]
    alone = {"Sensor": SensorSettings, "Extender": ExtenderSettings}
    parts += [
        f"## {name}\n\nIt has these and none of those above.\n\n{table_of(kind, set())}" for name, kind in alone.items()
    ]
    text = (
        "The mesh in one process (`conclave run single`) has a coordinator's settings and a binder's, and decides "
        "itself by default; both controllers in one (`conclave run controllers`) have those of jobs and autoscaler, "
        "and `autoscale_every_s` for the latter's `decide_every_s`. A value is taken from, the last one counts: "
        "default, TOML file (`--config FILE` or "
        "`CONCLAVE_CONFIG`), environment, flag. A variable of one service alone has its name in it: "
        "`CONCLAVE_AGENT_LOG_LEVEL` is the agents'; the mesh in one process refuses those of coordinator and binder "
        "unless the same setting is given as `CONCLAVE_SINGLE_X`, both controllers in one those of jobs and autoscaler "
        "unless it is given as `CONCLAVE_CONTROLLERS_X`. "
        "What is not known is refused, and the nearest known name is told. "
        "`GET /v1/settings` shows what is in force, secrets masked."
    )
    return page("Settings", "the settings classes", text, *parts)


def described(kind: type) -> list[tuple[Any, str]]:
    """Leaves with their texts."""
    from shared.runtime.process.settings import describe

    return [(leaf, text) for leaf, text in describe(kind)]


def table_of(kind: type, without: set[str]) -> str:
    """One row per setting."""
    rows = ["| flag | variable | value | default | meaning |", "|---|---|---|---|---|"]
    for leaf, text in described(kind):
        if leaf.dotted not in without:
            shown = "required" if leaf.required else f"`{value_text(leaf.default)}`" if leaf.default != "" else "empty"
            kinds = cell(type_text(leaf.type))
            rows.append(f"| `--{leaf.flag}` | `{leaf.env}` | {kinds} | {cell(shown)} | {cell(plain(text))} |")
    return "\n".join(rows) + "\n"


def value_text(value: object) -> str:
    """A default as one would type it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def type_text(kind: Any) -> str:
    """A type with its bounds, in words."""
    info = msgspec.inspect.type_info(kind)
    return info_text(info)


def info_text(info: msgspec.inspect.Type) -> str:
    """What ``type_text`` says, of msgspec's own description of a type."""
    found = msgspec.inspect
    match info:
        case found.IntType() | found.FloatType():
            word = "integer" if isinstance(info, found.IntType) else "number"
            low = f"from {info.ge}" if info.ge is not None else f"above {info.gt}" if info.gt is not None else ""
            high = f"to {info.le}" if info.le is not None else f"below {info.lt}" if info.lt is not None else ""
            return " ".join(part for part in (word, low, high) if part)
        case found.StrType():
            return "text" + (f" like `{info.pattern}`" if info.pattern else "") + bound("character", info.max_length)
        case found.BytesType():
            return "bytes" + bound("byte", info.max_length)
        case found.LiteralType():
            return ", ".join(f"`{value}`" for value in info.values)
        case found.UnionType():
            return " or ".join(info_text(one) for one in info.types)
        case found.NoneType():
            return "none"
        case found.BoolType():
            return "true, false"
        case found.ListType() | found.VarTupleType() | found.SetType() | found.FrozenSetType():
            return f"list of {info_text(info.item_type)}" + bound("item", info.max_length)
        case found.TupleType():
            return f"({', '.join(info_text(one) for one in info.item_types)})"
        case found.DictType():
            return f"map of {info_text(info.key_type)} to {info_text(info.value_type)}" + bound("key", info.max_length)
        case found.StructType() | found.EnumType() | found.DataclassType():
            return f"`{info.cls.__name__}`"
        case found.CustomType():
            return "path" if info.cls is Path else f"`{info.cls.__name__}`"
        case _:
            return type(info).__name__.removesuffix("Type").lower()


def bound(what: str, most: int | None) -> str:
    """How many at most, if that is bounded."""
    return f", at most {most} {what}s" if most is not None else ""


# --- metrics ------------------------------------------------------------------------------------------------------


def metrics() -> str:
    """Every metric that a service can show, with labels."""
    parts = []
    for service, collectors in registries().items():
        rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
        texts = counter_texts(service)
        found = sorted({row for one in collectors for row in rows_of(one)})
        found = [(name, kind, labels, texts.get(name, text)) for name, kind, labels, text in found]
        rows += [f"| `{name}` | {kind} | {labels} | {cell(text)} |" for name, kind, labels, text in found]
        parts.append(f"## {service.capitalize()}\n\n" + "\n".join(rows) + "\n")
    text = (
        "At `/metrics` of every service, for callers with a token. `process_*` (CPU, memory, open files) are every "
        "process's. What the `scheduler_*` figures mean here is in [monitoring](../operations/monitoring.md). A "
        "histogram has `_bucket`, `_sum` and `_count`."
    )
    return page("Metrics", "the registries of the services", text, *parts)


def registries() -> dict[str, list[Any]]:
    """The collectors of each service, as its composition root registers them."""
    from lab.serve.shell import LearnerShell
    from services.agent.shell import AgentShell
    from services.autoscaler.admin import ScalerAdmin
    from services.binder.admin import BinderAdmin
    from services.coordinator.http.peer_routes import Admin as CoordinatorAdmin
    from services.coordinator.inspect.metrics import SchedulerMetrics
    from services.jobs.admin import JobsAdmin
    from services.rebalancer.admin import RebalancerAdmin
    from shared.adapters.kube.signs import WatchSigns
    from shared.agent.core import AgentCore
    from shared.policy.registry import make_policy
    from shared.runtime.kube.watches import Watches
    from shared.runtime.observe.metrics import Metrics
    from shared.runtime.process.etcd_upkeep import EtcdUpkeep
    from shared.runtime.process.runtime import register_watches

    services = ("coordinator", "agent", "binder", "learner", "jobs", "autoscaler", "rebalancer")
    made = {name: Metrics(name) for name in services}
    CoordinatorAdmin("c").register(made["coordinator"])
    SchedulerMetrics(made["coordinator"], profile="conclave", core=lambda: None)
    core = AgentCore(make_policy("kube-default"), np.random.default_rng(0))

    async def no_term() -> int:
        return 0

    AgentShell(core, made["agent"], agent_id="a", read_term=no_term)
    BinderAdmin("b", "0").register(made["binder"])
    JobsAdmin("j").register(made["jobs"])
    ScalerAdmin("s").register(made["autoscaler"])
    RebalancerAdmin("r").register(made["rebalancer"])
    unused: Any = None
    for name in ("coordinator", "binder", "jobs", "autoscaler", "rebalancer"):
        register_watches(made[name], WatchSigns(), lambda: 0.0)
        EtcdUpkeep(unused).register(made[name])
    for name in ("coordinator", "binder"):
        Watches(unused).register(made[name])
    anything: Any = SimpleNamespace(replay=SimpleNamespace(added=0), outcomes={"published": 0})
    names = typing.get_type_hints(LearnerShell.__init__)
    given = {name: made["learner"] if name == "metrics" else anything for name in names if name != "return"}
    make_learner: Any = LearnerShell
    make_learner(**given)
    return {
        name: [one for one in registry_of(metrics) if not isinstance(one, ProcessCollector)]
        for name, metrics in made.items()
    }


def counter_texts(service: str) -> dict[str, str]:
    """What the counters of a term mean: the docstrings of their fields."""
    from services.binder.core.state import BinderStats
    from services.coordinator.core.counters import Stats as CoordinatorStats

    match service:
        case "coordinator":
            fields, name = described(CoordinatorStats), "conclave_coordinator_{}_total"
        case "binder":
            fields, name = described(BinderStats), "conclave_binder_{}"
        case _:
            return {}
    return {name.format(leaf.dotted): plain(text) for leaf, text in fields if text}


def registry_of(metrics: Any) -> list[Any]:
    """The collectors of one registry, in order of registration."""
    return list(metrics.registry._collector_to_names)  # noqa: SLF001  prometheus_client gives no other way to list them


def rows_of(collector: Any) -> Iterator[tuple[str, str, str, str]]:
    """(name, type, labels, meaning) of what a collector shows."""
    families: list[Metric] = list(
        collector.describe() if isinstance(collector, MetricWrapperBase) else collector.collect()
    )
    for family in families:
        labels = collector._labelnames if isinstance(collector, MetricWrapperBase) else family._labelnames  # type: ignore[attr-defined]  # noqa: SLF001
        name = family.name + ("_total" if family.type == "counter" else "")
        yield name, family.type, ", ".join(f"`{label}`" for label in labels or ()), family.documentation


# --- messages and records -----------------------------------------------------------------------------------------


def messages() -> str:
    """Every message on the wire and what it is made of, in the order of its fields."""
    from shared.wire import messages as wire
    from shared.wire import residents

    kinds = {kind: number for number, kind in wire.KINDS.items()}
    order = [*wire.KINDS.values(), *parts_of(wire, set(kinds)), *parts_of(residents, set())]
    parts = [struct_section(kind, f"kind {kinds[kind]}" if kind in kinds else "part") for kind in order]
    text = plain(wire.__doc__) + f"\nMajor version: {wire.VERSION}."
    return page("Messages between services", "`shared/wire/messages.py` and `inventory.py`", text, *parts)


def parts_of(module: Any, but: set[type]) -> list[type]:
    """The structs of a module in the order they are written, without some."""
    found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, msgspec.Struct)]
    own = [kind for kind in found if kind.__module__ == module.__name__ and kind not in but]
    return [kind for kind in own if msgspec.structs.fields(kind)]


def struct_section(kind: type, what: str) -> str:
    """One struct as a table."""
    rows = ["| field | value | default |", "|---|---|---|"]
    for field in msgspec.structs.fields(kind):
        default = "required" if field.required else f"`{default_of(field)}`"
        rows.append(f"| `{field.encode_name}` | {cell(type_text(field.type))} | {cell(default)} |")
    about = plain(" ".join((kind.__doc__ or "").split("\n\n", 1)[0].split()))
    more = plain("\n\n".join((kind.__doc__ or "").split("\n\n")[1:]))
    more = "\n".join(line.strip() for line in more.splitlines()).strip()
    about, more = fill(about), "\n\n".join(fill(" ".join(part.split())) for part in more.split("\n\n"))
    texts = [f"## {kind.__name__} ({what})", about, more, "\n".join(rows)]
    return "\n\n".join(text for text in texts if text) + "\n"


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """A default as text."""
    if field.default is not msgspec.NODEFAULT:
        return value_text(field.default) if field.default != "" else '""'
    return re.sub(r"^<.*>$", "", str(field.default_factory())) if callable(field.default_factory) else ""


def etcd_keys() -> str:
    """Every key, and the JSON records under them."""
    from shared.wire import keys, records

    layout = keys.__doc__.split("::\n\n", 1)[1]
    rows = ["| key under the prefix | what is kept there |", "|---|---|"]
    for line in layout.strip().splitlines():
        name, _, text = line.strip().partition("  ")
        rows.append(f"| `{name}` | {cell(plain(text))} |")
    parts = ["\n".join(rows) + "\n", *(struct_section(kind, "record") for kind in parts_of(records, set()))]
    text = (
        f"Everything lies under the prefix (`--etcd-prefix`, default `{keys.DEFAULT_PREFIX}`). Records are JSON, to be "
        "read with `etcdctl get --prefix /conclave/v1/`; unknown fields are ignored, so versions can be mixed."
    )
    return page("Keys in etcd", "`shared/wire/keys.py` and `records.py`", text, *parts)


# --- the admin API ------------------------------------------------------------------------------------------------


def rest() -> str:
    """Every route of the admin API, from its own OpenAPI document."""
    from docs.reference.rest import sections
    from services.coordinator.http.table import ROUTES
    from shared.runtime.http import openapi

    text = (
        "On the coordinator's admin listener (`--admin-listen`), for callers with a token or a certificate of the "
        "role or a higher one: viewer, operator, admin. A standby hands the request to the leader. Every answer has "
        "`X-Request-Id`. Any route may refuse with 400 `invalid_request`, 401 `unauthenticated`, 403 `forbidden`, "
        "429 `overloaded` and 503; one with a body also with 408, 413 and 415; see [ErrorAnswer](#erroranswer). "
        "`GET /v1/openapi.json` is the same for programs."
    )
    return page("Admin API", "the API's OpenAPI document", text, *sections(openapi.document(ROUTES, version="")))


def refusals() -> str:
    """Every code that a listener refuses with."""
    from shared.runtime.http.refusals import CODES

    rows = ["| status | code | meaning | what to do |", "|---|---|---|---|"]
    rows += [
        f"| {row.status} | `{row.code}` | {cell(row.meaning)} | {cell(row.remedy)} |"
        for row in sorted(CODES.values(), key=lambda row: row.status)
    ]
    text = (
        'Every refusal of the admin API and of the listeners between services is `{"code": ..., "message": ...}`; '
        "codes never change, messages may. 4xx: it had no effect. 503: see the row. 429 and 503 say with "
        "`Retry-After` when to come again."
    )
    return page("Refusals", "`shared/runtime/http/refusals.py`", text, "\n".join(rows))


if __name__ == "__main__":
    raise SystemExit(main())
