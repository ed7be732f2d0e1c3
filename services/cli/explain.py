"""``conclave explain``: why a pod goes where it goes, or nowhere.

With ``--batch`` it answers questions about clusters given as JSON, offline, and reads nothing else. The rules live in
``shared.scheduling``; this file opens files and names what is wrong with them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from shared.errors import ConfigError

STDIO = "-"


@click.command()
@click.option(
    "--batch",
    type=click.Path(path_type=Path, allow_dash=True),
    required=True,
    help="One JSON object per line: id, and input with nodes, pods, pod and the objects they refer to; - for stdin.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    default=STDIO,
    help="Where to write one JSON line per question; - for stdout. A file appears only when all are answered.",
)
def explain(batch: Path, output: Path) -> None:
    """Say for each question which nodes take the pod, why the others do not, the scores, and what preemption does."""
    from services.cli.explain_batch import answers

    if str(batch) == STDIO:
        _write(answers(sys.stdin.buffer), output)
        return
    try:
        lines = batch.open("rb")
    except OSError as error:
        raise ConfigError(f"{batch}: {error.strerror}; give a file with one question per line") from None
    with lines:
        _write(answers(lines), output)


def _write(found: Iterable[dict[str, Any]], output: Path) -> None:
    if str(output) == STDIO:
        for one in found:
            click.echo(json.dumps(one))
        return
    partial = output.with_name(f"{output.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as lines:
            lines.writelines(f"{json.dumps(one)}\n" for one in found)
        partial.replace(output)
    except OSError as error:
        raise ConfigError(f"{output}: {error.strerror}; name a file that can be written") from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
