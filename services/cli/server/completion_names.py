"""Names for the shell's completion, asked of the server within a short time: no answer means no suggestions.

Completion must never print, hang or fail: every error here ends in an empty list.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from services.cli.server.options import flags_of, opened, target_of
from shared.errors import ConclaveError

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

COMPLETION_S = 1.5
MOST = 500
"""More names than this are no help to anybody."""
WHOLE = ("/v1/settings", "/v1/policies")
"""Lists that come in one piece."""


def complete_nodes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of nodes."""
    return _names(context, "/v1/nodes", "name", incomplete)


def complete_policies(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """NAME@VERSION of policies; of another domain's, as ``--for`` says, the names."""
    tried = getattr(context.params.get("subject"), "tried", None)
    if tried is not None:
        return _fitting(tried[1], incomplete)
    found = _rows(context, "/v1/policies")
    return _fitting((f"{row.get('name')}@{row.get('version')}" for row in found), incomplete)


def complete_settings(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of settings."""
    return _names(context, "/v1/settings", "name", incomplete)


def complete_changes(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """NAME= of settings; after it the choices, where there are some."""
    rows = _rows(context, "/v1/settings")
    found = [f"{row.get('name')}=" for row in rows]
    found += [f"{row.get('name')}={choice}" for row in rows for choice in row.get("choices") or ()]
    return _fitting((text for text in found if text.endswith("=") != ("=" in incomplete)), incomplete)


def complete_queues(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of Queues."""
    return _names(context, "/v1/queues", "name", incomplete)


def complete_units(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Pod groups. With ``-n`` by name, else as NAMESPACE/NAME."""
    namespace = context.params.get("namespace")
    rows = [row for row in _rows(context, "/v1/units", namespace=namespace) if row.get("source") != "pod"]
    if namespace:
        return _fitting((str(row.get("name")) for row in rows), incomplete)
    return _fitting((f"{row.get('namespace')}/{row.get('name')}" for row in rows), incomplete)


def complete_pods(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Pods that are queued: those are the ones that are asked about. With ``-n`` by name, else as NAMESPACE/POD."""
    namespace = context.params.get("namespace")
    rows = _rows(context, "/v1/queue", namespace=namespace)
    if namespace:
        return _fitting((str(row.get("name")) for row in rows if row.get("namespace") == namespace), incomplete)
    return _fitting((f"{row.get('namespace')}/{row.get('name')}" for row in rows), incomplete)


def _names(context: click.Context, path: str, field: str, incomplete: str) -> list[str]:
    return _fitting((str(row.get(field, "")) for row in _rows(context, path)), incomplete)


def _fitting(names: Any, incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _rows(context: click.Context, path: str, **query: Any) -> list[dict[str, Any]]:
    """The rows of a list, or none."""
    try:
        return asyncio.run(_ask(context, path, query))
    except (ConclaveError, OSError, TimeoutError):
        return []


async def _ask(context: click.Context, path: str, query: dict[str, Any]) -> list[dict[str, Any]]:
    target = target_of(flags_of(**context.params), context)

    async def rows(client: AdminClient) -> list[dict[str, Any]]:
        answer = await client.get(path) if path in WHOLE else {"items": await client.items(path, most=MOST, **query)}
        return [row for row in answer.get("items") or () if isinstance(row, dict)]

    async with asyncio.timeout(COMPLETION_S), opened(target, timeout_s=COMPLETION_S) as client:
        return await rows(client)
