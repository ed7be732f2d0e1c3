"""A listener and a peer client on loopback, and the identities that tests give them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from shared.adapters.peers.client import PeerClient
from shared.adapters.peers.credentials import TokenFile
from shared.runtime.http.callers import Caller
from shared.runtime.http.listener import Listener, listen
from shared.runtime.http.peers import FiguresRoute, PeerRoute, build_app
from shared.runtime.observe.metrics import Metrics
from tests.certificates import TestCa

TOKEN = "t" * 32


def token_file(tmp_path: Path, text: str = TOKEN) -> TokenFile:
    file = tmp_path / "token"
    file.write_text(text + "\n")
    return TokenFile(file)


async def echo(body: bytes, caller: Caller) -> bytes:
    return body + caller.role.encode()


@contextlib.asynccontextmanager
async def serving(
    *routes: PeerRoute | FiguresRoute, metrics: Metrics | None = None, **options: Any
) -> AsyncIterator[Listener]:
    tls = options.pop("tls", None)
    app = build_app(metrics or Metrics("test"), routes=routes, **options)
    listener = await listen(app, tls=tls, drain_s=0.1)
    try:
        yield listener
    finally:
        await listener.close()


@contextlib.asynccontextmanager
async def calling(**options: Any) -> AsyncIterator[PeerClient]:
    client = PeerClient(**options)
    try:
        yield client
    finally:
        await client.close()


class Identities:
    """A CA of our own and files of certificates with a common name each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ca = folder, TestCa()
        self.ca.write(folder / "ca.pem")

    def files(self, common_name: str, ca: TestCa | None = None) -> dict[str, Path]:
        cert, key = (ca or self.ca).issue(self.folder, common_name, "127.0.0.1", "localhost")
        return {"ca_file": self.folder / "ca.pem", "cert_file": cert, "key_file": key}
