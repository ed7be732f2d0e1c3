"""Where a run keeps its logs, keys and private etcd: a temporary folder that goes with it, or one that is asked for.

A temporary folder stays behind only when somebody is told to look into it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.errors import ConfigError


class StateDir:
    """The folder of one run. ``wanted`` True: it stays."""

    def __init__(self, path: Path, *, wanted: bool) -> None:
        self.path = path
        self.wanted = wanted


@contextmanager
def state_dir(command: str, keep: Path | None) -> Iterator[StateDir]:
    """A folder for one run of ``command``. ``ConfigError``: ``keep`` is not empty or cannot be made."""
    folder = StateDir(_make(command, keep), wanted=keep is not None)
    try:
        yield folder
    except ConfigError as error:
        folder.wanted = folder.wanted or str(folder.path) in str(error)
        raise
    finally:
        if not folder.wanted:
            shutil.rmtree(folder.path, ignore_errors=True)


def _make(command: str, keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix=f"conclave-{command}-"))
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise ConfigError(f"--keep: {keep} is not empty; give a new folder")
    except OSError as error:
        raise ConfigError(f"--keep: {keep}: {error.strerror}; give a folder that can be made") from None
    return keep.absolute()
