"""Weights files named on the command line, checked before anything runs by what will read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shared.errors import ConfigError
from shared.policy.weights import MAX_BYTES, WeightsFile, decode, policy_of


def read_weights(files: Sequence[Path]) -> dict[str, WeightsFile]:
    """The weights by the policy that each file's card names. ``ConfigError``: unreadable, not ours, or two of one."""
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
