"""Reads the bytes or the text of a file that a flag names; what is wrong with it is a line that names the flag.

Apart from ``files.py``: the learner reads a capture, and has nothing of what service graphs are read with.
"""

from __future__ import annotations

from pathlib import Path

from shared.errors import ConfigError


def read_text(flag: str, file: Path, most: int, remedy: str) -> str:
    """The file's text. ``ConfigError``: it cannot be read, has more than ``most`` bytes, or is no text."""
    try:
        return read_bytes(flag, file, most, remedy).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{flag}: {file}: not UTF-8 text; {remedy}") from None


def read_bytes(flag: str, file: Path, most: int, remedy: str) -> bytes:
    """The file's bytes. ``ConfigError``: it cannot be read, or has more than ``most``."""
    try:
        with file.open("rb") as opened:
            data = opened.read(most + 1)
    except OSError as error:
        raise ConfigError(f"{flag}: {file}: {error.strerror}; {remedy}") from None
    if len(data) > most:
        raise ConfigError(f"{flag}: {file}: more than {most} bytes; {remedy}")
    return data
