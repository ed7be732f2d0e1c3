"""Text of a trace's file, packed (``.csv.gz``) or not. What cannot be read is named with its place and a remedy."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from shared.errors import ConfigError

MAX_BYTES = 1 << 30
"""Unpacked. A trace of a million pods has some 100 MB; a file that unpacks to more than this is no trace."""


def read_trace(flag: str, file: Path, remedy: str) -> str:
    """The text. ``ConfigError``: it cannot be read, is no whole gzip file, or no UTF-8. ``remedy``: what to give."""
    try:
        data = file.read_bytes()
        if file.suffix == ".gz":
            with gzip.open(file) as packed:
                data = packed.read(MAX_BYTES + 1)
    except gzip.BadGzipFile as error:
        raise ConfigError(f"{flag}: {file}: {error}; pack it again, or give the .csv") from None
    except (EOFError, zlib.error) as error:
        raise ConfigError(f"{flag}: {file}: the gzip file is cut or damaged ({error}); fetch it again") from None
    except OSError as error:
        raise ConfigError(f"{flag}: {file}: {error.strerror}; {remedy}") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{flag}: {file}: unpacks to more than {MAX_BYTES} bytes; {remedy}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(f"{flag}: {file}, line {line}, column 1: not UTF-8 text; {remedy}") from None


def is_trace(file: Path) -> bool:
    """Whether the name is that of a trace's file."""
    return file.name.endswith((".csv", ".csv.gz")) and file.is_file()


def packed_or_not(file: Path) -> Path:
    """The file, or its packed form where only that is there."""
    packed = file.with_name(f"{file.name}.gz")
    return packed if not file.exists() and packed.exists() else file
