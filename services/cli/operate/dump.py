"""``conclave dump``: one file for support: versions, settings, members, queue, open plans, decisions, last log lines.

It is written as it comes, whole or not at all, for this user alone: it names pods, nodes and namespaces. Tokens and
pods' environments are not in it (the server leaves them out).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from services.cli.server.errors import ServerFailed
from services.cli.server.options import server_options, with_server
from services.cli.terminal.output_file import check_writable, whole_file
from services.cli.terminal.tables import size

if TYPE_CHECKING:
    from services.cli.server.client import AdminClient

STDOUT = "-"
MOST_BYTES = 256 << 20
"""More than this is no dump: the server keeps it to some 16 MiB."""


@click.command()
@click.option("--out", type=click.Path(path_type=Path, allow_dash=True), help="File; .gz compresses; - for stdout.")
@server_options
def dump(out: Path | None, **server: Any) -> None:
    """Write one JSON document for support to --out (default: conclave-dump-TIME.json.gz here). Needs the role admin."""
    now = dt.datetime.now(dt.UTC)
    file = out or Path(f"conclave-dump-{now:%Y%m%dT%H%M%SZ}.json.gz")
    if str(file) == STDOUT:
        with_server(server, lambda client: _write(client, sys.stdout.buffer))
        sys.stdout.buffer.flush()
        return
    check_writable("--out", file)
    with _packed(file) as sink:
        count = with_server(server, lambda client: _write(client, sink))
    click.echo(f"{file}: {size(count)} of JSON, {size(file.stat().st_size)} on disk")


async def _write(client: AdminClient, sink: IO[bytes]) -> int:
    """The bytes written. ``ServerFailed``: the answer broke off, or is no whole document."""
    count, tail = 0, b""
    async with client.stream("/v1/dump") as body:
        async for part in body.iter_any():
            count += len(part)
            if count > MOST_BYTES:
                raise ServerFailed(f"{client.url}/v1/dump: over {size(MOST_BYTES)}; is this a coordinator?")
            sink.write(part)
            tail = (tail + part)[-64:]
            if sys.stderr.isatty():
                click.echo(f"\rdump: {size(count)} ", err=True, nl=False)
    if sys.stderr.isatty():
        click.echo("\r", err=True, nl=False)
    if not tail.rstrip().endswith(b"}"):
        raise ServerFailed(f"{client.url}/v1/dump: the document breaks off after {size(count)}; ask again")
    return count


@contextlib.contextmanager
def _packed(file: Path) -> Iterator[IO[bytes]]:
    """A sink whose content becomes ``file`` when the block ends well; gzipped where its name says so."""
    with whole_file("--out", file, private=True) as raw:
        if file.suffix != ".gz" or file.is_char_device():
            yield raw
            return
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
            yield packed  # type: ignore[misc]  # a GzipFile writes bytes as IO[bytes] does
