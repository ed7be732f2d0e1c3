"""A mixture of policies as a person writes it, in short form or as a file, checked before anything runs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.errors import ConfigError

if TYPE_CHECKING:
    from shared.policy.registry import Definition, Mixture
    from shared.policy.weights import WeightsFile

MAX_BYTES = 1 << 20


def read_mixture(text: str, weights: Mapping[str, WeightsFile]) -> Mixture:
    """The mixture that ``text`` names: ``kube-default=0.7,frag=0.3``, or a file. ``ConfigError``: it cannot be made."""
    from shared.policy.registry import mixable, mixture_of, parse

    file = Path(text)
    definition = _definition(file) if file.suffix in (".toml", ".json") else parse(text)
    named = {*definition.policies, *(name for rule in definition.by_class for name in rule.policies)}
    if unused := sorted(set(weights) - named):
        raise ConfigError(f"--weights: {unused[0]} is no member of the mixture; leave the file out, or name the policy")
    return mixture_of(definition, mixable(weights))


def _definition(file: Path) -> Definition:
    from shared.policy.registry import read_definition

    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; give a definition that can be read") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{file}: more than {MAX_BYTES} bytes is no definition of a mixture")
    document: Any
    try:
        text = data.decode("utf-8")
        document = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: cannot be read ({error}); correct it") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{file}: is no table of fields; docs/policies/hybrid.md has them")
    return read_definition(document, str(file))
