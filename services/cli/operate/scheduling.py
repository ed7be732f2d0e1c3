"""``conclave pause`` and ``resume``: stop and go, for the whole mesh or for single nodes (``conclave drain``).

Paused: nothing new is offered, what is under way finishes. Drained: a node gets no new pods from Conclave; nobody is
evicted. Both are kept in etcd, so a new leader keeps to them, and doing either twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from services.cli.listing.wanted import DOCUMENTS, document_text
from services.cli.operate.nodes import NODES, drained_text
from services.cli.server.completion_names import complete_nodes
from services.cli.server.errors import ServerFailed
from services.cli.server.options import server_options, with_server
from services.cli.server.watching import output_option, tell
from services.cli.terminal.tables import printable
from shared.errors import ConfigError

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

reason_option = click.option("--reason", default="", help="Why, for the audit log and for who looks next.")


@click.command()
@reason_option
@output_option
@server_options
def pause(reason: str, output: str, **server: Any) -> None:
    """Offer nothing new until 'conclave resume'; what is under way finishes."""
    _scheduling("pause", reason, output, server)


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE]...", shell_complete=complete_nodes)
@reason_option
@output_option
@server_options
def resume(nodes: tuple[str, ...], reason: str, output: str, **server: Any) -> int:
    """Schedule again; with NODEs: let these take pods again."""
    if not nodes:
        _scheduling("resume", reason, output, server)
        return 0
    return each_node("resume", nodes, reason, output, server)


def _scheduling(verb: str, reason: str, output: str, server: dict[str, Any]) -> None:
    async def work(client: AdminClient) -> dict[str, Any]:
        return await client.change("POST", f"/v1/scheduling/{verb}", {"reason": reason})

    found = with_server(server, work)
    tell(output, found, [scheduling_line(found)])
    if output not in DOCUMENTS:
        note_if_late(verb, [found], "conclave status")


def scheduling_line(found: Mapping[str, Any]) -> str:
    """Whether it is paused, by whom, why."""
    if not found.get("paused"):
        return "scheduling is on"
    why = f": {printable(str(found['reason']))}" if found.get("reason") else ""
    return f"scheduling is paused by {printable(str(found.get('by', '')))} since {found.get('since', '')}{why}"


def note_if_late(verb: str, answers: Sequence[Mapping[str, Any]], look: str) -> None:
    """One line to stderr where the leader did not confirm what was written: how things stand, and what to do.

    ``answers``: of the changes of one command; ``look``: the command that shows whether it holds by now.
    """
    late = [answer for answer in answers if answer.get("obeyed") is False]
    if not late:
        return
    names = ", ".join(printable(str(answer["name"])) for answer in late if answer.get("name"))
    click.echo(
        f"conclave {verb}: {f'{names}: ' if names else ''}written, but the leader did not confirm it in time (etcd is "
        f"slow, or a failover): it will go by it; look with '{look}' before you rely on it",
        err=True,
    )


def each_node(verb: str, nodes: tuple[str, ...], reason: str, output: str, server: dict[str, Any]) -> int:
    """Tell the mesh about every node, whatever becomes of the others; the exit code is that of the worst."""
    if "" in nodes:
        raise ConfigError(f"{verb}: a NODE is empty; give names as 'conclave nodes' shows them")

    async def work(client: AdminClient) -> tuple[list[dict[str, Any]], int]:
        done, code = [], 0
        for name in dict.fromkeys(nodes):
            try:
                done.append(await client.change("POST", f"/v1/nodes/{quote(name, safe='')}/{verb}", {"reason": reason}))
            except (ConfigError, ServerFailed) as error:
                if len(set(nodes)) == 1:
                    raise
                click.echo(f"conclave {verb}: {printable(name)}: {error}", err=True)
                code = max(code, 2 if isinstance(error, ConfigError) else 1)
                continue
            if output not in DOCUMENTS:
                click.echo(f"{printable(name)}: {_node_line(done[-1])}")
        return done, code

    done, code = with_server(server, work)
    if output in DOCUMENTS:
        click.echo(document_text(NODES.document(done), output))
    else:
        note_if_late(verb, done, "conclave nodes")
    return code


def _node_line(node: Mapping[str, Any]) -> str:
    if node.get("drained"):
        return f"drained {drained_text(node['drained'])}"
    if node.get("gone"):
        return "forgotten: no node of that name is left, and one that is made again takes pods"
    return "takes pods" if node.get("schedulable", True) else "no longer drained; unschedulable in Kubernetes"
