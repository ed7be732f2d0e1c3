"""A listener and a peer client on loopback, and the identities that tests give them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import trustme

from shared.adapters.peers.client import PeerClient
from shared.adapters.peers.credentials import TokenFile
from shared.runtime.http.callers import Caller
from shared.runtime.http.listener import Listener, listen
from shared.runtime.http.peers import PeerRoute, build_app
from shared.runtime.observe.metrics import Metrics

TOKEN = "t" * 32


def token_file(tmp_path: Path, text: str = TOKEN) -> TokenFile:
    file = tmp_path / "token"
    file.write_text(text + "\n")
    return TokenFile(file)


async def echo(body: bytes, caller: Caller) -> bytes:
    return body + caller.role.encode()


@contextlib.asynccontextmanager
async def serving(*routes: PeerRoute, metrics: Metrics | None = None, **options: Any) -> AsyncIterator[Listener]:
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
        self.folder, self.ca = folder, trustme.CA()
        self.ca.cert_pem.write_to_path(str(folder / "ca.pem"))

    def files(self, common_name: str, ca: trustme.CA | None = None) -> dict[str, Path]:
        issued = (ca or self.ca).issue_cert("127.0.0.1", "localhost", common_name=common_name)
        cert, key = self.folder / f"{common_name}.pem", self.folder / f"{common_name}.key"
        cert.unlink(missing_ok=True)
        for blob in issued.cert_chain_pems:
            blob.write_to_path(str(cert), append=True)
        issued.private_key_pem.write_to_path(str(key))
        return {"ca_file": self.folder / "ca.pem", "cert_file": cert, "key_file": key}
