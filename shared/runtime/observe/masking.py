"""Settings as operators may see them: the values in force, with every secret masked.

Apart from the settings' machinery, because what shows them (the peer listener, a dump) need not know how they are read.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

MASK = "***"


def effective(settings: Any) -> dict[str, Any]:
    """The values in force as JSON-able nested dicts; secrets and passwords in URLs are masked."""
    result: dict[str, Any] = {}
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        if dataclasses.is_dataclass(value):
            result[item.name] = effective(value)
        elif item.metadata.get("secret") and value:
            result[item.name] = MASK
        else:
            result[item.name] = _plain(value)
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return re.sub(r"(://[^/\s:@]*:)[^@/\s]+@", rf"\1{MASK}@", value)
    if isinstance(value, Path):
        return str(value)
    return value
