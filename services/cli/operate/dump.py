"""``conclave dump``: one file for support: versions, settings, members, queue, open plans, decisions, last log lines.

It is written as it comes, whole or not at all, for this user alone: it names pods, nodes and namespaces. Tokens and
pods' environments are not in it (the server leaves them out).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import gzip
import json
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
@click.option("--check", is_flag=True, help="Let the leader look whether its own invariants hold; 1 where not.")
@server_options
def dump(out: Path | None, *, check: bool, **server: Any) -> int:
    """Write one JSON document for support to --out (default: conclave-dump-TIME.json.gz here). Needs the role admin.

    With --check the leader also looks whether what must hold in its memory does: what is broken is said line by line,
    and the exit code is 1.
    """
    broken: list[str] | None = [] if check else None
    now = dt.datetime.now(dt.UTC)
    file = out or Path(f"conclave-dump-{now:%Y%m%dT%H%M%SZ}.json.gz")
    if str(file) == STDOUT:
        with_server(server, lambda client: _write(client, sys.stdout.buffer, broken))
        sys.stdout.buffer.flush()
        return _verdict(broken)
    check_writable("--out", file)
    with _packed(file) as sink:
        count = with_server(server, lambda client: _write(client, sink, broken))
    click.echo(f"{file}: {size(count)} of JSON, {size(file.stat().st_size)} on disk")
    return _verdict(broken)


def _verdict(broken: list[str] | None) -> int:
    """The exit code; what is broken goes to stderr, as the document may go to stdout."""
    if broken is None:
        return 0
    for line in broken:
        click.echo(f"broken: {line}", err=True)
    click.echo(f"check: {len(broken)} invariants are broken" if broken else "check: every invariant holds", err=True)
    return 1 if broken else 0


async def _write(client: AdminClient, sink: IO[bytes], broken: list[str] | None) -> int:
    """The bytes written. ``broken``: takes what the leader says of itself. ``ServerFailed``: the answer broke off, or
    is no whole document."""
    count, tail, kept = 0, b"", bytearray()
    async with client.stream("/v1/dump", check="true" if broken is not None else "") as body:
        async for part in body.iter_any():
            count += len(part)
            if count > MOST_BYTES:
                raise ServerFailed(f"{client.url}/v1/dump: over {size(MOST_BYTES)}; is this a coordinator?")
            sink.write(part)
            if broken is not None:
                kept += part
            tail = (tail + part)[-64:]
            if sys.stderr.isatty():
                click.echo(f"\rdump: {size(count)} ", err=True, nl=False)
    if sys.stderr.isatty():
        click.echo("\r", err=True, nl=False)
    if not tail.rstrip().endswith(b"}"):
        raise ServerFailed(f"{client.url}/v1/dump: the document breaks off after {size(count)}; ask again")
    if broken is not None:
        told = json.loads(kept).get("check")
        if not isinstance(told, list):
            raise ServerFailed(f"{client.url}/v1/dump: the leader did not check itself ({told}); is it an older one?")
        broken += told
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
