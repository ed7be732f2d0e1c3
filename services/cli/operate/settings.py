"""``conclave settings``: what can change while the mesh runs: read it, change it, take it back, see who changed what.

Changes are all or nothing and hold for every coordinator, this leader's and the next one's. The server checks values;
what is known here (the names and types of the settings) is asked of it first, so that a misspelt name is answered with
the nearest one.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from services.cli.operate.completion_names import complete_changes, complete_settings
from services.cli.operate.scheduling import note_if_late, reason_option
from services.cli.server.options import server_options, with_server
from services.cli.tables import left, right, table
from services.cli.watching import output_option, wide_output_option
from shared.errors import ConfigError

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

Json = Mapping[str, Any]
number_option = click.option(
    "--if-number", type=click.IntRange(min=0), help="Only if the settings still have this number (see history)."
)


@click.group(invoke_without_command=True)
@wide_output_option
@server_options
@click.pass_context
def settings(here: click.Context, /, output: str, **server: Any) -> None:
    """Show the settings that can change while the mesh runs; see the commands to change them."""
    if here.invoked_subcommand is not None:
        given = [name for name in here.params if here.get_parameter_source(name) is _COMMAND_LINE]
        if given:
            raise ConfigError(f"--{given[0].replace('_', '-')}: give it after {here.invoked_subcommand}")
        return
    found = with_server(server, _read)
    _print(output, found, settings_lines(found, wide=output == "wide"))


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
    _print(output, found, setting_lines(found))


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

    _print(output, found := with_server(server, work), changed_lines(found, texts))
    if output != "json":
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

    _print(output, found := with_server(server, work), changed_lines(found, names))
    if output != "json":
        note_if_late("settings unset", [found], SHOWN_BY)


@settings.command()
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="At most so many.")
@output_option
@server_options
def history(limit: int, output: str, **server: Any) -> None:
    """Show who changed which settings, when and why, newest first."""

    async def work(client: AdminClient) -> list[dict[str, Any]]:
        return await client.items("/v1/settings/history", most=limit)

    _print(output, found := with_server(server, work), history_lines(found))


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
            return float(text)
    except ValueError:
        raise ConfigError(f"settings: {item.get('name')}: {text!r} is no {kind}; {_range(item)}") from None
    return text


def _range(item: Json) -> str:
    """What the setting may be, in words."""
    if item.get("choices"):
        return f"give one of {', '.join(map(str, item['choices']))}"
    low, high = item.get("minimum"), item.get("maximum")
    if low is not None and item.get("above"):
        return f"give more than {low}" + (f", at most {high}" if high is not None else "")
    if low is not None and high is not None:
        return f"give {low} to {high}"
    if low is not None:
        return f"give {low} or more"
    return f"give {high} or less" if high is not None else "give a value of that type"


def settings_lines(found: Json, *, wide: bool = False) -> list[str]:
    """A row per setting."""
    columns = [*left("NAME"), *right("VALUE", "DEFAULT"), *left("FROM", "MAY-BE")]
    columns += left("MEANS") if wide else []
    rows = [
        [
            item.get("name"),
            item.get("value"),
            item.get("default"),
            item.get("source"),
            _range(item).removeprefix("give ").removeprefix("one of "),
            *([item.get("help")] if wide else []),
        ]
        for item in found.get("items") or ()
    ]
    return table(columns, rows)


def setting_lines(item: Json) -> list[str]:
    """One setting."""
    return [
        f"{item.get('name')} = {item.get('value')}",
        f"  from     {item.get('source')}; default {item.get('default')}",
        f"  may be   {_range(item).removeprefix('give ')}",
        f"  means    {item.get('help', '')}",
    ]


def changed_lines(found: Json, names: Sequence[str] | Json) -> list[str]:
    """What the named settings are now, and under which number."""
    wanted = {name.replace("-", "_") for name in names}
    lines = [
        f"{item.get('name')} = {item.get('value')} ({item.get('source')})"
        for item in found.get("items") or ()
        if item.get("name") in wanted
    ]
    return [*lines, f"settings are number {found.get('number')}"]


def history_lines(found: Sequence[Json]) -> list[str]:
    """A row per change."""
    if not found:
        return ["no setting has been changed"]
    columns = [*right("NUMBER"), *left("TIME", "BY", "VALUES", "REASON")]
    rows = [
        [
            item.get("number"),
            item.get("time"),
            item.get("by"),
            ", ".join(f"{name}={value}" for name, value in (item.get("values") or {}).items()) or "all as started",
            item.get("reason"),
        ]
        for item in found
    ]
    return table(columns, rows)


def _print(output: str, found: Any, lines: Sequence[str]) -> None:
    click.echo(json.dumps(found, indent=2) if output == "json" else "\n".join(lines))
