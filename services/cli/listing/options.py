"""The options of every command that lists something, as kubectl has them, and how its list is shown.

``list_options`` gives a command ``-n -A -l --sort-by -o --no-headers`` and the server's options, and calls it with
``wanted`` instead of the former. The mesh's own namespace is ``--mesh-namespace`` there.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from services.cli.listing.kinds import ListKind
from services.cli.listing.wanted import FoundItems, Lines, ListQuery
from services.cli.server.options import Connect, list_server_options
from services.cli.server.watching import show_lines
from shared.errors import ConfigError
from shared.kube.label_selectors import SelectorError, parse_label_selector

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

F = TypeVar("F", bound=Callable[..., Any])
NAMES = ("output", "namespace", "all_namespaces", "selector", "sort_by", "no_headers", "limit")
OUTPUTS = ("table", "wide", "json", "yaml", "name")


def list_options(kind: ListKind) -> Callable[[F], F]:
    """For a command that lists items of ``kind``. Its ``--limit``, where it has one, is in ``wanted`` too."""

    def add(command: F) -> F:
        return options_alone(kind)(list_server_options(command))

    return add


def options_alone(kind: ListKind) -> Callable[[F], F]:
    """As ``list_options``, for what asks no server, or names it by options of its own."""

    def add(command: F) -> F:
        @functools.wraps(command)
        def called(*args: Any, **given: Any) -> Any:
            told = {name: given.pop(name) for name in NAMES if name in given}
            return command(*args, wanted=_wanted(kind, told), **given)

        for option in reversed(_options(kind)):
            called = option(called)
        return called  # type: ignore[return-value]  # click's decorators keep what they are given

    return add


def _options(kind: ListKind) -> list[Callable[[Any], Any]]:
    of = "" if kind.namespace is not None else f" A {kind.title.lower()} has none: changes nothing."
    return [
        click.option(
            "-o", "--output", type=click.Choice(OUTPUTS), default="table", show_default=True,
            help="How to print it; wide has more columns.",
        ),
        click.option("-n", "--namespace", default="", help=f"Only what is in this namespace; default: all.{of}"),
        click.option("-A", "--all-namespaces", is_flag=True, help="Of all namespaces, whatever -n says."),
        click.option("-l", "--selector", default="", help="Only what has these labels: a=b,c!=d,e in (f,g),!h."),
        click.option("--sort-by", default="", metavar="BY", help="A column, or a path such as .metadata.name."),
        click.option("--no-headers", is_flag=True, help="The rows of the table alone."),
    ]  # fmt: skip


def _wanted(kind: ListKind, given: dict[str, Any]) -> ListQuery:
    """The options as one value; ``-A`` wins over ``-n``, as in kubectl. ``ConfigError``: they cannot be."""
    selector = given["selector"].strip()
    try:
        selects = parse_label_selector(selector) is not None
    except SelectorError as error:
        raise ConfigError(f"-l: {selector!r}: {error}; write it as a=b,c!=d,e in (f,g),!h") from None
    if selects and not kind.labelled:
        raise ConfigError(f"-l: the server keeps no labels of a {kind.title.lower()}; leave it out")
    return ListQuery(
        kind=kind, output=given["output"], namespace="" if given["all_namespaces"] else given["namespace"],
        selector=selector, sort_by=given["sort_by"], headers=not given["no_headers"], limit=given.get("limit", 0),
    )  # fmt: skip


def show_list(
    connect: Connect,
    look: Callable[[AdminClient], Awaitable[FoundItems]],
    wanted: ListQuery,
    *,
    watch: bool = False,
    head: Callable[[FoundItems], Lines] | None = None,
) -> None:
    """Print what ``look`` finds, once or again and again. Raises as ``with_server``."""
    live = wanted.output in ("table", "wide")
    text = functools.partial(wanted.text, head=head)
    show_lines(connect, look, wanted.line if watch and not live else text, watch=watch, live=live)
