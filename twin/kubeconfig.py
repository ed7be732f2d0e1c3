"""The kubeconfig of a running twin, written so that no reader ever sees half of it."""

from __future__ import annotations

import base64
import os
import tempfile
from pathlib import Path

import yaml


def kubeconfig_text(url: str, token: str, certificate: bytes = b"") -> str:
    """One cluster, one user, one context, all called ``conclave-twin``; ``certificate`` (PEM) is what to trust."""
    name = "conclave-twin"
    cluster = {"server": url}
    if certificate:
        cluster["certificate-authority-data"] = base64.b64encode(certificate).decode()
    user = {"token": token} if token else {}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    text: str = yaml.safe_dump(document, sort_keys=False)
    return text


def write_atomically(path: Path, text: str) -> None:
    """Replace ``path`` in one step, readable by its owner alone (it holds a token). ``OSError`` when that fails."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
