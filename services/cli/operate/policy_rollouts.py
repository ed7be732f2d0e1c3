"""What ``conclave policy --for DOMAIN`` asks and prints of a policy that is tried beside the settings'.

The leading coordinator is asked; it writes one record in etcd, which the domain's service follows. That takes a
candidate back by itself as soon as it falls short of its teacher (``shared/decide/judging.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from services.cli.server.options import with_server
from services.cli.server.watching import tell
from services.cli.terminal.tables import printable
from shared.decide.domain import Domain
from shared.decide.judging import MOST_WORSE, WINDOW_S
from shared.decide.registry import PolicyRegistry

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

Json = Mapping[str, Any]


def route_of(domain: Domain) -> str:
    """Where the domain's policy is shown and changed."""
    return f"/v1/{domain.name}/policy"


def show_rollout(domain: Domain, output: str, server: dict[str, Any]) -> None:
    """Print the policy of the settings, the candidate, its stage, and how it does."""

    async def look(client: AdminClient) -> Json:
        return await client.get(route_of(domain))

    found = with_server(server, look)
    tell(output, found, lines_of(domain, found))


def change_rollout(domain: Domain, method: str, verb: str, body: Json, output: str, server: dict[str, Any]) -> None:
    """Change it, and print what it became."""

    async def change(client: AdminClient) -> Json:
        return await client.change(method, f"{route_of(domain)}{verb}", dict(body))

    found = with_server(server, change)
    tell(output, found, lines_of(domain, found))


def rows_of(policies: PolicyRegistry, found: Json) -> list[dict[str, Any]]:
    """The domain's policies as ``policy list`` shows them."""
    on = found.get("stage", "none") != "none"
    rows = []
    for name in sorted(policies):
        role = "settings" if name == found.get("policy") else ""
        role = str(found.get("stage")) if on and name == found.get("candidate") else role
        percent = found.get("percent") if role == "canary" else None
        rows.append({"name": name, "role": role, "percent": percent, "from": "built in"})
    return rows


def lines_of(domain: Domain, found: Json) -> list[str]:
    """For people."""
    settings = printable(str(found.get("policy") or f"(no {domain.service.removeprefix('the ')} leads)"))
    lines = [f"settings    {settings}"]
    if not found.get("candidate"):
        return [*lines, f"candidate   none; 'conclave policy try NAME --for {domain.name}' tries one in shadow"]
    stage, name = found.get("stage", ""), printable(str(found["candidate"]))
    share = f" ({found.get('percent')} % of the {domain.subjects})" if stage == "canary" else ""
    told = "none: it was taken back" if stage == "none" else f"{stage}{share}"
    lines += [f"candidate   {name}", f"stage       {told}"]
    if found.get("since"):
        forced = ", forced: without the good windows asked for" if found.get("forced") else ""
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
