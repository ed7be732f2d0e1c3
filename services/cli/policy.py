"""``conclave policy list|show|activate|rollback``: which policy decides, and changing that by hand.

A change is one compare-and-swap of the pointer in etcd; agents follow it by themselves. Whatever is activated is
compared with what decided before for as long as it is in the canary, and goes again by itself when it is worse
(docs/policies/rollout.md). It refuses weights that the policy would refuse, before anything is written. Where a server
is named the leading coordinator is asked to do it, by the same rules; weights from a file need etcd.
"""

from __future__ import annotations

import asyncio
import getpass
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from services.cli.etcd_options import etcd_options, settings_of, with_store
from services.cli.listing.options import list_options
from services.cli.listing.wanted import Found, Wanted
from services.cli.operate.completion_names import complete_policies
from services.cli.policy_view import POLICIES, history_lines, listing, pointer_json, pointer_lines
from services.cli.server.choice import chosen_server, etcd_part
from services.cli.server.options import server_options
from services.cli.watching import output_option, tell
from shared.errors import ConfigError

if TYPE_CHECKING:
    from shared.ports import Store
    from shared.wire.keys import Keys
    from shared.wire.records import PolicyPointer, PolicyRef


@click.group()
def policy() -> None:
    """Show which policy decides, activate another one, or roll back."""


@policy.command("list")
@list_options(POLICIES)
@etcd_options
@click.pass_context
def list_policies(here: click.Context, /, wanted: Wanted, **options: Any) -> None:
    """List the policies there are: built in, shipped with weights, and published in ETCD."""
    target = chosen_server(here)
    if target is not None:
        from services.cli.operate import policies

        click.echo("\n".join(wanted.text(Found(policies.listed(target)))))
        return

    async def work(store: Store, keys: Keys) -> list[dict[str, Any]]:
        from shared.runtime.policy_store import read_history, read_pointer

        return listing((await read_pointer(store, keys)).pointer, await read_history(store, keys))

    rows = asyncio.run(with_store(settings_of(**etcd_part(options)), work))
    click.echo("\n".join(wanted.text(Found(rows))))


@policy.command()
@click.argument("name", required=False, shell_complete=complete_policies)
@server_options
@etcd_options
@output_option
@click.pass_context
def show(here: click.Context, /, name: str | None, output: str, **options: Any) -> None:
    """Show the pointer and its latest changes; with NAME (NAME@VERSION or a digest) the card of those weights."""
    target = chosen_server(here)
    if target is not None:
        from services.cli.operate import policies

        if name is not None:
            raise ConfigError("policy show: a card is read from etcd; give --etcd, or leave NAME out")
        tell(output, *policies.shown(target))
        return

    async def work(store: Store, keys: Keys) -> tuple[dict[str, Any], list[str]]:
        from shared.runtime.policy_changes import at_hand, card_of, find
        from shared.runtime.policy_store import read_history, read_pointer

        stored, history = await read_pointer(store, keys), await read_history(store, keys)
        if name is None:
            return pointer_json(stored.pointer, history), [*pointer_lines(stored.pointer), *history_lines(history)]
        card = await card_of(store, keys, find(name, stored.pointer, history) or at_hand(name))
        return card, [f"{key:<10}{json.dumps(value)}" for key, value in card.items()]

    found, lines = asyncio.run(with_store(settings_of(**etcd_part(options)), work))
    tell(output, found, lines)


@policy.command()
@click.argument("name", shell_complete=complete_policies)
@click.option("--weights", type=click.Path(path_type=Path), help="Weights file (.npz); default: published or shipped.")
@click.option(
    "--stage",
    type=click.Choice(["shadow", "canary", "active"]),
    default="canary",
    show_default=True,
    help="shadow: decides, does not count; canary: decides for --percent of the pods; active: at once, not compared.",
)
@click.option("--percent", type=click.IntRange(1, 100), help="Share of pods in the canary; default 100.")
@click.option("--reason", default="", help="For the history.")
@click.option("--new-mesh", is_flag=True, help="Prepare a mesh that has never run under --etcd-prefix.")
@server_options
@etcd_options
@output_option
@click.pass_context
def activate(
    here: click.Context,
    /,
    name: str,
    weights: Path | None,
    stage: str,
    percent: int | None,
    reason: str,
    new_mesh: bool,
    output: str,
    **options: Any,
) -> None:
    """Let the policy NAME (NAME, NAME@VERSION or a digest) decide; by default for every pod, compared for a while."""
    if percent is not None and stage != "canary":
        raise ConfigError(f"--percent: belongs to --stage canary; leave it out with {stage}")
    target = chosen_server(here)
    if target is not None:
        from services.cli.operate import policies

        if weights is not None:
            raise ConfigError("--weights: a file goes into etcd; give --etcd, or activate what is published or shipped")
        if new_mesh:
            raise ConfigError("--new-mesh: a server's mesh runs already; give --etcd, or leave --new-mesh out")
        tell(output, *policies.activated(target, name, stage, percent, reason))
        return

    async def work(store: Store, keys: Keys) -> PolicyPointer:
        from shared.policy.rollout import Stage
        from shared.runtime.policy_changes import activate, mesh_known

        given = _from_file(name, weights) if weights is not None else None
        if not new_mesh and not await mesh_known(store, keys):
            raise ConfigError(
                f"--etcd-prefix: no mesh has ever been under {keys.prefix} of this etcd; mend --etcd-prefix or --etcd, "
                "or give --new-mesh to prepare one before it starts"
            )
        return await activate(
            store, keys, name, stage=Stage(stage), percent=percent, by=_me(), reason=reason, weights=given,
            new_mesh=new_mesh, say=_say,
        )  # fmt: skip

    _show_changed(output, asyncio.run(with_store(settings_of(**etcd_part(options)), work)))


@policy.command()
@click.option("--reason", default="rolled back by hand", help="For the history.")
@server_options
@etcd_options
@output_option
@click.pass_context
def rollback(here: click.Context, /, reason: str, output: str, **options: Any) -> None:
    """Withdraw the candidate; where there is none, let the policy before the active one decide again."""
    if not reason.strip():
        raise ConfigError("--reason: is empty; say why, or leave it out")
    target = chosen_server(here)
    if target is not None:
        from services.cli.operate import policies

        tell(output, *policies.rolled_back(target, reason))
        return

    async def work(store: Store, keys: Keys) -> PolicyPointer:
        from shared.runtime.policy_changes import withdraw

        return await withdraw(store, keys, by=_me(), reason=reason)

    _show_changed(output, asyncio.run(with_store(settings_of(**etcd_part(options)), work)))


def _from_file(name: str, file: Path) -> tuple[PolicyRef, bytes]:
    from shared.runtime.policy_changes import from_bytes

    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"--weights: {file}: {error.strerror}; give a weights file that can be read") from None
    return from_bytes(name, data, source=str(file))


def _say(line: str) -> None:
    click.echo(line, err=True)


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"


def _show_changed(output: str, pointer: PolicyPointer) -> None:
    tell(output, pointer_json(pointer, []), pointer_lines(pointer))
