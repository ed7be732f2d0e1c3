"""``conclave audit FILE``: recompute the invariants from an API server's audit file alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shared.errors import ConfigError

if TYPE_CHECKING:
    from lab.audit.log import LogEntry


def entries_of(path: Path) -> Iterator[LogEntry]:
    """All entries of a file, in order. ``ConfigError``: it cannot be read, or a line is malformed."""
    from lab.audit.log import read_entries

    try:
        with path.open("rb") as lines:
            yield from read_entries(lines, str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; give the file that --audit wrote") from None


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--scheduler-name", help="Count only this scheduler's pods as submitted, unschedulable or lost.")
@click.option(
    "--drained", "drained", multiple=True, metavar="NODE",
    help="A node that 'conclave drain' keeps pods from; may be given again. The file cannot tell.",
)  # fmt: skip
def audit(file: Path, as_json: bool, scheduler_name: str | None, drained: tuple[str, ...]) -> int:
    """Recompute pods_bound, double_bound, overcommitted_nodes, pods_unschedulable and lost from FILE alone.

    Exit code 0 when every invariant held, 1 when one did not, 2 when FILE cannot be read.
    """
    from lab.audit.audit import audit as recompute

    report = recompute(entries_of(file), scheduler_name, drained)
    figures = report.to_json()
    if as_json:
        click.echo(json.dumps(figures, indent=2))
        return 0 if report.ok else 1
    for name, value in figures.items():
        if name != "examples" and value is not None:
            click.echo(f"{name:<24} {value}")
    for example in report.examples:
        click.echo(f"  {example}")
    return 0 if report.ok else 1
