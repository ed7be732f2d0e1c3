"""The context ``local`` of a mesh that ``conclave up`` runs: a file in its state folder, with all its coordinators.

Any of them answers, a standby by asking the leader, so the file stays true while they come and go. It touches nobody's
own contexts: whoever wants this mesh names the file (``CONCLAVE_CONTEXTS``).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from services.cli.server.contexts import CONTEXTS_ENV, LOCAL, ContextEntry, Contexts, write_contexts

FILE = "contexts.toml"


def write_local(folder: Path, admin_ports: Sequence[int], token_file: Path) -> Path:
    """The file, written, for admin APIs on loopback. ``ConfigError``: the folder cannot be written to."""
    servers = ",".join(f"http://127.0.0.1:{port}" for port in admin_ports)
    file = folder / FILE
    write_contexts(file, Contexts(LOCAL, {LOCAL: ContextEntry(server=servers, token_file=str(token_file))}))
    return file


def how_to_use(file: Path) -> str:
    """The command that makes this mesh the one that a shell operates."""
    return f"export {CONTEXTS_ENV}={shlex.quote(str(file))}"
