"""Files named on the command line of ``evaluate`` and ``demo``, checked before anything runs: traces and weights."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shared.errors import ConfigError

if TYPE_CHECKING:
    from shared.policy.weights import WeightsFile

MOST_OF_A_TRACE = 1 << 30
"""Unpacked. A trace of a million pods has some 100 MB; a file that unpacks to more than this is no trace."""


def read_trace(flag: str, file: Path, remedy: str) -> str:
    """The text. ``ConfigError``: it cannot be read, is no whole gzip file, or no UTF-8. ``remedy``: what to give."""
    try:
        data = file.read_bytes()
        if file.suffix == ".gz":
            with gzip.open(file) as packed:
                data = packed.read(MOST_OF_A_TRACE + 1)
    except gzip.BadGzipFile as error:
        raise ConfigError(f"{flag}: {file}: {error}; pack it again, or give the .csv") from None
    except (EOFError, zlib.error) as error:
        raise ConfigError(f"{flag}: {file}: the gzip file is cut or damaged ({error}); fetch it again") from None
    except OSError as error:
        raise ConfigError(f"{flag}: {file}: {error.strerror}; {remedy}") from None
    if len(data) > MOST_OF_A_TRACE:
        raise ConfigError(f"{flag}: {file}: unpacks to more than {MOST_OF_A_TRACE} bytes; {remedy}")
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


def read_weights(files: Sequence[Path]) -> dict[str, WeightsFile]:
    """The weights by the policy that each file's card names. ``ConfigError``: unreadable, not ours, or two of one."""
    from shared.policy.weights import MAX_BYTES, decode, policy_of

    found: dict[str, WeightsFile] = {}
    for file in files:
        try:
            with file.open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"--weights: {file}: {error.strerror}; give a weights file that can be read") from None
        policy = policy_of(data, str(file)) if len(data) <= MAX_BYTES else str(file)
        if policy in found:
            raise ConfigError(f"--weights: {file} and another are of {policy} both; give one of them")
        found[policy] = decode(data, policy=policy)
    return found
