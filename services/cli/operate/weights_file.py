"""Weights that ``conclave policy try`` is given: a file, or the folder in which a training left one."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from shared.errors import ConfigError


def weights_of(name: str, file: Path | None) -> tuple[str, bytes] | None:
    """(policy, the weights file's bytes) where ``name`` is a file or a training's folder, or ``file`` is given beside
    the name; None: a name alone. ``ConfigError``: it cannot be read, or holds no weights."""
    path = Path(name)
    named = path.is_absolute() or len(path.parts) > 1 or name.startswith(".") or path.suffix == ".npz"
    if not named and file is None:
        return None
    from shared.policy.weights import MAX_BYTES, policy_of

    if named and file is not None:
        raise ConfigError(f"--weights: NAME is a file already, {name}; leave one of them out")
    flag, path = ("FILE", path) if file is None else ("--weights", file)
    if path.is_dir():
        found = sorted(path.glob("*.npz"))
        if len(found) != 1:
            raise ConfigError(f"{flag}: {path} holds {len(found)} weights files (.npz); name one")
        path = found[0]
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{flag}: {path}: {error.strerror}; give a weights file that can be read") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{flag}: {path}: more than {MAX_BYTES} bytes; give a weights file of 'conclave train'")
    return name if file is not None else policy_of(data, str(path)), data


def enclosed(data: bytes) -> dict[str, str]:
    """The weights as the API takes them."""
    from shared.policy.weights import digest

    return {"sha256": digest(data), "data": b64encode(data).decode()}
