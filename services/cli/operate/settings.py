"""``conclave settings`` and ``log-level``: what can change while the mesh runs: read it, change it, take it back.

Changes are all or nothing and hold for every coordinator, this leader's and the next one's; ``log-level`` alone is the
leader's own, until it ends. The server checks values; the names and types of the settings are asked of it first, so
that a misspelt name is answered with the nearest one.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from services.cli.listing.kinds import Json, ListKind, number, text
from services.cli.listing.options import list_options, show_list
from services.cli.listing.wanted import DOCUMENTS, FoundItems, ListQuery
from services.cli.operate.scheduling import note_if_late, reason_option
from services.cli.server.completion_names import complete_changes, complete_settings
from services.cli.server.options import connector, server_options, with_server
from services.cli.server.watching import output_option, tell
from shared.errors import ConfigError

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

number_option = click.option(
    "--if-number", type=click.IntRange(min=0), help="Only if the settings still have this number (see history)."
)


def _range(item: Json) -> str:
    """What the setting may be, in words."""
    if item.get("choices"):
        return f"one of {', '.join(map(str, item['choices']))}"
    low, high = item.get("minimum"), item.get("maximum")
    if low is not None and item.get("above"):
        return f"more than {low}" + (f", at most {high}" if high is not None else "")
    if low is not None and high is not None:
        return f"{low} to {high}"
    if low is not None:
        return f"{low} or more"
    return f"{high} or less" if high is not None else "a value of that type"


SETTINGS = ListKind(
    title="Setting",
    resource="setting",
    columns=(
        text("NAME", "name"),
        number("VALUE", "value"),
        number("DEFAULT", "default"),
        text("FROM", "source"),
        text("MAY-BE", lambda item: _range(item).removeprefix("one of ")),
        text("MEANS", "help", wide=True),
    ),
)

SETTINGS_CHANGES = ListKind(
    title="SettingsChange",
    resource="settingschange",
    name=lambda change: change.get("number"),
    empty="no setting has been changed",
    columns=(
        number("NUMBER", "number"),
        text("TIME", "time"),
        text("BY", "by"),
        text("VALUES", lambda change: _values_text(change.get("values") or {}), cut=True),
        text("REASON", "reason", cut=True),
    ),
)


def _values_text(values: Json) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items()) or "all as started"


@click.group(invoke_without_command=True)
@list_options(SETTINGS)
@click.pass_context
def settings(here: click.Context, /, wanted: ListQuery, **server: Any) -> None:
    """Show the settings that can change while the mesh runs; see the commands to change them."""
    if here.invoked_subcommand is not None:
        given = [name for name in here.params if here.get_parameter_source(name) is _COMMAND_LINE]
        if given:
            raise ConfigError(f"--{given[0].replace('_', '-')}: give it after {here.invoked_subcommand}")
        return

    async def look(client: AdminClient) -> FoundItems:
        return _found(await _read(client))

    show_list(connector(server), look, wanted)


SHOWN_BY = "conclave settings -o json"
"""Which shows, under ``obeyed``, whether the leader goes by the settings."""

_COMMAND_LINE = click.core.ParameterSource.COMMANDLINE


@settings.command()
@click.argument("name", shell_complete=complete_settings)
@output_option
@server_options
def get(name: str, output: str, **server: Any) -> None:
    """Show one setting: its value, where it is from, its range, and what it means."""
    found = _named(with_server(server, _read), name)
    tell(output, SETTINGS.object(found), setting_lines(found))


@settings.command("set")
@click.argument("changes", nargs=-1, required=True, metavar="NAME=VALUE...", shell_complete=complete_changes)
@reason_option
@number_option
@output_option
@server_options
def set_settings(changes: tuple[str, ...], reason: str, if_number: int | None, output: str, **server: Any) -> None:
    """Change settings, all or none, for every coordinator from now on."""
    texts = dict(_pair(change) for change in changes)
    if len(texts) != len(changes):
        raise ConfigError("settings set: a setting is named twice; give each once")

    async def work(client: AdminClient) -> dict[str, Any]:
        known = await _read(client)
        values = {name: typed(_named(known, name), text) for name, text in texts.items()}
        return await _change(client, values, reason, if_number)

    found = with_server(server, work)
    tell(output, _document(found), changed_lines(found, texts))
    if output not in DOCUMENTS:
        note_if_late("settings set", [found], SHOWN_BY)


@settings.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_settings)
@reason_option
@number_option
@output_option
@server_options
def unset(names: tuple[str, ...], reason: str, if_number: int | None, output: str, **server: Any) -> None:
    """Let settings be again what each coordinator was started with."""

    async def work(client: AdminClient) -> dict[str, Any]:
        known = await _read(client)
        return await _change(client, {str(_named(known, name)["name"]): None for name in names}, reason, if_number)

    found = with_server(server, work)
    tell(output, _document(found), changed_lines(found, names))
    if output not in DOCUMENTS:
        note_if_late("settings unset", [found], SHOWN_BY)


@settings.command()
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="At most so many.")
@list_options(SETTINGS_CHANGES)
def history(wanted: ListQuery, **server: Any) -> None:
    """Show who changed which settings, when and why, newest first."""

    async def look(client: AdminClient) -> FoundItems:
        return FoundItems(await client.items("/v1/settings/history", most=wanted.limit))

    show_list(connector(server), look, wanted)


def _found(answer: Json) -> FoundItems:
    return FoundItems(answer.get("items") or (), {name: part for name, part in answer.items() if name != "items"})


def _document(answer: Json) -> dict[str, Any]:
    found = _found(answer)
    return SETTINGS.document(found.items, found.beside)


async def _read(client: AdminClient) -> dict[str, Any]:
    return await client.get("/v1/settings")


async def _change(client: AdminClient, values: Json, reason: str, number: int | None) -> dict[str, Any]:
    return await client.change("PATCH", "/v1/settings", {"values": values, "number": number, "reason": reason})


def _pair(change: str) -> tuple[str, str]:
    name, equals, value = change.partition("=")
    if not equals or not name:
        raise ConfigError(f"settings set: {change!r} is not NAME=VALUE, such as batch_units=128")
    return name.strip().replace("-", "_"), value.strip()


def _named(found: Json, name: str) -> dict[str, Any]:
    """The setting's item. ``ConfigError``: there is none of that name."""
    items = {str(item.get("name")): dict(item) for item in found.get("items") or ()}
    wanted = name.replace("-", "_")
    if wanted not in items:
        near = difflib.get_close_matches(wanted, items, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(items))}"
        raise ConfigError(f"settings: {name!r} cannot change while the mesh runs, or is misspelt; {hint}")
    return items[wanted]


