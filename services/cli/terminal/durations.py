"""A length of time as an option: ``90s``, ``10m``, ``1h``."""

from __future__ import annotations

import re
from typing import Any

import click

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
LONGEST_S = 366 * 86_400.0
_FORM = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhd]?)")


class SecondsType(click.ParamType[float]):
    """Seconds as a float."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds that ``value`` means."""
        if isinstance(value, int | float):
            return float(value)
        found = _FORM.fullmatch(str(value).strip())
        seconds = float(found[1]) * UNITS[found[2]] if found else -1.0
        if not 0 <= seconds <= LONGEST_S:
            self.fail(f"{value!r} is no duration; write 90s, 10m or 1h", param, ctx)
        return seconds


SECONDS = SecondsType()
