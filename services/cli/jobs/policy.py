"""``conclave jobs policy show|set|promote|back``: a policy for training jobs that is tried beside the settings'.

The leading coordinator is asked; it writes one record in etcd, which the leading jobs service follows. The jobs service
takes a candidate back by itself as soon as it falls short of its teacher (docs/jobs.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from services.cli.operate.scheduling import reason_option
from services.cli.server.options import server_options, with_server
from services.cli.server.watching import output_option, tell
from services.cli.terminal.tables import printable
from shared.jobs.online.stages import MOST_WORSE, WINDOW_S

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

Json = Mapping[str, Any]
ROUTE = "/v1/jobs/policy"


@click.group()
def policy() -> None:
    """Show which policy for training jobs is tried beside the settings', set one, promote it, take it back."""


@policy.command()
@output_option
@server_options
def show(output: str, **server: Any) -> None:
    """Show the policy of the settings, the candidate, its stage, and how it does."""

    async def look(client: AdminClient) -> Json:
        return await client.get(ROUTE)

    _tell(output, with_server(server, look))


@policy.command("set")
@click.argument("name")
@reason_option
@output_option
@server_options
def set_policy(name: str, reason: str, output: str, **server: Any) -> None:
    """Try the policy NAME: in shadow first, where it decides beside and nothing is done for it."""
    _change("PUT", ROUTE, {"name": name, "reason": reason}, output, server)


@policy.command()
@click.option(
    "--percent", type=click.IntRange(1, 99), default=10, show_default=True, help="Of the jobs, in the canary."
)
@click.option("--force", is_flag=True, help="Also where no window of this stage was good yet.")
@reason_option
@output_option
@server_options
def promote(percent: int, force: bool, reason: str, output: str, **server: Any) -> None:
    """Take the candidate a stage further: from shadow to --percent of the jobs, from there to all."""
    body = {"percent": percent, "force": force, "reason": reason}
    _change("POST", f"{ROUTE}/promote", body, output, server)


@policy.command()
@reason_option
@output_option
@server_options
def back(reason: str, output: str, **server: Any) -> None:
    """Let the policy of the settings alone decide again."""
    _change("POST", f"{ROUTE}/back", {"reason": reason}, output, server)


def _change(method: str, route: str, body: Json, output: str, server: Mapping[str, Any]) -> None:
    async def work(client: AdminClient) -> Json:
        return await client.change(method, route, dict(body))

    _tell(output, with_server(dict(server), work))


def _tell(output: str, found: Json) -> None:
    tell(output, found, lines_of(found))


def lines_of(found: Json) -> list[str]:
    """For people."""
    lines = [f"settings    {printable(str(found.get('policy') or '(no jobs service leads)'))}"]
    if not found.get("candidate"):
        return [*lines, "candidate   none; 'conclave jobs policy set NAME' tries one in shadow"]
    stage, name = found.get("stage", ""), printable(str(found["candidate"]))
    share = f" ({found.get('percent')} % of the jobs)" if stage == "canary" else ""
    told = "none: it was taken back" if stage == "none" else f"{stage}{share}"
    lines += [f"candidate   {name}", f"stage       {told}"]
    if found.get("since"):
        forced = ", forced: without a good window" if found.get("forced") else ""
        lines.append(f"since       {found['since']} by {printable(str(found.get('by', '')))}{forced}")
    if found.get("ratio"):
        window = f"over the last {WINDOW_S / 60:g} min"
        lines.append(f"worth       {found['ratio']:.3f} ± {found.get('sd', 0.0):.3f} of its teacher's {window}")
    if stage != "none":
        rule = f"goes back by itself at {MOST_WORSE:.0%} of a window's worth below its teacher"
        lines.append(f"windows     {found.get('good', 0)} good one after the other; it {rule}")
    if found.get("reason"):
        lines.append(f"why         {printable(str(found['reason']))}")
    return lines