def typed(item: Json, text: str) -> int | float | str:
    """``text`` as a value of the setting's type. ``ConfigError``: it is none. The range is the server's to check."""
    kind = str(item.get("type", "string"))
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            found = float(text)
            if not math.isfinite(found):
                raise ValueError(text)
            return found
    except ValueError:
        raise ConfigError(f"settings: {item.get('name')}: {text!r} is no {kind}; give {_range(item)}") from None
    return text


def setting_lines(item: Json) -> list[str]:
    """One setting."""
    return [
        f"{item.get('name')} = {item.get('value')}",
        f"  from     {item.get('source')}; default {item.get('default')}",
        f"  may be   {_range(item)}",
        f"  means    {item.get('help', '')}",
    ]


TAKEN_BACK = (
    "what nodes lend is taken away as each is looked at: before you stop the mesh, wait until 'conclave nodes -o wide'"
    " shows nothing lent"
)


def changed_lines(found: Json, names: Sequence[str] | Json) -> list[str]:
    """What the named settings are now, and under which number."""
    wanted = {name.replace("-", "_") for name in names}
    items = [item for item in found.get("items") or () if item.get("name") in wanted]
    lines = [f"{item.get('name')} = {item.get('value')} ({item.get('source')})" for item in items]
    if any((item.get("name"), item.get("value")) == ("lend", "off") for item in items):
        lines.append(TAKEN_BACK)
    return [*lines, f"settings are number {found.get('number')}"]


LEVELS = ("debug", "info", "warning", "error")


@click.command("log-level")
@click.argument("level", required=False, type=click.Choice(LEVELS))
@output_option
@server_options
def log_level(level: str | None, output: str, **server: Any) -> None:
    """Show the leading coordinator's log level; with LEVEL change it until that process ends."""

    async def work(client: AdminClient) -> dict[str, Any]:
        if level is None:
            return await client.get("/v1/log-level")
        return await client.change("PUT", "/v1/log-level", {"level": level})

    found = with_server(server, work)
    tell(output, found, [str(found.get("level"))])
