"""The weights that come with the package, beside this file: one of each learned policy for service graphs."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from shared.errors import ConfigError
from shared.policy.weights import WeightsFile, decode

DATA = Path(__file__).parent


@lru_cache(maxsize=8)
def shipped_weights(policy: str) -> WeightsFile:
    """Those of a policy. Raises ``ConfigError`` where there are none."""
    file = DATA / f"{policy}.npz"
    if not file.is_file():
        raise ConfigError(f"weights of {policy}: none are shipped; train them with conclave train {policy}")
    return decode(file.read_bytes(), policy=policy)
