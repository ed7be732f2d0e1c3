"""Files a command writes at its end: looked at before the work begins, and there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from shared.errors import ConfigError


def check_writable(flag: str, file: Path | None) -> None:
    """Find out before the run, not after it. What was there stays: a device such as /dev/null is no file of ours."""
    if file is None:
        return
    try:
        if file.exists() and not file.is_file() and not file.is_dir():
            return
        new = not file.exists()
        with file.open("ab"):
            pass
        if new:
            file.unlink()
    except OSError as error:
        raise ConfigError(f"{flag}: {file}: {error.strerror}; give a file that can be written") from None


def check_distinct(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Files by flag. ``ConfigError``: an output would overwrite an input, or another output."""
    taken = {file.resolve(): flag for flag, file in inputs.items() if file is not None}
    for flag, file in outputs.items():
        if file is None or (file.exists() and not file.is_file()):
            continue
        if file.resolve() in taken:
            raise ConfigError(f"{flag}: {file} is {taken[file.resolve()]}'s file too; give another one")
        taken[file.resolve()] = flag


@contextlib.contextmanager
def whole_file(flag: str, file: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """A sink whose content becomes ``file`` when the block ends well: a reader finds the old file or the new one.

    A device is written to as it is. ``private``: for this user alone. ``ConfigError``: it cannot be written.
    """
    partial = file.with_name(f"{file.name}.partial")
    try:
        if file.exists() and not file.is_file():
            with file.open("wb") as device:
                yield device
            return
        with open(partial, "wb", opener=_for_us_alone if private else None) as sink:
            yield sink
        partial.replace(file)
    except OSError as error:
        raise ConfigError(f"{flag}: {file}: {error.strerror or error}; give a file that can be written") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _for_us_alone(path: str, flags: int) -> int:
    # a file or link that is there already has another's mode, or leads elsewhere
    Path(path).unlink(missing_ok=True)
    return os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW, 0o600)


def write_whole(flag: str, file: Path, data: bytes) -> None:
    """Write ``data`` as a ``whole_file``. ``ConfigError``: it cannot be written."""
    with whole_file(flag, file) as sink:
        sink.write(data)
