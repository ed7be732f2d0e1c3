"""Weights that an object names by their sha256 (``spec.policy.settings.weights``), from files beside the service.

The digest is the approval's: what decides is exactly what was analysed. A file is read when an object's policy is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from shared.autoscaling.observation import Policy
from shared.autoscaling.registry import make_policy
from shared.errors import ConfigError
from shared.policy.weights import MAX_BYTES, decode

FIELD = "weights"
DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")


class PolicyFiles:
    """Makes policies; ``folder`` has a file ``SHA256.npz`` for each set of weights. None: only what is shipped."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def make(self, name: str, settings: Mapping[str, object]) -> Policy:
        """A new policy. ``ConfigError``: the name, a setting, or the weights' file cannot be used."""
        named = settings.get(FIELD)
        if named is None:
            return make_policy(name, settings)
        found = DIGEST.fullmatch(named) if isinstance(named, str) else None
        if found is None:
            raise ConfigError(f"settings.{FIELD}: {str(named)[:80]!r} is no sha256; give 64 hex digits")
        if self._folder is None:
            raise ConfigError(f"settings.{FIELD}: the autoscaler has no folder of weights; set --weights-dir")
        file = self._folder / f"{found[1]}.npz"
        try:
            with file.open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)
        except OSError as error:
            raise ConfigError(
                f"settings.{FIELD}: {file}: {error.strerror}; put the file there, then write the object again"
            ) from None
        rest = {key: value for key, value in settings.items() if key != FIELD}
        return make_policy(name, rest, weights=decode(data, policy=name, sha256=found[1]))
