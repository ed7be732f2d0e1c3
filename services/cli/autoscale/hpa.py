"""``conclave autoscale hpa``: what the HorizontalPodAutoscaler would have done, from files.

The rule lives in ``shared.autoscaling.hpa``; this file opens files and names what is wrong with them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from services.cli.terminal.output_file import check_distinct, check_writable, whole_file
from shared.errors import ConfigError

STDIO = "-"
EXIT_SOME_REFUSED = 2


@click.command()
@click.option(
    "--batch",
    required=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="One JSON object per line, id and input (hpa, steps; controller, featureGates, otherHPASelectors); "
    "- for stdin.",
)
@click.option(
    "-o", "--output", default=Path(STDIO), type=click.Path(path_type=Path, allow_dash=True),
    help="The file to write, one line per case; - for stdout.  [default: -]",
)  # fmt: skip
def hpa(batch: Path, output: Path) -> int:
    """Say what the HorizontalPodAutoscaler of Kubernetes 1.36 does, reconciliation by reconciliation. Offline.

    A case is an autoscaling/v2 object and steps: the time, the scale, the pods, and what the metrics APIs answer. Each
    answer tells the replicas, the reason, the conditions, what each metric alone asks for, and status.currentMetrics.

    A line that cannot be used is told on stderr with its number and field, and the others are answered; the exit code
    is 2 then, and 0 when every line was answered.
    """
    if str(batch) == STDIO:
        return _answer_all("stdin", sys.stdin.buffer, output)
    if str(output) != STDIO:
        check_distinct({"--output": output}, {"--batch": batch})
        check_writable("--output", output)
    try:
        lines = batch.open("rb")
    except OSError as error:
        raise ConfigError(f"--batch: {batch}: {error.strerror}; give a file with one case per line") from None
    with lines:
        return _answer_all(str(batch), lines, output)


def _answer_all(name: str, lines: Iterable[bytes], output: Path) -> int:
    from shared.autoscaling.hpa.batch import answers

    refused = 0

    def refuse(number: int, error: ConfigError) -> None:
        nonlocal refused
        refused += 1
        click.echo(" ".join(f"conclave: {name}, line {number}: {error}".split()), err=True)

    _write(answers(lines, refuse), output, click.echo)
    return EXIT_SOME_REFUSED if refused else 0


def _write(found: Iterable[dict[str, Any]], output: Path, say: Callable[[str], None]) -> None:
    if str(output) == STDIO:
        for one in found:
            say(json.dumps(one))
        return
    with whole_file("--output", output) as sink:
        sink.writelines(f"{json.dumps(one)}\n".encode() for one in found)
