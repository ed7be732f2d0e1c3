"""YAML bodies, read as Go's YAML library reads them.

Why: that library follows YAML 1.1 further than PyYAML (``y`` and ``n`` are booleans) and hands times on as strings.
"""

from __future__ import annotations

import re
from typing import Any

import yaml


class _GoLoader(yaml.SafeLoader):
    """SafeLoader with Go's idea of scalars."""


_GoLoader.yaml_implicit_resolvers = {
    first: [entry for entry in entries if entry[0] != "tag:yaml.org,2002:timestamp"]
    for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_GoLoader.bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}
_GoLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("[yYnN]$"), list("yYnN"))


def parse_yaml(raw: bytes) -> Any:
    """The document; ``ValueError`` when it does not parse."""
    try:
        return yaml.load(raw, Loader=_GoLoader)  # noqa: S506 - a subclass of SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(f"yaml: {error}") from None
