"""Checkpoints of a training run: written whole or not at all, and refused by a run they do not belong to.

One file holds everything a run needs to go on exactly (networks, optimiser, replay, generators, counters), as plain
containers, numbers, torch tensors and numpy arrays. It is read with ``weights_only``: a checkpoint cannot run code.
A crash while writing leaves the previous checkpoint in place.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shared.errors import ConfigError

SCHEMA = 1
ARRAY = "__ndarray__"


def settings_digest(settings: Mapping[str, Any]) -> str:
    """sha256 of a run's settings (JSON values only): a checkpoint continues the run it came from and no other."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def save_checkpoint(path: Path, state: Mapping[str, Any], *, digest: str) -> None:
    """Replace ``path`` by ``state``, durably and at once. ``OSError``: it could not be written, the old one stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # in memory first: of a file that cannot be written torch says only at which byte its archive went wrong
    data = io.BytesIO()
    torch.save({"schema": SCHEMA, "digest": digest, "state": _to_tensors(state)}, data)
    partial = path.with_suffix(path.suffix + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(data.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load_checkpoint(path: Path, *, digest: str) -> dict[str, Any]:
    """The state saved at ``path``. Raises ``ConfigError`` when unreadable, of another schema or another run."""
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        schema, found, state = saved["schema"], saved["digest"], saved["state"]
    except FileNotFoundError:
        raise ConfigError(f"checkpoint: {path} does not exist; leave out --resume to start from scratch") from None
    except Exception as error:
        raise ConfigError(f"checkpoint: {path} is not readable ({type(error).__name__}); remove it") from error
    if schema != SCHEMA:
        raise ConfigError(f"checkpoint: {path} has schema {schema}, this version reads {SCHEMA}; start from scratch")
    if found != digest:
        raise ConfigError(f"checkpoint: {path} is of a run with other settings; give those, or another --out")
    restored: dict[str, Any] = _to_arrays(state)
    return restored


def _to_tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {ARRAY: torch.from_numpy(np.ascontiguousarray(value))}
    if isinstance(value, Mapping):
        return {key: _to_tensors(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_tensors(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _to_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {ARRAY}:
            return value[ARRAY].numpy()
        return {key: _to_arrays(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_arrays(item) for item in value]
    return value
