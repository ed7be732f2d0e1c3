"""A certificate for one run of the twin.

Why: kubectl sends credentials over TLS only, so a twin that kubectl can log in to must speak it. The keys live as
long as the process and are written nowhere but into a file that is deleted before this module returns.
"""

from __future__ import annotations

import datetime as dt
import os
import ssl
import tempfile
from pathlib import Path

from shared.adapters.peers.certificates import CertificateWanted, issue, make_authority, pem_of

DAYS = 30


def make_server_tls(host: str, now: dt.datetime) -> tuple[ssl.SSLContext, bytes]:
    """A server context for ``host`` and loopback, and the CA (PEM) that clients are to trust."""
    hosts = list(dict.fromkeys((host, "127.0.0.1", "::1", "localhost")))
    # a day more than what it signs: whole seconds are cut off its end
    authority = make_authority("conclave-twin", days=DAYS + 1, now=now)
    wanted = CertificateWanted("conclave-twin", tuple(hosts), server=True, client=False)
    certificate, key = issue(authority, wanted, days=DAYS, now=now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    handle, temporary = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(certificate + key)
        context.load_cert_chain(temporary)
    finally:
        Path(temporary).unlink()
    return context, pem_of(authority.certificate)
